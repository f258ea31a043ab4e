"""The MettaGrid performance guide, knob by knob, and the memory that its presets need."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from cavalcade.cli.bench.mettagrid_runs import MONITORED, measure
from cavalcade.cli.targets import parse_target
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import cores
from cavalcade.runs.waiting import waiting
from cavalcade.targets.mettagrid.arenas import needs_of, who_plays

_GUIDE = ("--recipe", "mettagrid-guide")
_PRECISIONS, _MODES = ("fp32", "tf32", "bf16", "fp16"), ("default", "reduce-overhead")
_OFTEN = ("--monitor-every", "2")  # so that short rows are monitored too
_PRESETS = {
    "original": [*_GUIDE, "--hardware", "original"],
    "ultra_fast": [*_GUIDE, "--hardware", "ultra_fast"],
    "laptop": ["--hardware", "laptop"],
    "workstation": ["--hardware", "workstation"],
    "gpu": ["--hardware", "gpu"],
}


def ablation_rows(on_gpu: bool, cpus: int) -> dict[str, list[str]]:
    """Settings of the performance guide: its "original", one knob changed at a time, and all together.

    Its arena has 4 agents. Workers are those of the guide, 4 and 16, or as many as there are cores.
    """
    base = [*_GUIDE, "--hardware", "original", "--workers", str(min(cpus, 4)), *_OFTEN]
    fast = [*_GUIDE, "--hardware", "ultra_fast", *_OFTEN]
    big = ["--batch-size", "262144", "--minibatch-size", "32768"]
    sizes = ["--num-envs", "64", "--batch-size", "16384", "--minibatch-size", "512"]
    off = [word for name in ("evaluate", "record", "statistics", "monitor") for word in (f"--{name}-every", "0")]
    unscored = ["--evaluate-every", "0", "--record-every", "0"]  # longer rows would reach the first score
    many = min(cpus, 16)
    rows = {
        "original": base,
        "  with 1 worker": [*base, "--workers", "1"],
        f"  with {many} workers": [*base, "--workers", str(many)],
        "  with async factor 8": [*base, "--async-factor", "8"],
        "  with one group, no overlap": [*base, "--backend", "shared"],
        "  with BPTT 32": [*base, "--bptt-horizon", "32"],
        "  with minibatches of 4,096": [*base, "--minibatch-size", "4096"],
        "  with batches of 262,144 / 32,768": [*base, *big],
        "  with that and 512 arenas": [*base, *big, "--num-envs", "512"],
        "  with monitoring and scores off": [*base, *off],
        "  with torch.compile": [*base, "--compile", "default"],
        "  with bf16": [*base, "--precision", "bf16"],
        "  with prioritised segments": [*base, "--priority-alpha", "0.8"],
        "  with contrastive loss": [*base, "--contrastive-coef", "0.1"],
        "  without memory": [*base, "--core", "none"],
        "original, compiled": [*_GUIDE, *sizes, "--core", "lstm", *_OFTEN],
        "ultra_fast, hosted": [*fast, "--simulator", "package", "--workers", str(many)],
        **{f"ultra_fast, {name}": [*fast, "--precision", name] for name in _PRECISIONS if on_gpu or name == "fp32"},
        **{f"ultra_fast, compile {mode}": [*fast, *unscored, "--compile", mode] for mode in _MODES if on_gpu},
        "ultra_fast without memory": [*fast, "--core", "none"],
        "laptop sizes, 64 arenas": [
            *_GUIDE, "--hardware", "laptop", "--num-envs", "64", "--batch-size", "16384", "--minibatch-size", "2048",
            *_OFTEN,
        ],
    }  # fmt: skip
    if many <= 4:
        del rows[f"  with {many} workers"]  # as in the guide's original
    return rows


def chosen_rows(rows: dict[str, list[str]], words: tuple[str, ...]) -> dict[str, list[str]]:
    """The first row, and those that contain one of the words; all without words."""
    first = next(iter(rows))
    return {name: given for name, given in rows.items()
            if name == first or not words or any(word in name for word in words)}  # fmt: skip


def ablation(seconds: float, words: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Trains with every row for a time, and prints a table."""
    found: dict[str, dict[str, Any]] = {}
    print(f"\n{'The guide by knob, 4 agents per arena, LSTM-128':<40}{'agent-steps/s':>15}{'':>9}", end="")
    print(f"{f'reward after {seconds:g} s':>22}{'updates':>10}", end="")
    print("".join(f"{column:>10}" for column in MONITORED.values()), flush=True)
    for name, given in chosen_rows(ablation_rows(torch.cuda.is_available(), cores()), words).items():
        try:
            with waiting(name.strip()), tempfile.TemporaryDirectory() as folder:
                got = measure(given, seconds, Path(folder, "run"))
        except ConfigError as error:  # the other rows are worth having
            print(f"  {name:<38}{error}", flush=True)
            continue
        found[name.strip()] = {
            "rate": got.rate, "reward": got.reward, "updates": len(got.curve), **got.monitored, "curve": got.curve,
        }  # fmt: skip
        ratio = f"{got.rate / found['original']['rate']:.2f}×" if "original" in found else "–"
        print(f"  {name:<38}{got.rate:>15,.0f}{ratio:>9}{got.reward:>22.5f}{len(got.curve):>10}", end="")
        print("".join(_percent(column, got.monitored) for column in MONITORED), flush=True)
    return found


def _percent(metric: str, monitored: dict[str, float]) -> str:
    if metric not in monitored:
        return f"{'–':>10}"
    return f"{monitored[metric] * (1 if metric == 'gpu_percent' else 100):>8.0f} %"


def memory() -> dict[str, dict[str, float]]:
    """Prints what the presets need, as the check before a run computes it; sizes, agents per arena and MB by preset."""
    from cavalcade.cli.train import Options

    found = {}
    title = f"{'Memory, MB':<16}{'arenas':>8}{'batch':>10}{'minibatch':>11}"
    print(f"\n{title}{'experience':>12}{'activations':>13}{'arenas':>10}")
    for name, given in _PRESETS.items():
        config = parse_target(Options, ["mettagrid", *given, "--device", "cpu"], "train")[1].config
        need = needs_of(config, hosted=who_plays(config).game is None)
        p = config.ppo
        sizes = {size: getattr(p, size) for size in ("num_envs", "batch_size", "minibatch_size")}
        found[name] = sizes | {part: size / 2**20 for part, size in need._asdict().items()}
        row = f"  {name:<14}{p.num_envs:>8,}{p.batch_size:>10,}{p.minibatch_size:>11,}"
        print(f"{row}{found[name]['experience']:>12,.0f}{found[name]['activations']:>13,.0f}", end="")
        print(f"{found[name]['arenas']:>10,.0f}", flush=True)
    return found
