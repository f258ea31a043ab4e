"""Episodes per second of training on our CAGE-2 with other trainers: RLlib and Stable-Baselines3, beside ours.

    python benchmarks/peers/trainers.py [rllib] [sb3] [subproc] [ours] [--seconds 30]

The shape that users of RLlib have: 100 environments, batches of 10,000 steps, 100-step episodes against B_line, 64-64
networks, 4 epochs of 4 minibatches. `sb3` steps a whole batch (`Sb3VecEnv`), `subproc` a process per environment.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

from cavalcade.core.threads import cores
from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2
from cavalcade.tuning import machine

ENVS, STEPS, EPOCHS, MINIBATCHES = 100, 100, 4, 4
Update = Callable[[], object]  # a batch of 10,000 steps, and what is learnt from it


def with_rllib() -> tuple[Update, Update]:
    """RLlib's PPO on our vector environment; one process plays, one learns."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    from cavalcade.envs import rllib

    ray.init("local", num_cpus=cores(), include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    rllib.register()
    config = (
        PPOConfig()
        .environment(CAGE2_ID, env_config={"red": "bline", "horizon": STEPS})
        .env_runners(
            num_env_runners=1, num_envs_per_env_runner=ENVS, gym_env_vectorize_mode="vector_entry_point",
        )
        .training(
            train_batch_size_per_learner=ENVS * STEPS, minibatch_size=ENVS * STEPS // MINIBATCHES, num_epochs=EPOCHS,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
    )  # fmt: skip
    algorithm = config.build_algo()
    return algorithm.train, lambda: (algorithm.stop(), ray.shutdown())


def with_sb3(*, processes: bool = False) -> tuple[Update, Update]:
    """PPO of Stable-Baselines3."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from cavalcade.envs.sb3 import Sb3VecEnv

    if processes:
        env = SubprocVecEnv([lambda: gymnasium.make(CAGE2_ID, red="bline", dtype="float32") for _ in range(ENVS)])
    else:
        env = Sb3VecEnv(Cage2(ENVS, red="bline", dtype="float32"))
    size = ENVS * STEPS
    nets = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    model = PPO(
        "MlpPolicy", env, n_steps=STEPS, batch_size=size // MINIBATCHES, n_epochs=EPOCHS, device="cpu",
        policy_kwargs=nets,
    )  # fmt: skip
    return lambda: model.learn(size, reset_num_timesteps=False), env.close


def with_ours() -> tuple[Update, Update]:
    """Our cpu engine."""
    from cavalcade.cli.bench.train import our_trainer
    from cavalcade.config import PPOConfig
    from cavalcade.core.threads import use_threads
    from cavalcade.ppo.threads import choose_threads
    from cavalcade.targets.cage2.config import Cage2Config

    use_threads(threads := choose_threads())
    ppo = PPOConfig(num_envs=ENVS, rollout_steps=STEPS, epochs=EPOCHS, minibatches=MINIBATCHES)
    return our_trainer(Cage2Config(ppo=ppo), threads), lambda: None


WAYS: dict[str, tuple[str, Callable[[], tuple[Update, Update]]]] = {
    "rllib": ("RLlib PPO", with_rllib),
    "sb3": ("Stable-Baselines3 PPO, Sb3VecEnv", with_sb3),
    "subproc": ("Stable-Baselines3 PPO, SubprocVecEnv", lambda: with_sb3(processes=True)),
    "ours": ("cavalcade train", with_ours),
}


def main() -> None:
    """Prints a row each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], default=[])
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    print(machine.line())
    for way in given.ways or WAYS:
        name, make = WAYS[way]
        update, close = make()
        update()  # compiles, and starts what has to be started
        count, start = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - start < given.seconds:
            update()
            count += 1
        rate = count * ENVS / (time.perf_counter() - start)
        print(f"{name:<40}{rate:>10,.0f} episodes/s{100 * rate:>14,.0f} steps/s", flush=True)
        close()


if __name__ == "__main__":
    main()
