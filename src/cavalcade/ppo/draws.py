"""Random numbers for actions: hashes of environment, time and part of the action."""

from cavalcade.core.jit import formula, kernel
from cavalcade.core.rng import step_key, unit, word


@formula
def draw_target(keys, e, clock, part):
    """A uniform number in [0, 1) for a part of an action, or −1 (greedy) if the clock is negative."""
    return -1.0 if clock < 0 else unit(word(step_key(keys[e], 0, clock), part))


@kernel
def uniform_draws(keys, clock, start, draws):
    """Uniform numbers of environments from start on, (n, draws); clock: (P,)."""
    n = keys.size // clock.size
    for i in range(draws.shape[0]):
        e = start + i
        for part in range(draws.shape[1]):
            draws[i, part] = draw_target(keys, e, clock[e // n], part)
