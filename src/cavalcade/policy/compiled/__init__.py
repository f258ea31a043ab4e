"""The token policy compiled for the CPU: forward and backward passes in kernels, held to the plain torch modules."""
