"""Search over workflows: a Gaussian process over orders, searchers, and the run that trains what they propose."""
