"""CAGE-2 through Gymnasium, single and vector."""

import importlib.util

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordVideo, RenderCollection

import cavalcade
from cavalcade.core.errors import ActionError, ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.picture import FILLS, HEIGHT, WIDTH, box_of
from cavalcade.envs.cage2.scenario import HOSTS

ID = "cavalcade/Cage2-v0"
OPTIONS = {"red": "meander", "horizon": 10, "extras": ("scans",)}


def test_registered_by_the_import():
    assert cavalcade.__version__
    assert ID in gymnasium.registry


@pytest.mark.parametrize(
    "options", [{}, OPTIONS, {"extras": ("time", "decoys"), "dtype": "float32"}, {"dtype": "uint8"}]
)
def test_the_single_environment_passes_gymnasiums_checker(options):
    check_env(gymnasium.make(ID, **options).unwrapped)


def test_single_environment_is_the_batch():
    env, batch = gymnasium.make(ID, **OPTIONS), Cage2(1, dtype="float32", **OPTIONS)
    observation, info = env.reset(seed=4)
    batch.reset(seed=4)
    rng = np.random.default_rng(0)
    for t in range(1, 11):
        action = int(rng.integers(145))
        assert info["action_mask"].shape == (145,)
        observation, reward, terminated, truncated, info = env.step(action)
        there = batch.step([action])
        assert (reward, terminated, truncated) == (np.rint(10 * there.reward[0]) / 10, False, t == 10)
        expected = there.final_observation if t == 10 else there.observation
        np.testing.assert_array_equal(observation, expected[0])
        assert reward == pytest.approx(info["hosts"] + info["impact"] + info["restore"])


def test_rewards_are_exact_tenths():
    env = gymnasium.make(ID, red="bline", horizon=100)
    env.reset(seed=0)
    rewards = [env.step(0)[1] for _ in range(100)]
    assert all(reward == round(reward, 1) for reward in rewards)
    assert sum(rewards) < -100


def test_render():
    env = gymnasium.make(ID, render_mode="ansi", red="bline", green=True)
    env.reset(seed=0)
    for _ in range(6):
        env.step(0)
    text = env.render()
    assert isinstance(text, str)
    for word in ("step 6", "Blue  Sleep", "Red   ", "Green ", "User0", "privileged"):
        assert word in text
    with pytest.raises(ConfigError, match="render_mode is 'human'"):
        cavalcade.envs.cage2.gym.Cage2Env(render_mode="human")


def test_a_picture_shows_what_happens():
    env = gymnasium.make(ID, render_mode="rgb_array", red="bline")
    env.reset(seed=0)
    pictures = [env.render()]
    for action in (0, 0, 0, 28 + 13 + 10, 0):  # a Femitter decoy on User2
        env.step(action)
        pictures.append(env.render())
    for picture in pictures:
        assert (picture.shape, picture.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), pictures[0])


def colours(picture, host):
    """The colours within the box of a host."""
    x0, y0, x1, y1 = box_of(HOSTS.index(host))
    inside = picture[y0 + 3 : y1 - 2, x0 + 3 : x1 - 2].astype(np.int64) @ [1 << 16, 1 << 8, 1]
    return {f"#{colour:06x}" for colour in np.unique(inside).tolist()}


def test_hosts_are_painted_by_the_true_state():
    env = gymnasium.make(ID, render_mode="rgb_array", red="bline").unwrapped
    env.reset(seed=0)
    seen = set()
    for step in range(40):
        picture, s = env.render(), env.batch.state
        for h, host in enumerate(HOSTS):
            held = "privileged" if s.privileged[0] >> h & 1 else "user" if (s.user[0] | s.flagged[0]) >> h & 1 else ""
            state = held or ("scanned" if s.scanned[0] >> h & 1 else "clean")
            assert colours(picture, host) & set(FILLS.values()) == {FILLS[state]}, (step, host)
            seen.add(state)
        env.step(28 + 13 * 6 + h if step == 0 else 0)  # a Tomcat decoy on User4, which may fail
    assert seen == set(FILLS)


def test_decoys_are_drawn():
    env = gymnasium.make(ID, render_mode="rgb_array", red="sleep").unwrapped
    env.reset(seed=0)
    before = env.render()
    host = HOSTS.index("User2")
    assert env.batch.buffers.action_mask[0, 28 + 13 + host]  # Femitter works there
    env.step(28 + 13 + host)
    assert "#047857" in colours(env.render(), "User2")
    assert "#047857" not in colours(before, "User2")


def test_gymnasium_records_pictures(tmp_path):
    env = RenderCollection(gymnasium.make(ID, render_mode="rgb_array", horizon=5))
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    frames = env.render()
    assert len(frames) == 6
    assert gymnasium.make(ID, render_mode="rgb_array_list").render_mode == "rgb_array_list"


@pytest.mark.skipif(importlib.util.find_spec("moviepy") is None, reason="RecordVideo needs moviepy")
def test_gymnasium_records_a_video(tmp_path):
    env = RecordVideo(gymnasium.make(ID, render_mode="rgb_array", horizon=5), str(tmp_path), lambda episode: True)
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    env.close()
    assert list(tmp_path.glob("*.mp4"))


