"""Collectors: rollouts that are played outside the engine's process."""
