"""Ray Tune looks for the learning rate of Cavalcade's own PPO on CAGE-2.

    pip install 'cavalcade[ray]'
    python examples/tune_ppo.py

Each trial is a training of a few seconds on one core, scored on games that no training has seen. Its run is a run like
any other, under runs/. Ray runs on this machine only: two CPUs, nothing that listens beyond loopback, no usage
statistics.
"""

import argparse
import os
import time
from pathlib import Path

# Before ray is imported: without the second, Ray takes the address of the network card for 127.0.0.1.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import ray
from ray import tune

import cavalcade


def trial(settings: dict) -> None:
    """One training; reports the mean return of its policy on held-out games."""
    rate = settings["learning_rate"]
    run = cavalcade.train(
        "cage2",
        run=Path(settings["folder"], f"learning-rate-{rate:g}"),
        horizon=30,
        rollout_steps=30,
        learning_rate=rate,
        episodes=settings["episodes"],
        device="cpu",
        threads=1,
        progress=False,
    )
    tune.report({"heldout_mean": run.heldout().mean, "run": str(run.path)})


def main() -> None:
    """Tries the learning rates, two trials at a time, and names the best."""
    parser = argparse.ArgumentParser(description="Ray Tune with Cavalcade's PPO on CAGE-2.")
    parser.add_argument("--episodes", type=int, default=5_000, help="episodes of each trial")
    episodes = parser.parse_args().episodes

    folder = str(Path("runs", f"tune-{time.strftime('%Y%m%d-%H%M%S')}").resolve())  # trials have other working folders
    ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    tuner = tune.Tuner(
        trial,
        param_space={
            "learning_rate": tune.grid_search([1e-4, 5e-4, 2e-3, 8e-3]),
            "episodes": episodes,
            "folder": folder,
        },
        tune_config=tune.TuneConfig(metric="heldout_mean", mode="max", reuse_actors=True),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    results = tuner.fit()
    for result in results:
        print(f"learning rate {result.config['learning_rate']:g}  held-out mean {result.metrics['heldout_mean']:.2f}")
    best = results.get_best_result()
    print(f"best: learning rate {best.config['learning_rate']:g}, run {best.metrics['run']}")
    ray.shutdown()


if __name__ == "__main__":
    main()
