"""The connection to Ray: a cluster by address, or a local instance that listens on loopback only."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cavalcade.core.errors import ConfigError

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # with Ray's own low priority, workers starve beside any busy process
}
# Ray's services listen on all interfaces unless this is 0, then on loopback. Ray reads it when it is imported.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_ON_LOOPBACK = ("", "127.0.0.1", "localhost")
_users: dict[str, int] = {}  # number of users of the connection, by address


def import_ray(address: str = "") -> Any:
    """The ray module, imported so that an instance started without an address is reachable from this machine only."""
    here = address.rpartition(":")[0] in _ON_LOOPBACK and address != "auto"
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if here:
        os.environ.setdefault(_LOOPBACK, "0")  # for the processes that Ray starts …
    try:
        import ray
        from ray._private import ray_constants
    except ImportError:
        raise ConfigError("Ray is not installed: pip install 'cavalcade[ray]'") from None
    if here:
        ray_constants.ENABLE_RAY_CLUSTER = False  # … and here, if it was imported before
    return ray


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected until the last user of the connection leaves.

    Without an address, the existing connection is used, or a local instance is started. A connection made outside this
    module is used and not closed.
    """
    ray = import_ray(address)
    if not _users and ray.is_initialized():
        yield ray
        return
    if _users:
        (there,) = _users
        if address not in ("", there):
            raise ConfigError(f"ray_address is {address}; this process is connected to {there or 'a local instance'}")
        address = there
    else:
        _connect(ray, address)
    _users[address] = _users.get(address, 0) + 1
    try:
        yield ray
    finally:
        _users[address] -= 1
        if not _users[address]:
            del _users[address]
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "cavalcade"}
    if address:
        options["address"] = address
    else:  # "local": never an instance that is already running on this machine
        options |= {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        _knock(address)
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"Ray cannot be reached at {address or 'this machine'}: {reason}") from None


def _knock(address: str) -> None:
    """Raises if nothing listens at host:port; Ray itself would retry for many minutes."""
    host, sign, port = address.rpartition(":")
    if sign and "/" not in host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ConnectionError(error.strerror or str(error)) from None


def last_line(error: Exception) -> str:
    """The last line of a Ray error: the message that follows the remote traceback."""
    return str(error).strip().splitlines()[-1]


def total(ray: Any, kind: str) -> int:
    """CPUs or GPUs of all live nodes together."""
    return int(ray.cluster_resources().get(kind, 0))
