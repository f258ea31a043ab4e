"""Data-parallel ranks: each has a share of the environments, all make the same updates.

Training on several ranks equals training in one process with all the environments, up to the order of summation: the
random order of samples is over all environments, each rank computes its own part of each minibatch, and gradients and
metrics are all-reduced. `torchrun` starts the ranks; gloo connects CPUs, and shared memory those of one machine.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.errors import ConfigError, WorkerError
from cavalcade.ppo.gae import normalise
from cavalcade.ppo.shared_ranks import CAPACITY, SharedRanks, available
from cavalcade.ppo.shuffle import shuffle

_PATIENCE = timedelta(seconds=300)  # timeout of a rank that does not answer


@dataclass(frozen=True)
class Ranks:
    """The ranks of a training; this base class is a single rank, whose all-reduces do nothing."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def sum_(self, *arrays: NDArray) -> None:
        """All-reduces arrays, in place, as one message in the dtype of the first."""

    def sum_tensors_(self, tensors: Sequence[Tensor]) -> None:
        """All-reduces tensors of one dtype on one device, e.g. a GPU, in place."""

    def barrier(self) -> None:
        """Waits for all ranks."""

    def close(self) -> None:
        """Leaves the process group."""

    def share(self, count: int, what: str) -> slice:
        """This rank's part of `count` environments."""
        if count % self.size:
            raise ConfigError(f"{what} is {count}; it must be a multiple of the {self.size} ranks")
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        found = np.array([float(flag)])
        self.sum_(found)
        return bool(found[0] > 0)

    def moments(self, n: NDArray, mean: NDArray, square: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Counts (P,), means and sums of squared deviations (P, …) over the samples of all ranks."""
        if self.size == 1:
            return n, mean, square
        weight = n.reshape(-1, *[1] * (mean.ndim - 1))
        count, total = n.copy(), mean * weight
        self.sum_(count, total)
        whole = total / count.reshape(weight.shape)
        square = square + weight * (mean - whole) ** 2
        self.sum_(square)
        return count, whole, square

    def normalise(self, advantage: NDArray) -> None:
        """Normalises advantages to zero mean, unit standard deviation per policy, over all ranks; (P, B), in place."""
        if self.size == 1:
            normalise(advantage)
            return
        n = np.full(len(advantage), float(advantage.shape[1]))
        mean = advantage.mean(axis=1, dtype=np.float64) if advantage.shape[1] else np.zeros(len(advantage))
        square = ((advantage - mean[:, None]) ** 2).sum(axis=1, dtype=np.float64)
        count, mean, square = self.moments(n, mean, square)
        spread = np.sqrt(square / np.maximum(count - 1, 1)) + 1e-8
        advantage[:] = (advantage - mean[:, None]) / spread[:, None]

    def minibatches(
        self, keys: NDArray, updates: NDArray, epoch: int, steps: int, envs: int, count: int
    ) -> tuple[NDArray, NDArray]:
        """The random order of this rank's samples (P, B), and the bounds of the minibatches in it, (count + 1,).

        With several ranks there is one policy; the number of samples of a minibatch on this rank is random.
        """
        everyone = envs * self.size
        order = np.zeros((len(keys), steps * everyone), np.int64)
        shuffle(keys, updates, epoch, order)
        bounds = np.arange(count + 1) * (steps * everyone // count)
        if self.size == 1:
            return order, bounds
        t, e = np.divmod(order[0], everyone)
        mine = e // envs == self.rank
        before = np.concatenate([[0], np.cumsum(mine)])
        return (t * envs + e - self.rank * envs)[mine][None], before[bounds]


ALONE = Ranks()


@dataclass(frozen=True)
class TorchRanks(Ranks):
    """Ranks started by torchrun."""

    shared: SharedRanks | None = None  # if all are on this machine

    def sum_(self, *arrays: NDArray) -> None:
        """All-reduces arrays, in place, as one message in the dtype of the first: a socket takes a millisecond."""
        flat = np.concatenate([array.reshape(-1) for array in arrays], dtype=arrays[0].dtype)
        self._sum(flat)
        parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
        for array, part in zip(arrays, parts, strict=True):
            array[...] = part.reshape(array.shape)

    def sum_tensors_(self, tensors: Sequence[Tensor]) -> None:
        """All-reduces tensors of one dtype on one device, in place: by NCCL if each rank has its own GPU."""
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        there = flat if flat.device.type == "cpu" or _own_gpu(self) else flat.cpu()
        if there.device.type == "cpu":
            self._sum(there.numpy())
        else:
            _patiently(lambda: dist.all_reduce(there))
        for tensor, part in zip(tensors, there.to(flat.device).split([t.numel() for t in tensors]), strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def _sum(self, flat: NDArray) -> None:
        """All-reduces an array, in place."""
        if self.shared is None or flat.nbytes > CAPACITY:
            tensor = torch.from_numpy(flat)
            _patiently(lambda: dist.all_reduce(tensor))
            return
        first, *others = self.shared.exchange(flat)
        flat[:] = first
        for other in others:
            flat += other

    def gather(self, *arrays: NDArray) -> list[list[NDArray]]:
        """Gathers arrays of equal shapes from all ranks, as one message; returns a list by rank for each array."""
        pieces = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        ends = np.cumsum([piece.size for piece in pieces])[:-1]
        cut = [np.split(part, ends) for part in self._gather(np.concatenate(pieces))]
        return [
            [parts[i].copy().view(array.dtype).reshape(array.shape) for parts in cut] for i, array in enumerate(arrays)
        ]

    def _gather(self, mine: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        if self.shared is not None and mine.nbytes <= CAPACITY:
            return self.shared.exchange(mine)
        tensor = torch.from_numpy(mine)
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        _patiently(lambda: dist.all_gather(found, tensor))
        return [part.numpy() for part in found]

    def gather_rows(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Concatenates rows (n, F) of all ranks; n may differ."""
        counts = [int(n[0]) for n in self.gather(np.array([len(rows)]))[0]]
        padded = np.zeros((max(counts), rows.shape[1]))
        padded[: len(rows)] = rows
        return np.concatenate([part[:n] for part, n in zip(self.gather(padded)[0], counts, strict=True)])

    def broadcast(self, data: bytes) -> bytes:
        """Sends the bytes of rank 0 to all ranks."""
        size = torch.tensor([len(data)])
        _patiently(lambda: dist.broadcast(size, 0))
        content = torch.zeros(int(size), dtype=torch.uint8)
        if self.first:
            content = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
        _patiently(lambda: dist.broadcast(content, 0))
        return content.numpy().tobytes()

    def barrier(self) -> None:
        self.any(False)

    def close(self) -> None:
        if self.shared is not None:
            self.shared.close()
        dist.destroy_process_group()


def ranks_from(environment: Mapping[str, str] = os.environ) -> Ranks:
    """The ranks started by torchrun, or a single one."""
    if int(environment.get("WORLD_SIZE", "1")) < 2 or "LOCAL_RANK" not in environment:
        return ALONE
    if environment["LOCAL_WORLD_SIZE"] == environment["WORLD_SIZE"]:  # all on this machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank, size, local_rank, local_size = (
        int(environment[x]) for x in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    found = TorchRanks(rank, size, local_rank, local_size)
    backend = "gloo"
    if _own_gpu(found):
        torch.cuda.set_device(found.local_rank)
        backend = "cpu:gloo,cuda:nccl"
    _patiently(lambda: dist.init_process_group(backend, timeout=_PATIENCE))
    if found.local_size < found.size or not available():
        return found
    processes = [int(pid[0]) for pid in found.gather(np.array([os.getpid()]))[0]]
    shared = SharedRanks(found.rank, processes, found.broadcast, found.barrier, _PATIENCE.total_seconds())
    return replace(found, shared=shared)


def _own_gpu(ranks: Ranks) -> bool:
    """Whether this machine has a GPU for each of its ranks."""
    return torch.cuda.is_available() and torch.cuda.device_count() >= ranks.local_size


def _patiently(work: Callable[[], Any]) -> None:
    try:
        work()
    except (RuntimeError, ValueError) as error:  # torch has no narrower type for a broken connection
        reason = str(error).strip().splitlines()[0]
        raise WorkerError(f"another rank is gone, or has not answered for {_PATIENCE.seconds} s: {reason}") from None
