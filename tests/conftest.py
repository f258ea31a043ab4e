from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """Recorded episodes and figures of the original CybORG."""
    return Path(__file__).parent / "data" / "cage2"
