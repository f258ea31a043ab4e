"""How fast the simulator is on a GPU: random Blue, observation and mask packed, many steps in one CUDA graph."""

import statistics
import time
from typing import Any

import torch
from numba import cuda

from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cuda import CudaGames, check_device

_STEPS, _ROUNDS = 50, 15


def simulator(num_envs: int, red: str) -> float:
    """Steps per second, median of several replays."""
    check_device()
    env = Cage2(num_envs, red=red)
    env.reset()
    games = CudaGames(env)
    stream = torch.cuda.Stream()
    there: Any = cuda.external_stream(stream.cuda_stream)
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles before the capture
            games.draw(there)
            games.step(there)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(_STEPS):
                games.draw(there)
                games.step(there)
        seconds = []
        for _ in range(_ROUNDS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    return num_envs * _STEPS / statistics.median(seconds)
