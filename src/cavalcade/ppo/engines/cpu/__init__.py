"""PPO in compiled kernels for CPU threads; everything here is held to the plain torch functions of `ppo` by tests."""
