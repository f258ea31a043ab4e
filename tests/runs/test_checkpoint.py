"""Checkpoints: whole or not there."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

from cavalcade.core.errors import RunError
from cavalcade.ppo.snapshot import Counters, Snapshot
from cavalcade.runs import checkpoint as module
from cavalcade.runs.checkpoint import checkpoints, clear_aside, load_checkpoint, save_checkpoint

INFO = {"config": {}, "network": {}, "update": 3, "logs": {}}


def save(folder, update=3, keep=2, value=1.0):
    policy = {"w": torch.full((2, 3), value)}
    snapshot = Snapshot(policy, {"m": torch.zeros(2)}, {"step": np.arange(4)}, Counters(75, update))
    return save_checkpoint(folder, update, snapshot, INFO, keep)


def test_what_goes_in_comes_out(tmp_path):
    found = load_checkpoint(save(tmp_path))
    assert torch.equal(found.policy["w"], torch.ones(2, 3))
    assert found.environment["step"].tolist() == [0, 1, 2, 3]
    assert found.info["update"] == 3


def test_the_newest_are_kept(tmp_path):
    for update in (8, 9, 10, 11):
        save(tmp_path, update)
    assert [path.name for path in checkpoints(tmp_path)] == ["00000010", "00000011"]


@pytest.mark.parametrize("name", ["policy.safetensors", "optimizer.safetensors", "state.npz"])
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_damage_is_found(tmp_path, name, how):
    path = save(tmp_path) / name
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if how == "flip" else content[:-1])
    with pytest.raises(RunError, match=f"{name} .*(damaged|missing).*; remove it to resume from the one before"):
        load_checkpoint(path.parent)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"format": 99}', '{"format": 1}'])
def test_a_foreign_state_is_refused(tmp_path, text):
    path = save(tmp_path)
    (path / "state.json").write_text(text)
    with pytest.raises(RunError, match=r"00000003"):
        load_checkpoint(path)


def test_nothing_is_unpickled(tmp_path):
    path = save(tmp_path)
    np.savez(path / "state.npz", step=np.array([{"a": 1}], dtype=object))
    info = json.loads((path / "state.json").read_text())
    info["sha256"]["state.npz"] = module._hash(path / "state.npz")
    info["hash"] = module._hash_of(info)
    (path / "state.json").write_text(json.dumps(info))
    with pytest.raises(RunError, match="cannot be read"):
        load_checkpoint(path)


def test_a_full_disk_leaves_the_older_ones(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.np, "savez", full)
    with pytest.raises(RunError, match=r"checkpoint 2 cannot be written .*No space left on device; earlier ones are"):
        save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]
    load_checkpoint(tmp_path / "00000001")


def test_writing_one_again_never_leaves_none(tmp_path, monkeypatch):
    """Killed between the two renames: the old one is put back."""
    path = save(tmp_path, 5, value=1.0)
    real = module.Path.rename

    def dying(self, target):
        if self.name.startswith(".writing-"):
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(module.Path, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 5, value=2.0)
    monkeypatch.undo()
    assert checkpoints(tmp_path) == []
    clear_aside(tmp_path)
    assert torch.equal(load_checkpoint(path).policy["w"], torch.ones(2, 3))
    save(tmp_path, 5, value=2.0)
    assert [p.name for p in tmp_path.iterdir()] == ["00000005"]
    assert load_checkpoint(path).policy["w"][0, 0] == 2.0


def test_what_was_half_written_is_cleared_away(tmp_path):
    shutil.copytree(save(tmp_path, 1), tmp_path / ".writing-00000002")
    assert [path.name for path in checkpoints(tmp_path)] == ["00000001"]
    clear_aside(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]


def test_a_changed_number_in_state_json_is_noticed(tmp_path):
    path = save(tmp_path)
    text = (path / "state.json").read_text()
    info = json.loads(text)
    (path / "state.json").write_text(json.dumps(info | {"update": 4}))
    with pytest.raises(RunError, match=r"state.json is damaged: its content does not match its hash"):
        load_checkpoint(path)
    info.pop("hash")  # checkpoints of earlier versions have none
    (path / "state.json").write_text(json.dumps(info))
    assert load_checkpoint(path).info["update"] == info["update"]


@pytest.mark.parametrize("name", ["state.json", "state.npz", "policy.safetensors"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    path = save(tmp_path)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(RunError, match="cannot be read"):
        load_checkpoint(path)


def test_an_old_checkpoint_is_removed_whole_or_not_at_all(tmp_path, monkeypatch):
    for update in (1, 2):
        save(tmp_path, update)

    def dies(path, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.shutil, "rmtree", dies)
    with pytest.raises(KeyboardInterrupt):
        module._discard(tmp_path / "00000001")
    assert [path.name for path in checkpoints(tmp_path)] == ["00000002"]
