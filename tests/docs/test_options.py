"""The documents name commands and options that exist, and every command has a page."""

import re
import shlex

import pytest
from tools import tables
from tools.doc_blocks import ROOT, blocks, commands, pages

from cavalcade.cli import VERBS
from cavalcade.cli.options import options_of
from cavalcade.cli.pages import page_of, stored
from cavalcade.cli.search import ALIASES
from cavalcade.targets.watch import WatchOptions

PAGES = [page for page in pages() if page.name != "CHANGELOG.md"]
COMMANDS = ROOT / "docs" / "reference" / "commands"
ALWAYS = {"--help", "--help-all", "--version", "--resume"}
# Options of other programs that the documents mention.
FOREIGN = {
    "--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--shutdown-timeout",  # torchrun
    "--jobs", "--count", "--minutes", "--plain",  # scripts in benchmarks/
    "--pythons", "--extras", "--lowest", "--work",  # tools/
}  # fmt: skip
# Old names, in tables of what is called how now.
RENAMED = {
    "--update-steps", "--accumulate", "--horizon-ends", "--rows", "--learner", "--keep", "--correction", "--together",
    "--replay-every", "--n-workers", "--fixed-episodes-per-workflow", "--max-episodes-per-workflow",
    "--episodes-per-update", "--max-steps", "--gp-length-scale", "--no-gpu", "--greedy", "--scenario",
}  # fmt: skip


WATCHING = options_of(WatchOptions)  # `play` of a run on gym: or env:; only the run says so


def flags(options) -> set[str]:
    """Options as they may be typed."""
    named = {option.flag for option in options if not option.positional}
    return named | {f"--no-{flag[2:]}" for flag in named} | ALWAYS


EVERY = {flag for page in stored().values() for flag in flags(page.options)} | set(ALIASES) | flags(WATCHING)


def quoted_lines(page) -> list[str]:
    """Command lines of a page: in blocks, and quoted in the text."""
    found = [command.text for block in blocks(page) for command in commands(block)]
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found += [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose)]
    return [re.split(r" [|>&;] ", text)[0] for text in found]


def recorded_lines(name: str) -> list[str]:
    """Command lines that measured a table."""
    kept = tables.stored(name)
    return kept["commands"] if "commands" in kept else re.split(r"[;:,] | and ", kept["command"])


def check_command(line: str) -> None:
    """A command line of cavalcade has a verb that exists, and options of this verb."""
    _, verb, *args = [*shlex.split(line.replace("…", " ").replace("'", "")), ""]
    if not verb or verb.startswith("-") or verb.isupper():
        return
    assert verb in VERBS, line
    help_page = page_of(verb, [arg for arg in args if arg])
    if help_page is None:
        return  # bench alone
    known = flags(help_page.options) | (flags(WATCHING) if verb == "play" else set())
    known |= set(ALIASES) if verb == "search" else set()
    for word in args:
        if word.startswith("--") and len(word) > 2:
            assert word.split("=")[0] in known, f"{line}: {word} is not an option of cavalcade {help_page.command}"


def check_script(line: str) -> None:
    """A script of the repository exists, and its source has the options that are named."""
    match = re.match(r"python (?:-m ((?:tools|benchmarks)[\w.]*)|((?:tools|benchmarks)/[\w/]+\.py))(.*)", line)
    if not match:
        return
    path = ROOT / (match[2] or match[1].replace(".", "/"))
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    source = "".join(file.read_text() for file in files)
    for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", match[3]):
        assert f'"{flag}"' in source, f"{line}: {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page):
    for line in quoted_lines(page):
        if line.startswith("cavalcade "):
            check_command(line)
        check_script(line)


@pytest.mark.parametrize("name", sorted(file.stem for file in tables.DATA.glob("*.json")))
def test_commands_that_measured_tables_exist(name):
    for line in recorded_lines(name):
        if line.startswith("cavalcade "):
            check_command(line)
        check_script(line)


def test_figures_are_measured_by_what_their_files_say():
    for name, figure in tables.FIGURES.items():
        if figure.commands:
            assert tables.stored(name)["commands"] == [f"cavalcade {command}" for command in figure.commands]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_in_the_text_exist(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for quoted in re.findall(r"`([^`]+)`", prose):
        if re.match(r"(pip|python|torchrun|pytest|make|git|uv) ", quoted):
            continue
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!…|-…)", quoted):
            allowed = EVERY | FOREIGN | (RENAMED if page.name == "coming-from.md" else set())
            assert flag in allowed, f"{flag} in `{quoted}` is an option of no command"


def test_every_command_has_a_page():
    shown = {name: re.findall(r"^```\{command\} (.+)$", page.read_text(), re.MULTILINE)
             for name in VERBS for page in [COMMANDS / f"{name}.md"]}  # fmt: skip
    for command, page in stored().items():
        listed = {flag for name in shown[command.split()[0]] for flag in flags(stored()[name].options)}
        assert flags(page.options) <= listed, command
    index = (COMMANDS / "index.md").read_text()
    for verb, line in VERBS.items():
        assert f"[`cavalcade {verb}`]({verb}.md) | {line} |" in index


def test_an_unknown_option_is_found():
    assert "--learning-speed" not in EVERY
    assert "--learning-rate" in EVERY
    check_command("cavalcade train cage2 --learning-rate 1e-3")
    check_script("python benchmarks/busy.py --repeat 3")
    with pytest.raises(AssertionError):
        check_command("cavalcade train cage2 --learning-speed 1")
    with pytest.raises(AssertionError):
        check_script("python benchmarks/busy.py --learning-speed 1")
