"""Foundations: the environment contract, errors, random numbers, compilation, devices and threads."""

import os

# Threads of OpenMP that wait for work spin for a while, then sleep. By default they spin for ten milliseconds, which
# workers, Python threads and other programs then lack; without spinning, training on a quiet machine is a third slower.
# Torch's copy of OpenMP serves Numba, too, and reads this when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:  # which the user chose
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
