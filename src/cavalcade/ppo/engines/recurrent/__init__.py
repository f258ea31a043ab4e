"""PPO for policies with memory: experience in segments, gradients back through time."""
