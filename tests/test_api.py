"""The Python API: what fits on one screen of a notebook."""

import inspect
import pickle
import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import cavalcade
from cavalcade import api
from cavalcade.core.errors import ActionError, ConfigError, RunError, StateError
from cavalcade.targets.cage2.config import Cage2Config
from tests.examples.test_examples import load_example

SMALL = {"num_envs": 10, "rollout_steps": 50, "episodes": 40, "device": "cpu", "threads": 1, "progress": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return cavalcade.train("cage2", red="meander", policies=2, run=tmp_path_factory.mktemp("api") / "run", **SMALL)


def test_a_run_knows_its_settings_metrics_and_episodes(run):
    assert run.outcome.finished
    assert run.config.task.red == "meander"
    assert run.config.ppo.num_envs == 10
    metrics = run.metrics()
    assert list(metrics["update"]) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]
    assert list(metrics["policy"]) == [0, 1] * 8
    assert len(run.episodes()) == 2 * 40


def test_metrics_without_pandas(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    metrics = run.metrics()
    assert type(metrics).__name__ == "Table"
    assert len(metrics) == 16
    assert metrics["steps"][-1] == 2 * 40 * 100
    assert "return" in repr(metrics).splitlines()[0]
    assert "16 rows" in repr(metrics)


def test_a_policy_steps_a_gymnasium_environment(run):
    policy = cavalcade.load_policy(run.path)[1]
    env = gymnasium.make("cavalcade/Cage2-v0", red="meander", horizon=20)
    observation, info = env.reset(seed=1)
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(policy(observation, info["action_mask"]))
        over = terminated or truncated


def test_a_policy_acts_for_one_observation_or_a_batch_as_its_runner_does(run):
    policy = cavalcade.load_policy(run.path)
    assert len(policy) == 2
    env = cavalcade.make_env("cage2", num_envs=6, red="meander", seed=3)
    for p in range(2):
        expected = policy.runner(p)(env)
        b = env.buffers
        np.testing.assert_array_equal(policy[p](b.observation, b.action_mask), expected)
        assert policy[p](b.observation[2], b.action_mask[2]) == expected[2]
        found = policy[p].evaluate(b.observation, b.action_mask)
        np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)
        assert (found.probabilities[~b.action_mask] == 0).all()
        np.testing.assert_array_equal(found.probabilities.argmax(1), expected)
        assert found.value.shape == (6,)
        drawn = {
            policy[p](b.observation[0], b.action_mask[0], greedy=False, rng=np.random.default_rng(i)) for i in range(60)
        }
        assert len(drawn) > 1
        assert all(b.action_mask[0][action] for action in drawn)


def test_a_policy_refuses_what_does_not_fit(run):
    policy = cavalcade.load_policy(run.path)
    one, seen = policy[1], np.zeros((2, 52))
    for call in (policy, policy.evaluate):
        with pytest.raises(
            ConfigError, match=r"has 2 policies; take one: policy\[i\], or load_policy\(path, member='best'"
        ):
            call(seen)
    with pytest.raises(ActionError, match=r"observations have shape \(3,\).*takes \(52,\)"):
        one(np.zeros(3))
    for mask, wanted in ((np.ones((3, 145)), "(2, 145)"), (np.ones(144), "(2, 145)"), (np.ones(290), "(2, 145)")):
        said = re.escape(f"mask has shape {mask.shape}; with 2 observations it must be {wanted}")
        with pytest.raises(ActionError, match=said):
            one(seen, mask)
    with pytest.raises(ActionError, match=r"mask has shape \(144,\); with 1 observation it must be \(145,\)"):
        one.evaluate(seen[0], np.ones(144))
    with pytest.raises(StateError, match=r"state is of type int; .* is feed-forward, leave it out"):
        one(seen, None, 3)
    with pytest.raises(ConfigError, match=r"policy is best; .* has 2"):
        policy["best"]
    with pytest.raises(ConfigError, match=r"policy is 2; .* has 2, numbered from 0"):
        policy[2]
    with pytest.raises(RunError, match="neither a run"):
        cavalcade.load_policy(run.path / "checkpoints")


def test_policies_are_counted_and_iterated(run):
    policy = cavalcade.load_policy(run.path)
    found = list(policy)
    assert len(found) == len(policy) == 2
    assert [one.weights.tolist() for one in found] == [policy[p].weights.tolist() for p in range(2)]


