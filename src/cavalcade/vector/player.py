"""Plays fragments of T steps with a copy of the policy: the same code in worker processes and in Ray actors.

As `worker`, it runs on Python 3.8 and imports nothing of Cavalcade, so that old environments can be played too. Random
numbers are those of `core.rng`: hashes of environment, step and part of the action.
"""

from statistics import NormalDist

import numpy as np

_GOLDEN, _MULTIPLY_1, _MULTIPLY_2 = (
    np.array(n, np.uint64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_11, _27, _30, _31 = (np.array(n, np.uint64) for n in (11, 27, 30, 31))
_IMPOSSIBLE = np.float32(-1e30)  # logit of a masked action
_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))
_SMALLEST = 2.0**-54  # keeps a uniform draw away from 0 and 1
_SHOWN = ("observation", "action_mask")
_MINE = (*_SHOWN, "final_observation", "reward", "terminated", "truncated", "action", "episode_stats", "wanted")


class Player:
    """Steps environments with the actions of its policy, into the fields of a fragment.

    rows: environments with `reset` and `step`; fields: arrays that they read and write, of which start … stop − 1 are
    theirs; policy: see `Perceptron`; keys: of the random draws, (n,).

    Fields of a fragment, (T, n, …), are those of `fields` with the action as the policy chose it, its `log_prob`, and
    `lost`, steps at which an episode was lost with its worker; observation and action_mask are (T + 1, n, …).
    """

    def __init__(self, rows, fields, start, stop, policy, keys):
        self.rows, self.policy, self._keys = rows, self.make_policy(policy), np.asarray(keys, np.uint64)
        self.mine = {name: fields[name][start:stop] for name in _MINE}

    def make_policy(self, plain):
        """The policy from plain data."""
        return Perceptron(plain)

    def reset(self):
        """Begins an episode in every environment."""
        self.mine["wanted"][:] = True
        self.rows.reset()

    def draw(self, clock, steps, values):
        """Loads the policy from its values, and draws the random numbers of so many steps after `clock` steps."""
        self.policy.load(values)
        self.noise = self.policy.noise(uniform(self._keys, clock, steps, self.policy.draws))

    def act(self, fragment, t, lost):
        """Actions of step t and their log-probabilities; lost: as in `step`."""
        return self.policy.act(fragment["observation"][t], fragment["action_mask"][t], self.noise[t])

    def show(self, fragment, t):
        """Writes the current observations as those of step t."""
        for name in _SHOWN:
            fragment[name][t] = self.mine[name]

    def step(self, fragment, t, lost=False):
        """Plays step t; lost: episodes were lost with their worker and are truncated, and new ones begin."""
        action, log_prob = self.act(fragment, t, lost)
        fragment["action"][t], fragment["log_prob"][t], fragment["lost"][t] = action, log_prob, lost
        if lost:
            fragment["final_observation"][t], fragment["episode_stats"][t] = fragment["observation"][t], np.nan
            fragment["reward"][t], fragment["terminated"][t], fragment["truncated"][t] = 0, False, True
            self.reset()
        else:
            mine = self.mine
            mine["action"][:] = self.policy.sent(action)
            self.rows.step()
            for name in ("reward", "terminated", "truncated"):
                fragment[name][t] = mine[name]
            if mine["terminated"].any() or mine["truncated"].any():
                for name in ("final_observation", "episode_stats"):
                    fragment[name][t] = mine[name]
        self.show(fragment, t + 1)


class Perceptron:
    """The actor of a policy, from plain data.

    layers: sizes and offsets of each layer in the weights; head, sizes: the distribution over actions; deviations:
    offset of the log standard deviations of a Gaussian; scaling: middle, half width, lower and upper bounds of
    continuous actions, or None; draws: random numbers per action; inputs: observation values; size: number of weights.
    """

    def __init__(self, plain):
        self._plain, self.draws = plain, plain["draws"]
        self._scaling = [np.array(x, np.float32) for x in plain["scaling"]] if plain["scaling"] else None

    def load(self, values):
        """Reads weights, shift and scale of observations from a row of numbers, which must not change afterwards."""
        p, at = self._plain, self._plain["size"]
        self._layers = [
            (values[w : w + i * c].reshape(i, c)[:, :o], values[b : b + o]) for i, o, c, w, b in p["layers"]
        ]
        self._shift, self._scale = values[at : at + p["inputs"]], values[at + p["inputs"] :]
        self._deviation = values[p["deviations"] : at]

    def noise(self, uniform):
        """Random numbers as `act` takes them: uniform, or normal for a Gaussian."""
        if self._scaling is None:
            return uniform
        inverse = np.frompyfunc(NormalDist().inv_cdf, 1, 1)
        return np.asarray(inverse(uniform.clip(_SMALLEST, 1 - 2 * _SMALLEST)), np.float32)

    def act(self, observation, mask, noise):
        """Actions of observations (n, O) and their log-probabilities."""
        h = (observation - self._shift) * self._scale
        for weight, bias in self._layers[:-1]:
            h = np.tanh(h @ weight + bias)
        weight, bias = self._layers[-1]
        h = h @ weight + bias
        if self._scaling is not None:
            density = -0.5 * noise**2 - self._deviation - _HALF_LOG_2PI
            return h + np.exp(self._deviation) * noise, density.sum(1)
        if self._plain["head"] == "choice":
            return choose(h, mask, noise)
        cuts = np.cumsum(self._plain["sizes"])[:-1]
        parts = zip(np.split(h, cuts, 1), np.split(mask, cuts, 1), noise.T)
        actions, log_probs = zip(*(choose(x, m, u[:, None]) for x, m, u in parts))
        return np.stack(actions, 1), sum(log_probs)

    def sent(self, action):
        """Actions as the environment takes them."""
        return action if self._scaling is None else scaled(action, self._scaling)


def scaled(action, scaling):
    """Continuous actions as the environment takes them; scaling: middle, half width, lower and upper bounds."""
    middle, half, low, high = scaling
    return np.clip(middle + half * action, low, high)


def choose(logits, mask, target):
    """One of the allowed actions per row and its log-probability, by inversion of the cumulative distribution.

    logits, mask: (n, A); target: (n, 1), uniform in [0, 1).
    """
    if not mask.all():
        logits = np.where(mask, logits, _IMPOSSIBLE)
    weight = np.exp(logits - logits.max(1, keepdims=True))
    cumulative = weight.cumsum(1, dtype=np.float64)
    total = cumulative[:, -1:]
    action = (cumulative <= target * total).sum(1)
    return action, np.log(weight[np.arange(len(action)), action] / total[:, 0])


def uniform(keys, clock, steps, parts):
    """Uniform numbers in [0, 1) of steps clock … clock + steps − 1, (steps, n, parts)."""
    when = mix(np.arange(clock, clock + steps).astype(np.uint64) + _GOLDEN)
    step = mix(keys[None, :] ^ when[:, None])
    bits = mix(step[:, :, None] + np.arange(1, parts + 1).astype(np.uint64) * _GOLDEN)
    return (bits >> _11).astype(np.float64) * 2.0**-53


def mix(x):
    """The finaliser of SplitMix64."""
    x = (x ^ (x >> _30)) * _MULTIPLY_1
    x = (x ^ (x >> _27)) * _MULTIPLY_2
    return x ^ (x >> _31)
