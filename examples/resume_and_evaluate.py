"""Extend a finished run with other settings, and score it before and after.

python examples/resume_and_evaluate.py
"""

import cavalcade

run = cavalcade.train("cage2", red="meander", episodes=2_000, num_envs=50)
before = run.evaluate(episodes=50, revisions=("head",), cells=("meander-100",))
run = run.resume(episodes=4_000, learning_rate=5e-4)
after = run.evaluate(episodes=50, revisions=("head",), cells=("meander-100",))
print(before, after, sep="\n")
print(f"changes: {run.history()}")
print(f"open it again with cavalcade.Run({str(run.path)!r})")
