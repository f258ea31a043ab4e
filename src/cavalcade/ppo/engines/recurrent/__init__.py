"""PPO for recurrent policies: experience in segments, backpropagation through time."""
