"""Launches by name: on the CPU a compiled loop, on a GPU a kernel on torch's current stream."""

import importlib
from typing import Any

import torch
from torch import Tensor

_THREADS = 128  # per block


class Launcher:
    """Runs kernels of a module for all of a batch on one device; tensors are handed over in place.

    loops and kernels name the modules with the loops for the CPU and the kernels for a GPU, under the same names. A
    loop or kernel takes the number of rows first.
    """

    def __init__(self, device: torch.device, loops: str, kernels: str):
        self._cuda: Any = None
        if device.type == "cuda":
            from cavalcade.cuda import check_device, cuda

            check_device()
            self._cuda = cuda
        self._module = importlib.import_module(kernels if self._cuda else loops)

    def __call__(self, name: str, count: int, *args: Any) -> None:
        """Runs one for `count` rows."""
        run: Any = getattr(self._module, name)
        given = [self.array(x) for x in args]
        if self._cuda is None:
            run(count, *given)
        else:
            stream = self._cuda.external_stream(torch.cuda.current_stream().cuda_stream)
            run[-(-count // _THREADS), _THREADS, stream](count, *given)

    def array(self, x: Any) -> Any:
        """A tensor, or a record of tensors, as kernels take it; anything else as it is."""
        if isinstance(x, Tensor):
            return x.detach().numpy() if self._cuda is None else self._cuda.as_cuda_array(x.detach(), sync=False)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.array, x))  # pyright: ignore[reportCallIssue]
        return x

    def moved(self, x: Any) -> Any:
        """An array, or a record of arrays, of NumPy in the memory of the device."""
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.moved, x))  # pyright: ignore[reportCallIssue]
        return self._cuda.to_device(x) if self._cuda is not None and hasattr(x, "dtype") else x

    def copy(self, here: Any, there: Any) -> None:
        """Copies arrays of NumPy, or a record of them, into what `moved` made of them."""
        for mine, theirs in zip(here, there, strict=True) if isinstance(here, tuple) else ((here, there),):
            if self._cuda is not None and hasattr(mine, "dtype"):
                theirs.copy_to_device(mine)

    def back(self, here: Any, there: Any) -> None:
        """Copies a record of arrays from the device into the one it came from."""
        for mine, theirs in zip(here, there, strict=True):
            if hasattr(mine, "dtype") and mine is not theirs:
                mine[...] = theirs.copy_to_host() if self._cuda is not None else theirs