def test_a_vector_is_rendered_game_by_game():
    env = gymnasium.make_vec(ID, num_envs=3, render_mode="rgb_array")
    env.reset(seed=0)
    env.step([0, 28 + 13 + HOSTS.index("User2"), 1])
    frames = env.render()
    assert len(frames) == 3
    single = gymnasium.make(ID, render_mode="rgb_array")
    single.reset(seed=0)
    single.step(0)
    np.testing.assert_array_equal(frames[0], single.render())
    assert "#047857" in colours(frames[1], "User2")
    assert isinstance(gymnasium.make_vec(ID, num_envs=2, render_mode="ansi").render_mode, str)
    assert gymnasium.make_vec(ID, num_envs=2).render() is None
    with pytest.raises(ConfigError, match="render_mode is 'human'"):
        gymnasium.make_vec(ID, num_envs=2, render_mode="human")


def test_copies_without_a_seed_play_different_games():
    """As Gymnasium has it, and as `make_vec_env` of Stable-Baselines3 relies on; with a seed they play the same."""

    def game(seed=None):
        env = gymnasium.make(ID, red="meander")
        env.reset(seed=seed)
        first = [env.step(0)[0] for _ in range(15)]
        env.reset()
        return np.array([*first, *(env.step(0)[0] for _ in range(15))])

    assert any((game() != game()).any() for _ in range(3))
    np.testing.assert_array_equal(game(seed=3), game(seed=3))
    option = gymnasium.make(ID, red="meander", seed=3)  # an option of the environment
    observations = [option.reset()[0], *(option.step(0)[0] for _ in range(15))]
    np.testing.assert_array_equal(observations[1:], game(seed=3)[:15])


@pytest.mark.parametrize("action", [145, -1, 0.5, "sleep", None, [1, 2], 2**70])
def test_bad_actions(action):
    env = gymnasium.make(ID).unwrapped
    env.reset(seed=0)
    with pytest.raises(ActionError, match="0 to 144"):
        env.step(action)
    assert env.batch.state.step[0] == 0


def test_bad_options():
    with pytest.raises(ConfigError, match="red is 'wolf'"):
        gymnasium.make(ID, red="wolf")
    env = gymnasium.make(ID).unwrapped
    with pytest.raises(ConfigError, match="reset options"):
        env.reset(options={"red": "bline"})
    vector = gymnasium.make_vec(ID, num_envs=2)
    with pytest.raises(ConfigError, match="only reset_mask"):
        vector.reset(options={"red": "bline"})


def test_vector_spaces_and_metadata():
    env = gymnasium.make_vec(ID, num_envs=7, **OPTIONS)
    assert env.num_envs == 7
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.single_action_space == gymnasium.spaces.Discrete(145)
    assert env.single_observation_space.shape == (78,)
    observation, info = env.reset(seed=1)
    assert observation in env.observation_space
    assert info["action_mask"].shape == (7, 145)
    assert info["_action_mask"].all()
    assert env.spec.id == ID
    env.close()


def test_vector_seeding():
    env = gymnasium.make_vec(ID, num_envs=300, **OPTIONS)
    actions = np.random.default_rng(0).integers(145, size=(8, 300))

    def episode(**options):
        env.reset(**options)
        return np.array([env.step(action)[0] for action in actions])

    first = episode(seed=1)
    assert (first == episode(seed=1)).all()
    assert (first != episode(seed=2)).any()
    assert (first != episode()).any()
    assert (episode(seed=list(range(300))) == episode(seed=list(range(300)))).all()
    assert len(np.unique(first[-1], axis=0)) > 10, "environments differ from each other"


def test_vector_ends_and_final_observations():
    env = gymnasium.make_vec(ID, num_envs=50, **OPTIONS)
    single = gymnasium.make_vec(ID, num_envs=50, **OPTIONS | {"horizon": 0})
    env.reset(seed=3)
    single.reset(seed=3)
    actions = np.random.default_rng(0).integers(145, size=(20, 50))
    total = np.zeros(50)
    for t, action in enumerate(actions, start=1):
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        assert not terminated.any()
        assert (truncated == (t % 10 == 0)).all()
        if t <= 10:
            there = single.step(action)
        if t == 10:
            np.testing.assert_array_equal(info["final_obs"], there[0])
        if t % 10 == 0:
            assert info["_final_obs"].all()
            assert info["_final_info"].all()
            assert not observation.any()
            episode = info["final_info"]["episode"]
            np.testing.assert_allclose(episode["r"], total, atol=1e-4)
            assert (episode["l"] == 10).all()
            total[:] = 0
        else:
            assert set(info) == {"action_mask", "_action_mask"}


def test_vector_reset_of_some():
    env = gymnasium.make_vec(ID, num_envs=3, **OPTIONS)
    env.reset(seed=3)
    for _ in range(5):
        env.step([0, 0, 0])
    env.reset(options={"reset_mask": np.array([False, True, False])})
    assert env.unwrapped.batch.state.step.tolist() == [5, 0, 5]
    truncated = [env.step([0, 0, 0])[3].tolist() for _ in range(5)][-1]
    assert truncated == [True, False, True]


def test_vector_copies_unless_told():
    copying, sharing = (gymnasium.make_vec(ID, num_envs=20, red="meander", copy=copy) for copy in (True, False))
    for env, changes in ((copying, False), (sharing, True)):
        env.reset(seed=0)
        kept = env.step([0] * 20)[0]
        before = kept.copy()
        for _ in range(5):
            env.step([0] * 20)
        assert (kept != before).any() == changes


def test_masks_agree_with_success():
    env = gymnasium.make_vec(ID, num_envs=400, red="bline")
    _, info = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        action = rng.integers(28, 132, size=400)
        allowed = info["action_mask"][np.arange(400), action]
        info = env.step(action)[4]
        assert (env.unwrapped.batch.state.blue_success == allowed).all()
