"""Environments: batches of games behind one contract. They know nothing of learning."""

import gymnasium

CAGE2_ID = "cavalcade/Cage2-v0"
CATCH_ID = "cavalcade/Catch-v0"


def register() -> None:
    """Registers the environments with Gymnasium; called when cavalcade is imported."""
    if CAGE2_ID not in gymnasium.registry:
        gymnasium.register(
            CAGE2_ID,
            entry_point="cavalcade.envs.cage2.gym:Cage2Env",
            vector_entry_point="cavalcade.envs.cage2.gym:Cage2VectorEnv",
        )
    if CATCH_ID not in gymnasium.registry:
        gymnasium.register(CATCH_ID, entry_point="cavalcade.envs.catch:Catch")
