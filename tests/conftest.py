from pathlib import Path

import pytest

# What starts processes, clusters or whole trainings, or runs in Numba's CUDA simulator; `make test-fast` leaves it out.
SLOW = (
    "cli/bench", "cli/test_evaluate.py", "cli/test_payoff.py", "cli/test_play.py", "cli/test_record.py",
    "cli/test_search.py", "cli/test_train.py", "cli/test_tune.py", "core/test_jit.py", "envs/cage2/test_changes.py",
    "envs/cage2/test_cuda.py", "envs/cage2/test_cyborg.py", "envs/cage2/test_own_red.py",
    "envs/cage2/test_returns.py", "envs/cage2/test_trace.py", "envs/mettagrid", "examples",
    "policy/compiled", "ppo/engines/cuda/test_kernels.py", "ppo/engines/cuda/test_engine.py",
    "ppo/engines/recurrent/test_rows.py", "ppo/engines/test_replay.py",
    "ppo/test_snapshot.py", "runs/test_distributed.py", "runs/test_history.py", "runs/test_initial.py",
    "runs/test_orders.py", "runs/test_training.py",
    "search/test_ray_executor.py", "search/test_run.py", "targets/test_gym.py", "targets/test_images.py",
    "targets/test_memory.py", "targets/test_mettagrid.py", "targets/test_own_red.py",
    "test_api.py", "test_docs.py", "tuning/test_tune.py", "vector/test_hosted.py", "vector/test_ray.py",
    "watch/test_pages.py", "workflow/test_enforcement.py",
    "cli/test_cli.py::test_bench", "envs/cage2/test_env.py::test_plain_python", "envs/test_sb3.py::test_ppo_learns",
    "ppo/engines/recurrent/test_engine.py::test_memory_learns",
    "ppo/engines/recurrent/test_engine.py::test_compiled_networks",
    "ppo/engines/test_host.py::test_a_population_learns",
    "ppo/engines/test_host.py::test_learning_curves", "ppo/test_algorithm.py::test_no_step_is_taken_beyond",
    "search/test_verdict.py", "workflow/test_compliance.py::test_threads", "watch/test_game_addresses.py",
    "watch/test_game_browser.py", "watch/test_beside_commands.py", "watch/test_game_grids.py", "watch/test_games.py",
)  # fmt: skip

# The files that take longest: they begin first, so that no worker is left with one of them at the end.
LONG = (
    "vector/test_ray.py", "search/test_ray_executor.py", "runs/test_distributed.py", "runs/test_training.py",
    "cli/test_search.py", "examples/test_rllib.py", "vector/test_hosted.py", "targets/test_gym.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        name = f"{item.path.relative_to(here).as_posix()}::{item.name}"
        if name.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    rank = {name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(here).as_posix(), len(LONG)))


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
