"""The roofline of a GPU in words."""

import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.tuning.roofline import Ceiling, Kernel, Phase, limit, verdict

SHORT = [Phase("rollout", 5e-3, [Kernel("step", 1e-3, 800)]), Phase("update", 2e-3, [Kernel("chunk", 1e-3, 900)])]
LONG = [Phase("rollout", 20e-3, [Kernel("draw", 8e-3, 100)]), Phase("update", 33e-3, [Kernel("chunk", 14e-3, 128)])]


@pytest.mark.parametrize(
    ("phases", "arithmetic", "memory", "words"),
    [
        (SHORT, 1e-5, 1e-5, "the latency of 1,700 launches"),
        (LONG, 1e-3, 2e-3, "chunk, the longest kernel of the update"),
        (LONG, 30e-3, 2e-3, "matrix products"),
        (LONG, 1e-3, 40e-3, "the bandwidth of memory"),
    ],
)
def test_it_names_what_limits(phases, arithmetic, memory, words):
    assert limit(phases, arithmetic, memory).startswith(words)


def test_bounds_are_rates_of_the_gpu_over_amounts_per_step():
    text = verdict(LONG, 1_000_000, operations=2000, moved=400, ceiling=Ceiling(400e12, 4e12))
    assert "2,000 operations per step, GPU 400 TFLOP/s: bound 200,000 M steps/s, reached 0.0%" in text
    assert "400 bytes per step, GPU 4.0 TB/s: bound 10,000 M steps/s, reached 0.2%" in text
    assert "update      33.00 ms, 128 launches of 257.8 µs each, kernels run for 42%" in text


def test_bytes_of_a_step_are_those_of_samples_and_of_computed_rows():
    env = Cage2(8, red="meander", horizon=10)
    env.reset()
    config = PPOConfig(num_envs=8, rollout_steps=10, epochs=3)
    engine = CudaEngine(env, DeviceCage2(env, torch.device("cpu")), config, [0])
    few, many = engine.bytes_per_step(0.0), engine.bytes_per_step(1.0)
    sample = 8 + 20 + 4 * 7 + 1  # words, mask, seven numbers, a flag
    assert 4 * sample <= few <= 4 * (sample + 4)
    assert many - few == 2 * (160 + 1) * 4 * 7


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_profile_prints_the_roofline(capsys):
    from cavalcade.cli import profile

    assert profile.run(["cage2", "--device", "cuda", "--updates", "2", "--num-envs", "64"]) == 0
    out = capsys.readouterr().out
    assert "limited by" in out
    assert "launches of" in out