def test_evaluate_takes_runs_paths_policies_and_baselines(run):
    options = {"episodes": 4, "revisions": ("head",), "member": 1}
    by_run = cavalcade.evaluate(run, **options)
    by_path = cavalcade.evaluate(run.path, **options)
    by_policy = cavalcade.evaluate(run.policy(), **options)
    assert by_run.plain == by_path.plain == by_policy.plain
    assert by_run["head total"].mean == pytest.approx(sum(s.mean for s in by_run.scores[1:]))
    assert "total" in str(cavalcade.evaluate("sleep", episodes=2, revisions=("head",)))
    with pytest.raises(
        ConfigError, match="'nobody' is not a run, a checkpoint, a search, a policy file, model:NAME or one of"
    ):
        cavalcade.evaluate("nobody")
    for call in (lambda: cavalcade.evaluate(None), lambda: cavalcade.payoff([None])):
        with pytest.raises(ConfigError, match="None is not a run, a path, a policy or the name of a CAGE-2 baseline"):
            call()
    with pytest.raises(ConfigError, match="episodes is 1; it must be a whole number of at least 2"):
        cavalcade.evaluate(run, episodes=1)


def test_callbacks_stop_a_training_that_can_be_resumed(tmp_path):
    seen = []

    def stop(update):
        seen.append((update.number, update.steps, sorted(update.metrics)))
        update.metrics["mine"] = np.array([7.0])
        return update.number == 3

    stopped = cavalcade.train("cage2", run=tmp_path / "stopped", callbacks=[stop], **SMALL)
    whole = cavalcade.train("cage2", run=tmp_path / "whole", **SMALL)
    assert [number for number, *_ in seen] == [1, 2, 3]
    assert seen[0][1] == 500
    assert "policy_loss" in seen[0][2]
    assert not stopped.outcome.finished
    assert stopped.outcome.signal == 0
    assert list(stopped.metrics()["mine"]) == [7.0] * 3
    assert stopped.resume(progress=False).outcome.finished
    np.testing.assert_array_equal(stopped.policy().weights, whole.policy().weights)


def test_settings_are_found_by_name_and_refused_with_the_nearest():
    config = api.make_config(
        "cage2",
        {
            "red": "sleep",
            "num_envs": 7,
            "rollout_steps": 10,
            "alignment": "delta",
            "enforce": "reward",
            "order": "balanced",
        },
    )
    assert (config.task.red, config.ppo.num_envs, config.workflow.alignment) == ("sleep", 7, "delta")
    with pytest.raises(ConfigError, match="learning_rat is not a setting; did you mean learning_rate"):
        api.make_config("cage2", {"learning_rat": 0.1})
    with pytest.raises(ConfigError, match="target is 'nothing'"):
        cavalcade.train("nothing")
    with pytest.raises(ConfigError, match="a configuration and further settings are given"):
        cavalcade.train(Cage2Config(), red="sleep")


def test_settings_are_written_as_in_python():
    config = api.make_config(
        "gym:CartPole-v1", {"env_options": {"sutton_barto_reward": True}, "hidden": 64, "steps": 1e5}
    )
    assert (config.options, config.ppo.hidden, config.steps) == ({"sutton_barto_reward": True}, (64,), 100_000)
    assert type(config.steps) is int
    with pytest.raises(ConfigError, match=r"steps is 0\.5; it must be of type int"):
        api.make_config("gym:CartPole-v1", {"steps": 0.5})
    with pytest.raises(ConfigError, match="lr is not a setting; did you mean learning_rate"):
        api.make_config("cage2", {"lr": 0.1})


