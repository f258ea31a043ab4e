"""The functions of `parts` for all arenas or agents, on the CPU."""

from cavalcade.core.jit import kernel
from cavalcade.envs.mettagrid import parts


@kernel
def act_arena(count, *args):
    for i in range(count):
        parts.act_arena(i, *args)


@kernel
def describe_holder(count, *args):
    for i in range(count):
        parts.describe_holder(i, *args)


@kernel
def look_agent(count, *args):
    for i in range(count):
        parts.look_agent(i, *args)


@kernel
def begin_arena(count, *args):
    for i in range(count):
        parts.begin_arena(i, *args)
