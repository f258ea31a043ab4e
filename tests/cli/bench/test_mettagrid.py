"""`cavalcade bench mettagrid`: rows of the ablation, memory of presets, and speed over time."""

import pytest

from cavalcade.cli.bench import mettagrid_guide
from cavalcade.cli.bench.mettagrid import _preset, print_hour
from cavalcade.cli.bench.mettagrid_guide import ablation_rows, chosen_rows
from cavalcade.cli.bench.mettagrid_runs import Measured
from cavalcade.cli.targets import parse_target
from cavalcade.cli.train import Options
from cavalcade.core.errors import ConfigError
from cavalcade.targets.mettagrid.arenas import who_plays

from ..helpers import run


@pytest.mark.parametrize(("on_gpu", "cpus"), [(False, 2), (True, 16)])
def test_rows_are_settings_that_a_run_takes(on_gpu, cpus):
    rows = ablation_rows(on_gpu, cpus)
    for given in rows.values():
        parse_target(Options, ["mettagrid", *given], "train")
    configs = {name: parse_target(Options, ["mettagrid", *rows[name]], "train")[1].config
               for name in ("original", "ultra_fast, fp32", "ultra_fast, hosted")}  # fmt: skip
    hosted = {name: who_plays(config).game is None for name, config in configs.items()}
    assert hosted == {"original": True, "ultra_fast, fp32": False, "ultra_fast, hosted": True}
    assert configs["original"].host.workers == min(cpus, 4)
    assert ("  with 16 workers" in rows) == (cpus == 16)
    assert {"ultra_fast, tf32", "ultra_fast, compile reduce-overhead"} <= rows.keys() or not on_gpu
    chosen = chosen_rows(rows, ("ultra_fast", "compiled"))
    assert list(chosen)[:2] == ["original", "original, compiled"]
    assert len(chosen) == (10 if on_gpu else 5)


def test_a_row_that_fails_does_not_end_the_table(capsys, monkeypatch):
    def imagined(given, seconds, folder):
        if "--compile" in given:
            raise ConfigError("a run with --compile failed")
        rate = 3000.0 if "ultra_fast" in given else 1000.0
        return Measured(rate, 0.01, 10, [(1.0, 0.01, 10.0)], {"gpu_percent": 93.0, "rollout_share": 0.25}, {})

    monkeypatch.setattr(mettagrid_guide, "measure", imagined)
    found = mettagrid_guide.ablation(1.0, ("torch.compile", "fp32"))
    out = capsys.readouterr().out.splitlines()
    assert list(found) == ["original", "ultra_fast, fp32"]
    assert "a run with --compile failed" in out[-2]
    assert out[-1].split()[-8:] == ["3.00×", "0.01000", "1", "25", "%", "–", "93", "%"]


def test_memory_of_presets_is_printed(capsys):
    status, out, _ = run(capsys, "bench", "mettagrid", "--parts", "memory")
    assert status == 0
    names = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert names == ["original", "ultra_fast", "laptop", "workstation", "gpu"]


@pytest.mark.parametrize("seconds", [20, 480, 3600])
def test_speed_and_memory_of_any_time_are_printed(capsys, seconds):
    at = [3 + i * (seconds - 3) / 100 for i in range(101)]
    curve = [(t, 0.1, 1000 * t) for t in at]
    memory = {"memory_mb": [(t, 500.0 + t / seconds) for t in at[1::2]], "gpu_memory_mb": []}
    found = print_hour(Measured(1000.0, 0.1, int(1000 * seconds), curve, {}, memory))
    out = capsys.readouterr().out
    assert found["rates"] == pytest.approx([1000] * 10)
    assert found["seconds"][-1] == seconds
    assert "last part to first: agent-steps/s 1.000; last to second: memory, MB 1.00" in out
    assert "GPU" not in out


def test_a_training_of_one_update_has_a_speed_too():
    found = print_hour(Measured(100.0, 0.1, 600, [(6.0, 0.1, 600)], {}, {}))
    assert found["rates"] == pytest.approx([100] * 10)


def test_the_preset_follows_the_device():
    assert _preset("cpu") == ["--hardware", "laptop", "--device", "cpu"]
    with pytest.raises(ConfigError, match="no GPU"):
        _preset("cuda")
