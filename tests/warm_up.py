"""Compiles the kernels that most tests use, once and on two processes, before several workers would each do so."""

import tempfile
from pathlib import Path

import cavalcade


def main() -> None:
    """Trains for a moment."""
    with tempfile.TemporaryDirectory() as folder:
        for red, policies in (("bline", 1), ("mixed", 2)):
            run = Path(folder, red)
            cavalcade.train(
                "cage2", red=red, policies=policies, num_envs=8, rollout_steps=10, episodes=8, device="cpu", run=run
            )


if __name__ == "__main__":
    main()
