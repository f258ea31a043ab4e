"""Train a CAGE-2 defender, score it, and let it act in a Gymnasium environment.

python examples/first_steps.py
"""

import gymnasium

import cavalcade

run = cavalcade.train("cage2", red="meander", episodes=5_000)
print(run.metrics()[["update", "steps", "return"]].tail() if hasattr(run.metrics(), "tail") else run.metrics())
print(run.evaluate(episodes=50, revisions=("head",)))

policy = cavalcade.load_policy(run.path)
env = gymnasium.make("cavalcade/Cage2-v0", red="meander")
observation, info = env.reset(seed=0)
total, over = 0.0, False
while not over:
    observation, reward, terminated, truncated, info = env.step(policy(observation, info["action_mask"]))
    total, over = total + float(reward), terminated or truncated
print(f"one game: return {total:.1f}, value of its last observation {policy.evaluate(observation).value:.2f}")
