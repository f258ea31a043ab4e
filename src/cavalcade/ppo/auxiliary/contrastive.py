"""A contrastive loss (InfoNCE, van den Oord et al. 2018): features should predict the agent's own near future."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from torch import Tensor

from cavalcade.policy.recurrent import Output
from cavalcade.ppo.engines.recurrent.auxiliary_loss import AuxiliaryLoss
from cavalcade.ppo.engines.recurrent.experience import Experience, Segments

_NEAR = 0.1  # rate of the geometric distribution of the steps into the future


class Contrastive(AuxiliaryLoss):
    """Per segment an anchor step and a later step of the same episode; the later steps of others are the negatives."""

    def __init__(self, coefficient: float, temperature: float, logsumexp: float, seed: int):
        self._coefficient, self._temperature, self._logsumexp, self._seed = coefficient, temperature, logsumexp, seed
        self._rng = np.random.default_rng(seed)

    def begin(self, experience: Experience, update: int, progress: float) -> None:
        """Seeds the choice of steps by the number of the update."""
        self._rng = np.random.default_rng([self._seed, update])

    def loss(self, batch: Segments, out: Output) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy of identifying the own future among all, plus a penalty on large similarities (logsumexp²)."""
        h, b = batch.begins.shape
        if h < 2:
            return super().loss(batch, out)
        now = self._rng.integers(0, h - 1, b)
        later = np.minimum(now + self._rng.geometric(_NEAR, b), h - 1)
        episode = np.cumsum(batch.begins, 0)
        segment = np.arange(b)
        same = episode[now, segment] == episode[later, segment]
        if same.sum() < 2:
            return super().loss(batch, out)
        device = out.features.device
        at, to, kept = (torch.from_numpy(x[same]).to(device) for x in (now, later, segment))
        anchor, future = (F.normalize(out.features[t, kept].float(), dim=-1) for t in (at, to))
        similarity = anchor @ future.T / self._temperature
        own = torch.arange(len(kept), device=device)
        found = F.cross_entropy(similarity, own)
        size = torch.logsumexp(similarity, 1).square().mean()
        right = (similarity.argmax(1) == own).float().mean()
        loss = self._coefficient * (found + self._logsumexp * size)
        return loss, {"contrastive_loss": found.detach(), "contrastive_right": right}
