"""Which source files a compiled kernel may contain, so that a change to any of them invalidates the cache.

Numba checks only the file of the kernel itself, not the modules it calls. A kernel module depends on the modules whose
names its compiled functions and its module-level statements use, transitively. Plain functions do not count, since
compiled code cannot call them; so a change to the settings, for instance, keeps the cache.

Compiled code knows the fields of a named tuple by position, and need not name its class: the named tuples of all
packages that these modules lie in count too.
"""

import ast
import hashlib
import re
import sys
from functools import cache
from pathlib import Path

import numba

_COMPILED = {"rule", "callable_rule", "routine", "formula", "kernel", "gpu_kernel"}  # decorators
_PACKAGE = __name__.partition(".")[0]
_ROOT = Path(__file__).parents[2]
_RECORD = re.compile(rb"^class \w+\(NamedTuple\):\n(?:[ \t].*\n|\n)*", re.MULTILINE)


def sources_key(module: str) -> str:
    """A hash of all sources that kernels of a module may contain, and of the versions of Python and Numba."""
    digest = hashlib.sha256(f"{sys.version} numba {numba.__version__}".encode())
    sources = sorted(closure(module))
    for name in sources:
        digest.update(name.encode() + _path(name).read_bytes())
    for package in sorted({name.split(".")[1] for name in sources if name.startswith(f"{_PACKAGE}.")}):
        digest.update(_records(package))
    return digest.hexdigest()[:16]


def closure(module: str) -> set[str]:
    """Names of the module and of all modules its kernels depend on."""
    found, left = set(), [module]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += dependencies(name)
    return found


@cache
def dependencies(module: str) -> tuple[str, ...]:
    """Modules of this package that the compiled functions and module-level statements of a module use."""
    tree = ast.parse(_path(module).read_text())
    imported, used = dict[str, str](), set[str]()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_PACKAGE):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                imported[alias.asname or alias.name] = inner if _is_module(inner) else node.module
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_COMPILED & _names(decorator) for decorator in node.decorator_list):
                used |= _names(node)
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
            used |= _names(node)
    return tuple(sorted({imported[name] for name in used if name in imported}))


@cache
def _records(package: str) -> bytes:
    """The sources of all named tuples in a package."""
    paths = sorted((_ROOT / _PACKAGE / package).rglob("*.py"))
    return b"".join(record.rstrip() for path in paths for record in _RECORD.findall(path.read_bytes()))


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _is_module(name: str) -> bool:
    return _path(name).exists()


@cache
def _path(module: str) -> Path:
    """The file of a module; of this package, found without importing it."""
    if not module.startswith(f"{_PACKAGE}."):
        return Path(sys.modules[module].__file__ or "")
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
