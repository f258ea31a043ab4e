from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """Recorded episodes and figures of the original CybORG."""
    return Path(__file__).parent / "data" / "cage2"


@pytest.fixture
def clone(tmp_path) -> Path:
    """A folder that passes for a clone of cage-challenge-2 at head, until one plays in it."""
    sources = tmp_path / "clone" / "CybORG" / "CybORG" / "Shared"
    (sources / "Actions" / "AbstractActions").mkdir(parents=True)
    scan = "            state.sessions[self.agent][self.session].clearports(self.ip_address)\n"
    (sources / "Actions" / "AbstractActions" / "DiscoverNetworkServices.py").write_text(scan)
    (sources / "Enums.py").write_text("            return version_string\n")
    return tmp_path / "clone"


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """Puts a script in the place of the recorder; it has `answer` and `request`."""

    def replace_by(script: str) -> None:
        start = (
            "import json, shutil, sys\n"
            "def answer(content): print(json.dumps(content), flush=True)\n"
            "answer({'ready': True})\n"
            "request = json.loads(sys.stdin.readline())\n"
        )
        path = tmp_path / "recorder.py"
        path.write_text(start + script)
        monkeypatch.setattr("cavalcade.envs.cage2.record._RECORDER", path)

    return replace_by
