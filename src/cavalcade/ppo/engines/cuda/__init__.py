"""PPO that runs entirely on one device: games, networks, rollouts and updates, on a GPU as two CUDA graphs."""
