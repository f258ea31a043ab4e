"""A live page for runs: a small server on loopback that reads what runs write anyway, and changes nothing.

Nothing here imports torch or Numba at start: beside a training, the server costs next to nothing.
"""
