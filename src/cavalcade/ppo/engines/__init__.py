"""Engines, which compute PPO: plain torch, compiled kernels on the CPU, CUDA, recurrent policies."""
