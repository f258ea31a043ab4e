"""PPO whose whole loop stays on one device: games, networks, experience and updates, on a GPU as two CUDA graphs."""
