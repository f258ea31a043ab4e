"""Train with a network of your own: any torch module that maps observations to logits and values.

python examples/own_network.py
"""

from torch import Tensor, nn

import cavalcade


class Residual(nn.Module):
    """One trunk with a residual block, shared by actor and critic."""

    def __init__(self, observation: int, outputs: int, width: int = 64):
        super().__init__()
        self.enter = nn.Linear(observation, width)
        self.block = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.actor, self.critic = nn.Linear(width, outputs), nn.Linear(width, 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, outputs) and values (B,)."""
        x = self.enter(observation)
        x = x + self.block(x)
        return self.actor(x), self.critic(x).squeeze(-1)


if __name__ == "__main__":
    run = cavalcade.train(
        "gym:CartPole-v1", backend="serial", num_envs=16, rollout_steps=64, steps=20_480, network=Residual
    )
    print(run.evaluate(episodes=20))
