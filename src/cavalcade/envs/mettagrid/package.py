"""The mettagrid package: games as its configurations, and its engine."""

from importlib import metadata
from typing import Any

from cavalcade.envs.mettagrid.game import Game, Kind, Reward
from cavalcade.envs.mettagrid.handlers import Give, Handler, Has


class Engines:
    """Makes engines of the package for a MettaGridConfig, which is converted once (0.5 ms an engine instead of 4)."""

    def __init__(self, config: Any):
        from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config

        self.game = config.game.model_copy(deep=True)  # the conversion adds agents to it
        self._converted, self._renamed = convert_to_cpp_game_config(self.game)

    def make(self, map_seed: int, seed: int) -> Any:
        """An engine at the start of an episode."""
        from mettagrid.config.mettagrid_c_config import rename_map_agents
        from mettagrid.mettagrid_c import MettaGrid

        grid = build_map(self.game.map_builder, map_seed, self.game.num_agents).tolist()
        return MettaGrid(self._converted, rename_map_agents(grid, self._renamed) if self._renamed else grid, seed)


def build_map(builder: Any, seed: int, agents: int) -> Any:
    """The names of a map's cells, (H, W); builder: a map builder's configuration."""
    seeded = builder.model_copy()
    if "seed" in type(builder).model_fields:  # hand-drawn maps have no seed
        seeded.seed = seed
    return seeded.create().build_for_num_agents(agents).grid


def installed_version() -> str:
    """The version of the package; empty if it is not installed."""
    try:
        return metadata.version("mettagrid")
    except metadata.PackageNotFoundError:
        return ""


def config_of(game: Game, label: str) -> Any:
    """The MettaGridConfig of a built-in game: random maps, one role, objects that give to actors and take from them."""
    from mettagrid.config import mettagrid_config
    from mettagrid.map_builder.random_map import RandomMapBuilder

    m: Any = mettagrid_config
    plan, (role,) = game.map, game.roles
    limits = {
        limit.resources[0]: m.ResourceLimitsConfig(base=limit.base, resources=list(limit.resources))
        for limit in role.inventory.limits
    }
    return m.MettaGridConfig(
        label=label,
        game=m.GameConfig(
            num_agents=game.agents,
            max_steps=game.max_steps,
            episode_truncates=True,
            resource_names=list(game.resources),
            obs=m.ObsConfig(width=game.window[1], height=game.window[0], num_tokens=game.tokens),
            actions=m.ActionsConfig(
                noop=m.NoopActionConfig(),
                move=m.MoveActionConfig(),
                change_vibe=m.ChangeVibeActionConfig(enabled=False),
            ),
            objects={kind.name: _object(kind) for kind in game.kinds},
            agent=m.AgentConfig(
                rewards={entry.terms[0].name: _reward(entry) for entry in role.rewards},
                inventory=m.InventoryConfig(default_limit=role.inventory.default_limit, limits=limits),
            ),
            map_builder=RandomMapBuilder.Config(
                width=plan.width,
                height=plan.height,
                agents=game.agents,
                border_width=plan.border,
                objects=dict(plan.objects),
            ),
        ),
    )


def _object(kind: Kind) -> Any:
    from mettagrid.config import handler_config as h
    from mettagrid.config.mettagrid_config import GridObjectConfig, WallConfig

    if kind.on_use is None:
        return WallConfig() if kind.wall else GridObjectConfig(name=kind.name)
    assert isinstance(kind.on_use, Handler)
    needs = {part.resource: part.amount for part in kind.on_use.filters if isinstance(part, Has)}
    deltas = {part.resource: part.amount for part in kind.on_use.mutations if isinstance(part, Give)}
    filters = [h.actorHas(needs)] if needs else []
    return GridObjectConfig(
        name=kind.name, on_use_handler=h.Handler(name="use", filters=filters, mutations=[h.updateActor(deltas)])
    )


def _reward(entry: Reward) -> Any:
    from mettagrid.config.game_value import InventoryValue
    from mettagrid.config.reward_config import reward

    (term,) = entry.terms
    return reward(InventoryValue(item=term.name), weight=term.weight, max=entry.most)
