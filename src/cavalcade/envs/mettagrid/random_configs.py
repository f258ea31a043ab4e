"""Random configurations of the form that the compiled simulator supports; needs the mettagrid package."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_EIGHT = ["north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest"]


def random_config(seed: int, *, agents: int = 0, window: tuple[int, int] | None = None) -> Any:
    """A MettaGridConfig; agents: number of agents, window: height and width, both random if not given."""
    rng = np.random.default_rng([seed, 17])
    return _Draw(rng, agents or int(rng.choice([1, 2, 3, 7, 24]))).config(window)


class _Draw:
    """Draws the parts of one configuration."""

    def __init__(self, rng: np.random.Generator, agents: int):
        from mettagrid.config import mettagrid_config
        from mettagrid.config.vibes import VIBES

        self._m: Any = mettagrid_config
        self._vibes, self._rng, self._agents = VIBES[:4], rng, agents
        self._names = [f"r{i}" for i in range(rng.integers(1, 14 if agents < 60 else 6))]
        self._advanced = agents <= 60 and self._chance(0.7)  # anything beyond objects that give to and take from actors
        self._limits: list[str] = []

    def config(self, window: tuple[int, int] | None) -> Any:
        from mettagrid.map_builder.random_map import RandomMapBuilder

        m, rng, agents = self._m, self._rng, self._agents
        height, width = window or (int(x) for x in rng.choice([3, 5, 7, 9, 11, 13, 15], 2))
        crew = [self._agent() for _ in range(agents if self._more(0.3) else 1)]
        if len(crew) > 1:
            crew = self._teams(crew)
        objects = {"wall": m.WallConfig(tags=["hard"] if self._chance(0.3) else [], blocks_vision=self._more(0.4))}
        for i in range(rng.integers(1, 6)):
            objects[f"thing{i}"] = self._object(f"thing{i}")
        world = m.GlobalObsConfig(
            **{name: self._chance(0.7) for name in ("episode_completion_pct", "last_action", "last_reward")},
            **{name: self._more(0.4) for name in ("last_action_move", "local_position", "goal_obs")},
        )
        base, side = (
            int(rng.choice([2, 3, 10, 16, 255, 256] if agents < 60 else [10, 256])),
            9 + int(np.sqrt(2 * agents)),
        )
        directions = _EIGHT if self._chance(0.5) else ["west", "north", "east", "south"]
        return m.MettaGridConfig(
            game=m.GameConfig(
                num_agents=agents,
                max_steps=int(rng.choice([0, 25, 1000])),
                episode_truncates=self._chance(0.5),
                resource_names=self._names,
                tags=["spare"] if self._chance(0.3) else [],
                protocol_details_obs=self._chance(0.5),
                obs=m.ObsConfig(width=width, height=height, num_tokens=4001, token_value_base=base, global_obs=world),
                actions=m.ActionsConfig(
                    move=m.MoveActionConfig(allowed_directions=directions),
                    change_vibe=m.ChangeVibeActionConfig(enabled=self._chance(0.3), vibes=self._vibes),
                ),
                objects=objects,
                agent=crew[0],
                agents=crew if len(crew) > 1 else [],
                map_builder=RandomMapBuilder.Config(
                    width=int(rng.integers(side, side + 7)),
                    height=int(rng.integers(side, side + 7)),
                    agents=self._agent_cells(crew),
                    border_width=int(rng.integers(0, 2)),
                    objects={name: int(rng.integers(1, 8)) for name in objects},
                ),
            ),
        )

    def _chance(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _more(self, share: float) -> bool:
        return self._advanced and self._chance(share)

    def _some(self, most: int, of: Sequence[str] = ()) -> list[str]:
        names = list(of or self._names)
        return [names[i] for i in self._rng.permutation(len(names))[: self._rng.integers(0, most + 1)]]

    def _amounts(self, most: int, low: int, high: int) -> dict[str, int]:
        return {name: int(self._rng.integers(low, high)) for name in self._some(most)}

    def _teams(self, crew: list[Any]) -> list[Any]:
        """Agents of one to three teams; those of a team have the same tags.

        Small numbers of teams are in order: otherwise several teams share names in maps.
        """
        drawn = self._rng.integers(0, self._rng.integers(1, 4), len(crew)).tolist()
        order = list(dict.fromkeys(drawn))
        ids = [7, 300, 12] if self._chance(0.4) else [0, 1, 2]
        tags = [[f"team:{i}"] if self._chance(0.7) else [] for i in range(3)]
        teams = [order.index(i) for i in drawn]
        pairs = zip(crew, teams, strict=True)
        return [agent.model_copy(update={"team_id": ids[i], "tags": tags[i]}) for agent, i in pairs]

    def _agent_cells(self, crew: list[Any]) -> Any:
        teams = list(dict.fromkeys(agent.team_id for agent in crew)) if len(crew) > 1 else []
        counts = {f"team_{i}": sum(agent.team_id == team for agent in crew) for i, team in enumerate(teams)}
        return counts if counts else self._agents

    def _agent(self) -> Any:
        m = self._m
        agent = m.AgentConfig(
            rewards=self._rewards(),
            tags=["team:x"] if self._chance(0.3) else [],
            vibe=int(self._rng.integers(0, 2)),
            inventory=self._inventory([2, 50, 65535], 5),
        )
        self._limits = list(agent.inventory.limits)
        for name in ("on_tick", "on_after_use_handler", "on_use_handler"):
            if self._more(0.3):
                setattr(agent, name, self._handler(2))
        return agent

    def _object(self, name: str) -> Any:
        handler = self._handler(2) if self._advanced else self._plain_handler()
        return self._m.GridObjectConfig(
            name=name,
            on_use_handler=handler if self._chance(0.9) else None,
            tags=[*(f"tag{j}" for j in range(self._rng.integers(0, 3))), *(["team:x"] if self._more(0.3) else [])],
            vibe=int(self._rng.integers(0, 3)),
            blocks_vision=self._more(0.2),
            inventory=self._inventory([2, 50, 65535], 4) if self._more(0.5) else self._m.InventoryConfig(),
        )

    def _inventory(self, defaults: list[int], most: int) -> Any:
        left, limits, rng = list(self._names), {}, self._rng
        rng.shuffle(left)
        modified = self._more(0.3)
        while left and self._chance(0.7):
            group = [left.pop() for _ in range(1 if modified else min(len(left), int(rng.integers(1, 4))))]
            limits[group[0]] = self._m.ResourceLimitsConfig(
                base=int(rng.choice([0, 1, 3, 10, 300])), max=int(rng.choice([65535, 5])), resources=group,
                modifiers={name: int(rng.integers(1, 4)) for name in self._some(2)} if modified else {},
            )  # fmt: skip
        initial = {name: int(rng.choice([0, 1, 4, 300])) for name in self._some(most)}
        return self._m.InventoryConfig(default_limit=int(rng.choice(defaults)), limits=limits, initial=initial)

    def _rewards(self) -> dict[str, Any]:
        from mettagrid.config.game_value import InventoryValue, SumGameValue, val
        from mettagrid.config.reward_config import AgentReward, reward

        found: dict[str, Any] = {}
        for name in self._some(4):
            value: Any = InventoryValue(item=name)
            if self._more(0.5):
                value = [self._value() for _ in range(self._rng.integers(1, 4))]
            found[name] = reward(
                value,
                weight=float(self._rng.normal()),
                min=float(self._rng.choice([0.3, -1])) if self._chance(0.3) else None,
                max=float(self._rng.choice([0.5, 2])) if self._chance(0.5) else None,
                per_tick=self._chance(0.3),
            )
        if self._more(0.3):
            values = [self._value(), val(float(self._rng.normal())), self._value()]
            found["sum"] = AgentReward(reward=SumGameValue(values=values, weights=list(self._rng.normal(size=3))))
        return found

    def _value(self) -> Any:
        from mettagrid.config.game_value import InventoryValue, StatValue

        from cavalcade.envs.mettagrid.statistics import counted

        if self._chance(0.4):
            return InventoryValue(item=str(self._rng.choice(self._names)))
        return StatValue(name=str(self._rng.choice(counted(self._names))), delta=self._chance(0.2))

    def _plain_handler(self) -> Any:
        from mettagrid.config.handler_config import Handler, actorHas, updateActor

        filters = [actorHas(self._amounts(2, 0, 3)) for _ in range(self._rng.integers(0, 3))]
        mutations: list[Any] = [updateActor(self._amounts(3, -3, 6)) for _ in range(self._rng.integers(0, 3))]
        return Handler(name="use", filters=filters, mutations=mutations)

    def _handler(self, depth: int) -> Any:
        from mettagrid.config.handler_config import AllOf, FirstMatch, Handler

        if depth and self._chance(0.4):
            kind = FirstMatch if self._chance(0.5) else AllOf
            return kind(handlers=[self._handler(depth - 1) for _ in range(self._rng.integers(0, 4))])
        filters = [self._filter(2) for _ in range(self._rng.integers(0, 3))]
        return Handler(
            name="use", filters=filters, mutations=[self._mutation() for _ in range(self._rng.integers(0, 4))]
        )

    def _filter(self, depth: int) -> Any:
        from mettagrid.config import filter as f
        from mettagrid.config.filter.periodic_filter import PeriodicFilter
        from mettagrid.config.filter.shared_tag_prefix_filter import SharedTagPrefixFilter
        from mettagrid.config.filter.tag_filter import TagFilter
        from mettagrid.config.filter.tag_prefix_filter import TagPrefixFilter

        actor, target = f.HandlerTarget.ACTOR, f.HandlerTarget.TARGET
        rng = self._rng
        who = actor if self._chance(0.5) else target
        kinds: list[Callable[[], Any]] = [
            lambda: f.ResourceFilter(target=who, resources=self._amounts(2, 0, 3)),
            lambda: f.VibeFilter(target=who, vibe=str(rng.choice([*(vibe.name for vibe in self._vibes), "none"]))),
            lambda: TagFilter(target=who, tag=str(rng.choice(["team:x", "tag1", "type:agent", "nothing"]))),
            lambda: TagPrefixFilter(target=who, tag_prefix=str(rng.choice(["type:t", "type:"]))),
            lambda: SharedTagPrefixFilter(tag_prefix="t"),
            lambda: PeriodicFilter(period=int(rng.integers(1, 5)), start_on=int(rng.integers(0, 9))),
            lambda: PeriodicFilter(period=int(rng.integers(1, 5))),
        ]  # fmt: skip
        if depth:
            kinds += [
                lambda: f.NotFilter(inner=self._filter(depth - 1)),
                lambda: f.OrFilter(inner=[self._filter(depth - 1) for _ in range(rng.integers(0, 3))]),
            ]
        return kinds[int(rng.choice([0, 0, 0, *range(len(kinds))]))]()

    def _mutation(self) -> Any:
        from mettagrid.config import handler_config as h
        from mettagrid.config.mutation import ClearInventoryMutation, EntityTarget

        rng = self._rng
        kinds: list[Callable[[], Any]] = [
            lambda: h.updateActor(self._amounts(3, -3, 6)),
            lambda: h.updateTarget(self._amounts(2, -3, 6)),
            lambda: h.withdraw(self._amounts(2, -1, 5)),
            lambda: h.deposit(self._amounts(2, -1, 5)),
        ]
        if self._limits and self._chance(0.1):
            target = EntityTarget.ACTOR if self._chance(0.5) else EntityTarget.TARGET
            return ClearInventoryMutation(target=target, limit_name=str(rng.choice(self._limits)))
        return kinds[int(rng.choice([0, 0, *range(len(kinds))]))]()
