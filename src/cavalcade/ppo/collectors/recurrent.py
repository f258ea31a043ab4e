"""Recurrent policies that learn from fragments, which workers or Ray actors play while the learner learns.

States at the start of a segment, values and log-probabilities are those of the policy that played it; V-trace corrects
for what the policy has become since.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config.recurrent import RecurrentPPOConfig
from cavalcade.policy.recurrent import RecurrentNetwork
from cavalcade.ppo.collectors import recurrent_player
from cavalcade.ppo.collectors.collector import FragmentCollector
from cavalcade.ppo.collectors.recurrent_player import described, scaling_of, values_of
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.rows import RowEngine
from cavalcade.ppo.rollout import Episodes
from cavalcade.vector.fragments import Fragment, FragmentPlan
from cavalcade.vector.hosted import Hosted


class RecurrentFragmentEngine(RecurrentEngine):
    """The recurrent engine on fragments of hosted environments."""

    name = "recurrent, fragments"
    env: Hosted

    def __init__(
        self, env: Hosted, policy: RecurrentNetwork, config: RecurrentPPOConfig, *, staleness: int, **options: Any
    ):
        super().__init__(env, policy, config, **options)
        self._collector = FragmentCollector(env, self._plan(max(staleness, 1)), staleness)

    def _plan(self, limit: int) -> FragmentPlan:
        e, head, scaling = self.experience, self.head, self.env.source.shapes.actions.scaling
        inputs = sum(len(x) for x in scaling_of(self.policy)) // 2
        plain = {"network": described(self.policy), "head": head.kind, "sizes": head.sizes, "horizon": e.horizon}
        plain |= {"size": sum(p.numel() for p in self.policy.parameters()), "inputs": inputs}
        plain |= {"scaling": [x.tolist() for x in scaling] if scaling else None}
        more: dict[str, tuple[int, tuple[int, ...], str]] = {
            "value": (e.steps + 1, (), "float32"),
            "begins": (e.steps, (), "bool"),
        }
        more["bootstrap"] = (e.steps, (), "float32")
        if e.state:
            more["state"] = (e.steps // e.horizon, (len(e.state) * self.policy.width,), "float32")
        return FragmentPlan(e.steps, limit, plain, self._keys, recurrent_player.__name__, more)

    @property
    def ages(self) -> list[int]:
        """Ages of the fragments of the latest rollout, in updates."""
        return self._collector.ages

    def collect(self) -> Episodes:
        self._dropped = 0
        found = self._collector.collect(self.state.updates, values_of(self.policy), self._record, self.timer)
        self.state.counters[:, 0] += self.experience.steps
        return found

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        with self._collector.threads():
            return super().update(progress)

    def _record(self, place: int, f: Fragment) -> Episodes:
        """Writes a fragment into the experience at a worker's place; returns the episodes that ended in it."""
        e, x, rows = self.experience, f.fields, self.env.groups[place]
        b, h = e.results, e.horizon
        self._count_dropped(x["observation"][:-1])
        for s in range(e.steps // h):
            steps, to = slice(s * h, s * h + h), slice(s * e.agents + rows.start, s * e.agents + rows.stop)
            shown = torch.from_numpy(x["observation"][steps])
            e.observation[to].copy_(self.layout.cut(shown.flatten(0, 1)).unflatten(0, shown.shape[:2]).transpose(0, 1))
            for name, mine in (
                ("action_mask", e.mask),
                ("action", e.action),
                ("log_prob", e.log_prob),
                ("value", e.value),
            ):
                mine[to].copy_(torch.from_numpy(x[name][steps]).transpose(0, 1))
            e.begins[to] = x["begins"][steps].T
            for i, state in enumerate(e.state):
                width = state.shape[-1]
                state[0, to].copy_(torch.from_numpy(x["state"][s][:, i * width : (i + 1) * width]))
        ended = x["terminated"] | x["truncated"]
        b.reward[0, :, rows], b.ended[0, :, rows] = torch.from_numpy(x["reward"]), torch.from_numpy(ended)
        b.bootstrap[0, :, rows] = 0 if self.config.timeout_is_terminal else torch.from_numpy(x["bootstrap"])
        b.last_value[0, rows] = torch.from_numpy(np.where(ended[-1], np.float32(0), x["value"][-1]))
        return self._collector.track(f, ended, self.state, self.hyper, normalise=self.config.normalise_returns)

    def _count_returns(self) -> None:
        """Nothing: returns are counted with each fragment, since its place may be that of another worker."""

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        policy, rest = super().tensors()
        return policy, rest | self._collector.memory()

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        super().load_tensors(policy, rest)
        self._collector.load_memory(rest, self.state.clock)

    def finish(self) -> dict[str, NDArray]:
        """Also reports the age of the oldest fragment, in updates."""
        return super().finish() | self._collector.metrics()


class RowFragmentEngine(RecurrentFragmentEngine, RowEngine):
    """The recurrent engine on fragments of rows of values or pixels."""

    name = "recurrent rows, fragments"
