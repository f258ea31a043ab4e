"""What finds code blocks and compares outputs."""

from tools.doc_blocks import Block, commands, differences, pages


def block(text, language="console"):
    return Block(pages()[0], 1, language, text, "")


def test_commands_and_their_output_are_found():
    found = list(commands(block("$ cavalcade train cage2  # a comment\nrun runs/x\n$ ls\nruns\n")))
    assert [command.text for command in found] == ["cavalcade train cage2", "ls"]
    assert found[0].output == ["run runs/x"]
    assert [c.text for c in commands(block("cavalcade watch\npip install x\n", ""))] == ["cavalcade watch"]


def test_times_and_progress_are_not_compared():
    shown = ["run runs/a", "update 3/9  10 episodes  …", "2,000 steps in 3.5 s: 566 steps/s", "  total -20.01 ± 0.28"]
    printed = [
        "preparing ...",
        "run runs/a",
        "update 1/9 …",
        "2,000 steps in 9.1 s: 12 steps/s",
        "  total -20.41 ± 0.29",
    ]
    assert differences(shown, printed) == []


def test_what_is_not_printed_is_found():
    assert differences(["a", "b"], ["b", "a"]) == ["b"]
    assert differences(["total -20.01"], ["total -40.01"]) == ["total -20.01"]
    assert differences(["1 file, 0 mismatches"], ["1 file, 7 mismatches"]) == ["1 file, 0 mismatches"]
    assert differences(["held-out …"], ["held-in games"]) == ["held-out …"]
    assert differences(["…  search -21.92 a>b"], ["3.8 s  search -21.90 a>b"]) == []
    assert differences(["…  search -21.92 a>b"], ["3.8 s  search -61.90 a>b"]) == ["…  search -21.92 a>b"]
