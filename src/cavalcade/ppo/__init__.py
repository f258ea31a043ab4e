"""PPO for populations of policies. It knows environments only by their contract."""
