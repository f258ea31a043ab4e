"""The functions of `sample` for all environments or samples, on the CPU."""

from cavalcade.core.jit import kernel
from cavalcade.ppo.engines.cuda import sample
from cavalcade.ppo.gae import gae_environment


@kernel
def draw(count, *args):
    for i in range(count):
        sample.draw(i, *args)


@kernel
def greedy(count, *args):
    for i in range(count):
        sample.greedy(i, *args)


@kernel
def record_step(count, *args):
    for i in range(count):
        sample.record_step(i, *args)


@kernel
def discount(count, *args):
    for i in range(count):
        sample.discount(i, *args)


@kernel
def shuffle_key(count, *args):
    for i in range(count):
        sample.shuffle_key(i, *args)


@kernel
def loss(count, *args):
    for i in range(count):
        sample.loss(i, *args)


@kernel
def gae(count, *args):
    n = args[0].shape[2]
    for i in range(count):
        gae_environment(*args, i // n, i % n)