def test_what_is_no_target_is_refused_in_its_terms(tmp_path):
    class Mine(gymnasium.Env):
        pass

    for wrong, said in ((Mine, "register it"), (Mine(), "register it"), (3, "target is 3; it must be a name")):
        with pytest.raises(ConfigError, match=said):
            cavalcade.train(wrong, run=tmp_path / "a")
    with pytest.raises(ConfigError, match="hardware is 'fast'; it must be tuned"):
        cavalcade.train(Cage2Config(), hardware="fast")
    with pytest.raises(ConfigError, match="mettagrid is trained with a custom network"):
        cavalcade.train("mettagrid", network=load_example("own_network").Residual, run=tmp_path / "b", progress=False)
    with pytest.raises(ConfigError, match="callbacks is a function"):
        cavalcade.train("cage2", callbacks=print, run=tmp_path / "c")
    for wrong in ([3], None, "print"):
        with pytest.raises(
            ConfigError, match=rf"callbacks is {re.escape(repr(wrong))}; it must be a list of functions"
        ):
            cavalcade.train("cage2", callbacks=wrong, run=tmp_path / "c")
    with pytest.raises(ConfigError, match="threads is -1"):
        cavalcade.search("gridworld", threads=-1, run=tmp_path / "d")
    with pytest.raises(ConfigError, match="writer is 'csv'; it must be one of tensorboard, wandb"):
        cavalcade.train("cage2", writers="csv", run=tmp_path / "e", **SMALL)
    assert not list((tmp_path / "c").glob("*"))
    with pytest.raises(RunError, match="is not a run directory"):
        cavalcade.Run(tmp_path / "nothing").metrics()


def test_names_of_the_api_are_listed_and_documented():
    assert set(cavalcade.__all__) <= set(dir(cavalcade))
    assert "sys" not in dir(cavalcade)
    assert "n_workflows" not in inspect.signature(cavalcade.search).parameters
    assert "target" in inspect.signature(cavalcade.search).parameters


def test_a_recipe_comes_before_what_is_given(tmp_path):
    (tmp_path / "mine.yaml").write_text("ppo: {learning_rate: 0.5, epochs: 2}\n")
    run = cavalcade.train("cage2", recipe=str(tmp_path / "mine.yaml"), epochs=1, run=tmp_path / "run", **SMALL)
    assert (run.config.ppo.learning_rate, run.config.ppo.epochs) == (0.5, 1)


def test_a_search_from_python(tmp_path):
    found = cavalcade.search(
        "gridworld", n_workflows=4, num_envs=10, max_episodes=4, total_episodes=160, score_episodes=8, confirm=2,
        rivals=1, confirm_batches=1, threads=1, run=tmp_path / "search", progress=False,
    )  # fmt: skip
    assert found.answer in ("yes", "no", "cannot tell")
    assert found.best.count(">") == 3
    assert len(found.results()) == 4 + 2 * (2 + 3)
    assert list(found.ranking()["order"])
    assert found.report.exists()
    with pytest.raises(RunError, match="only policies of CAGE-2"):
        found.policy()
    with pytest.raises(ConfigError, match="target is 'chess'; it must be one of cage2, gridworld, cyborg"):
        cavalcade.search("chess")


def test_search_is_a_function_and_a_package():
    import cavalcade.search.config as settings

    assert settings.SearchConfig.__name__ == "SearchConfig"
    assert callable(cavalcade.search)


def test_the_signatures_are_documented():
    for name in cavalcade.__all__:
        found = getattr(api, name, None)
        if inspect.isfunction(found) or inspect.isclass(found):
            assert inspect.getdoc(found), name


def test_importing_the_package_does_not_import_torch():
    code = "import sys, cavalcade; print('torch' in sys.modules, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_environment_class_and_a_network_of_ones_own(tmp_path):
    corridor = load_example("own_environment").Corridor
    residual = load_example("own_network").Residual
    options = {"num_envs": 8, "rollout_steps": 32, "steps": 8192, "seed": 1, "threads": 1, "progress": False}
    run = cavalcade.train(corridor, network=residual, run=tmp_path / "run", **options)
    assert run.config.target == "env:own_environment:Corridor"
    assert run.evaluate(episodes=8).mean > -20  # at random nearly all 40 steps
    with pytest.raises(ConfigError, match="has a custom network, own_network:Residual; give it"):
        cavalcade.load_policy(run.path)
    with pytest.raises(ConfigError, match="resume it from Python"):
        cavalcade.Run(run.path).resume(progress=False)
    policy = cavalcade.load_policy(run.path, network=residual)
    np.testing.assert_array_equal(policy.weights, run.policy().weights)
    assert policy(np.eye(10, dtype=np.float32)[3]) in (0, 1)


@pytest.mark.parametrize("module", [cavalcade, sys.modules["cavalcade.search"]])
def test_modules_are_pickled_by_reference(module):
    """Ray sends functions that use them to its workers."""
    assert pickle.loads(pickle.dumps(module)) is module
