"""Work that is run as a CUDA graph once its kernels are compiled."""

from collections.abc import Callable
from typing import Any

import torch


class Recorded:
    """Runs work that reads and writes tensors in place: eagerly at first, then as a CUDA graph.

    Eager runs are on the stream that is recorded later, since autograd's accumulators belong to the stream where they
    were made. Without a GPU all runs are eager.
    """

    def __init__(self, on_gpu: bool, eager: int = 1):
        """eager: runs in which kernels are compiled and memory is allocated."""
        self._on_gpu, self._eager = on_gpu, eager
        self._stream: Any = torch.cuda.Stream() if on_gpu else None
        self._runs, self._graph, self._found = 0, None, None

    def __call__(self, work: Callable[[], Any]) -> Any:
        """What the work returned: fresh tensors of an eager run, else those of the graph, which stay in place."""
        if not self._on_gpu:
            return work()
        if self._graph is None and self._runs < self._eager:
            self._runs += 1
            return self._aside(work)
        if self._graph is None:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # a graph has memory of its own
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._stream):
                self._found = work()
            self._graph = graph
        self._graph.replay()
        return self._found

    def _aside(self, work: Callable[[], Any]) -> Any:
        here = torch.cuda.current_stream()
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            found = work()
        here.wait_stream(self._stream)
        return found

    def drop(self) -> None:
        """Forgets the graph: tensors that it uses were replaced."""
        self._runs, self._graph, self._found = 0, None, None
