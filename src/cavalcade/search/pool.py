"""A population in which members come and go: a slot that is done gets its next member at the next update."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import SearchConfig
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.player import Player
from cavalcade.ppo.population import LearnerState, observation_scaling
from cavalcade.ppo.resident.learner import ResidentLearner
from cavalcade.ppo.resident.make import resident_device, resident_learner
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.threads import Watch, use_threads
from cavalcade.ppo.trainer import check_finite
from cavalcade.search.domains import make_environment
from cavalcade.search.members import Member
from cavalcade.workflow.compliance import FIGURES
from cavalcade.workflow.orders import Order

TAIL = 3  # episodes of every environment in a tail score
_TASK, _BONUS, _COMPLIANCE = (FIGURES.index(name) for name in ("task", "bonus", "compliance"))
_GAIN = 0.01  # of compliance that ends a plateau
# Rows of the learner's state that belong to a policy and not to games in progress.
_POLICY_ROWS = (
    "weights", "first_moment", "second_moment", "adam_steps", "return_count", "return_mean", "return_square",
    "observation_count", "observation_mean", "observation_square",
)  # fmt: skip
_OPTIMISER_ROWS = ("first_moment", "second_moment", "adam_steps")


@dataclass
class Slot:
    """A member in training."""

    member: Member
    updates: int = 0
    best: float = -1.0  # compliance so far
    since: int = 0  # updates since it got better
    latest: dict[str, float] = field(default_factory=dict)  # means over the episodes of its last update

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Slot":
        """A slot from plain data."""
        return cls(**{**plain, "member": Member(**plain["member"])})


def on_gpu(config: SearchConfig) -> bool:
    """Whether members train on a GPU."""
    fits = config.target == "cage2"
    return fits and resident_device(config.device, config.ppo, config.task.horizon)[0].type == "cuda"


class Pool:
    """Slots for members, trained together as one population."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order], slots: int, threads: int):
        self.config, self.orders, self._threads = config, orders, threads
        n = config.ppo.num_envs
        self.env = make_environment(config, slots * n, seed=list(range(slots)), threads=threads)
        self.env.reset()
        self.learner: Learner | ResidentLearner
        if on_gpu(config):
            device = torch.device("cuda")
            self.learner = resident_learner(self.env, config.ppo, list(range(slots)), device, config.precision)
            self.notes = [f"on {torch.cuda.get_device_name(device)}", *self.learner.notes]
        else:
            self.learner, self.notes = make_learner(self.env, config.ppo, list(range(slots)), parts=1)
        self.slots: list[Slot | None] = [None] * slots
        self.tail = np.full((slots, n, TAIL), np.nan)
        use_threads(threads)
        self._watch = Watch()

    @property
    def spec(self) -> MlpSpec:
        """The networks."""
        return self.learner.spec

    @property
    def busy(self) -> list[int]:
        """Slots with a member."""
        return [i for i, slot in enumerate(self.slots) if slot]

    def start(self, i: int, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Puts a member into a slot; stored: the policy it begins with."""
        n, learner = self.config.ppo.num_envs, self.learner
        learner.before_change()
        fresh = LearnerState.fresh(self.spec, [member.seed], n, learner.state.weights.dtype)
        for name, mine in learner.state.tensors().items():
            take = stored is not None and name in stored and (member.resume or name not in _OPTIMISER_ROWS)
            mine[i] = stored[name] if take and stored is not None else getattr(fresh, name)[0]
        learner.action_keys[i * n : (i + 1) * n] = environment_keys([member.seed], n)
        learner.shuffle_keys[i] = policy_keys([member.seed])[0]
        workflow = self.config.workflow
        self.env.assign(
            slice(i * n, (i + 1) * n),
            order=self.orders[member.order] if member.order >= 0 else None,
            seed=member.seed,
            shown=member.shown,
            alignment=workflow.alignment if member.aligned else "none",
            weight=workflow.alignment_lambda if member.aligned else 0.0,
        )
        learner.restore()
        self.slots[i] = Slot(member)
        self.tail[i] = np.nan

    def update(self) -> None:
        """One update of all members."""
        progress = np.array([slot.updates / slot.member.updates if slot else 1.0 for slot in self.slots])
        start = time.perf_counter()
        episodes = self.learner.collect()
        metrics = self.learner.update(progress)
        self._watch.lap(time.perf_counter() - start)
        check_finite(self.learner, metrics)
        self._remember(episodes)
        for i in self.busy:
            slot = self.slots[i]
            assert slot is not None
            slot.updates += 1
            here = episodes.policy == i
            slot.latest = _means(episodes, here) if here.any() else slot.latest
            if slot.latest.get("compliance", np.nan) > slot.best + _GAIN:
                slot.best, slot.since = slot.latest["compliance"], 0
            else:
                slot.since += 1

    def finished(self) -> list[tuple[int, str]]:
        """Slots whose member is done, and why."""
        found, c = [], self.config
        for i in self.busy:
            slot = self.slots[i]
            assert slot is not None
            if slot.updates >= slot.member.updates:
                found.append((i, "budget"))
            elif c.compliance_threshold and slot.latest.get("compliance", np.nan) >= c.compliance_threshold:
                found.append((i, "threshold"))
            elif c.patience and slot.since >= c.patience:
                found.append((i, "plateau"))
        return found

    def release(self, i: int) -> tuple[Slot, dict[str, Tensor]]:
        """Takes a member out of its slot, with its policy."""
        slot = self.slots[i]
        assert slot is not None
        self.slots[i] = None
        rows = self.learner.state.tensors()
        return slot, {name: rows[name][i].cpu().clone() for name in _POLICY_ROWS}

    def player(self, i: int) -> Player:
        """The policy of a slot at play."""
        shift, scale = observation_scaling(self.learner.state, self.config.ppo.normalise_observations)
        one = slice(i, i + 1)
        weights = self.learner.state.weights[one].cpu().numpy().copy()
        return Player(self.spec, weights, np.zeros((1, 0)), shift[one], scale[one])

    def tail_score(self, i: int) -> tuple[float, float]:
        """Mean and standard error of the last training episodes of a slot, task only."""
        kept = self.tail[i][~np.isnan(self.tail[i])]
        return (float(kept.mean()), float(kept.std(ddof=1) / len(kept) ** 0.5)) if len(kept) > 1 else (np.nan, np.nan)

    def resized(self, keep: Sequence[int], slots: int) -> "Pool":
        """A pool of another number of slots that goes on with these; this one is at its end."""
        n, keep = self.config.ppo.num_envs, list(keep)
        self.learner.before_change()
        other = Pool(self.config, self.orders, slots, self._threads)
        rows = np.array([row for i in keep for row in range(i * n, (i + 1) * n)], np.int64)
        if keep:
            other.env.load_state(self.env.save_state(rows), np.arange(len(rows)))
        for name, theirs in self.learner.state.tensors().items():
            getattr(other.learner.state, name)[: len(keep)] = theirs[keep]
        other.learner.action_keys[: len(rows)] = self.learner.action_keys[rows]
        other.learner.shuffle_keys[: len(keep)] = self.learner.shuffle_keys[keep]
        other.learner.restore()
        other.slots[: len(keep)] = [self.slots[i] for i in keep]
        other.tail[: len(keep)] = self.tail[keep]
        if not self.env.continues:
            other.learner.state.forget_games()
        self.env.close()
        return other

    def save(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, NDArray], dict[str, Any]]:
        """All of it: policies, learner, games, and the slots as plain data."""
        policy, rest = self.learner.tensors()
        rest = rest | {
            "action_keys": torch.from_numpy(self.learner.action_keys.view(np.int64)),
            "shuffle_keys": torch.from_numpy(self.learner.shuffle_keys.view(np.int64)),
        }
        slots = [asdict(slot) if slot else None for slot in self.slots]
        return policy, rest, self.env.save_state() | {"tail": self.tail}, {"slots": slots}

    def load(
        self,
        policy: Mapping[str, Tensor],
        rest: Mapping[str, Tensor],
        games: Mapping[str, NDArray],
        slots: list[Mapping[str, Any] | None],
    ) -> None:
        """Takes over what was saved from a pool of as many slots."""
        self.env.load_state(dict(games))
        self.learner.action_keys[:] = rest["action_keys"].numpy().view(np.uint64)
        self.learner.shuffle_keys[:] = rest["shuffle_keys"].numpy().view(np.uint64)
        self.learner.load_tensors(policy, rest)
        if not self.env.continues:
            self.learner.state.forget_games()
        self.tail[:] = games["tail"]
        self.slots = [Slot.from_plain(slot) if slot else None for slot in slots]

    def _remember(self, episodes: Ended) -> None:
        """Keeps the last returns of every environment."""
        for p, e, figures in zip(episodes.policy, episodes.environment, episodes.figures, strict=True):
            row = self.tail[p, e]
            row[:-1] = row[1:]
            row[-1] = figures[_TASK]


def _means(episodes: Ended, here: NDArray[np.bool_]) -> dict[str, float]:
    """Mean figures of the episodes of a slot; compliance over those where it is defined."""
    figures = episodes.figures[here]
    defined = figures[:, _COMPLIANCE][~np.isnan(figures[:, _COMPLIANCE])]
    return {
        "task": float(figures[:, _TASK].mean()),
        "bonus": float(figures[:, _BONUS].mean()),
        "total": float(episodes.total[here].mean()),
        "compliance": float(defined.mean()) if len(defined) else float("nan"),
    }
