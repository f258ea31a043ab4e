"""CAGE Challenge 2, exactly as in CybORG: the rules in plain Python, compiled for batches.

Read `game` first: one step in the order of the original. `env.Cage2` is the batch environment.
"""

from cavalcade.envs.cage2.env import Cage2

__all__ = ["Cage2"]
