"""Launches compiled loops on the CPU, or kernels on torch's current stream on a GPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

THREADS = 128  # per block


class Launcher:
    """Runs loops or kernels for all rows of a batch on one device; tensors are passed in place.

    A loop or kernel takes the number of rows first.
    """

    def __init__(self, device: torch.device):
        self._cuda: Any = None
        if device.type == "cuda":
            from cavalcade.core.cuda import check_device, cuda

            check_device()
            self._cuda = cuda

    @property
    def on_gpu(self) -> bool:
        return self._cuda is not None

    def __call__(self, run: Callable[..., Any], count: int, *args: Any, lanes: int = 1, threads: int = THREADS) -> None:
        """Runs a loop or launches a kernel for `count` rows, each with so many lanes; threads: of a block."""
        given = [self.array(x) for x in args]
        if self._cuda is None:
            run(count, *given)
        else:
            stream = self._cuda.external_stream(torch.cuda.current_stream().cuda_stream)
            kernel: Any = run
            kernel[-(-count * lanes // threads), threads, stream](count, *given)

    def array(self, x: Any) -> Any:
        """A tensor, or a named tuple of tensors, as the arrays kernels take; anything else is returned unchanged."""
        if isinstance(x, Tensor):
            return x.detach().numpy() if self._cuda is None else self._cuda.as_cuda_array(x.detach(), sync=False)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.array, x))  # pyright: ignore[reportCallIssue]
        return x

    def moved(self, x: Any) -> Any:
        """A NumPy array, or a named tuple of arrays, copied to the device."""
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.moved, x))  # pyright: ignore[reportCallIssue]
        return self._cuda.to_device(x) if self._cuda is not None and hasattr(x, "dtype") else x

    def copy(self, here: Any, there: Any) -> None:
        """Copies NumPy arrays, or a named tuple of them, into the device arrays that `moved` returned."""
        for mine, theirs in zip(here, there, strict=True) if isinstance(here, tuple) else ((here, there),):
            if self._cuda is not None and hasattr(mine, "dtype"):
                theirs.copy_to_device(mine)

    def back(self, here: Any, there: Any) -> None:
        """Copies a named tuple of device arrays back into the host arrays they were made from."""
        for mine, theirs in zip(here, there, strict=True):
            if hasattr(mine, "dtype") and mine is not theirs:
                mine[...] = theirs.copy_to_host() if self._cuda is not None else theirs
