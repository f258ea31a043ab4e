"""Reduces samples to the rows, pairs and groups of the loss (see `gradient`), with or without deduplication."""

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment, Packed
from cavalcade.ppo.engines.cpu import rows
from cavalcade.ppo.engines.cpu.gradient import NONE, Batch
from cavalcade.ppo.engines.cpu.network import Layout
from cavalcade.ppo.rollout import Rollout

_FIRST_ROWS = 1024  # initial capacity of the table of distinct observations


class SampleRows:
    """No deduplication: each sample is its own row, pair and group."""

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
        """Selects the samples order[start:stop]."""
        self.batch.rows[:, : stop - start] = order[:, start:stop]
        self.batch.num_rows[:] = stop - start


class DistinctRows:
    """Deduplication: samples that share observation, mask and action are one group; network outputs are cached."""

    def __init__(self, env: Environment, packed: Packed, rollout: Rollout, net: Layout, real: np.dtype):
        self._env, self._packed, self._net, self._real = env, packed, net, real
        self._policies, samples = rollout.action.shape[0], rollout.action[0].numel()
        self._flat = flat = (self._policies, samples)
        self._rollout = rollout
        self._whole = False  # whether the batch holds the sums of the whole rollout
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
        """Makes room for `new` rows per policy; reads the counts only when the table might be full."""
        self._most += new
        if self._most > self.table.words.shape[1]:
            self._most = int(self.table.count.max()) + new
            if self._most > self.table.words.shape[1]:
                self._grow(self._most)

    def forget(self) -> None:
        """Clears the cached outputs after the weights have changed."""
        self._most = 0
        rows.forget(self.table)

    def begin(self) -> None:
        """Finds the pairs and groups of the rollout."""
        r = self._rollout
        if len(self._env.groups) > 1:
            self._sort()
        rows.find_groups(
            self.groups, self.batch, r.row.numpy().reshape(self._flat), self.table.count,
            r.mask_words.numpy().reshape(*self._flat, -1), r.action.numpy().reshape(self._flat),
            r.log_prob.numpy().reshape(self._flat),
        )  # fmt: skip
        self._whole = False

    def _sort(self) -> None:
        """Numbers the rows of one policy by their first samples, not by which group of environments came first.

        Sums depend on the order of rows, by rounding.
        """
        (row,), table, count = self._rollout.row.numpy().reshape(self._flat), self.table, int(self.table.count[0])
        first = np.full(count, len(row))  # rows of final observations have no sample
        np.minimum.at(first, row, np.arange(len(row)))
        order = np.argsort(first, kind="stable")
        for array in (table.words, table.x, table.weight, table.value):
            array[0, :count] = array[0, order]
        number = np.empty(count, row.dtype)
        number[order] = np.arange(count)
        row[:] = number[row]
        rows.rehash(table)

    def take(self, order: NDArray, start: int, stop: int) -> None:
        """Sums the samples order[start:stop] by row, pair and group; a whole rollout only once."""
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
        """The arrays of a batch with an entry per row."""
        shape = (self._policies, capacity)
        reals = ("row_n", "row_return", "row_square", "row_value")
        found: dict[str, NDArray] = {name: np.zeros(shape, self._real) for name in reals}
        found.update({name: np.zeros(shape, np.int32) for name in ("rows", "first_pair")})
        return found

    def _grow(self, least: int) -> None:
        """Enlarges the table and the batch; rows keep their numbers."""
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
