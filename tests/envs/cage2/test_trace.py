"""The recorded episodes of the original are the same games here, and a replay notices when they are not."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from cavalcade.core.errors import TraceError
from cavalcade.envs.cage2.scenario import (
    ENT0,
    ENT1,
    ENT2,
    FALSE,
    IMPACT,
    INVALID,
    OP_SERVER,
    OPERATIONAL,
    SCAN,
    SWEEP,
    TRUE,
)
from cavalcade.envs.cage2.trace import COMPARED, STATE_FIELDS, load_trace, replay

# Both agents, Green on: every kind of draw is made somewhere in these two.
BLINE = "leaderboard-2022_red-bline_blue-churn_green-on_T100_seed1052.npz"
MEANDER = "head_red-meander_blue-mix_green-on_T100_seed1031.npz"


def test_every_recorded_episode_is_reproduced(data):
    episodes = {"head": 0, "leaderboard-2022": 0}
    combinations = set()
    for path in sorted(data.glob("*.npz")):
        trace = load_trace(path)
        assert [str(difference) for difference in replay(trace)] == []
        episodes[trace.revision] += trace.episodes
        combinations.add((trace.revision, trace.red, trace.green))
    assert sum(episodes.values()) >= 200
    assert len(combinations) == 16  # two revisions, four agents, Green on and off


def test_the_random_red_reaches_what_the_others_do_not(data):
    """States and actions that games of B_line and Meander never show, in both revisions."""
    for revision in ("head", "leaderboard-2022"):
        traces = [load_trace(path) for path in data.glob(f"{revision}_red-random_*.npz")]

        def steps(name, traces=traces):
            return np.concatenate([trace.fields[name][:, : trace.steps] for trace in traces])

        kind, target, success = steps("red_type"), steps("red_target"), steps("red_success")
        access = steps("s_access")
        assert (kind == INVALID).sum() > 20
        assert ((kind == IMPACT) & (target != OP_SERVER)).sum() > 20
        assert ((kind == IMPACT) & (success == TRUE)).any()
        assert (steps("d_imp_idx") >= 0).any()  # Impact without a privileged session
        assert (steps("d_esc_n") > 1).any()  # one of several sessions escalated
        assert (access[..., [ENT0, ENT1, ENT2]].max(axis=-1) == 1).any()  # Operational reached by a user-level session
        assert ((kind == SWEEP) & (target == OPERATIONAL) & (success == FALSE)).any()


def test_an_action_that_was_invalid_is_not_taken_for_another(data):
    path = next(data.glob("head_red-random_*.npz"))
    trace = load_trace(path)
    known = trace.fields["red_type"] == SCAN
    episode, step = np.argwhere(known)[0]
    tried = trace.fields["red_tried_target"].copy()
    tried[episode, step] = OP_SERVER
    assert not trace.fields["s_red_knows_ip"][episode, step, OP_SERVER]
    trace.fields["red_tried_target"] = tried
    first = next(replay(trace))
    assert (first.episode, first.step, first.field) == (episode, step, "red_type")
    assert first.got == "InvalidAction"


@pytest.mark.parametrize("field", [name for name in COMPARED if name not in ("draws", "done")])
@pytest.mark.parametrize("file", [BLINE, MEANDER])
def test_a_changed_field_is_found_and_named(data, file, field):
    trace = load_trace(data / file)
    altered = trace.fields[field].copy()
    at = (1, 17) + (0,) * (altered.ndim - 2)
    altered[at] = 1 - (altered[at] > 0) if field in STATE_FIELDS else altered[at] + 1
    trace.fields[field] = altered
    first = next(replay(trace))
    assert first.field.startswith(field)
    assert (first.episode, first.step) == (1, 17 - (field in STATE_FIELDS))
    assert str(trace.path) in str(first)


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        (BLINE, "d_exploit_u", np.nan),
        (BLINE, "d_detect_u", np.nan),
        (BLINE, "d_bline_target", -1),
        (BLINE, "d_exploit_other", -1),
        (BLINE, "d_esc_idx", -1),
        (MEANDER, "d_meander_addr_perm", -1),
        (MEANDER, "d_meander_host_perm", -1),
    ],
)
def test_a_draw_that_was_not_recorded_is_noticed(data, file, field, value):
    trace = load_trace(data / file)
    drawn = trace.fields[field].copy()
    made = ~np.isnan(drawn) if drawn.dtype.kind == "f" else (drawn.reshape(*drawn.shape[:2], -1) >= 0)[..., 0]
    episode, step = np.argwhere(made)[0]
    drawn[episode, step] = value
    trace.fields[field] = drawn
    first = next(replay(trace))
    assert (first.episode, first.step) == (episode, step)


def test_a_forced_outcome_that_is_impossible_is_noticed(data):
    trace = load_trace(data / BLINE)
    other = trace.fields["d_exploit_other"].copy()
    top = (trace.fields["d_exploit_u"] < 0.75) & (other >= 0)  # drawn, but without effect
    episode, step = np.argwhere(top)[0]
    other[episode, step] = trace.fields["red_exploit"][episode, step]
    trace.fields["d_exploit_other"] = other
    first = next(replay(trace))
    assert (first.episode, first.step, first.field) == (episode, step, "draws")
    assert "impossible: other exploit" in first.got


def test_the_other_revision_does_not_fit(data):
    trace = load_trace(data / BLINE)
    object.__setattr__(trace, "revision", "head")
    assert list(replay(trace))


def test_replay_without_compiling(data):
    script = (
        "import sys; from cavalcade.envs.cage2.trace import load_trace, replay\n"
        "sys.exit(any(True for file in sys.argv[1:] for _ in replay(load_trace(file))))"
    )
    files = [*sorted(str(path) for path in data.glob("*T30*.npz")), str(data / BLINE)]
    assert len(files) == 5
    subprocess.run([sys.executable, "-c", script, *files], check=True, env=os.environ | {"NUMBA_DISABLE_JIT": "1"})


def _resave(source, target, **changes):
    with np.load(source) as archive:
        fields = dict(archive.items())
    for name, value in changes.items():
        if value is None:
            del fields[name]
        else:
            fields[name] = value
    np.savez(target, **fields)
    return target


def test_files_that_are_no_traces(data, tmp_path):
    whole = data / BLINE
    truncated = tmp_path / "truncated.npz"
    truncated.write_bytes(whole.read_bytes()[:-1000])
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    empty = tmp_path / "empty.npz"
    empty.write_bytes(b"")
    flipped = tmp_path / "flipped.npz"
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 0xFF
    flipped.write_bytes(content)
    for path in (truncated, text, empty, flipped, tmp_path):
        with pytest.raises(TraceError, match=r"not a complete file of recorded episodes|no such file"):
            load_trace(path)
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "nowhere.npz")


def test_traces_of_another_kind_or_version(data, tmp_path):
    whole = data / BLINE
    with np.load(whole) as archive:
        meta = json.loads(str(archive["meta"]))
        actions = archive["blue_action"]
    target = tmp_path / "changed.npz"
    with pytest.raises(TraceError, match="revision is 'cyborg-3'; it must be one of head, leaderboard-2022"):
        load_trace(_resave(whole, target, meta=np.array(json.dumps(meta | {"revision": "cyborg-3"}))))
    with pytest.raises(TraceError, match="red agent is 'wolf'"):
        load_trace(_resave(whole, target, meta=np.array(json.dumps(meta | {"red": "wolf"}))))
    with pytest.raises(TraceError, match="s_malware is missing"):
        load_trace(_resave(whole, target, s_malware=None))
    with pytest.raises(TraceError, match="blue_action is int16"):
        load_trace(_resave(whole, target, blue_action=actions[:, :-1]))
    with pytest.raises(TraceError, match="blue_action has -1; allowed is 0 to 144"):
        load_trace(_resave(whole, target, blue_action=np.where(actions == actions[0, 0], -1, actions)))
