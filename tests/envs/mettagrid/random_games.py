"""Random configurations of the form that the compiled simulator supports."""

import numpy as np
from mettagrid.config import mettagrid_config as m
from mettagrid.config.game_value import InventoryValue
from mettagrid.config.handler_config import Handler, actorHas, updateActor
from mettagrid.config.reward_config import reward
from mettagrid.config.vibes import VIBES
from mettagrid.map_builder.random_map import RandomMapBuilder

_EIGHT = ["north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest"]


def random_config(seed: int):
    """A MettaGridConfig with random objects, handlers, limits, initial inventories, rewards, windows and tokens."""
    rng = np.random.default_rng([seed, 17])
    names = [f"r{i}" for i in range(rng.integers(1, 14))]
    some = lambda most: [names[i] for i in rng.permutation(len(names))[: rng.integers(0, most + 1)]]  # noqa: E731
    objects = {"wall": m.WallConfig(tags=["hard"] if rng.random() < 0.3 else [])}
    for i in range(rng.integers(1, 6)):
        handler = Handler(
            name="use",
            filters=[actorHas({r: int(rng.integers(0, 3)) for r in some(2)}) for _ in range(rng.integers(0, 3))],
            mutations=[updateActor({r: int(rng.integers(-3, 6)) for r in some(3)}) for _ in range(rng.integers(0, 3))],
        )
        objects[f"thing{i}"] = m.GridObjectConfig(
            name=f"thing{i}",
            on_use_handler=handler if rng.random() < 0.9 else None,
            tags=[f"tag{j}" for j in range(rng.integers(0, 3))],
            vibe=int(rng.integers(0, 3)),
        )
    left = list(names)
    rng.shuffle(left)
    limits = {}
    while left and rng.random() < 0.7:
        group = [left.pop() for _ in range(min(len(left), int(rng.integers(1, 4))))]
        base = int(rng.choice([0, 1, 3, 10, 300]))
        limits[group[0]] = m.ResourceLimitsConfig(base=base, max=int(rng.choice([65535, 5])), resources=group)
    rewards = {
        r: reward(
            InventoryValue(item=r),
            weight=float(rng.normal()),
            min=float(rng.choice([0.3, -1])) if rng.random() < 0.3 else None,
            max=float(rng.choice([0.5, 2])) if rng.random() < 0.5 else None,
            per_tick=bool(rng.random() < 0.3),
        )
        for r in some(4)
    }
    agents = int(rng.choice([1, 2, 3, 7, 24]))
    width, height = (int(x) for x in rng.choice([3, 5, 7, 9, 11, 13, 15], 2))
    change = m.ChangeVibeActionConfig(enabled=bool(rng.random() < 0.3), vibes=VIBES[:4])
    world = m.GlobalObsConfig(
        episode_completion_pct=bool(rng.random() < 0.7), last_action=bool(rng.random() < 0.7),
        last_reward=bool(rng.random() < 0.7),
    )  # fmt: skip
    base = int(rng.choice([2, 3, 10, 16, 255, 256]))
    move = m.MoveActionConfig(allowed_directions=_EIGHT if rng.random() < 0.5 else ["west", "north", "east", "south"])
    counts = {name: int(rng.integers(1, 8)) for name in objects}
    return m.MettaGridConfig(
        game=m.GameConfig(
            num_agents=agents,
            max_steps=int(rng.choice([0, 25, 1000])),
            episode_truncates=bool(rng.random() < 0.5),
            resource_names=names,
            tags=["spare"] if rng.random() < 0.3 else [],
            protocol_details_obs=bool(rng.random() < 0.5),
            obs=m.ObsConfig(width=width, height=height, num_tokens=4001, token_value_base=base, global_obs=world),
            actions=m.ActionsConfig(move=move, change_vibe=change),
            objects=objects,
            agent=m.AgentConfig(
                rewards=rewards,
                tags=["team"] if rng.random() < 0.3 else [],
                vibe=int(rng.integers(0, 2)),
                inventory=m.InventoryConfig(
                    default_limit=int(rng.choice([2, 50, 65535])),
                    limits=limits,
                    initial={r: int(rng.choice([0, 1, 4, 300])) for r in some(5)},
                ),
            ),
            map_builder=RandomMapBuilder.Config(
                width=int(rng.integers(9, 16)), height=int(rng.integers(9, 16)), agents=agents,
                border_width=int(rng.integers(0, 2)), objects=counts,
            ),
        ),
    )  # fmt: skip
