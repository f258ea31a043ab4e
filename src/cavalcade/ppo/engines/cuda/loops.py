"""The rows of `sample` for all environments or samples, on the CPU."""

from cavalcade.jit import kernel
from cavalcade.ppo.fused.gae import gae_environment
from cavalcade.ppo.resident import sample


@kernel
def draw(count, *args):
    """Draws of all environments."""
    for i in range(count):
        sample.draw(i, *args)


@kernel
def greedy(count, *args):
    """Likeliest actions of all environments."""
    for i in range(count):
        sample.greedy(i, *args)


@kernel
def book(count, *args):
    """Results of all environments."""
    for i in range(count):
        sample.book(i, *args)


@kernel
def discount(count, *args):
    """Discounted rewards of all environments."""
    for i in range(count):
        sample.discount(i, *args)


@kernel
def shuffle_key(count, *args):
    """Random numbers of all environments."""
    for i in range(count):
        sample.shuffle_key(i, *args)


@kernel
def loss(count, *args):
    """Losses of all samples of a minibatch."""
    for i in range(count):
        sample.loss(i, *args)


@kernel
def gae(count, *args):
    """Advantages of all environments."""
    n = args[0].shape[2]
    for i in range(count):
        gae_environment(*args, i // n, i % n)
