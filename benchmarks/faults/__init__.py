"""Faults by the thousand, from a seed: crashes, broken files, bad options, scarce resources, and a soak.

    python -m benchmarks.faults [crashes] [files] [options] [resources] [soak] [--seed 0] [--count N] [--jobs 1]

Everything that is tried is printed, and a table at the end; the exit status is 1 if anything was lost.
docs/reliability.md says what each part does and what it found.
"""
