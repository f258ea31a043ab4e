"""The roofline of a training on a GPU: launches, operations and bytes of a rollout and an update, and what limits."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from cavalcade.core.device import matmul_precision
from cavalcade.ppo.engines.cuda.engine import CudaEngine

_TOP = 8
_SIZE, _BYTES = 4096, 1 << 30  # of a matrix product and of a copy that show what the GPU can do
_ROUNDS = 10
_SHORT = 5e-6  # seconds: kernels shorter than this on average wait for launches and for memory, whatever they compute


class Kernel(NamedTuple):
    """All launches of a kernel in one replay."""

    name: str
    seconds: float
    launches: int


class Phase(NamedTuple):
    """One replay of a CUDA graph."""

    name: str
    seconds: float
    kernels: list[Kernel]

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.kernels)

    @property
    def busy(self) -> float:
        """Seconds in which a kernel runs."""
        return sum(kernel.seconds for kernel in self.kernels)


class Ceiling(NamedTuple):
    """What the GPU can do, measured."""

    operations: float  # per second, of a large matrix product in the precision of the training
    bytes: float  # per second, read and written by a large copy


def measure_phases(engine: CudaEngine) -> list[Phase]:
    """Replays rollout and update of an engine that has been trained for a few updates."""
    from torch.profiler import ProfilerActivity, profile

    found = []
    for name, graph in engine.recorded().items():
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            graph.replay()
            torch.cuda.synchronize()
        kernels = [Kernel(x.key, x.self_device_time_total / 1e6, x.count) for x in traced.key_averages()]
        found.append(Phase(name, seconds, sorted(kernels, key=lambda kernel: -kernel.seconds)))
    return found


def measure_ceiling(precision: str) -> Ceiling:
    """Rates of a large matrix product and of a large copy."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(_SIZE, _SIZE, device="cuda", dtype=kind)
    source = torch.ones(_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    with matmul_precision(precision == "tf32"):
        products = _seconds(lambda: torch.mm(a, a))
    return Ceiling(2 * _SIZE**3 / products, 2 * _BYTES / _seconds(lambda: target.copy_(source)))


def _seconds(work: Callable[[], Any]) -> float:
    """Seconds of some work on the GPU, mean of several rounds after the first."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    work()
    marks[0].record()
    for _ in range(_ROUNDS):
        work()
    marks[1].record()
    torch.cuda.synchronize()
    return marks[0].elapsed_time(marks[1]) / 1000 / _ROUNDS


def verdict(phases: list[Phase], steps: int, operations: float, moved: float, ceiling: Ceiling) -> str:
    """Launches, kernels and bounds in words.

    Args:
        phases: Rollout and update.
        steps: Environment steps of one rollout.
        operations: Of matrix products per step.
        moved: Bytes per step that have to be read and written at least.
        ceiling: Of the GPU.
    """
    lines, seconds = [], sum(phase.seconds for phase in phases)
    for phase in phases:
        each, busy = phase.seconds / max(phase.launches, 1), phase.busy / phase.seconds
        lines.append(
            f"  {phase.name:<8} {1000 * phase.seconds:8.2f} ms, {phase.launches:,} launches of {1e6 * each:.1f} µs "
            f"each, kernels run for {busy:.0%}"
        )
        lines += [f"  {1000 * k.seconds:12.3f} ms {k.launches:>6} × {k.name[:80]}" for k in phase.kernels[:_TOP]]
    arithmetic, memory = steps * operations / ceiling.operations, steps * moved / ceiling.bytes
    for name, amount, unit, bound, of in (
        ("matrix products", operations, "operations", arithmetic, f"{ceiling.operations / 1e12:.0f} TFLOP/s"),
        ("memory", moved, "bytes", memory, f"{ceiling.bytes / 1e12:.1f} TB/s"),
    ):
        lines.append(
            f"  {name}: {amount:,.0f} {unit} per step, GPU {of}: bound {steps / bound / 1e6:,.0f} M steps/s, "
            f"reached {bound / seconds:.1%}"
        )
    return "\n".join([*lines, f"  limited by {limit(phases, arithmetic, memory)}"])


def limit(phases: list[Phase], arithmetic: float, memory: float) -> str:
    """What limits a rollout and an update; arithmetic, memory: their least seconds for each."""
    seconds, launches = sum(phase.seconds for phase in phases), sum(phase.launches for phase in phases)
    if max(arithmetic, memory) > seconds / 2:
        return "matrix products" if arithmetic > memory else "the bandwidth of memory"
    if seconds / max(launches, 1) < _SHORT:
        return f"the latency of {launches:,} launches: more environments or policies at once cost little"
    phase = max(phases, key=lambda phase: phase.seconds)
    return f"{phase.kernels[0].name[:80]}, the longest kernel of the {phase.name}, not by arithmetic or bandwidth"
