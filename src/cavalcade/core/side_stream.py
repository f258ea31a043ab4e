"""A second CUDA stream for work that nothing needs yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class SideStream:
    """Runs work beside the current stream, also in a CUDA graph; without a GPU at once.

    Call `join` before writing or freeing a tensor that this work uses: memory is reused in the order of the stream
    that allocated it.
    """

    def __init__(self, device: torch.device):
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def work(self) -> Iterator[None]:
        """Puts what the block launches on this stream, after all that the current stream has to do so far."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Lets the current stream wait for this one."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
