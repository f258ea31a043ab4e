"""The kernels of the CUDA engine as functions with typed arguments; loops over the same rules on the CPU."""

from typing import Any

import torch
from torch import Tensor

from cavalcade.core.launch import Launcher
from cavalcade.ppo.engines.cuda.row_loss import GROUP, Experience, Sorted
from cavalcade.ppo.engines.cuda.sample import TOGETHER, Returned
from cavalcade.ppo.objective import Coefficients

_CHUNKS, _LEAST_SAMPLES, _MOST_TURNS = 3072, 4, 4
_BLOCKS = 4  # on the CPU
_WIDE = 512  # threads of a block that computes networks
Array = Any  # a NumPy or Numba array in the memory of the device


class Ops(Launcher):
    """One method per kernel. `count`: of environments, samples, chunks or weights. Shapes: see the modules of rules."""

    def __init__(self, device: torch.device):
        super().__init__(device)
        if self.on_gpu:
            from cavalcade.ppo.engines.cuda import kernels as made
        else:
            from cavalcade.ppo.engines.cuda import loops as made
        self._made: Any = made
        self.lanes: int = made.LANES.count  # that share a row of logits
        # Blocks that a device runs at once.
        self.blocks = torch.cuda.get_device_properties(device).multi_processor_count if self.on_gpu else _BLOCKS

    def keep(self, count: int, t: int, end: int, x: Returned) -> None:
        """Keeps what games show before step t, and what step t − 1 brought."""
        self(self._made.keep, count, t, end, x)

    def unpack(self, words: Tensor, places: Tensor, x: Tensor) -> None:
        """Observations as values, features first, for each net."""
        policies, _, count, b = x.shape
        self(self._made.unpack, policies * -(-count // TOGETHER) * b, words, places, x)

    def find(
        self, count: int, t: int, end: int, x: Returned, slots: Tensor, fresh: Tensor, num_fresh: Tensor, row: Tensor
    ) -> None:
        """As `keep`; finds the sample that each environment shares its observation with, and those that are new."""
        self(self._made.find, count, t, end, x, slots, fresh, num_fresh, row)

    def evaluate(
        self, blocks: int, layers: Tensor, weights: Tensor, words: Tensor, places: Tensor, t: int, steps: int,
        fresh: Tensor, num_fresh: Tensor, logits: Tensor, values: Tensor,
    ) -> None:  # fmt: skip
        """Logits and values of new observations."""
        self(self._made.evaluate, blocks, layers, weights, words, places, t, steps, fresh, num_fresh, logits, values,
             lanes=_WIDE, threads=_WIDE)  # fmt: skip

    def draw(
        self, count: int, bits: Tensor, actions: int, logits: Tensor, values: Tensor, row: Tensor, masks: Tensor,
        keys: Array, clock: Tensor, t: int, chosen: Tensor, action: Tensor, log_prob: Tensor, value: Tensor,
        mask: Tensor,
    ) -> None:  # fmt: skip
        """Draws actions and records them as step t."""
        self(self._made.draw, count, bits, actions, logits, values, row, masks, keys, clock, t, chosen, action,
             log_prob, value, mask, lanes=self.lanes)  # fmt: skip

    def greedy(self, count: int, bits: Tensor, actions: int, logits: Tensor, masks: Tensor, chosen: Tensor) -> None:
        """Takes the greedy actions."""
        self(self._made.greedy, count, bits, actions, logits, masks, chosen, lanes=self.lanes)

    def discount(
        self, count: int, rewards: Tensor, ended: Tensor, gamma: Tensor, running: Tensor, totals: Tensor
    ) -> None:
        """Discounted returns so far, of every step."""
        self(self._made.discount, count, rewards, ended, gamma, running, totals)

    def shuffle_key(self, count: int, keys: Array, counter: Tensor, epoch: int, out: Tensor) -> None:
        """A random number per environment: sorting by it shuffles them."""
        self(self._made.shuffle_key, count, keys, counter, epoch, out)

    def row_key(self, count: int, words: Tensor, samples: int, bits: int, keys: Tensor) -> None:
        """Sort keys of samples: equal observations have equal keys."""
        self(self._made.row_key, count, words, samples, bits, keys)

    def begins(self, count: int, order: Tensor, words: Tensor, samples: int, found: Tensor) -> None:
        """Marks the sorted samples that begin a row."""
        self(self._made.begins, count, order, words, samples, found)

    def minibatch_of(self, count: int, order: Tensor, place: Tensor, share: int, steps: int, found: Tensor) -> None:
        """The minibatch of each sorted sample."""
        self(self._made.minibatch_of, count, order, place, share, steps, found)

    def begins_again(
        self, count: int, position: Tensor, row: Tensor, order: Tensor, b: int, sample: Tensor, found: Tensor
    ) -> None:
        """Takes the samples of all minibatches, and marks those that begin a row there."""
        self(self._made.begins_again, count, position, row, order, b, sample, found)

    def row_number(self, count: int, counted: Tensor, b: int, row: Tensor) -> None:
        """The row of each sample in its minibatch and policy."""
        self(self._made.row_number, count, counted, b, row)

    def take_row(self, count: int, s: Sorted, first: int, b: int, words: Tensor, found: Tensor) -> None:
        """The observation of each row of a minibatch."""
        self(self._made.take_row, count, s, first, b, words, found)

    def chunk_size(self, samples: int) -> int:
        """Samples of a chunk: enough chunks to keep a GPU busy, not more, as their parts have to be joined.

        A share of the lanes, or a few times all of them.
        """
        wanted, size = samples // _CHUNKS, min(_LEAST_SAMPLES, self.lanes)
        while 2 * size <= min(wanted, self.lanes):
            size *= 2
        return size * min(max(wanted // size, 1), _MOST_TURNS)

    def row_loss(
        self, policies: int, actions: int, b: int, size: int, c: Coefficients, first: int, s: Sorted, x: Experience,
        logits: Tensor, values: Tensor, d_logits: Tensor, d_values: Tensor, parts: Tensor, sums: Tensor, terms: Tensor,
    ) -> None:  # fmt: skip
        """The loss of a minibatch and its gradient with respect to the networks' outputs."""
        chunks, columns = policies * -(-b // size), (actions + self.lanes) // self.lanes
        groups = policies * -(-b // (size * GROUP))
        self(self._made.chunk, chunks, actions, b, size, c, first, s, x, logits, values, d_logits, d_values, parts,
             terms, lanes=self.lanes)  # fmt: skip
        self(self._made.gather, groups * columns, actions, b, size, first, s, parts, sums, lanes=self.lanes)
        self(self._made.join, chunks * columns, actions, b, size, first, s, parts, sums, d_logits, d_values,
             lanes=self.lanes)  # fmt: skip

    def adam(
        self, count: int, weights: Tensor, gradient: Tensor, first: Tensor, second: Tensor, steps: Tensor,
        rates: Tensor, limits: Tensor, norms: Tensor, active: Tensor,
    ) -> None:  # fmt: skip
        """One step of Adam for the active policies."""
        self(self._made.adam, count, weights, gradient, first, second, steps, rates, limits, norms, active)

    def gae(
        self, count: int, reward: Tensor, value: Tensor, ended: Tensor, bootstrap: Tensor, last_value: Tensor,
        scale: Tensor, gamma: Tensor, decay: Tensor, advantage: Tensor, returns: Tensor,
    ) -> None:  # fmt: skip
        """Generalised advantage estimation."""
        self(self._made.gae, count, reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage,
             returns)  # fmt: skip
