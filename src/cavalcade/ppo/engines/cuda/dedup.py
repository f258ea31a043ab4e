"""Distinct observations of a rollout on a device, and the minibatches of an update in their order; see `rows`."""

import torch
from torch import Tensor

from cavalcade.ppo.engines.cuda.ops import Array, Ops
from cavalcade.ppo.engines.cuda.rollout import PackedRollout
from cavalcade.ppo.engines.cuda.row_loss import Sorted


class SortedSamples:
    """The samples of every epoch, minibatch by minibatch and policy by policy, sorted by observation.

    parts: pieces that each epoch is cut into, equal shares of the environments with all their steps. Without
    `distinct`, every sample is a row of its own.
    """

    def __init__(self, ops: Ops, rollout: PackedRollout, epochs: int, parts: int, *, distinct: bool):
        self._ops, self._distinct, self._parts = ops, distinct, parts
        self.policies, self.steps, self._n = rollout.action.shape
        self._words = rollout.words.flatten(0, 2)
        self.total = total = rollout.action.numel()
        self.size = total // (self.policies * parts)  # samples per part and policy
        device = rollout.action.device

        def integers(*shape: int, of: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=of, device=device)

        self._epochs = epochs if parts > 1 else 1  # one part is the same in every epoch
        self._sample, self._row = integers(self._epochs, total), integers(self._epochs, total)
        self._keys, self._marks = integers(total, of=torch.int64), integers(total)
        self._random, self._place = (integers(self._epochs, self.policies, self._n, of=torch.int64) for _ in range(2))
        self._ranks = torch.arange(self._n, device=device).expand(self._place.shape)
        self._part = integers(total, of=torch.uint8 if parts <= 256 else torch.int32)
        self._index = torch.arange(total, device=device)
        self.counts = integers(2)  # rows: the most of a part and policy, and those of the rollout

    def find(self, keys: Array, counter: Tensor) -> None:
        """Sorts the rollout and deals the samples of all epochs; keys, counter: of the shuffles, see `shuffle_key`."""
        order, row = self._sort()
        self.counts.zero_()
        self.counts[1:] = row[-1:]
        if self._parts > 1:
            self._shuffle(keys, counter)
        for epoch in range(self._epochs):
            self._deal(epoch, order, row, self._chosen(epoch, order))

    def of(self, epoch: int) -> Sorted:
        """The samples of an epoch."""
        at = epoch % self._epochs
        return Sorted(self._sample[at], self._row[at])

    def _sort(self) -> tuple[Tensor, Tensor]:
        """Indices of the samples in sorted order, and the row of each, counted over all policies."""
        if not self._distinct:
            return self._index, self._index.int() + 1
        samples = self.total // self.policies
        self._ops.row_key(self.total, self._words, samples, (self.policies - 1).bit_length(), self._keys)
        order = torch.sort(self._keys, stable=True).indices
        self._ops.begins(self.total, order, self._words, samples, self._marks)
        return order, torch.cumsum(self._marks, 0, dtype=torch.int32)

    def _shuffle(self, keys: Array, counter: Tensor) -> None:
        """Gives every environment a random place in each epoch."""
        for epoch, random in enumerate(self._random):
            self._ops.shuffle_key(random.numel(), keys, counter, epoch, random)
        self._place.scatter_(2, self._random.argsort(dim=2), self._ranks)

    def _chosen(self, epoch: int, order: Tensor) -> Tensor:
        """Positions of the samples of each part in the sorted order, part after part."""
        if self._parts == 1:
            return self._index
        share = self._n // self._parts
        self._ops.minibatch_of(self.total, order, self._place[epoch], share, self.steps, self._part)
        return torch.sort(self._part, stable=True).indices

    def _deal(self, epoch: int, order: Tensor, row: Tensor, position: Tensor) -> None:
        """Numbers the rows of each part and policy."""
        self._ops.begins_again(self.total, position, row, order, self.size, self._sample[epoch], self._marks)
        counted = torch.cumsum(self._marks, 0, dtype=torch.int32)
        self._ops.row_number(self.total, counted, self.size, self._row[epoch])
        most = self._row[epoch].view(-1, self.size)[:, -1].amax(0, keepdim=True) + 1
        self.counts[:1] = torch.maximum(self.counts[:1], most)
