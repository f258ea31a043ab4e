"""Cavalcade trains reinforcement-learning agents in seconds where people now wait for hours."""

from cavalcade.envs import register

__version__ = "0.1.0"

register()
