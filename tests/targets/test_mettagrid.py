"""Training on MettaGrid by the command line, and everything that looks at what came of it."""

import json
import re
import shutil
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import cavalcade
from cavalcade.cli.targets import parse_target
from cavalcade.cli.train import Options
from cavalcade.config.recurrent import RecurrentPPOConfig
from cavalcade.core.errors import ConfigError
from cavalcade.core.timer import Timer
from cavalcade.envs.mettagrid.episode import Episode, record_episode
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.envs.mettagrid.trace import SHIPPED
from cavalcade.ppo.snapshot import Counters
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.history import read_history
from cavalcade.runs.policies import load_policy
from cavalcade.targets.mettagrid.arenas import game_of, layout_of, who_plays
from cavalcade.targets.mettagrid.scoring import heldout_rewards, random_actor
from cavalcade.targets.monitor import Monitor
from cavalcade.vector.hosted import HELDOUT_SEEDS

from ..cli.helpers import refused, run

ARENA = ["--env-options", "agents=4", "size=11", "max_steps=20", "mines=6", "tokens=120"]
SIZES = ["--num-envs", "4", "--batch-size", "512", "--minibatch-size", "256", "--bptt-horizon", "16", "--width", "16"]
HERE = ["train", "mettagrid", *ARENA, *SIZES, "--device", "cpu", "--threads", "1"]
SMALL = [*HERE, "--workers", "2"]
TASK = MettagridTask(env_options=tuple(ARENA[1:]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 6 updates with everything switched on."""
    folder = tmp_path_factory.mktemp("mettagrid") / "run"
    given = [
        *SMALL, "--steps", "3072", "--run", folder, "--checkpoint-every", "2", "--evaluate-every", "3",
        "--record-every", "3", "--statistics-every", "2", "--monitor-every", "2", "--profile-every", "2",
        "--stats", "ore.gained", "--priority-alpha", "0.5", "--contrastive-coef", "0.1", "--vtrace",
    ]  # fmt: skip
    from cavalcade.cli import main

    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in given])
    assert not stop.value.code
    return folder


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_what_was_asked_for_at_its_interval(trained):
    found = rows(trained)
    assert [row["steps"] for row in found] == [512 * i for i in range(1, 7)]
    having = lambda name: [row["update"] for row in found if name in row]  # noqa: E731
    assert having("heldout") == [3, 6]
    assert having("learner_waiting") == having("agent_steps_per_second") == having("workers_waiting") == [2, 4, 6]
    assert having("weight_norm/actor.weight") == [1, 3, 5]
    assert having("contrastive_loss") == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in (trained / "recordings").iterdir()) == ["00000003.json.z", "00000006.json.z"]
    assert sorted(path.name for path in (trained / "profiles").iterdir()) == ["00000003.txt", "00000005.txt"]
    assert [path.name for path in checkpoints(trained / "checkpoints")] == ["00000002", "00000004", "00000006"]
    header = (trained / "episodes.csv").read_text().splitlines()[0]
    assert header.endswith("return,length,ore.gained")


def test_arenas_are_played_while_the_policy_learns(capsys, tmp_path):
    given = [*SMALL, "--staleness", "2", "--stats", "ore.gained", "--monitor-every", "2", "--run", tmp_path / "a"]
    status, out, _ = run(capsys, *given, "--steps", "3072")
    assert status == 0
    assert "2 workers play 2 environments each; experience is at most 2 updates old" in out
    assert run(capsys, "train", "--resume", tmp_path / "a", "--steps", "4096", "--quiet")[0] == 0
    found = rows(tmp_path / "a")
    assert [row["steps"] for row in found] == [512 * i for i in range(1, 9)]
    assert 1 <= max(row["staleness"][0] for row in found) <= 2
    assert all(row["workers_waiting"][0] >= 0 for row in found[1::2])
    lines = (tmp_path / "a" / "episodes.csv").read_text().splitlines()
    assert {line.split(",")[5] for line in lines[1:]} == {"20"}  # max_steps
    assert run(capsys, "evaluate", tmp_path / "a", "--arenas", "2")[0] == 0


def test_a_score_is_on_new_maps_with_chance_beside_it(trained, capsys, tmp_path):
    status, out, _ = run(capsys, "evaluate", trained, "--arenas", "3", "--json", tmp_path / "score.json")
    assert status == 0
    assert "3 arenas" in out
    assert "at random" in out
    episode_stats = json.loads((tmp_path / "score.json").read_text())
    assert len(episode_stats["rewards"]) == len(episode_stats["random"]) == 3
    _, again, _ = run(capsys, "evaluate", trained / "checkpoints" / "00000006", "--arenas", "3")
    assert again == out
    greedy = run(capsys, "evaluate", trained, "--arenas", "3", "--no-sampled")
    assert "greedy" in greedy[1]
    assert run(capsys, "evaluate", trained, "--arenas", "3", "--greedy") == greedy  # its name in 0.1


def test_a_replay_is_what_the_format_of_mettascope_asks_for(trained, capsys, tmp_path):
    status, out, _ = run(capsys, "record", trained, "--out", tmp_path / "new" / "folder", "--episodes", "2")
    assert status == 0
    files = sorted((tmp_path / "new" / "folder").iterdir())
    *told, how = out.splitlines()
    assert len(files) == len(told) == 2
    assert re.fullmatch(r"to watch: drop the \.json\.z file on https://\S+", how)
    contents = [json.loads(zlib.decompress(file.read_bytes())) for file in files]
    assert contents[0]["objects"] != contents[1]["objects"]  # each on its own map
    replay = contents[0]
    assert {"version", "num_agents", "max_steps", "map_size", "type_names", "action_names", "item_names", "tags",
            "capacity_names", "objects", "infos", "policy_env_interface"} <= replay.keys()  # fmt: skip
    assert (replay["version"], replay["num_agents"], replay["max_steps"]) == (4, 4, 20)
    width, height = replay["map_size"]
    agents = [thing for thing in replay["objects"] if "agent_id" in thing]
    assert sorted(thing["agent_id"] for thing in agents) == [0, 1, 2, 3]
    for thing in replay["objects"]:
        assert thing["type_name"] in replay["type_names"]
        for x, y in series(thing["location"]):
            assert 0 <= x < width
            assert 0 <= y < height
    for agent in agents:
        for action in series(agent["action_id"]):
            assert 0 <= action < len(replay["action_names"])
    rewards = [series(agent["total_reward"])[-1] for agent in sorted(agents, key=lambda a: a["agent_id"])]
    assert rewards == pytest.approx(replay["infos"]["episode_rewards"], abs=1e-5)
    short = ("--steps", "3", "--out", tmp_path / "short")
    names = {(verb, flag): run(capsys, verb, trained, *short, flag) for verb in ("record", "replay")  # as in 0.1
             for flag in ("--no-sampled", "--greedy")}  # fmt: skip
    assert all(found[0] == 0 for found in names.values())
    assert len({found[1] for found in names.values()}) == 1


def series(field):
    """The values of a field, whether it changes or not."""
    changing = isinstance(field, list) and field and isinstance(field[0], list) and len(field[0]) == 2
    if changing and all(isinstance(entry, list) and isinstance(entry[0], int) for entry in field):
        times = [entry[0] for entry in field]
        if times[0] == 0 and times == sorted(set(times)):
            return [entry[1] for entry in field]
    return [field]


def test_a_recorded_episode_is_the_one_that_is_scored(tmp_path):
    task = MettagridTask(env_options=("agents=4", "size=9", "max_steps=30", "mines=8"))
    total = record_episode(game_of(task), HELDOUT_SEEDS + 5, random_actor(1), tmp_path / "x.json.z")
    scored = heldout_rewards(random_actor(1), task, 1, seed=5)
    assert total == pytest.approx(scored[0] * 30)
    assert total > 0
    cut = record_episode(game_of(task), HELDOUT_SEEDS + 5, random_actor(1), tmp_path / "y.json.z", 7)
    assert json.loads(zlib.decompress((tmp_path / "y.json.z").read_bytes()))["max_steps"] == 7
    assert cut <= total


def test_an_episode_can_be_watched(trained, capsys):
    status, out, _ = run(capsys, "play", "mettagrid", "--run", trained, "--steps", "10", "--every", "5")
    assert status == 0
    assert out.count("step ") == 3
    assert out.splitlines()[-2].startswith("10 steps")
    assert f"cavalcade record {trained} --out FOLDER, then drop the .json.z file on https://" in out.splitlines()[-1]
    for args in ((trained,), ("--run", trained)):
        assert run(capsys, "play", *args, "--steps", "10", "--every", "5")[1] == out
    picture = Episode(game_of(TASK), 3).picture().splitlines()
    text = "".join(picture)
    assert len(picture) == 11
    assert (text.count("@"), text.count("M"), text.count("G"), text.count("A")) == (4, 6, 5, 5)
    status, out, _ = run(capsys, "play", "mettagrid", "--task", "navigation", "--steps", "3")
    assert status == 0
    assert "F" in out


def test_a_stopped_run_resumes_and_counts_on(capsys, tmp_path):
    folder = tmp_path / "run"
    given = [
        *SMALL,
        "--steps",
        "3072",
        "--run",
        folder,
        "--checkpoint-every",
        "1",
        "--keep-checkpoints",
        "9",
        "--core",
        "gru",
    ]
    assert run(capsys, *given)[0] == 0
    import shutil

    for path in checkpoints(folder / "checkpoints")[2:]:
        shutil.rmtree(path)
    status, out, _ = run(capsys, "train", "--resume", folder)
    assert status == 0, out
    assert [row["update"] for row in rows(folder)] == [1, 2, 3, 4, 5, 6]
    assert load_policy(folder).update == 6
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("monitor_every: 10", "monitor_every: 3"))
    assert run(capsys, "train", "--resume", folder)[0] == 0
    (folder / "config.yaml").write_text(config.replace("core: gru", "core: lstm"))
    assert "core" in refused(capsys, "train", "--resume", folder)


def test_a_teacher_must_suit_the_task(trained, capsys, tmp_path):
    given = [*SMALL, "--steps", "512", "--run", tmp_path / "student", "--teacher", trained]
    assert run(capsys, *given)[0] == 0
    assert "kickstart_action" in rows(tmp_path / "student")[0]
    other = [*SMALL, "--task", "navigation", "--steps", "512", "--run", tmp_path / "other", "--teacher", trained]
    other = [arg for arg in other if arg != "mines=6"]
    assert "observations or actions differ" in refused(capsys, *other)
    assert "neither a run" in refused(capsys, *given[:-3], tmp_path / "other", "--teacher", tmp_path)


def test_seeds_make_runs_the_same_and_different(capsys, tmp_path):
    said = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        given = [*HERE, "--steps", "1024", "--run", tmp_path / name, "--seed", seed, "--backend", "serial"]
        assert run(capsys, *given)[0] == 0
        said.append([row["policy_loss"] for row in rows(tmp_path / name)])
    assert said[0] == said[1] != said[2]


def test_what_is_hosted_where_makes_no_difference(capsys, tmp_path):
    said = []
    for backend in ("serial", "async"):
        workers = [] if backend == "serial" else ["--workers", "2"]
        given = [*HERE, *workers, "--steps", "1024", "--run", tmp_path / backend, "--backend", backend]
        assert run(capsys, *given)[0] == 0
        said.append([row["value_loss"] for row in rows(tmp_path / backend)])
    np.testing.assert_allclose(said[0], said[1], rtol=1e-3)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--batch-size", "500"], ("500", "256")),
        (["--minibatch-size", "100", "--batch-size", "500"], ("100", "16")),
        (["--minibatch-size", "100"], ("512", "100", "take --minibatch-size 128")),
        (["--num-envs", "3"], ("512", "192")),
        ([*ARENA, "window=10"], ("obs.height", "is 10", "odd")),
        ([*ARENA, "window=17"], ("17 × 17", "up to 15 × 15")),
        (["--task", "nothing"], ("forage", "module:function")),
        (["--env-options", "agents"], ("name=value",)),
        (["--env-options", "colour=red"], ("colour",)),
        (["--workers", "64", "--num-envs", "64", "--batch-size", "4096"], ("64 workers", "cores", "--workers")),
        (["--device", "cuda"], ("--device cpu",)),
        (["--true-state-every", "1"], ("--true-state-every",)),
        (["--steps", "10"], ("512",)),
        (["--precision", "fp8"], ("fp8",)),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(capsys, tmp_path, args, words):
    if "cuda" in args and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    said = refused(capsys, *SMALL, "--run", tmp_path / "run", *args)
    assert all(word in said for word in words), said
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_buffers_that_do_not_fit_are_refused(monkeypatch, capsys, tmp_path):
    import psutil

    class Small:
        total = available = 10**5

    monkeypatch.setattr(psutil, "virtual_memory", Small)
    assert "free memory" in refused(capsys, *SMALL, "--run", tmp_path / "run")


def test_the_presets_of_the_performance_guide_hold_its_sizes():
    given = ["mettagrid", "--recipe", "mettagrid-guide", "--hardware"]
    fast, original = (parse_target(Options, [*given, name], "train")[1].config for name in ("ultra_fast", "original"))
    sizes = lambda c: (c.ppo.num_envs, c.ppo.batch_size, c.ppo.minibatch_size, c.ppo.bptt_horizon, c.ppo.epochs)  # noqa: E731
    assert (sizes(fast), who_plays(fast).game is None) == ((512, 262_144, 8_192, 32, 1), False)
    assert (sizes(original), who_plays(original).game is None) == ((64, 16_384, 512, 64, 1), True)
    steps = lambda c: c.ppo.batch_size // c.ppo.minibatch_size  # noqa: E731
    assert steps(fast) == steps(original) == 32
    assert (original.host.workers, original.host.async_factor) == (4, 2)
    every = lambda c: [getattr(c, f"{n}_every") for n in ("checkpoint", "evaluate", "record", "statistics", "monitor")]  # noqa: E731
    assert every(fast) == [100, 500, 500, 300, 50]
    assert every(original) == [300, 300, 300, 150, 10]
    for config in (fast, original):
        config.ppo.steps(4 * config.ppo.num_envs)
    with pytest.raises(ConfigError, match=r"262,144.*393,216"):
        fast.ppo.steps(24 * 512)


@pytest.mark.parametrize("name", ["laptop", "workstation", "gpu"])
def test_other_presets_divide_with_the_arena_as_it_comes(name):
    config = parse_target(Options, ["mettagrid", "--hardware", name], "train")[1].config
    assert config.ppo.steps(24 * config.ppo.num_envs) % config.ppo.bptt_horizon == 0


def test_presets_for_other_machines_and_targets_are_refused(capsys, tmp_path):
    said = refused(capsys, "train", "mettagrid", "--recipe", "mettagrid-guide", "--workers", "16")
    assert "16 workers on" in said
    assert "--workers" in said
    assert "gpu, laptop, original, ultra_fast, workstation" in refused(
        capsys, "train", "mettagrid", "--hardware", "huge"
    )
    assert "it must be tuned" in refused(capsys, "train", "cage2", "--hardware", "ultra_fast")


def test_layouts_follow_the_package():
    layout = layout_of(TASK)
    assert layout.features[6] == "tag"
    assert "inv:ore" in layout.features
    assert layout.tags == 5
    assert layout.tokens == 120
    assert (layout.height, layout.width) == (11, 11)


def test_the_monitor_counts_since_its_last_look():
    from tests.ppo.engines.recurrent.test_engine import advance, learner

    one = learner()
    monitor = Monitor(one)
    advance(one)
    first, second = monitor.measure(), monitor.measure()
    assert first["steps_per_second"] > 0
    assert second["steps_per_second"] == 0
    assert 0 < first["rollout_share"] + first["training_share"] < 1.1


def test_steps_name_both_numbers():
    with pytest.raises(ConfigError, match=r"1,024.*768.*take --batch-size 768"):
        RecurrentPPOConfig(batch_size=1024, minibatch_size=512, bptt_horizon=64).steps(12)


def test_the_exported_graph_plays_as_the_policy_does(trained, capsys, tmp_path):
    import onnxruntime

    status, out, err = run(capsys, "export", trained, "--onnx", tmp_path / "p.onnx")
    assert status == 0, err
    assert "hidden (B, 16) float32, cell (B, 16) float32; outputs" in out
    saved = load_policy(trained)
    assert saved.policy.actions == 5
    session = onnxruntime.InferenceSession(str(tmp_path / "p.onnx"), providers=["CPUExecutionProvider"])
    tokens, runner = saved.policy.layout.tokens, saved.runner(greedy=True)
    env = cavalcade.make_env("mettagrid", num_envs=2, env_options=tuple(ARENA[1:]), backend="serial")
    memory = {name: np.zeros((8, 16), np.float32) for name in ("hidden", "cell")}
    same = []
    for _ in range(15):  # within an episode
        b = env.buffers
        inputs = {"observation": b.observation.reshape(8, -1, 3)[:, :tokens], "action_mask": b.action_mask}
        _, _, action, *after = session.run(None, inputs | memory)
        memory = dict(zip(memory, after, strict=True))
        expected = runner(env)
        same.append((np.asarray(action) == expected).mean())
        env.step(expected)
    env.close()
    assert np.mean(same) > 0.99  # near ties aside
    assert np.abs(memory["cell"]).max() > 0.01


def test_a_finished_run_is_extended_and_another_begun_from_its_weights(trained, capsys, tmp_path):
    shutil.copytree(trained, tmp_path / "longer")
    args = ("--steps", "3584", "--learning-rate", "1e-4", "--evaluate-every", "0", "--quiet")
    status, _, err = run(capsys, "train", "--resume", tmp_path / "longer", *args)
    assert status == 0, err
    assert rows(tmp_path / "longer")[-1]["learning_rate"] == pytest.approx([1e-4 / 7], rel=1e-4)
    assert read_history(tmp_path / "longer")[0]["changes"]["steps"] == [3072, 3584]
    new = (*SMALL, "--run", tmp_path / "new", "--init", trained, "--steps", "512", "--checkpoint-every", "0", "--quiet")
    status, _, err = run(capsys, *new, "--optimizer", "muon")
    assert status == 0, err
    zero, source = (load_file(path / "policy.safetensors") for path in (
        tmp_path / "new" / "checkpoints" / "00000000", checkpoints(trained / "checkpoints")[-1]
    ))  # fmt: skip
    assert all(torch.equal(tensor, source[name]) for name, tensor in zero.items())
    wider = (*SMALL, "--run", tmp_path / "wide", "--init", trained, "--steps", "512", "--width", "32")
    assert "whose policies have width 16; this run has 32" in refused(capsys, *wider, "--quiet")
    assert "width is 32; in" in refused(capsys, "train", "--resume", trained, "--width", "32")


def test_a_report_has_numbers(trained, capsys, tmp_path):
    status, _, err = run(capsys, "report", trained, "--out", tmp_path / "r.html")
    assert status == 0, err
    page = (tmp_path / "r.html").read_text()
    assert "nan" not in page.split("</svg>")[1]
    assert "<td>reward</td>" in page


def test_a_measured_run_is_read_without_its_first_seconds(tmp_path):
    from cavalcade.cli.bench.mettagrid_runs import read, windows

    lines = [{"seconds": s, "steps": 100 * s, "reward": [s / 200]} for s in range(1, 181)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read(tmp_path)
    assert found.rate == pytest.approx(100)
    assert found.reward == pytest.approx(np.mean([s / 200 for s in range(144, 181)]))
    ends, rates = windows([(at, steps) for at, _, steps in found.curve], 2)
    assert ends == [90.5, 180]
    np.testing.assert_allclose(rates, [100, 100])


def test_what_cannot_be_read_is_said_in_a_line(capsys, tmp_path):
    (tmp_path / "task.yaml").write_text("game: [")
    assert "cannot be made" in refused(capsys, *SMALL[:2], "--task", tmp_path / "task.yaml")
    assert "YAML" in refused(capsys, *SMALL[:2], "--env-options", "agents=[")
    (tmp_path / "trace.npz").write_bytes((SHIPPED / "forage-0.npz").read_bytes()[:700])
    assert "trace.npz: not a recorded episode" in refused(capsys, "verify", "mettagrid", tmp_path / "trace.npz")
    assert "minutes" in refused(capsys, "bench", "mettagrid", "--parts", "hour", "--minutes", "0.01")


TINY = ("agents=2", "size=9", "mines=2", "generators=2", "altars=2", "walls=1", "max_steps=20")


def test_who_plays_is_said_and_refused(capsys, tmp_path):
    given = ["train", "mettagrid", "--run", tmp_path / "run", "--num-envs", "2", "--batch-size", "96"]
    given += ["--minibatch-size", "48", "--bptt-horizon", "8", "--steps", "96", "--width", "8"]
    small = ["--env-options", ",".join(TINY)]
    said = refused(capsys, *given, *small, "--simulator", "compiled", "--stats", "cell.visited")
    assert "statistic 'cell.visited' is not counted; take --simulator package" in said
    said = refused(capsys, *given, *small, "--simulator", "compiled", "--workers", "1")
    assert "simulator is compiled, which has no workers" in said
    said = refused(capsys, *given, "--env-options", "window=10", "--simulator", "compiled")
    assert "height of the window is 10; it must be odd" in said
    said = refused(capsys, *given, "--env-options", "agents=129,size=60", "--simulator", "compiled")
    assert "129 agents are given, at most 128" in said
    status, out, _ = run(capsys, *given, *small, "--stats", "cell.visited")
    assert status == 0
    assert "played by the mettagrid package: statistic 'cell.visited' is not counted" in out


def test_compiled_runs_are_those_of_the_package_and_resume_exactly(tmp_path):
    given = {"num_envs": 2, "batch_size": 96, "minibatch_size": 48, "bptt_horizon": 8, "width": 8, "steps": 288}
    given |= {"env_options": TINY, "monitor_every": 0}

    def train(name, **more):
        return cavalcade.train("mettagrid", run=tmp_path / name, progress=False, **given, **more)

    def weights(trained):
        return [p.detach() for p in load_policy(trained.path).policy.parameters()]

    compiled, hosted = train("compiled", simulator="compiled"), train("package", simulator="package")
    stopped = train("stopped", simulator="compiled", callbacks=[lambda update: update.number == 2])
    assert not stopped.outcome.finished
    assert stopped.resume(progress=False).outcome.finished
    for a, b, c in zip(*map(weights, (compiled, hosted, stopped)), strict=True):
        torch.testing.assert_close(a, b)
        assert torch.equal(a, c)


def test_verify_steps_both_simulators_side_by_side(capsys):
    small = ["--env-options", "agents=2,size=9,max_steps=20", "--task", "forage", "--steps", "50"]
    status, out, _ = run(capsys, "verify", "mettagrid", *small)
    assert status == 0
    assert "forage, seed 1: 100 agent-steps are equal; 200 in" in out
    assert "200 agent-steps, 0 differences" in out
    assert "env_options are given without --task" in refused(capsys, "verify", "mettagrid", "--env-options", "agents=2")
    assert "steps is 0" in refused(capsys, "verify", "mettagrid", "--steps", "0")
    assert "random is -1" in refused(capsys, "verify", "mettagrid", "--random", "-1")


def test_verify_plays_random_configurations_and_records_what_it_plays(capsys, tmp_path):
    small = ["--env-options", "agents=2,size=9,max_steps=20", "--task", "forage", "--steps", "20", "--seeds", "1"]
    status, out, _ = run(capsys, "verify", "mettagrid", *small, "--random", "2")
    assert status == 0
    assert "random configuration 1: 20 agent-steps are equal; 80 in" in out
    assert run(capsys, "verify", "mettagrid", *small, "--random", "1", "--record", tmp_path)[0] == 0
    status, out, _ = run(capsys, "verify", "mettagrid", tmp_path)
    assert status == 0
    assert out.startswith("forage-0.npz: 40 agent-steps are equal\nrandom-0.npz: 20 agent-steps are equal\n")
    assert "2 recorded files of mettagrid 0.26.22, 60 agent-steps, 0 differences" in out
    (tmp_path / "forage-0.npz").write_bytes(b"no")
    assert "forage-0.npz: not a recorded episode" in refused(capsys, "verify", "mettagrid", tmp_path)
    assert "no .npz file in this folder" in refused(capsys, "verify", "mettagrid", tmp_path.parent)


def test_a_gpu_that_cannot_be_measured_is_said_once(monkeypatch):
    def missing():
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "utilization", missing)
    engine = SimpleNamespace(timer=Timer(), env=None, counters=Counters(0, 0), notes=[])
    monitor = Monitor(engine)
    assert monitor._gpu_percent() == monitor._gpu_percent() == {}
    assert len(engine.notes) == 1
    assert "gpu_percent is not measured: pynvml does not seem" in engine.notes[0]
