"""Train RLlib's PPO on CAGE-2 in Cavalcade's vector environment.

    pip install 'cavalcade[ray]'
    python examples/rllib_ppo.py --iterations 8

Ray runs on this machine only: two CPUs, listening on loopback only, no usage statistics.
"""

import argparse
import os

# Set before Ray is imported. Without the second, Ray replaces 127.0.0.1 by the address of the network card.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from cavalcade.envs import CAGE2_ID, rllib


def main() -> None:
    """Trains, and prints the mean return of the latest 100 episodes after each iteration."""
    parser = argparse.ArgumentParser(description="RLlib's PPO on CAGE-2.")
    parser.add_argument("--iterations", type=int, default=8)
    iterations = parser.parse_args().iterations

    ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    rllib.register()
    config = (
        PPOConfig()
        .environment(CAGE2_ID, env_config={"red": "bline", "horizon": 30})
        .env_runners(
            num_env_runners=1,
            num_envs_per_env_runner=64,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .training(train_batch_size_per_learner=64 * 30, minibatch_size=480, num_epochs=4, lr=2e-3, entropy_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    for iteration in range(1, iterations + 1):
        result = algorithm.train()["env_runners"]
        print(f"iteration {iteration}  mean return {result['episode_return_mean']:.2f}", flush=True)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
