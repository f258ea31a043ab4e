"""Perceptrons that learn from fragments: workers or Ray actors play with a copy of the policy while the learner learns.

Experience may be some updates old, at most `staleness`. V-trace corrects for it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.config.hosting import CollectorConfig
from cavalcade.core.errors import ConfigError
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.collectors.collector import FragmentCollector
from cavalcade.ppo.engines.cpu.engine import CpuEngine, why_not
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.engines.torch_device import TorchDeviceEngine
from cavalcade.ppo.loss import Minibatch
from cavalcade.ppo.off_policy import Remembered, off_policy
from cavalcade.ppo.returns import return_scale
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.state import observation_scaling
from cavalcade.vector.fragments import Fragment, FragmentPlan
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import Source

_CPU = torch.device("cpu")
_COPIED = {"action_mask": "mask", "action": "action", "log_prob": "log_prob", "reward": "reward"}  # into the rollout


class FragmentEngine(HostEngine):
    """An engine on fragments of hosted environments; the base of those that compute in torch and in kernels."""

    env: Hosted

    def __init__(
        self, env: Hosted, config: PPOConfig, seeds: list[int], *, staleness: int, vtrace: bool, **options: Any
    ):
        super().__init__(env, config, seeds, **options)
        if not isinstance(self.spec, MlpSpec) or self.policies > 1:
            raise ConfigError(f"staleness is {staleness}; workers act with one perceptron each, use --staleness 0")
        self._vtrace = vtrace
        plan = fragment_plan(self, env.source, max(staleness, 1))
        self._collector = FragmentCollector(env, plan, staleness)
        n, seen = config.num_envs, self.rollout.observation
        self.last = torch.zeros(1, n, seen.shape[-1], dtype=seen.dtype)  # observations after the last steps
        self._final, self._out_of_time = torch.zeros_like(seen), torch.zeros_like(self.rollout.ended)

    @property
    def ages(self) -> list[int]:
        """Ages of the fragments of the latest rollout, in updates."""
        return self._collector.ages

    def collect(self) -> Episodes:
        found = self._collector.collect(self.state.updates, policy_values(self), self._record, self.timer)
        self.state.counters[:, 0] += self.config.rollout_steps
        return found

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        with self._collector.threads():
            return super().update(progress)

    def _record(self, place: int, f: Fragment) -> Episodes:
        """Writes a fragment into the rollout at a worker's place; returns the episodes that ended in it."""
        r, rows, steps = self.rollout, self.env.groups[place], len(f.fields["reward"])
        for name, to in _COPIED.items():
            getattr(r, to)[0, :, rows] = torch.from_numpy(f.fields[name][:steps])
        seen = torch.from_numpy(f.fields["observation"])
        r.observation[0, :, rows], self.last[0, rows] = seen[:-1], seen[-1]
        ended = f.fields["terminated"] | f.fields["truncated"]
        late = f.fields["truncated"] & ~f.fields["terminated"]
        r.ended[0, :, rows], self._out_of_time[0, :, rows] = torch.from_numpy(ended), torch.from_numpy(late)
        if late.any():
            self._final[0, :, rows] = torch.from_numpy(f.fields["final_observation"])
        return self._collector.track(f, ended, self.state, self.hyper, normalise=self.config.normalise_returns)

    def _remembered(self) -> tuple[Remembered, Tensor]:
        """The fragments of this update as one rollout, and the values of final observations, (1, T, N)."""
        r, late = self.rollout, self._out_of_time
        parts = (r.observation, r.mask, r.action, r.log_prob, r.reward, r.ended)
        final = torch.zeros_like(r.value)
        if late.any():
            final[late] = self._evaluate(self._final[late][None])[1][0]
        return Remembered(*parts, self._final, late, self.last), final

    @torch.no_grad()
    def _evaluate(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of observations (1, b, O)."""
        shift, scale = (
            torch.as_tensor(x, dtype=self.dtype)
            for x in observation_scaling(self.state, self.config.normalise_observations)
        )
        x = (observation.to(self.dtype) - shift.unsqueeze(1)) * scale.unsqueeze(1)
        return self.spec.forward(self.state.weights, x, torch.as_tensor(self.context, dtype=self.dtype))

    def memory(self) -> dict[str, Tensor]:
        """Steps of each worker's environments, so that no random number is used twice."""
        return self._collector.memory()

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:
        """Continues after the steps of the furthest worker; the number of workers may have changed."""
        self._collector.load_memory(saved, self.state.clock)

    def finish(self) -> dict[str, NDArray]:
        """Also reports the age of the oldest fragment, in updates."""
        return super().finish() | self._collector.metrics()


class FragmentTorchEngine(FragmentEngine, TorchEngine):
    """The torch engine on fragments."""

    name = "torch, fragments"

    def _samples(self) -> list[Minibatch]:
        return [self._off_policy(*self._remembered(), self._vtrace)]


class FragmentCpuEngine(FragmentEngine, CpuEngine):
    """The compiled engine on fragments; the weights of V-trace are part of the advantages."""

    name = "cpu, fragments"

    def _advantages(self) -> None:
        r, h, dtype = self.rollout, self.hyper, self.dtype
        old, final = self._remembered()
        reward = r.reward.to(dtype)
        if self.config.normalise_returns:
            reward = reward * return_scale(self.state).to(dtype).view(-1, 1, 1)
        if self.config.timeout_is_terminal:
            final = torch.zeros_like(final)
        gamma, decay = (torch.as_tensor(x, dtype=dtype) for x in (h.gamma, h.gamma * h.gae_lambda))
        found = off_policy(self.head, self._evaluate, old, reward, final, gamma, decay, self._vtrace)
        r.log_prob.copy_(found.log_prob)
        r.value.copy_(found.value)
        r.returns.copy_(found.target)
        r.advantage.copy_(found.advantage)
        if self.config.normalise_advantages:
            self.ranks.normalise(r.advantage.numpy().reshape(self.policies, -1))
        r.advantage.mul_(found.weight)


class FragmentDeviceEngine(FragmentTorchEngine, TorchDeviceEngine):
    """The torch engine on fragments with its updates on a GPU."""

    name = "torch, fragments, device"


def fragment_engine(
    env: Hosted, config: PPOConfig, seeds: list[int], host: CollectorConfig, device: torch.device = _CPU
) -> FragmentEngine:
    """The fastest compatible engine on fragments; device: of the updates."""
    if config.replay:
        raise ConfigError(f"replay is {config.replay} with staleness {host.lag}; leave one of them out")
    given: dict[str, Any] = {"staleness": host.lag, "vtrace": host.vtrace}
    if device.type != "cpu":
        if config.engine == "cpu":
            raise ConfigError(f"engine is cpu with device {device.type}; leave one of them out")
        return FragmentDeviceEngine(env, config, seeds, device=device, **given)
    reason = why_not(env, config, distinct=False)
    if config.engine == "cpu" and reason:
        raise ConfigError(reason)
    if config.dedup == "on" and (why := why_not(env, config, distinct=True)):
        raise ConfigError(why)
    kind = FragmentTorchEngine if config.engine == "torch" or reason else FragmentCpuEngine
    return kind(env, config, seeds, **given)


def fragment_plan(engine: HostEngine, source: Source, limit: int) -> FragmentPlan:
    """What workers need to know to play with the policy of an engine; see `player.Perceptron`."""
    spec, head, scaling = engine.spec, engine.head, source.shapes.actions.scaling
    layers = [(x.fan_in, x.fan_out, x.columns, x.weight, x.bias) for x in spec.layers("actor")]
    plain = {"layers": layers, "head": head.kind, "sizes": head.sizes, "draws": head.draws, "inputs": spec.inputs}
    plain |= {"size": spec.size, "deviations": spec.size - spec.deviations}
    plain |= {"scaling": [x.tolist() for x in scaling] if scaling else None}
    return FragmentPlan(engine.config.rollout_steps, limit, plain, engine.action_keys)


def policy_values(engine: HostEngine) -> NDArray[np.float32]:
    """Weights, and shift and scale of observations, in one row."""
    scaling = observation_scaling(engine.state, engine.config.normalise_observations)
    return np.concatenate([engine.state.weights[0].numpy(), *(x[0] for x in scaling)], dtype=np.float32)
