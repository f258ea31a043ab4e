"""Token layout of a task, read from the mettagrid package."""

from typing import Any

from cavalcade.policy.tokens import TokenLayout


def token_layout(config: Any, tokens: int) -> TokenLayout:
    """Layout of a MettaGridConfig; tokens: maximum kept of an observation."""
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface

    interface = PolicyEnvInterface.from_mg_cfg(config)
    found = {feature.id: feature for feature in interface.obs_features}
    ids = range(max(found) + 1)
    names = tuple(found[i].name if i in found else f"unused {i}" for i in ids)
    scales = tuple(float(found[i].normalization) if i in found else 1.0 for i in ids)
    game = config.game
    return TokenLayout(
        game.obs.height, game.obs.width, names, scales, len(interface.tags), min(tokens, game.obs.num_tokens)
    )
