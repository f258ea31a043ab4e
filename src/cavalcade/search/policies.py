"""Policies of a search, as ordinary policies that follow an order."""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.core.files import plain_json, read_text
from cavalcade.envs.cage2.env import extras_bits
from cavalcade.envs.cage2.observe import num_values
from cavalcade.envs.cage2.scenario import NUM_ACTIONS
from cavalcade.envs.cage2.workflow import ORDER_BITS
from cavalcade.policy.heads import Choice
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.returns import reward_scale
from cavalcade.ppo.state import scaling_from
from cavalcade.runs.files import SEARCH, SUMMARY
from cavalcade.search.config import SearchConfig
from cavalcade.search.directory import open_search
from cavalcade.search.domains import domain_of, subtasks_of
from cavalcade.search.members import ORDER, stored_as
from cavalcade.search.records import read_rows
from cavalcade.targets.cage2.shared import order_mask
from cavalcade.workflow.orders import one_hot
from cavalcade.workflow.summary import pooled_compliance

POLICIES = "policies"
BEST = "best"


def load_search_policy(path: str | Path, order: str = BEST, member: int | None = None) -> MlpPolicy:
    """Loads the policy of a search that follows an order, by name, or `best`.

    Best is the order that a finished search found; before, the followed one with the highest mean score. Of the
    trainings of an order, the one with the highest score is loaded; `member` selects another, by its number in
    search.csv. The policy's observation no longer includes the order, which is a constant now; the order's mask is
    applied to the observation.
    """
    path = Path(path)
    config = open_search(path).config()
    if not domain_of(config).portable:
        raise RunError(f"{path} is a search on {config.target}; only policies of CAGE-2 can be used elsewhere")
    if member is not None and order != BEST:
        raise ConfigError(f"order is {order!r} with member {member}, whose order is known; leave one of them out")
    rows = [row for row in read_rows(path) if row["kind"] == ORDER]
    if member is not None:
        rows = [row for row in rows if int(row["number"]) == member]
        if not rows:
            raise ConfigError(f"member is {member}; {path / SEARCH} has no training of an order with that number")
        text = rows[0]["order"]
    elif order == BEST:
        text = _found(path, rows) or _best_order(path, config, rows)
    else:
        text = _named(path, config, rows, order)
    chosen = max((row for row in rows if row["order"] == text), key=lambda row: float(row["score"]))
    return _load(path, config, chosen)


def _named(path: Path, config: SearchConfig, rows: list[dict[str, str]], order: str) -> str:
    subtasks = subtasks_of(config)
    text = subtasks.text(subtasks.parse(order))
    if not any(row["order"] == text for row in rows):
        raise ConfigError(f"order is {order!r}; {path} has not trained it, {BEST} takes the best that it has")
    return text


def _found(path: Path, rows: list[dict[str, str]]) -> str | None:
    """The best order in the summary of a finished search; None if there is none."""
    if not (path / SUMMARY).exists():
        return None
    try:
        best = plain_json(read_text(path / SUMMARY))["best"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / SUMMARY} cannot be read ({type(error).__name__}); restore it") from None
    return best if any(row["order"] == best for row in rows) else None


def _best_order(path: Path, config: SearchConfig, rows: list[dict[str, str]]) -> str:
    """The followed order with the highest mean score."""
    by_order: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_order.setdefault(row["order"], []).append(row)
    threshold = config.workflow.follow_threshold
    followed = {order: mine for order, mine in by_order.items() if not _compliance(mine) < threshold}
    if not followed:
        raise RunError(f"{path} has no order that was followed (compliance of at least {threshold:g}); name one")
    return max(followed, key=lambda order: float(np.mean([float(row["score"]) for row in followed[order]])))


def _compliance(rows: list[dict[str, str]]) -> float:
    """Compliance over all decisions of some trainings; NaN if none counted."""
    return pooled_compliance((float(row["compliance"]), float(row["counted"])) for row in rows if row["compliance"])


def _load(path: Path, config: SearchConfig, row: dict[str, str]) -> MlpPolicy:
    name = row["start"] if int(row["updates"]) == 0 else stored_as(int(row["number"]))
    file = path / POLICIES / f"{name}.safetensors"
    try:
        kept = load_file(file)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read ({type(error).__name__}); restore it") from None
    inputs = num_values(extras_bits(config.task.extras))
    spec = MlpSpec(inputs, NUM_ACTIONS, config.ppo.hidden, ORDER_BITS)
    if kept["weights"].shape != (spec.size,):
        raise RunError(f"{file} does not fit the settings of {path}; restore it")
    moments = [kept[f"observation_{part}"].numpy()[None] for part in ("count", "mean", "square")]
    shift, scale = scaling_from(*moments, normalise=config.ppo.normalise_observations)
    order = subtasks_of(config).parse(row["order"])
    context = ((one_hot(order) - shift[0, inputs:]) * scale[0, inputs:])[None]
    weights = kept["weights"].numpy()[None]
    rewards = reward_scale(kept, normalise=config.ppo.normalise_returns)
    parts = (weights, context, shift[:, :inputs], scale[:, :inputs], rewards)
    mask = order_mask(row["order"], config.workflow)
    return MlpPolicy(
        file, config, int(row["updates"]), Choice(NUM_ACTIONS), spec, *parts, order=row["order"], mask=mask
    )
