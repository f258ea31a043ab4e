"""Imports point down: every module knows only what lies below it, and nothing goes round in a circle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cavalcade

PACKAGE = Path(cavalcade.__file__).parent
ROOT = PACKAGE.name
LAYERS = [  # lowest first; packages of one layer may import each other, but not in a circle
    {"core"},
    {"config", "policy", "workflow", "vector"},
    {"envs"},
    {"ppo"},
    {"targets"},
    {"runs"},
    {"search", "report", "tuning", "watch"},
    {"api"},
    {"cli"},
    {"", "__main__"},  # the package itself
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str, tree: ast.AST | None = None) -> Iterator[tuple[str, int]]:
    """Modules of the package that a module imports, wherever in it, and the lines; not those for type checkers only."""
    for node in _executed(tree or ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == ROOT:
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            if base.split(".")[0] == ROOT:
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield (inner if inner in FILES else base), node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for given in node.args[:1]:
                if isinstance(given, ast.Constant) and str(given.value).split(".")[0] == ROOT:
                    yield given.value, node.lineno


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING`."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            left += node.orelse
        else:
            left += ast.iter_child_nodes(node)


def graph() -> dict[str, dict[str, int]]:
    """Modules, what each imports, and a line in which it does."""
    return {module: dict(imports_of(module)) for module in FILES}


GRAPH = graph()


def part_of(module: str) -> str:
    """The package directly below the root, or the module; nothing for the root itself."""
    return module.split(".")[1] if "." in module else ""


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes from which one comes back to where one was (strongly connected, Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1 or node in edges.get(node, ()):
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found


def test_every_package_has_a_layer():
    assert {part_of(module) for module in FILES} <= LEVEL.keys()


def test_what_is_imported_exists():
    """A name that is no module was taken for something in its package; a package that is gone is neither."""
    missing = [
        f"{FILES[module].relative_to(PACKAGE)}:{line} imports {other}"
        for module, found in GRAPH.items()
        for other, line in found.items()
        if other not in FILES
    ]
    assert not missing


def test_no_import_points_up():
    up = [
        f"{FILES[module].relative_to(PACKAGE)}:{line} imports {other}"
        for module, found in GRAPH.items()
        for other, line in found.items()
        if LEVEL.get(part_of(other), -1) > LEVEL[part_of(module)]
    ]
    assert not up


def test_no_modules_import_each_other_in_a_circle():
    assert not circles({module: set(found) for module, found in GRAPH.items()})


def children(parent: str) -> dict[str, set[str]]:
    """The packages directly in a package, and which of the others each imports."""
    depth = parent.count(".") + 1
    inside = {m for m in FILES if m.startswith(f"{parent}.") and m.count(".") >= depth}
    packages = {m for m in inside if FILES[m].name == "__init__.py" and m.count(".") == depth}

    def package(module: str) -> str:
        return ".".join(module.split(".")[: depth + 1])

    edges: dict[str, set[str]] = {name: set() for name in packages}
    for module in inside:
        mine = package(module)
        theirs = {package(other) for other in GRAPH[module]} - {mine}
        if mine in packages:
            edges[mine] |= theirs & packages
    return edges


@pytest.mark.parametrize("parent", [m for m, path in FILES.items() if path.name == "__init__.py"])
def test_no_packages_import_each_other_in_a_circle(parent):
    assert not circles(children(parent))


# What a training is, only its target knows: elsewhere nothing asks for the kind of a configuration.
ALLOWED = {
    "vector/hosted.py": r"isinstance\(config, HostConfig\)",
    "api.py": r"isinstance\(target, \w*Config\)",
}
OURS = {
    node.name
    for path in FILES.values()
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef) and node.name.endswith("Config")
}


def questions(text: str) -> list[tuple[int, str]]:
    """Where a source asks for the kind of a configuration: isinstance(x, …Config), type(config) is …, or a pattern."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = _words(node.args[-1]) & OURS
        elif isinstance(node, ast.Compare):
            asked = any(_is_type_of_config(side) for side in (node.left, *node.comparators))
        elif isinstance(node, ast.MatchClass):
            asked = _words(node.cls) & OURS
        else:
            continue
        if asked:
            found.append((node.lineno, ast.unparse(node)))
    return found


def _words(node: ast.AST) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(node)))


def _is_type_of_config(node: ast.AST) -> bool:
    return bool(re.fullmatch(r"type\(.*config\)|.*config\.__class__", ast.unparse(node), re.IGNORECASE))


def test_only_targets_and_searches_ask_for_the_kind_of_a_configuration():
    found = []
    for path in FILES.values():
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(("targets/", "search/")) or name in ("__init__.py", "__main__.py"):
            continue
        allowed = ALLOWED.get(name, "")
        found += [
            f"{name}:{line} {text}" for line, text in questions(path.read_text()) if not re.fullmatch(allowed, text)
        ]
    assert not found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import cavalcade.core.jit", ["cavalcade.core.jit"]),
        ("from cavalcade.core import jit, rng", ["cavalcade.core.jit", "cavalcade.core.rng"]),
        ("from cavalcade.core.jit import kernel", ["cavalcade.core.jit"]),
        ("from cavalcade.envs.cage2 import Cage2", ["cavalcade.envs.cage2"]),
        ("def f():\n    from cavalcade.core import jit", ["cavalcade.core.jit"]),
        ("if TYPE_CHECKING:\n    import cavalcade.api\nelse:\n    import cavalcade.core.jit", ["cavalcade.core.jit"]),
        ("try:\n    import cavalcade.core.rng\nexcept ImportError:\n    pass", ["cavalcade.core.rng"]),
        ("from . import gae", ["cavalcade.ppo.gae"]),
        ("from ..core.jit import kernel", ["cavalcade.core.jit"]),
        ("importlib.import_module('cavalcade.core.jit')", ["cavalcade.core.jit"]),
        ("import cavalcaded.core; import numpy", []),
    ],
)  # fmt: skip
def test_imports_are_found(source, found):
    assert sorted(name for name, _ in imports_of("cavalcade.ppo.trainer", ast.parse(source))) == found


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"e"}}) == [["a", "b", "c"], ["e"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(config, Cage2Config)", "isinstance(self.config, MettagridConfig | GymConfig)",
        "isinstance(run.config, (A, GymConfig))", "type(config) is Cage2Config", "type(self.config) == kind",
        "Cage2Config is type(config)", "isinstance(found, CyborgConfig)", "issubclass(kind, GymConfig)",
        "type(run.config) in KINDS", "match x:\n    case targets.GymConfig():\n        pass",
    ],
)  # fmt: skip
def test_questions_for_the_kind_are_found(text):
    assert questions(text)


@pytest.mark.parametrize("text", [
    "type(config).precision", "isinstance(env, WorkflowCage2)", "type(self).target",
    "isinstance(config, MettaGridConfig)",  # of the package of that name
])  # fmt: skip
def test_other_questions_are_not(text):
    assert not questions(text)
