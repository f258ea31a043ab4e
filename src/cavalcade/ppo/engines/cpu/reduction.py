"""How samples become the rows, pairs and groups that the loss runs over: one by one, or by what they share."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.contract import Environment, Packed
from cavalcade.ppo.fused import rows
from cavalcade.ppo.fused.gradient import NONE, Batch
from cavalcade.ppo.fused.network import Layout
from cavalcade.ppo.rollout import Rollout

_FIRST_ROWS = 1024  # room in the table of distinct rows to begin with


class Reduction(Protocol):
    """The samples of an update, reduced."""

    batch: Batch

    def begin(self) -> None:
        """The rollout is complete, advantages included."""
        ...

    def take(self, order: NDArray, start: int, stop: int) -> None:
        """Makes `batch` stand for the samples order[:, start:stop]."""
        ...


class PlainRows:
    """Each sample is a row, a pair and a group of its own."""

    def __init__(self, rollout: Rollout, real: np.dtype):
        policies, samples = rollout.action.shape[0], rollout.action[0].numel()
        flat = (policies, samples)
        self._advantage = rollout.advantage.numpy().reshape(flat)
        ids = np.tile(np.arange(samples, dtype=np.int32), (policies, 1))
        none, one = np.full(flat, NONE, np.int32), np.ones(flat, real)
        self.batch = Batch(
            x=rollout.observation.numpy().reshape(*flat, -1),
            rows=ids.copy(),
            num_rows=np.full(policies, samples),
            row_n=one,
            row_return=rollout.returns.numpy().reshape(flat),
            row_square=np.zeros(flat, real),
            row_value=rollout.value.numpy().reshape(flat),
            first_pair=ids,
            next_pair=none,
            pair_mask=ids,
            pair_n=one,
            first_group=ids,
            next_group=none,
            action=rollout.action.numpy().reshape(flat),
            group_n=one,
            plus=np.zeros(flat, real),
            minus=np.zeros(flat, real),
            log_prob=rollout.log_prob.numpy().reshape(flat),
            masks=rollout.mask.numpy().reshape(*flat, -1),
        )

    def begin(self) -> None:
        """Splits advantages by sign."""
        np.maximum(self._advantage, 0, out=self.batch.plus)
        np.minimum(self._advantage, 0, out=self.batch.minus)
        np.square(self.batch.row_return, out=self.batch.row_square)

    def take(self, order: NDArray, start: int, stop: int) -> None:
        """Lists the samples."""
        self.batch.rows[:, : stop - start] = order[:, start:stop]
        self.batch.num_rows[:] = stop - start


class DistinctRows:
    """Samples that share observation, mask and action are one group; what policies make of observations is kept."""

    def __init__(self, env: Environment, packed: Packed, rollout: Rollout, net: Layout, real: np.dtype):
        self._env, self._packed, self._net, self._real = env, packed, net, real
        self._policies, samples = rollout.action.shape[0], rollout.action[0].numel()
        self._flat = flat = (self._policies, samples)
        self._rollout = rollout
        self._whole = False  # whether the batch stands for all samples of the rollout
        self._slots = slots = _power_of_two(2 * samples)

        def integers(n: int) -> NDArray[np.int32]:
            return np.zeros((self._policies, n), np.int32)

        def reals(n: int) -> NDArray:
            return np.zeros((self._policies, n), real)

        self.groups = rows.Groups(
            pair_slots=integers(slots),
            group_slots=integers(slots),
            pairs=np.zeros(self._policies, np.int64),
            groups=np.zeros(self._policies, np.int64),
            group_of=integers(samples),
            pair_row=integers(samples),
            group_pair=integers(samples),
        )
        self.table = self._new_table(_FIRST_ROWS)
        self.batch = Batch(
            x=self.table.x,
            num_rows=np.zeros(self._policies, np.int64),
            next_pair=integers(samples),
            pair_mask=integers(samples),
            pair_n=reals(samples),
            first_group=integers(samples),
            next_group=integers(samples),
            action=integers(samples),
            group_n=reals(samples),
            plus=reals(samples),
            minus=reals(samples),
            log_prob=reals(samples),
            masks=rollout.mask.numpy().reshape(*flat, -1),
            **self._row_arrays(_FIRST_ROWS),
        )
        self.forget()

    def make_room(self, new: int) -> None:
        """Sees to it that each policy can get so many new rows. Counts only when there might be too little."""
        self._most += new
        if self._most > self.table.words.shape[1]:
            self._most = int(self.table.count.max()) + new
            if self._most > self.table.words.shape[1]:
                self._grow(self._most)

    def forget(self) -> None:
        """The weights have changed: nothing remembered holds any more."""
        self._most = 0
        rows.forget(self.table)

    def begin(self) -> None:
        """Finds what the samples share."""
        r = self._rollout
        rows.find_groups(
            self.groups, self.batch, r.row.numpy().reshape(self._flat), self.table.count,
            r.mask_words.numpy().reshape(*self._flat, -1), r.action.numpy().reshape(self._flat),
            r.log_prob.numpy().reshape(self._flat),
        )  # fmt: skip
        self._whole = False

    def take(self, order: NDArray, start: int, stop: int) -> None:
        """Sums up the samples; those of the whole rollout only once."""
        whole = stop - start == self._flat[1]
        if not (whole and self._whole):
            r = self._rollout
            rows.reduce(
                self.groups, self.batch, r.row.numpy().reshape(self._flat), self.table.count, order, start, stop,
                r.advantage.numpy().reshape(self._flat), r.returns.numpy().reshape(self._flat),
            )  # fmt: skip
        self._whole = whole

    def _new_table(self, capacity: int) -> rows.Table:
        observation, words = self._env.buffers.observation, self._packed.observation.shape[1]
        shape = (self._policies, capacity)
        return rows.Table(
            slots=np.zeros((self._policies, _power_of_two(2 * capacity)), np.int32),
            words=np.zeros((*shape, words), np.int64),
            x=np.zeros((*shape, observation.shape[1]), observation.dtype),
            weight=np.zeros((*shape, self._net.padded), self._real),
            value=np.zeros(shape, self._real),
            count=np.zeros(self._policies, np.int64),
            ready=np.zeros(self._policies, np.int64),
        )

    def _row_arrays(self, capacity: int) -> dict[str, NDArray]:
        """The parts of a batch that have an entry per row."""
        shape = (self._policies, capacity)
        reals = ("row_n", "row_return", "row_square", "row_value")
        found: dict[str, NDArray] = {name: np.zeros(shape, self._real) for name in reals}
        found.update({name: np.zeros(shape, np.int32) for name in ("rows", "first_pair")})
        return found

    def _grow(self, least: int) -> None:
        """Makes the table and the batch larger; rows keep their numbers."""
        old = self.table
        capacity = max(2 * old.words.shape[1], _power_of_two(least))
        self.table = self._new_table(capacity)
        for name in ("words", "x", "weight", "value"):
            getattr(self.table, name)[:, : old.words.shape[1]] = getattr(old, name)
        self.table.count[:] = old.count
        self.table.ready[:] = old.ready
        rows.rehash(self.table)
        self.batch = self.batch._replace(x=self.table.x, **self._row_arrays(capacity))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
