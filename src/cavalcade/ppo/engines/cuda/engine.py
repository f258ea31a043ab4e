"""PPO that never leaves its device: a rollout is one CUDA graph, an update another; the host reads after each of them.

What varies from update to update lies in tensors: learning rates, counters, seeds, who stopped early. Minibatches are
shares of the environments with all their steps, in a random order that is counted, not streamed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2.resident import ResidentCage2
from cavalcade.envs.contract import Environment
from cavalcade.errors import ConfigError, TrainingError
from cavalcade.launch import Launcher
from cavalcade.policy.mlp import NETS
from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.learner import network_for
from cavalcade.ppo.loss import Coefficients
from cavalcade.ppo.population import Hyper, LearnerState, load_into
from cavalcade.ppo.resident.experience import Packed
from cavalcade.ppo.resident.network import Network
from cavalcade.ppo.resident.sample import TERMS
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.timer import Timer
from cavalcade.ppo.update import adam_step

_HERE = "cavalcade.ppo.resident"
_ACTOR, _CRITIC = NETS
_NAMES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
TOO_LARGE = "games, networks or experience do not fit into the GPU; lower --num-envs, --update-steps or --policies"
_ON_HOST = ("counters",)  # what of the state stays on the host


class ResidentLearner:
    """Policies that learn in games on a device: the first N environments belong to policy 0, and so on."""

    name = "resident"

    def __init__(
        self,
        env: Environment,
        games: ResidentCage2,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        hyper: Hyper | None = None,
        precision: str = "fp32",
    ):
        check(config, games.horizon)
        self.env, self.games, self.config, self.seeds = env, games, config, tuple(seeds)
        self.device, self.hyper = games.device, hyper or Hyper.of(config, len(seeds))
        self.head, self.spec = network_for(env, config)
        self.timer = Timer()
        policies, n, steps = len(seeds), config.num_envs, config.update_steps
        self.action_keys, self.shuffle_keys = environment_keys(seeds, n), policy_keys(seeds)
        self.state = LearnerState.fresh(self.spec, seeds, n)
        for name, tensor in self.state.tensors().items():
            if name not in _ON_HOST:
                setattr(self.state, name, tensor.to(self.device))
        self._ends = [t for t in range(steps) if (t + 1) % min(games.horizon, steps) == 0]
        width = len(env.figure_names) if games.figures is not None else 0
        shape = (games.words.shape[1], games.mask_words.shape[1], len(self._ends), width)
        self.rollout = Packed.allocate(policies, steps, n, *shape, self.device)
        self._launch = Launcher(self.device, f"{_HERE}.loops", f"{_HERE}.kernels")
        self._tf32, self._kind = precision == "tf32", torch.bfloat16 if precision == "bf16" else torch.float32
        self._player = Network(self.spec, self.state.weights, n, self._kind)
        self._gradient, self._part = (torch.zeros_like(self.state.weights) for _ in range(2))
        self._graphs: dict[str, Any] = {}
        self._changed = False  # from outside
        self.notes: list[str] = []  # what happened and was dealt with, to be told once
        self._allocate()
        self._make_room()

    def _make_room(self) -> None:
        """Buffers of a minibatch, and a first gradient on them; if memory does not suffice, in smaller pieces."""
        c = self.config
        share, self._pieces = c.num_envs // c.minibatches, c.accumulate
        while True:
            try:
                self._allocate_minibatch()
                with _products(self._tf32):
                    self._minibatch(0, share)
                return
            except torch.OutOfMemoryError:
                if share % (2 * self._pieces):
                    raise TrainingError(TOO_LARGE) from None
                self._pieces *= 2
                self.__dict__.pop("_network", None)  # its memory is needed
                torch.cuda.empty_cache()
                self.notes = [f"out of memory: minibatches are computed in {self._pieces} pieces"]

    def _allocate_minibatch(self) -> None:
        """What is computed of a minibatch at a time."""
        c, policies = self.config, self.policies
        samples = c.update_steps * (c.num_envs // c.minibatches // self._pieces)
        zeros = self._zeros
        self._network = Network(self.spec, self.state.weights, samples, self._kind)
        self._words = zeros(policies, samples, self.games.words.shape[1], of=torch.int64)
        self._d_logits, self._d_values = zeros(policies, self.spec.padded_actions, samples), zeros(policies, 1, samples)
        self._terms = zeros(len(TERMS), policies, samples)

    def _allocate(self) -> None:
        """Everything else that kernels read and write."""
        c, zeros, policies, n = self.config, self._zeros, self.policies, self.config.num_envs

        def held(values: NDArray) -> Tensor:
            return torch.as_tensor(np.asarray(values, np.float32)).to(self.device)

        h = self.hyper
        self._order = torch.arange(n, device=self.device).repeat(policies, 1)
        self._sorted = zeros(policies, n, of=torch.int64)
        self._totals = zeros(policies, c.update_steps, n, of=torch.float64)
        self._clock, self._counter = zeros(policies, of=torch.int64), zeros(policies, of=torch.int64)
        self._rate, self._metrics = zeros(policies), zeros(len(_NAMES) + 1, policies)
        self._scale = torch.ones(policies, device=self.device)
        self._gamma, self._decay = held(h.gamma), held(h.gamma * h.gae_lambda)
        self._limit_kl, self._grad_clip = held(h.target_kl), held(h.grad_clip)
        self._coefficients = Coefficients(held(h.clip), held(h.value_coef), held(h.entropy_coef), held(h.value_clip))
        self._keys, self._orders = self._launch.moved(self.action_keys), self._launch.moved(self.shuffle_keys)

    def _zeros(self, *shape: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=of, device=self.device)

    @property
    def policies(self) -> int:
        """P."""
        return len(self.seeds)

    def set_threads(self, threads: int) -> None:
        """Threads make no difference here."""

    def collect(self) -> Ended:
        """Plays a rollout; returns the episodes that ended."""
        self.timer.skip()
        if self._changed:
            self._take_over()
        self._clock.copy_(self.state.counters[:, 0])
        self._run("rollout", self._rollout)
        self.games.played()
        self.state.counters[:, 0] += self.config.update_steps
        self.timer.lap("rollout")
        return self.episodes()

    def episodes(self) -> Ended:
        """The episodes that ended in the latest rollout, by policy and environment."""
        r = self.rollout
        over = r.ended[:, self._ends].cpu().numpy()
        p, end, e = np.nonzero(over)
        if not len(p):
            return Ended(p, e, p, np.zeros(0), p, np.zeros((0, r.figures.shape[-1])))
        at = (p, end, e)
        label, total, figures = (x.cpu().numpy()[at] for x in (r.labels, r.finals, r.figures))
        return Ended(p, e, label.astype(np.int64), total, np.full(len(p), self.games.horizon), figures)

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """Learns from the rollout; one read of metrics at the end."""
        self.timer.skip()
        rates = self.hyper.learning_rate * (1 - progress if self.config.schedule == "linear" else 1)
        self._rate.copy_(torch.as_tensor(np.asarray(rates, np.float32)), non_blocking=True)
        self._counter.copy_(self.state.counters[:, 1])
        self._run("update", self._update)
        self.state.counters[:, 1] += 1
        found = self._metrics.cpu().double().numpy()
        self.timer.lap("update")
        return dict(zip((*_NAMES, "grad_norm"), found, strict=True)) | {"learning_rate": np.asarray(rates)}

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Runs work: on a GPU once plainly, then recorded as a graph, then by replaying it."""
        with _products(self._tf32):
            if self.device.type != "cuda":
                work()
                return
            try:
                if name not in self._graphs:  # the first time compiles kernels and makes room
                    work()
                    self._graphs[name] = None
                    return
                if self._graphs[name] is None:
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        work()
                    self._graphs[name] = graph
            except torch.OutOfMemoryError:
                raise TrainingError(TOO_LARGE) from None
            self._graphs[name].replay()

    @torch.no_grad()
    def _rollout(self) -> None:
        """T steps: observe, decide, draw, step, book."""
        g, r, s = self.games, self.rollout, self.state
        n, shape, end = g.num_envs, (self.policies, self.config.num_envs), 0
        for t in range(self.config.update_steps):
            words, masks = g.words.view(*shape, -1), g.mask_words.view(*shape, -1)
            r.words[:, t], r.mask_words[:, t] = words, masks
            logits, values = self._seen(self._player, words)
            self._launch(
                "draw", n, g.mask_bits, self.spec.actions, logits, values, g.mask_words, self._keys, self._clock, t,
                g.actions, r.action, r.log_prob, r.value,
            )  # fmt: skip
            g.step()
            over = t in self._ends
            self._launch(
                "book", n, g.reward, g.truncated, t, end if over else -1, r.reward, r.ended, s.episode_return, r.finals
            )
            if over:
                self._finish(t, end)
                end += 1
        r.last_value.copy_(self._value(g.words.view(*shape, -1)))

    def _seen(self, network: Network, words: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of observations, (P, b, W)."""
        self.games.observe(words, network.x)
        network.load()
        return network.forward(_ACTOR).float(), network.forward(_CRITIC).float()

    def _value(self, words: Tensor) -> Tensor:
        """Values alone of one observation per environment, (P, N)."""
        self.games.observe(words, self._player.x)
        self._player.load()
        return self._player.forward(_CRITIC)[:, 0].float()

    def _finish(self, t: int, end: int) -> None:
        """What is known of episodes that end in step t: values of their last observations, and how they went."""
        g, r, shape = self.games, self.rollout, (self.policies, self.config.num_envs)
        r.labels[:, end] = g.red.view(shape)
        if g.figures is not None:
            r.figures[:, end] = g.figures.view(*shape, -1)
        if not self.config.horizon_ends:
            value = self._value(g.final_words.view(*shape, -1))
            r.bootstrap[:, t] = torch.where(g.truncated.view(shape), value, 0.0)

    @torch.no_grad()
    def _update(self) -> None:
        """Advantages, then epochs of minibatches; a policy past its KL limit sits out the rest."""
        c, s, n = self.config, self.state, self.config.num_envs
        self._advantages()
        self._metrics.zero_()
        steps = torch.zeros(self.policies, device=self.device)
        active = torch.ones(self.policies, dtype=torch.bool, device=self.device)
        share = n // c.minibatches
        for epoch in range(c.epochs):
            self._shuffle(epoch)
            for m in range(c.minibatches):
                terms = self._minibatch(m * share, share)
                terms = torch.where(active, terms, 0.0)
                steps += active
                active = active & ~((self._limit_kl > 0) & (terms[TERMS.kl] > 1.5 * self._limit_kl))
                norm = adam_step(
                    s.weights, self._gradient, s.first_moment, s.second_moment, s.adam_steps, self._rate,
                    self._grad_clip, active,
                )  # fmt: skip
                self._metrics += torch.cat([terms, norm.unsqueeze(0)])
        self._metrics /= steps

    def _shuffle(self, epoch: int) -> None:
        """A random order of each policy's environments; one minibatch has them all, in any order."""
        if self.config.minibatches > 1:
            self._launch("shuffle_key", self._sorted.numel(), self._orders, self._counter, epoch, self._sorted)
            self._order.copy_(self._sorted.argsort(dim=1))

    def _minibatch(self, first: int, share: int) -> Tensor:
        """Writes the gradient of a minibatch; returns the means of what its loss is made of, (5, P)."""
        if self._pieces == 1:
            return self._piece(first, share, self._gradient)
        self._gradient.zero_()
        size, means = share // self._pieces, []
        for i in range(self._pieces):
            means.append(self._piece(first + i * size, size, self._part))
            self._gradient += self._part / self._pieces
        return torch.stack(means).mean(0)

    def _piece(self, first: int, share: int, gradient: Tensor) -> Tensor:
        """The same for a piece of it."""
        r, samples = self.rollout, self._words.shape[1]
        chosen = self._order[:, first : first + share]
        index = chosen[:, None, :, None].expand(-1, r.words.shape[1], -1, r.words.shape[3])
        torch.gather(r.words, 2, index, out=self._words.view(*index.shape))
        logits, values = self._seen(self._network, self._words)
        self._launch(
            "loss", self.policies * samples, self.games.mask_bits, self.spec.actions, self._coefficients, samples,
            logits, values, self._order, first,
            r.mask_words.view(-1, r.mask_words.shape[3]), r.action, r.log_prob, r.value, r.advantage, r.returns,
            self._d_logits, self._d_values, self._terms,
        )  # fmt: skip
        self._network.backward(_ACTOR, self._d_logits, gradient)
        self._network.backward(_CRITIC, self._d_values, gradient)
        return self._terms.mean(2)

    def _advantages(self) -> None:
        """Advantages and value targets of the rollout."""
        r, s, n = self.rollout, self.state, self.games.num_envs
        if self.config.normalise_returns:
            gamma = self._gamma.double()
            self._launch("discount", n, r.reward, r.ended, gamma, s.return_sum, self._totals)
            count = float(self._totals[0].numel())
            square, mean = torch.var_mean(self._totals.flatten(1), dim=1, correction=0)
            total = s.return_count + count
            delta = mean - s.return_mean
            s.return_square += square * count + delta**2 * s.return_count * count / total
            s.return_mean += delta * count / total
            s.return_count.copy_(total)
            self._scale.copy_(1 / torch.sqrt(s.return_square / s.return_count + 1e-8))
        self._launch(
            "gae", n, r.reward, r.value, r.ended, r.bootstrap, r.last_value, self._scale, self._gamma, self._decay,
            r.advantage, r.returns,
        )  # fmt: skip
        if self.config.normalise_advantages:
            spread, mean = torch.std_mean(r.advantage, dim=(1, 2), keepdim=True)
            r.advantage.sub_(mean).div_(spread + 1e-8)

    def network(self) -> dict[str, Any]:
        """What a checkpoint says of the networks."""
        s = self.spec
        shape = {"inputs": s.inputs, "actions": s.actions, "hidden": s.hidden, "context": 0}
        return shape | {"head": self.head.kind, "sizes": self.head.sizes, "contexts": [[]] * self.policies}

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a checkpoint holds: the policies' weights by name, and everything else that learning changes."""
        self.before_change()
        steps = np.asarray(self.games.host.state.step, np.int64).reshape(self.policies, -1)
        self.state.episode_length.copy_(torch.from_numpy(steps))
        rest = {name: tensor.cpu() for name, tensor in self.state.tensors().items() if name != "weights"}
        return self.spec.parameters(self.state.weights.cpu()), rest

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        """Takes over what a checkpoint holds; nothing changes if it does not fit."""
        weights = self.spec.weights_from(policy, self.policies, torch.float32)
        load_into(self.state.tensors(), {"weights": weights, **rest})
        self.restore()

    def restore(self) -> None:
        """To be called after state, keys or games were changed from outside; the next rollout begins with them."""
        self._changed = True

    def _take_over(self) -> None:
        self._changed = False
        self.games.push()
        self._launch.copy(self.action_keys, self._keys)
        self._launch.copy(self.shuffle_keys, self._orders)

    def before_change(self) -> None:
        """To be called before games are changed from outside: brings them back into the batch."""
        if not self._changed:
            self.games.pull()

    def forget_games(self) -> None:
        """The games in progress are gone: new ones begin."""
        self.state.forget_games()


def check(config: PPOConfig, horizon: int) -> None:
    """Refuses what the resident learner has not."""
    for name, usual in (("replay", 0), ("normalise_observations", False), ("learner", "auto")):
        if getattr(config, name) != usual:
            raise ConfigError(f"{name} is {getattr(config, name)}; on a GPU there is no such thing, take --device cpu")
    if config.num_envs % (config.minibatches * config.accumulate):
        raise ConfigError(
            f"{config.num_envs} environments do not divide into {config.minibatches} minibatches × "
            f"{config.accumulate} pieces, as they must on a GPU; take --device cpu or another number"
        )
    if max(horizon, config.update_steps) % min(horizon, config.update_steps):
        raise ConfigError(
            f"update_steps is {config.update_steps} and horizon {horizon}; on a GPU one must be a multiple of the other"
        )


class _products:  # noqa: N801 — a context, used as a function
    """Products of float32 matrices in TF32 within the block, or in full."""

    def __init__(self, tf32: bool):
        self._wanted = "high" if tf32 else "highest"

    def __enter__(self):
        self._before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._wanted)

    def __exit__(self, *_):
        torch.set_float32_matmul_precision(self._before)
