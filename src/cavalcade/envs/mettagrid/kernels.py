"""The functions of `parts` for all arenas or agents, on a GPU: one thread each."""

from cavalcade.core.cuda import cuda, gpu_kernel
from cavalcade.envs.mettagrid import parts


@gpu_kernel
def act_arena(count, state, tables, actions):
    i = cuda.grid(1)
    if i < count:
        parts.act_arena(i, state, tables, actions)


@gpu_kernel
def describe_holder(count, state, tables, visible, visible_count, reward, paid):
    i = cuda.grid(1)
    if i < count:
        parts.describe_holder(i, state, tables, visible, visible_count, reward, paid)


@gpu_kernel
def look_agent(count, state, tables, visible, visible_count, words, seen):
    i = cuda.grid(1)
    if i < count:
        parts.look_agent(i, state, tables, visible, visible_count, words, seen)


@gpu_kernel
def begin_arena(count, arenas, grids, places, roles, things, seeds, state, tables):
    i = cuda.grid(1)
    if i < count:
        parts.begin_arena(i, arenas, grids, places, roles, things, seeds, state, tables)
