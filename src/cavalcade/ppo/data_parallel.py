"""A learner as one rank of several: what is told of it, and what a checkpoint holds, is that of all of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, from_numpy

from cavalcade.envs.contract import Environment, EnvSpec, SavedState
from cavalcade.ppo.bptt.learner import BpttLearner
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.ranks import TorchRanks
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.trainer import Recorder

_BY_ENVIRONMENT = ("return_sum", "episode_return", "episode_length")  # tensors of the learner's state, (1, N)


class Counted(NamedTuple):
    """How far the ranks have come."""

    clock: int
    updates: int


class Snapshot(NamedTuple):
    """All ranks together after an update."""

    policy: dict[str, Tensor]
    rest: dict[str, Tensor]
    counted: Counted


class WholeEnvironment:
    """The environments of all ranks, as far as a record needs them."""

    def __init__(self, env: Environment, ranks: TorchRanks):
        self._env, self._ranks = env, ranks
        spec = env.spec
        self.spec = EnvSpec(spec.name, spec.num_envs * ranks.size, spec.observation_space, spec.action_space)
        self.label_names, self.figure_names, self.continues = env.label_names, env.figure_names, env.continues
        self.saved: SavedState = {}

    def save_state(self) -> SavedState:
        """The games of all ranks after the latest update."""
        return self.saved

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """This rank's share of saved games."""
        here = self._ranks.share(self.spec.num_envs, "num_envs")
        self._env.load_state({name: array[here] for name, array in saved.items()})

    def reset(self) -> None:
        """Begins episodes in this rank's environments."""
        self._env.reset()

    def close(self) -> None:
        """Ends this rank's environments."""
        self._env.close()


class ParallelLearner:
    """One rank's learner in the place of one that has all the environments."""

    def __init__(self, learner: Learner | BpttLearner, ranks: TorchRanks):
        self._learner, self._ranks = learner, ranks
        self.name, self.timer, self.hyper, self.policies = learner.name, learner.timer, learner.hyper, learner.policies
        self.env: Any = WholeEnvironment(learner.env, ranks)
        self._recorder: Recorder | None = None
        self._asked: Recorder | None = None
        self._snapshot: Snapshot | None = None

    def __getattr__(self, name: str) -> Any:
        """What only some learners have, e.g. notes."""
        return getattr(self._learner, name)

    @property
    def state(self) -> Counted:
        """As of the latest update that all ranks have made."""
        return self._snapshot.counted if self._snapshot else self._counted()

    def _counted(self) -> Counted:
        return Counted(self._learner.state.clock, self._learner.state.updates)

    def watched_by(self, recorder: Recorder, asked: Recorder) -> None:
        """`recorder` stops on all ranks after the update in which `asked` is asked to on one of them."""
        self._recorder, self._asked = recorder, asked

    def collect(self) -> Ended:
        """Plays; the episodes of all ranks."""
        ended = self._learner.collect()
        rows = np.column_stack([*(np.asarray(x, np.float64) for x in ended[:5]), ended.figures])
        rows[:, 1] += self._ranks.rank * self._learner.env.spec.num_envs
        found = self._ranks.gather_rows(rows)
        self.timer.lap("wait")
        policy, environment, label, length = (found[:, i].astype(np.int64) for i in (0, 1, 2, 4))
        return Ended(policy, environment, label, found[:, 3], length, found[:, 5:])

    def update(self, progress: float) -> dict[str, NDArray]:
        """Learns, then takes a picture of all ranks that a checkpoint can be made from, whoever is lost later."""
        metrics = self._learner.update(progress)
        self.snap()
        return metrics

    def snap(self) -> None:
        """Takes that picture; who is asked to stop says so in the same message."""
        policy, rest = self._learner.tensors()
        games = self._learner.env.save_state()
        stopping = np.array([self._asked is not None and self._asked.stopping])
        own = [rest[name].numpy() for name in _BY_ENVIRONMENT]
        (stops, *found) = self._ranks.gather(stopping, *own, *games.values())
        whole = zip(_BY_ENVIRONMENT, found, strict=False)
        state = {name: tensor.clone() for name, tensor in rest.items()}
        state |= {name: from_numpy(np.concatenate(parts, axis=1)) for name, parts in whole}
        self.env.saved = dict(zip(games, map(np.concatenate, found[len(own) :]), strict=True))
        copied = {name: tensor.clone() for name, tensor in policy.items()}
        self._snapshot = Snapshot(copied, state, self._counted())
        if self._recorder and any(stop[0] for stop in stops):
            self._recorder.stopping = True
        self.timer.lap("wait")

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a checkpoint holds."""
        assert self._snapshot
        return self._snapshot.policy, self._snapshot.rest

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        """This rank's share of what a checkpoint holds."""
        here = self._ranks.share(self.env.spec.num_envs, "num_envs")
        cut = {name: t[:, here].contiguous() if name in _BY_ENVIRONMENT else t for name, t in rest.items()}
        self._learner.load_tensors(policy, cut)

    def forget_games(self) -> None:
        """The games in progress are gone."""
        self._learner.forget_games()

    def network(self) -> dict[str, Any]:
        """What a checkpoint says of the networks."""
        return self._learner.network()

    def set_threads(self, threads: int) -> None:
        """CPU threads of learning."""
        self._learner.set_threads(threads)
