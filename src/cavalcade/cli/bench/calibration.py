"""How often a search answers what it should: simulated searches that draw their trainings from a stored table.

A simulated search proposes and confirms as the real one does, by the same code. A training is one of the stored ones of
its order's class, drawn at random. Where labels are permuted it is one of all that are stored, each drawn once: all
orders are equal then, and "yes" is a false alarm.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import torch

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search.analysis import by_class
from cavalcade.search.config import SearchConfig
from cavalcade.search.decisions import to_confirm
from cavalcade.search.searchers import GpSearcher, Observation, Proposal
from cavalcade.search.verdict import judge

_PARALLEL = 8


def simulated(scores: Sequence[Sequence[float]], units: Sequence[int], permuted: bool, seed: int) -> str:
    """The answer of one search with default settings; units: the class of each order."""
    torch.set_num_threads(1)
    c, rng = SearchConfig(), np.random.default_rng([seed, 5])
    shuffled = iter(rng.permutation(np.concatenate([np.asarray(s) for s in scores])))
    of_class = by_class(dict(enumerate(scores)), units)

    def train(order: int) -> float:
        return float(next(shuffled) if permuted else rng.choice(of_class[units[order]]))

    searcher = GpSearcher(CAGE2.orders(), beta=c.ucb_beta, seed=seed)
    observed: list[Observation] = []
    pending: list[Proposal] = []
    for made in range(c.n_workflows):
        if len(pending) == _PARALLEL:
            done = pending.pop(0).order
            observed.append(Observation(done, train(done), 0.0))
        proposal = searcher.propose(observed, pending, made)
        assert proposal is not None
        pending.append(proposal)
    observed += [Observation(p.order, train(p.order), 0.0) for p in pending]
    mean = searcher.believe(observed, ()).mean
    ranked = sorted({o.order for o in observed}, key=lambda order: (-mean[order], order))
    groups: dict[int, list[float]] = {}
    for _ in range(c.confirm_batches):
        for order in to_confirm(ranked, c.rivals):
            groups.setdefault(units[order], []).extend(train(order) for _ in range(c.confirm))
        verdict = judge(groups, margin=c.margin, looks=c.confirm_batches)
        if verdict.answer != "cannot tell" or len(groups) < 2:
            break
    return verdict.answer


def answers(
    scores: Sequence[Sequence[float]], units: Sequence[int], searches: int, *, permuted: bool, workers: int
) -> dict[str, float]:
    """Shares of the answers of simulated searches."""
    one = partial(simulated, scores, units, permuted)
    with ProcessPoolExecutor(workers) as pool:
        said = list(pool.map(one, range(searches), chunksize=4))
    return {answer: said.count(answer) / searches for answer in ("yes", "no", "cannot tell")}
