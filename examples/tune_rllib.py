"""Ray Tune looks for the learning rate and the clip range of RLlib's PPO on CAGE-2.

    pip install 'cavalcade[ray]'
    python examples/tune_rllib.py

Four trials, two at a time; the worse half stops early (ASHA). Ray runs on this machine only: two CPUs, nothing that
listens beyond loopback, no usage statistics.
"""

import argparse
import os

# Before ray is imported: without the second, Ray takes the address of the network card for 127.0.0.1.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.schedulers import ASHAScheduler

from cavalcade.envs import CAGE2_ID, rllib

RETURN = "env_runners/episode_return_mean"


def main() -> None:
    """Tries the settings and names the best."""
    parser = argparse.ArgumentParser(description="Ray Tune with RLlib's PPO on CAGE-2.")
    parser.add_argument("--iterations", type=int, default=20, help="of each trial")
    iterations = parser.parse_args().iterations

    ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    rllib.register()
    config = (
        PPOConfig()
        .environment(CAGE2_ID, env_config={"red": "bline", "horizon": 30})
        .env_runners(
            num_env_runners=0,  # in the process of the trial: one core each
            num_envs_per_env_runner=64,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .training(
            train_batch_size_per_learner=64 * 30,
            minibatch_size=480,
            num_epochs=4,
            entropy_coeff=0.01,
            lr=tune.grid_search([5e-4, 2e-3]),
            clip_param=tune.grid_search([0.1, 0.2]),
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
        .debugging(seed=0)
    )
    tuner = tune.Tuner(
        PPO,
        param_space=config,
        tune_config=tune.TuneConfig(
            metric=RETURN,
            mode="max",
            scheduler=ASHAScheduler(max_t=iterations, grace_period=max(1, iterations // 4)),
        ),
        run_config=tune.RunConfig(stop={"training_iteration": iterations}, verbose=0),
    )
    results = tuner.fit()
    for result in results:
        print(f"{_settings(result)}  mean return {result.metrics['env_runners']['episode_return_mean']:.2f}")
    print(f"best: {_settings(results.get_best_result())}")
    ray.shutdown()


def _settings(result: tune.Result) -> str:
    return f"learning rate {result.config['lr']:g}, clip range {result.config['clip_param']:g}"


if __name__ == "__main__":
    main()
