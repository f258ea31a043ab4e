"""Options and settings that had another name in 0.1; they keep working for one release."""

from collections.abc import Iterable, Sequence
from typing import Any

_ENGINES = {"auto": "auto", "fused": "cpu", "torch": "torch"}
_DEDUP = {"auto": "auto", "distinct": "on", "plain": "off"}
_NAMES = {
    "update_steps": "rollout_steps",
    "accumulate": "grad_accum",
    "horizon_ends": "timeout_is_terminal",
    "keep": "keep_checkpoints",
    "correction": "vtrace",
    "together": "parallel_orders",
    "replay_every": "record_every",
    "extras": "auxiliary",
}
_VALUES = {
    "rows": ("dedup", _DEDUP),
    "learner": ("engine", _ENGINES),
}
_LAG = ("staleness", "vtrace", "correction")
# One word stood for several things: what it means now depends on the value.
_MEANINGS = {
    ("engine", "local"): "executor",
    ("engine", "ray"): "executor",
    ("engine", "cavalcade"): "simulator",
    ("engine", "cyborg"): "simulator",
}


def setting(name: str, value: Any) -> tuple[str, Any]:
    """A setting under its present name; as it is if it was not renamed."""
    if name in _VALUES:
        new, values = _VALUES[name]
        return new, values.get(value, value)
    if isinstance(value, str) and (name, value) in _MEANINGS:
        return _MEANINGS[name, value], value
    return _NAMES.get(name, name), value


def moved(plain: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Settings of a run with those that belong to a group now; they had an effect with backend ray only."""
    lag = {_NAMES.get(name, name): plain[name] for name in _LAG if name in plain}
    if not lag or "host" not in known or "staleness" in known:
        return plain
    rest, host = {name: value for name, value in plain.items() if name not in _LAG}, plain.get("host", {})
    return rest | {"host": lag | host} if host.get("backend") == "ray" else rest


def options(args: list[str]) -> list[str]:
    """Arguments of a command with present names: --name value, --name=value, --no-name."""
    found, i = [], 0
    while i < len(args):
        arg, i = args[i], i + 1
        if not arg.startswith("--") or arg == "--extras" or arg.startswith("--extras="):  # observation extras stay
            found.append(arg)
            continue
        flag, sign, value = arg[2:].partition("=")
        no = flag.startswith("no-")
        name = flag.removeprefix("no-").replace("-", "_")
        if not sign and i < len(args) and (name in _VALUES or (name, args[i]) in _MEANINGS):
            value, i = args[i], i + 1
            new, value = setting(name, value)
            found += [f"--{new.replace('_', '-')}", value]
            continue
        new, value = setting(name, value)
        found.append(f"--{'no-' * no}{new.replace('_', '-')}{sign}{value}" if new != name else arg)
    return found


def notices(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """What to tell users whose command has old names; now: what `options` made of it."""
    return [
        f"{old.partition('=')[0]} is called {new.partition('=')[0]} now; the old name goes in 0.3"
        for old, new in zip(before, now, strict=True)
        if old != new and old.startswith("--")
    ]
