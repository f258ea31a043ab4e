"""Free-running games return on average what the original's do, in every cell of the recorded episode_stats."""

import json

import numpy as np
import pytest

from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scripted import BLUES

EPISODES = 20_000
HORIZONS = (30, 50, 100)
POLICIES = {"sleep": "sleep", "random": "random", "rule": "react"}


def returns(revision, red, blue):
    """Returns at the three horizons, (3, episodes): sums of the first rewards of the same games."""
    env = Cage2(EPISODES, red=red, revision=revision, seed=2022, horizon=0)
    env.reset()
    rng = np.random.default_rng(1)
    found = []
    for t in range(1, max(HORIZONS) + 1):
        env.step(BLUES[POLICIES[blue]](env, rng))
        if t in HORIZONS:
            found.append(env.state.total / 10)
    return np.array(found)


@pytest.mark.parametrize("revision", ["head", "leaderboard-2022"])
@pytest.mark.parametrize("red", ["bline", "meander", "sleep"])
@pytest.mark.parametrize("blue", list(POLICIES))
def test_mean_returns_agree_with_the_original(data, revision, red, blue):
    cells = json.loads((data / "returns.json").read_text())["results"]
    cells = {c["horizon"]: c for c in cells if (c["revision"], c["red"], c["blue"]) == (revision, red, blue)}
    for horizon, found in zip(HORIZONS, returns(revision, red, blue), strict=True):
        mean, error = found.mean(), found.std(ddof=1) / np.sqrt(EPISODES)
        for source, limit in (("model", 3), ("original", 4)):
            figure = cells[horizon][source]
            combined = np.hypot(error, figure["se"])
            if combined == 0:
                assert mean == figure["mean"]
            else:
                assert abs(mean - figure["mean"]) <= limit * combined, (horizon, source, mean, figure["mean"], combined)
