"""Tables of the documents are made from files, and none with numbers is typed by hand."""

import re

import pytest
from tools import figures
from tools.doc_blocks import ROOT, pages
from tools.tables import DATA, FIGURES, rows, stored

# Tables whose numbers were not measured (options, sizes, rules), by their first lines; and studies of the models.
NOT_MEASURED = {
    "docs/cage2.md": ["| option | values |", "| extra | values |", "| change | meaning |"],
    "docs/coming-from.md": ["| there | here |", "| idea | here |", "| there | here |"],
    "docs/explanation/orders.md": ["| mode | what it does |", "| | counts |"],
    "docs/howto/export.md": ["| policy | inputs |"],
    "docs/howto/index.md": ["| I want to"],
    "docs/howto/install.md": ["| extra | for |"],
    "docs/mettagrid.md": ["| | compiled |", "| | |", "| symptom |"],
    "docs/models.md": ["| | |", "| observation extras |", "| continuations per action |"],
    "docs/reference/commands/index.md": ["| command | |"],
    "docs/reference/policy-file.md": ["| key | value |"],
    "docs/reliability.md": ["| | what is left |", "| kind | found and fixed |", "| what | listens |"],
    "docs/trace-format.md": ["| step field |", "| state field |"],
}
SHOWN = {name for page in pages() for name in re.findall(r"^<!-- figures: (\w+) -->$", page.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_are_those_of_the_files(page):
    assert figures.written(page.read_text()) == page.read_text(), "python -m tools.figures write"


@pytest.mark.parametrize("page", [page for page in pages() if page.name != "lab-notes.md"], ids=lambda page: page.stem)
def test_no_table_of_measurements_is_typed_by_hand(page):
    known = NOT_MEASURED.get(str(page.relative_to(ROOT)), [])
    found = list(figures.unmarked(page.read_text()))
    more = [head for head in found if not head.startswith(tuple(known))]
    assert not more, "put it between <!-- figures: NAME --> and <!-- end -->, then python -m tools.figures record NAME"
    assert len(found) == len(known), "NOT_MEASURED lists tables that are gone"


def test_every_file_is_shown_and_says_where_its_numbers_come_from():
    files = {file.stem for file in DATA.glob("*.json")}
    assert files <= SHOWN
    assert files | set(FIGURES) >= SHOWN
    for name in files:
        kept = stored(name)
        assert kept.get("command") or kept["commands"], name
        assert re.fullmatch(r"(\d{4}-\d\d-\d\d(, |$))+", kept["date"]), name
        if "table" in kept:
            assert kept["machine"], name
            assert len({len(row) for row in kept["table"]}) == 1, name


def test_a_table_is_written_between_its_comments():
    text = "a\n<!-- figures: models -->\nold\n<!-- end -->\nb\n"
    new = figures.written(text)
    assert new.startswith("a\n<!-- figures: models -->\n| policy |")
    assert new.endswith("|\n<!-- end -->\nb\n")
    assert figures.written(new) == new


def test_a_table_with_numbers_outside_comments_is_found():
    table = "| a | b |\n|---|---|\n| x | {} |\n"
    assert list(figures.unmarked(table.format("1.5"))) == ["| a | b |"]
    assert list(figures.unmarked(table.format("−3 steps"))) == ["| a | b |"]
    assert list(figures.unmarked(table.format("`--seed 3`, [text](page-1.md)"))) == []
    assert list(figures.unmarked(f"<!-- figures: sim -->\n{table.format('1.5')}<!-- end -->\n")) == []
    assert list(figures.unmarked(f"```\n{table.format('1.5')}```\n")) == []


def test_a_table_of_a_page_is_recorded(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    table = "| a | b |\n|---|---:|\n| x | 1.5 |\n"
    page.write_text(f"<!-- figures: mine -->\n{table}<!-- end -->\n")
    monkeypatch.setattr(figures, "pages", lambda: [page])
    monkeypatch.setattr(figures, "DATA", tmp_path)
    monkeypatch.setattr("tools.tables.DATA", tmp_path)
    figures.record("mine", "make mine", "a machine")
    assert stored("mine")["table"] == [["a", "b"], ["x", "1.5"]]
    assert stored("mine")["machine"] == "a machine"
    assert figures.written(page.read_text()) == page.read_text()


def test_cells_refer_to_other_tables(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.tables.DATA", tmp_path)
    (tmp_path / "one.json").write_text('{"align": "l", "table": [["", "s"], ["a: b", "**12** (3×)"]]}')
    (tmp_path / "two.json").write_text('{"align": "l", "table": [["", "s"], ["x", "{one: a: b: s} seconds"]]}')
    assert rows("two")[1] == ["x", "12 seconds"]
