"""Hosts single environments as a batch, in this process or in workers. Knows nothing of learning."""
