"""`cavalcade completion SHELL`: a script that completes verbs, targets, options and their values, recipes and runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cavalcade.cli import VERBS
from cavalcade.cli.help import Page
from cavalcade.cli.options import Option, Positional
from cavalcade.cli.pages import FIRST_WORDS, NO_PAGE, stored
from cavalcade.cli.parse import parse
from cavalcade.config.presets import recipe_names

_RUNS = ("resume", "init", "teacher")  # options that name a run
REDS = ("bline", "meander", "sleep", "mixed")  # any other is module:function
_ALWAYS = ("--help", "--help-all")


@dataclass(frozen=True)
class Options:
    """Prints a script that completes commands in a shell: verbs, targets, options and their values, and runs."""

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """The shell."""


def run(args: list[str]) -> int:
    shell = parse(Options, args, "completion").shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](), end="")
    return 0


def _pages() -> dict[str, Page]:
    return stored() | {"bench": NO_PAGE}


def _flags(page: Page) -> list[str]:
    named = [option for option in page.options if not option.positional]
    switches = [f"--no-{option.flag[2:]}" for option in named if option.kind == "switch"]
    resume = ["--resume"] if page.command in ("train", "search") else []
    return [*dict.fromkeys([*resume, *(option.flag for option in named), *switches, *_ALWAYS])]


def _values(option: Option) -> str:
    """The values of an option, separated by spaces."""
    if option.name == "red":
        return " ".join(REDS)
    return " ".join(recipe_names() if option.name == "recipe" else option.choices)


def bash() -> str:
    """The script for bash."""
    pages = _pages()
    lines = [
        "# bash completion for cavalcade",
        "_cavalcade_runs() {",
        "    local run",
        '    for run in "$1"*/ runs/*/; do',
        '        [[ $run == "$1"* && -f ${run}config.yaml ]] && echo "${run%/}"',
        "    done",
        '    compgen -d -- "$1"',
        "}",
        "_cavalcade() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} page= words=",
        "    COMPREPLY=()",
        "    if ((COMP_CWORD == 1)); then",
        f'        COMPREPLY=($(compgen -W "{" ".join([*VERBS, "--help", "--version"])}" -- "$cur"))',
        "        return",
        "    fi",
        '    case "$verb ${COMP_WORDS[2]}" in',
        *_bash_pages(),
        "        *) page=$verb ;;",
        "    esac",
        '    case "$page $prev" in',
        *_bash_values(pages),
        "    esac",
        "    if [[ $cur != -* ]] && ((COMP_CWORD == 2)); then",
        '        case "$verb" in',
        *(f'            {verb}) words="{" ".join(_first(words))}" ;;' for verb, words in FIRST_WORDS.items() if words),
        "        esac",
        '        COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "        [[ ${COMPREPLY[*]} == *: ]] && compopt -o nospace 2>/dev/null",
        "    fi",
        "    if [[ $cur != -* ]]; then",
        f'        [[ " {" ".join(_takes_runs())} " == *" $verb "* ]] && COMPREPLY+=($(_cavalcade_runs "$cur"))',
        "        return",
        "    fi",
        '    case "$page" in',
        *(f'        "{command}") words="{" ".join(_flags(page))}" ;;' for command, page in pages.items()),
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o filenames -F _cavalcade cavalcade",
    ]
    return "\n".join(lines) + "\n"


def _first(words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word != "RUN"]


def _takes_runs() -> list[str]:
    """Verbs whose positional arguments may be runs."""
    return ["evaluate", "export", "payoff", "play", "record", "report", "search", "verify"]


def _bash_pages() -> Iterator[str]:
    """Which page a command line is about; bash splits words at colons."""
    for verb, words in FIRST_WORDS.items():
        for word in words:
            if word != "RUN":
                pattern = f'"{verb} {word.rstrip(":")}"' + "*" * word.endswith(":")
                yield f'        {pattern}) page="{verb} {word}" ;;'


def _bash_values(pages: dict[str, Page]) -> Iterator[str]:
    """What follows an option: by name where all pages agree, else by page and name."""
    known: dict[str, dict[str, str]] = {}
    for command, page in pages.items():
        for option in page.options:
            if not option.positional and option.kind != "switch":
                known.setdefault(option.flag, {})[command] = _values(option)
    for flag, values in known.items():
        agreed = len(set(values.values())) == 1
        for command, words in values.items() if not agreed else [("*", next(iter(values.values())))]:
            pattern = f'*" {flag}"' if agreed else f'"{command} {flag}"'
            if words:
                yield f'        {pattern}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return ;;'
    runs = "|".join(f'*" --{name}"' for name in _RUNS)
    yield f'        {runs}) COMPREPLY=($(_cavalcade_runs "$cur")); return ;;'
    others = [f'*" {option.flag}"' for option in _with_values(pages) if not _values(option)]
    yield f'        {"|".join(dict.fromkeys(others))}) COMPREPLY=($(compgen -f -- "$cur")); return ;;'


def _with_values(pages: dict[str, Page]) -> Iterator[Option]:
    for page in pages.values():
        yield from (option for option in page.options if not option.positional and option.kind in ("path", "text"))


def zsh() -> str:
    """The script for zsh, which runs that of bash."""
    head = ("# zsh completion", "autoload -Uz compinit bashcompinit", "(( $+functions[compdef] )) || compinit")
    return "\n".join([*head, "bashcompinit", bash()])


def fish() -> str:
    """The script for fish."""
    lines = [
        "# fish completion for cavalcade",
        "function __cavalcade_at",
        "    set -l words (commandline -opc)",
        "    string match -q -- $argv[1] (string join ' ' $words[2..3])",
        "end",
        "function __cavalcade_runs",
        "    for file in runs/*/config.yaml */config.yaml",
        "        path dirname $file",
        "    end",
        "    __fish_complete_directories",
        "end",
        "complete -c cavalcade -f",
        *(f"complete -c cavalcade -n __fish_use_subcommand -a {verb} -d {_quoted(VERBS[verb])}" for verb in VERBS),
    ]
    for verb, words in FIRST_WORDS.items():
        if words := _first(words):
            lines.append(f"complete -c cavalcade -n \"__cavalcade_at '{verb}'\" -a '{' '.join(words)}'")
        if verb in _takes_runs():
            lines.append(f"complete -c cavalcade -n \"__cavalcade_at '{verb}*'\" -a '(__cavalcade_runs)'")
        if verb in ("train", "search"):
            lines.append(f"complete -c cavalcade -n \"__cavalcade_at '{verb}*'\" -l resume -x -a '(__cavalcade_runs)'")
    for command, page in _pages().items():
        if command not in FIRST_WORDS or not FIRST_WORDS[command]:
            lines += _fish_options(command, page)
    return "\n".join(lines) + "\n"


def _fish_options(command: str, page: Page) -> Iterator[str]:
    verb, _, word = command.partition(" ")
    pattern = f"{verb} *" if word == "RUN" else f"{command}*"
    head = f"complete -c cavalcade -n \"__cavalcade_at '{pattern}'\""
    for option in page.options:
        about = f"-d {_quoted(option.help.split('. ')[0][:80])}"
        if option.positional:
            if option.choices:
                yield f"{head} -a '{_values(option)}'"
        elif option.kind == "switch":
            yield f"{head} -l {option.spelt[2:]} {about}"
        elif values := _values(option):
            yield f"{head} -l {option.flag[2:]} -x -a '{values}' {about}"
        else:
            yield f"{head} -l {option.flag[2:]} -r{' -F' if option.kind == 'path' else ''} {about}"
    for flag in _ALWAYS:
        yield f"{head} -l {flag[2:]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
