"""Imports point downwards, lazy ones included, and close no cycle; configurations are not told apart by type."""

import ast
import re
from pathlib import Path

import cavalcade

ROOT = Path(cavalcade.__file__).parent
# Lowest first. Packages of a layer may import each other, without cycles.
LAYERS = (
    {"core"},
    {"config", "policy", "workflow", "vector"},
    {"envs"},
    {"ppo"},
    {"targets"},
    {"runs"},
    {"search", "report", "tuning"},
    {"api"},
    {"cli"},
    {"", "__main__"},  # the root package
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ALLOWED_TYPE_TESTS = {
    ("vector/hosted.py", "HostConfig"),  # whether there is a Ray address at all
    ("api.py", "RunConfig"),  # a target may be given as a configuration
    ("api.py", "SearchConfig"),
}


def modules() -> dict[str, Path]:
    """Every module of the package by name, without the package's own; the root is ''."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: set[str]) -> set[str]:
    """The modules of the package that a file imports, also within functions; not those for type checkers only."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cavalcade":
            module = (node.module or "").partition(".")[2]
            for alias in node.names:
                inner = f"{module}.{alias.name}".strip(".")
                found.add(inner if inner in known else module)
        elif isinstance(node, ast.Import):
            found.update(a.name.partition(".")[2] for a in node.names if a.name.split(".")[0] == "cavalcade")
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imports(path, set(known)) - {name} for name, path in known.items()}


def package(module: str) -> str:
    return module.split(".")[0]


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def test_every_package_has_a_layer():
    assert {package(name) for name in modules()} == set(LEVEL)


def test_no_import_points_up():
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if LEVEL[package(other)] > LEVEL[package(name)]
    ]
    assert not wrong


def test_no_cycle_between_packages():
    edges: dict[str, set[str]] = {}
    for name, others in graph().items():
        edges.setdefault(package(name), set()).update({package(other) for other in others} - {package(name)})
    assert cycles(edges) == []


def test_no_cycle_between_modules():
    edges = graph()
    for name, others in edges.items():  # a package is imported with any of its modules; that alone is no cycle
        edges[name] = {other for other in others if not name.startswith(f"{other}.")}
    assert cycles(edges) == []


def test_the_tests_mirror_the_source():
    tests = Path(__file__).parent
    packages = {package(name) for name, path in modules().items() if path.name == "__init__.py"} - {""}
    assert not [name for name in packages if not (tests / name).is_dir()]


def test_environments_know_nothing_of_learning_and_learning_nothing_of_games():
    for name, others in graph().items():
        if package(name) == "envs":
            assert not [other for other in others if package(other) in ("ppo", "policy")], name
        if package(name) == "ppo":
            assert not [other for other in others if package(other) in ("envs", "workflow")], name


def test_configurations_are_not_told_apart_by_type():
    pattern = re.compile(r"isinstance\([^,()]*(?:\([^()]*\))?[^,()]*,\s*([\w. |]*Config)\)|type\([\w.]*config\) (?:is|==)")
    found = set()
    for name, path in modules().items():
        for match in pattern.finditer(path.read_text()):
            if match[1] != "MettaGridConfig":  # of the package mettagrid
                found.add((path.relative_to(ROOT).as_posix(), match[1]))
        assert name is not None
    assert found <= ALLOWED_TYPE_TESTS


def test_a_cycle_and_an_upward_import_would_be_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert LEVEL["core"] < LEVEL["envs"] < LEVEL["ppo"] < LEVEL["targets"] < LEVEL["runs"] < LEVEL["cli"]
