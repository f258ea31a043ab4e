"""Names of the statistics that the compiled simulator counts."""

from collections.abc import Sequence

COUNTS = ("action.noop.success", "action.move.success", "action.move.failed", "action.invalid_index",
          "status.max_steps_without_motion", "cell.max_distance_from_spawn", "cell.unique_visited")  # fmt: skip
NOOP, MOVED, FAILED, INVALID, STILL, FAR, UNIQUE = range(len(COUNTS))
COUNTED = ("amount", "gained", "lost", "deposited")  # of each resource


def counted(resources: Sequence[str]) -> tuple[str, ...]:
    """All statistics of a game with these resources."""
    return (*COUNTS, "action.failed", *(f"{name}.{what}" for name in resources for what in COUNTED))


def uncounted(resources: Sequence[str], stats: Sequence[str]) -> str:
    """The first statistic that is not counted, or nothing."""
    return next((name for name in stats if name not in counted(resources)), "")
