"""Samples actions on a GPU, one thread per row."""

from cavalcade.core.cuda import cuda, gpu_kernel
from cavalcade.ppo.draws import draw_row


@gpu_kernel
def draw_clocked(count, logits, mask, keys, clock, actions, log_probs):
    """As that of `draw`."""
    i = cuda.grid(1)
    if i < count:
        draw_row(i, logits, mask, keys, clock[0], 0, actions, log_probs)
