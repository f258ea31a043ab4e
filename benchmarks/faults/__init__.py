"""Faults by the thousand, from a seed: crashes, broken files, bad options, full disks, scarce resources, and a soak.

    python -m benchmarks.faults [crashes] [chains] [files] [options] [disks] [resources] [soak] [--seed 0] [--count N]
    python -m benchmarks.faults totals

Everything that is tried is printed, and a table at the end; the exit status is 1 if anything was lost. With --results
each call appends a line to a file, and `totals` adds them up: parts of a campaign may run one after the other
(--share 1/4, --seed, --only). docs/reliability.md says what each part does and what it found.
"""
