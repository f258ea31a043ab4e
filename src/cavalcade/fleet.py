"""The connection to Ray: a cluster by its address, or one of this machine alone that listens on loopback only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cavalcade.errors import ConfigError

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Without this, every service of Ray listens on all interfaces; with it, on loopback. Ray reads it when it is imported.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def import_ray(address: str = "") -> Any:
    """The module, imported so that what it starts without an address stays on this machine."""
    for name, value in (_QUIET if address else _QUIET | _LOOPBACK).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed: pip install 'cavalcade[ray]'") from None
    return ray


@contextmanager
def connected(address: str, cpus: int = 0) -> Iterator[Any]:
    """Ray, connected for the time of the block; a connection that is there already is used and left as it is.

    Without an address, a Ray of this machine is started, with so many CPUs or all, and ended afterwards.
    """
    ray = import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "cavalcade"}
    if address:
        options["address"] = address
    else:  # "local": not whatever Ray may be running here already
        options |= {"address": "local", "include_dashboard": False, "num_cpus": cpus or None}
        options["_node_ip_address"] = "127.0.0.1"
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"Ray cannot be reached at {address or 'this machine'}: {reason}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def total(ray: Any, kind: str) -> int:
    """How many CPUs or GPUs all living nodes have together."""
    return int(ray.cluster_resources().get(kind, 0))
