"""PPO in compiled kernels for CPU threads; tests compare everything here with the plain torch functions of `ppo`."""
