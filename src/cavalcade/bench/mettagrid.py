"""How fast MettaGrid is stepped: the package's arenas hosted by us, and by PufferLib where it is installed."""

from contextlib import ExitStack
from typing import Any

import numpy as np

from cavalcade.bench.envs import Contender, hosted, rates
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.tasks import load_task

TASK = "forage"


def pufferlib(arenas: int, name: str, backend: str, **options: Any) -> Contender | None:
    """PufferLib's vectorisers around the package's own environment."""
    try:
        import pufferlib.vector as pv  # pyright: ignore[reportMissingImports]
        from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv
        from mettagrid.simulator import Simulator
    except ImportError:
        return None
    config = load_task(TASK, {})

    def make(buf: Any = None, seed: int = 0) -> Any:
        return MettaGridPufferEnv(Simulator(), config, buf=buf, seed=seed)

    env = pv.make(make, backend=getattr(pv, backend), num_envs=arenas, **options)
    env.async_reset(0)
    size = env.agents_per_batch
    drawn = np.random.default_rng(0).integers(0, 5, (64, size)).astype(np.int32)
    count = [0]

    def step() -> int:
        env.recv()
        count[0] += 1
        env.send(drawn[count[0] % 64])
        return size

    return Contender(name, step, env.close)


def stepping(arenas: int, workers: int, seconds: float) -> dict[str, float]:
    """Agent-steps per second with random actions."""
    source = mettagrid_source(TASK)
    rows = arenas * source.agents
    with ExitStack() as stack:
        ours = [
            hosted(source, rows, "serial", backend="serial"),
            hosted(source, rows, "shared", backend="shared", workers=workers),
            hosted(source, rows, "async", backend="async", workers=workers, async_factor=2),
        ]
        for c in ours:
            stack.callback(c.close)
        found = rates(ours, seconds)
    half = {"num_workers": workers, "batch_size": arenas // 2, "overwork": True}
    for name, backend, options in (
        ("PufferLib Serial", "Serial", {}),
        ("PufferLib Multiprocessing", "Multiprocessing", half),
    ):
        c = pufferlib(arenas, name, backend, **options)  # its workers never sleep: alone
        if c:
            found |= rates([c], seconds)
            c.close()
    return found
