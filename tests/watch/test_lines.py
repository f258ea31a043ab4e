"""Logs that are written, cut and damaged while they are read."""

import json

import pytest

from cavalcade.watch import lines

from .helpers import row


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(row(u) for u in range(1, 101)))
    return path


def updates(rows):
    return [r["update"] for r in rows]


def test_all_rows_of_a_small_log(log):
    found = lines.read(log)
    assert updates(found.groups[0]) == list(range(1, 101))
    assert (found.end, found.damaged, found.sampled) == (log.stat().st_size, 0, False)


def test_a_torn_last_line_is_left_for_later(log):
    whole = log.stat().st_size
    with log.open("a") as file:
        file.write(row(101)[:-20])
    assert lines.read(log).end == whole
    assert lines.tail(log)[1] == whole
    with log.open("a") as file:
        file.write(row(101)[-20:])
    assert updates(lines.read(log, whole).groups[0]) == [101]


@pytest.mark.parametrize("bad", [b"\xff\xfe\x00garbage\n", b"[1, 2]\n", b"{\n", b"\n", b"[" * 100_000 + b"\n"])
def test_damaged_lines_are_counted_and_skipped(log, bad):
    data = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*data[:50], bad, *data[50:]]))
    found = lines.read(log)
    assert (len(found.groups[0]), found.damaged) == (100, 1)
    assert updates(lines.read(log, lines.offset_of(log, "update", 51)).groups[0])[0] == 51


def test_a_log_without_a_complete_line(tmp_path):
    path = tmp_path / "log"
    for text in ("", '{"update": 1'):
        path.write_text(text)
        assert lines.read(path).end == 0
        assert lines.tail(path) == ([], 0)


def test_long_logs_are_sampled_evenly_within_a_budget(log):
    log.write_text("".join(row(u) for u in range(1, 5001)))
    found = lines.read(log, samples=20, budget=log.stat().st_size // 4)
    assert found.sampled
    assert 16 <= len(found.groups) <= 20
    rows = [r for group in found.groups for r in group]
    assert sum(len(json.dumps(r)) for r in rows) < log.stat().st_size / 3
    assert updates(rows)[0] == 1
    assert updates(rows)[-1] == 5000
    gaps = [b[0]["update"] - a[0]["update"] for a, b in zip(found.groups, found.groups[1:], strict=False)]
    assert max(gaps) < 2 * min(gaps)
    assert found.damaged == 0


@pytest.mark.parametrize("value", [-5, 0, 1, 1.5, 37, 99.5, 100, 101])
def test_the_first_line_from_a_value_on(log, value):
    expected = [u for u in range(1, 101) if u >= value]
    assert updates(lines.read(log, lines.offset_of(log, "update", value)).groups[0]) == expected


def test_the_tail_is_short_but_holds_a_row_however_long(log):
    assert 1 < len(lines.tail(log, 20, 2000)[0]) < 20
    log.write_text(row(1, policies=5000) + row(2, policies=5000))
    assert updates(lines.tail(log, 20, 1000)[0])[-1] == 2
