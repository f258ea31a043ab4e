"""A population with slots for members; a free slot gets its next member at the next update."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.threads import ThreadGovernor, use_threads
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engine import PopulationEngine
from cavalcade.ppo.engines.cpu.blas import single_threaded_blas
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.snapshot import Snapshot, select
from cavalcade.ppo.state import EngineState, observation_scaling
from cavalcade.ppo.trainer import advance
from cavalcade.search.config import SearchConfig
from cavalcade.search.domains import domain_of, make_environment
from cavalcade.search.members import Member
from cavalcade.search.scoring import Policies
from cavalcade.targets.cage2.gpu import cuda_device, cuda_engine
from cavalcade.workflow.compliance import EPISODE_STATS
from cavalcade.workflow.orders import Order
from cavalcade.workflow.summary import COMPLIANCE, episode_means

TAIL = 3  # episodes of every environment in a tail score
_TASK = EPISODE_STATS.index("task")
_GAIN = 0.01  # of compliance that ends a plateau
# Parts of the engine's state that belong to a policy, not to games in progress.
_POLICY_ROWS = (
    "weights", "first_moment", "second_moment", "adam_steps", "return_count", "return_mean", "return_square",
    "observation_count", "observation_mean", "observation_square",
)  # fmt: skip
_OPTIMISER_ROWS = ("first_moment", "second_moment", "adam_steps")


class SavedPool(NamedTuple):
    """State of trainings in progress, for a checkpoint."""

    snapshot: Snapshot
    info: dict[str, Any]


@dataclass
class Slot:
    """A member in training."""

    member: Member
    updates: int = 0
    best: float = -1.0  # best compliance so far
    since: int = 0  # updates since it improved
    latest: dict[str, float] = field(default_factory=dict)  # means over the episodes of its last update

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Slot":
        return cls(**{**plain, "member": Member(**plain["member"])})


def on_gpu(config: SearchConfig) -> bool:
    """Whether members train on a GPU."""
    fits = domain_of(config).gpu
    return fits and cuda_device(config.device, config.ppo, config.task)[0].type == "cuda"


class Pool:
    """Slots for members, trained as one population."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order], slots: int, threads: int):
        self.config, self.orders, self._threads = config, orders, threads
        single_threaded_blas()
        n, nobody = config.ppo.num_envs, [0] * slots  # members bring their own seeds
        self.env = make_environment(config, slots * n, seed=nobody, threads=threads)
        self.env.reset()
        self.learner: PopulationEngine
        if on_gpu(config):
            device = torch.device("cuda")
            self.learner = cuda_engine(self.env, config.ppo, nobody, device, config.precision)
            self.notes = [f"on {torch.cuda.get_device_name(device)}", *self.learner.notes]
        else:
            self.learner, self.notes = make_engine(self.env, config.ppo, nobody, parts=1)
        self.slots: list[Slot | None] = [None] * slots
        self.tail = np.full((slots, n, TAIL), np.nan)
        use_threads(threads)
        self._governor = ThreadGovernor()

    @property
    def spec(self) -> MlpSpec:
        return self.learner.spec

    @property
    def busy(self) -> list[int]:
        """Slots with a member."""
        return [i for i, slot in enumerate(self.slots) if slot]

    def start(self, i: int, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Puts a member into a slot; stored: its initial policy."""
        n, learner = self.config.ppo.num_envs, self.learner
        learner.fetch_games()
        fresh = EngineState.fresh(self.spec, [member.seed], n, learner.state.weights.dtype)
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
        learner.refresh()
        self.slots[i] = Slot(member)
        self.tail[i] = np.nan

    def update(self) -> None:
        """One update of all members."""
        progress = np.array([slot.updates / slot.member.updates if slot else 1.0 for slot in self.slots])
        episodes, adapted = advance(self.learner, progress, self._governor, self._adapt)
        multipliers = adapted.get("multiplier", np.full(len(self.slots), np.nan))
        self._remember(episodes)
        means = episode_means(episodes.episode_stats, self.env.episode_stat_names, episodes.policy, len(self.slots))
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
        """Compliance in a slot's latest update, by the configured measure."""
        return slot.latest.get(COMPLIANCE[self.config.workflow.compliance], np.nan)

    def _adapt(self, episodes: Episodes) -> dict[str, NDArray]:
        """Adapts each member's cost of violations to its compliance, with enforce lagrangian."""
        w, policies = self.config.workflow, len(self.slots)
        if w.enforce != "lagrangian":
            return {}
        found = self.env.adapt_multipliers(episodes.policy, episodes.episode_stats, policies, w.follow_threshold)
        self.learner.push_reward_weights()
        return {"multiplier": found}

    def finished(self) -> list[tuple[int, str]]:
        """Slots whose member has finished, and why."""
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
        """Removes a member from its slot; returns it with its policy."""
        slot = self.slots[i]
        assert slot is not None
        self.slots[i] = None
        rows = self.learner.state.tensors()
        return slot, {name: rows[name][i].cpu().clone() for name in _POLICY_ROWS}

    def policies(self, rows: Sequence[int]) -> Policies:
        """Policies of some slots."""
        shift, scale = observation_scaling(self.learner.state, self.config.ppo.normalise_observations)
        weights = self.learner.state.weights
        return Policies(self.spec, weights[torch.as_tensor(rows, device=weights.device)], shift[rows], scale[rows])

    def tail_score(self, i: int) -> tuple[float, float]:
        """Mean and standard error of the last training episodes of a slot, task reward only."""
        kept = self.tail[i][~np.isnan(self.tail[i])]
        return (float(kept.mean()), float(kept.std(ddof=1) / len(kept) ** 0.5)) if len(kept) > 1 else (np.nan, np.nan)

    def resized(self, keep: Sequence[int], slots: int) -> "Pool":
        """A pool with another number of slots that continues the slots in `keep`; closes this one."""
        n, keep = self.config.ppo.num_envs, list(keep)
        whole = self.learner.snapshot()
        other = Pool(self.config, self.orders, slots, self._threads)
        rows = np.array([row for i in keep for row in range(i * n, (i + 1) * n)], np.int64)
        other.learner.restore_rows(select(whole, keep, rows), len(keep))
        other.learner.action_keys[: len(rows)] = self.learner.action_keys[rows]
        other.learner.shuffle_keys[: len(keep)] = self.learner.shuffle_keys[keep]
        other.slots[: len(keep)] = [self.slots[i] for i in keep]
        other.tail[: len(keep)] = self.tail[keep]
        self.env.close()
        return other

    def save(self) -> SavedPool:
        """Complete state: the engine's snapshot with random keys and tails, and the slots as plain data."""
        whole = self.learner.snapshot()
        keys = {
            "action_keys": torch.from_numpy(self.learner.action_keys.view(np.int64)),
            "shuffle_keys": torch.from_numpy(self.learner.shuffle_keys.view(np.int64)),
        }
        games = {**whole.games, "tail": self.tail}
        slots = [asdict(slot) if slot else None for slot in self.slots]
        return SavedPool(whole._replace(learner={**whole.learner, **keys}, games=games), {"slots": slots})

    def load(self, saved: SavedPool) -> None:
        """Loads a saved state; the number of slots must be the same."""
        learner, games = saved.snapshot.learner, dict(saved.snapshot.games)
        self.tail[:] = games.pop("tail")
        self.learner.action_keys[:] = learner["action_keys"].numpy().view(np.uint64)
        self.learner.shuffle_keys[:] = learner["shuffle_keys"].numpy().view(np.uint64)
        self.learner.restore(saved.snapshot._replace(games=games))
        self.slots = [Slot.from_plain(slot) if slot else None for slot in saved.info["slots"]]

    def _remember(self, episodes: Episodes) -> None:
        """Keeps the last returns of every environment."""
        place = episodes.policy * self.config.ppo.num_envs + episodes.environment
        tail, task = self.tail.reshape(-1, TAIL), episodes.episode_stats[:, _TASK]
        while len(place):  # one episode of each environment at a time
            first = np.unique(place, return_index=True)[1]
            tail[place[first], :-1] = tail[place[first], 1:]
            tail[place[first], -1] = task[first]
            left = np.ones(len(place), np.bool_)
            left[first] = False
            place, task = place[left], task[left]
