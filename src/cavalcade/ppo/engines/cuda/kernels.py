"""The functions of `sample` for all environments or samples, on a GPU: one thread each."""

from functools import partial

from cavalcade.core.cuda import cuda, gpu_kernel
from cavalcade.ppo.engines.cuda import sample
from cavalcade.ppo.gae import gae_environment

# fmt: off


@partial(gpu_kernel, fastmath=True)
def draw(
    count, bits, outputs, logits, values, masks, keys, clock, t, actions, store_action, store_log_prob, store_value
):
    i = cuda.grid(1)
    if i < count:
        sample.draw(
            i, bits, outputs, logits, values, masks, keys, clock, t, actions, store_action, store_log_prob,
            store_value,
        )


@gpu_kernel
def greedy(count, bits, outputs, logits, masks, actions):
    i = cuda.grid(1)
    if i < count:
        sample.greedy(i, bits, outputs, logits, masks, actions)


@gpu_kernel
def record_step(count, reward, truncated, t, end, rewards, ended, total, finals):
    i = cuda.grid(1)
    if i < count:
        sample.record_step(i, reward, truncated, t, end, rewards, ended, total, finals)


@gpu_kernel
def discount(count, rewards, ended, gamma, running, totals):
    i = cuda.grid(1)
    if i < count:
        sample.discount(i, rewards, ended, gamma, running, totals)


@gpu_kernel
def shuffle_key(count, keys, counter, epoch, out):
    i = cuda.grid(1)
    if i < count:
        sample.shuffle_key(i, keys, counter, epoch, out)


@partial(gpu_kernel, fastmath=True)
def loss(
    count, bits, outputs, c, samples, logits, values, order, first, masks, action, log_prob, value, advantage,
    returns, d_logits, d_values, terms,
):
    i = cuda.grid(1)
    if i < count:
        sample.loss(
            i, bits, outputs, c, samples, logits, values, order, first, masks, action, log_prob, value, advantage,
            returns, d_logits, d_values, terms,
        )


@gpu_kernel
def gae(count, reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns):
    i = cuda.grid(1)
    n = reward.shape[2]
    if i < count:
        gae_environment(
            reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns, i // n, i % n
        )
