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
from cavalcade.ppo.fused.blas import single_threaded_blas
from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.population import LearnerState, observation_scaling
from cavalcade.ppo.resident.learner import ResidentLearner
from cavalcade.ppo.resident.make import resident_device, resident_learner
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.threads import Watch, use_threads
from cavalcade.ppo.trainer import check_finite
from cavalcade.search.domains import make_environment
from cavalcade.search.members import Member
from cavalcade.search.scoring import Policies
from cavalcade.workflow.compliance import FIGURES
from cavalcade.workflow.orders import Order
from cavalcade.workflow.summary import COMPLIANCE, episode_means

TAIL = 3  # episodes of every environment in a tail score
_TASK = FIGURES.index("task")
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
        single_threaded_blas()
        n, nobody = config.ppo.num_envs, [0] * slots  # members bring seeds of their own
        self.env = make_environment(config, slots * n, seed=nobody, threads=threads)
        self.env.reset()
        self.learner: Learner | ResidentLearner
        if on_gpu(config):
            device = torch.device("cuda")
            self.learner = resident_learner(self.env, config.ppo, nobody, device, config.precision)
            self.notes = [f"on {torch.cuda.get_device_name(device)}", *self.learner.notes]
        else:
            self.learner, self.notes = make_learner(self.env, config.ppo, nobody, parts=1)
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
        self.env.assign(
            slice(i * n, (i + 1) * n),
            order=self.orders[member.order] if member.order >= 0 else None,
            seed=member.seed,
            shown=member.shown,
            **(self.config.workflow.binding if member.bound_by_order else {}),
        )
        learner.restore()
        self.slots[i] = Slot(member)
        self.tail[i] = np.nan

    def update(self) -> None:
        """One update of all members."""
        progress = np.array([slot.updates / slot.member.updates if slot else 1.0 for slot in self.slots])
        start = time.perf_counter()
        episodes = self.learner.collect()
        multipliers = self._adapt(episodes)
        metrics = self.learner.update(progress)
        self._watch.lap(time.perf_counter() - start)
        check_finite(self.learner, metrics)
        self._remember(episodes)
        means = episode_means(episodes.figures, self.env.figure_names, episodes.policy, len(self.slots))
        count = np.bincount(episodes.policy, minlength=len(self.slots))
        total = np.bincount(episodes.policy, weights=episodes.total, minlength=len(self.slots))
        for i in self.busy:
            slot = self.slots[i]
            assert slot is not None
            slot.updates += 1
            if count[i]:
                slot.latest = {name: float(column[i]) for name, column in means.items()}
                slot.latest |= {"total": float(total[i] / count[i]), "multiplier": float(multipliers[i])}
            if self.aligned(slot) > slot.best + _GAIN:
                slot.best, slot.since = self.aligned(slot), 0
            else:
                slot.since += 1

    def aligned(self, slot: Slot) -> float:
        """Compliance in a slot's latest update, by the measure of the configuration."""
        return slot.latest.get(COMPLIANCE[self.config.workflow.compliance], np.nan)

    def _adapt(self, episodes: Ended) -> NDArray:
        """Moves the cost of each member's violations by its compliance; returns them, not a number if none, (P,)."""
        w, policies = self.config.workflow, len(self.slots)
        if w.enforce != "lagrangian":
            return np.full(policies, np.nan)
        found = self.env.adapt_multipliers(episodes.policy, episodes.figures, policies, w.follow_threshold)
        if isinstance(self.learner, ResidentLearner):
            self.learner.games.push_weights()
        return found

    def finished(self) -> list[tuple[int, str]]:
        """Slots whose member is done, and why."""
        found, c = [], self.config
        for i in self.busy:
            slot = self.slots[i]
            assert slot is not None
            if slot.updates >= slot.member.updates:
                found.append((i, "budget"))
            elif c.compliance_threshold and self.aligned(slot) >= c.compliance_threshold:
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

    def policies(self, rows: Sequence[int]) -> Policies:
        """The policies of some slots."""
        shift, scale = observation_scaling(self.learner.state, self.config.ppo.normalise_observations)
        weights = self.learner.state.weights
        return Policies(self.spec, weights[torch.as_tensor(rows, device=weights.device)], shift[rows], scale[rows])

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
        place = episodes.policy * self.config.ppo.num_envs + episodes.environment
        tail, task = self.tail.reshape(-1, TAIL), episodes.figures[:, _TASK]
        while len(place):  # one episode of each environment at a time
            first = np.unique(place, return_index=True)[1]
            tail[place[first], :-1] = tail[place[first], 1:]
            tail[place[first], -1] = task[first]
            left = np.ones(len(place), np.bool_)
            left[first] = False
            place, task = place[left], task[left]
