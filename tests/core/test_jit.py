"""Compiled kernels are cached by the content of all sources that they may contain."""

import ast
import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import numba
import pytest
import torch
from numba.core import types
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

import cavalcade
from cavalcade.config import PPOConfig
from cavalcade.core import jit, kernel_sources
from cavalcade.core.kernel_sources import closure, sources_key
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.envs.gridworld import Gridworld
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.ppo.factory import make_engine
from tests.ppo.engines.recurrent.test_engine import advance
from tests.ppo.engines.recurrent.test_engine import learner as recurrent_learner

PACKAGE = Path(cavalcade.__file__).parent
SCRIPT = "from cavalcade.envs.cage2 import Cage2; print(Cage2(3, seed=1).state.key.tolist())"
DECORATORS = ("kernel", "gpu_kernel")


def kernel_modules() -> list[str]:
    """Every module with a kernel that is kept on disk."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        decorators = [ast.unparse(decorator) for function in functions for decorator in function.decorator_list]
        if any(name in text.replace("(", " ").replace(",", " ").split() for text in decorators for name in DECORATORS):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found.append(".".join(parts).removesuffix(".__init__"))
    return found


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Iterator[Path]:
    """A copy of the package in which keys are computed, to be edited."""
    shutil.copytree(PACKAGE, tmp_path / "cavalcade", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernel_sources, "_ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    """A process reads sources once; this one reads them again."""
    for function in vars(kernel_sources).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def key_of(module: str) -> str:
    forget()
    return sources_key(module)


def source_of(copy: Path, module: str) -> Path:
    path = copy.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_there_are_kernels_and_they_depend_on_others():
    assert {"cavalcade.envs.cage2.cpu", "cavalcade.envs.gridworld", "cavalcade.ppo.engines.cpu.gradient"} < set(
        kernel_modules()
    )
    assert {"cavalcade.core.rng", "cavalcade.envs.cage2.game", "cavalcade.envs.cage2.red", "cavalcade.core.jit"} < set(
        closure("cavalcade.envs.cage2.cpu")
    )
    assert {"cavalcade.core.scalar", "cavalcade.ppo.engines.cpu.network"} < set(
        closure("cavalcade.ppo.engines.cpu.gradient")
    )


@pytest.mark.parametrize("kernels", kernel_modules())
def test_the_key_changes_with_every_module_that_kernels_may_contain(copy, kernels):
    before = key_of(kernels)
    for module in sorted(closure(kernels)):
        path = source_of(copy, module)
        source = path.read_text()
        path.write_text(source + "\n_ANOTHER = 1\n")
        assert key_of(kernels) != before, module
        path.write_text(source)
        assert key_of(kernels) == before, module


@pytest.mark.parametrize("kernels", kernel_modules())
def test_the_key_does_not_change_with_settings_nor_with_plain_functions_elsewhere(copy, kernels):
    before, inside = key_of(kernels), closure(kernels)
    for module in ("config.ppo", "config.base", "config.recurrent", "config.workflow", "core.errors", "core.timer"):
        path = source_of(copy, f"cavalcade.{module}")
        path.write_text(path.read_text() + "\n_ANOTHER = 1\n")
    assert key_of(kernels) == before
    for path in copy.rglob("*.py"):
        name = ".".join(path.relative_to(copy).with_suffix("").parts).removesuffix(".__init__")
        if name not in inside:
            path.write_text(path.read_text() + "\n\ndef _another():\n    return 1\n")
    assert key_of(kernels) == before
    assert closure(kernels) == inside


def test_a_rule_that_begins_to_be_used_belongs_to_the_sources(copy):
    """What the compiled functions of a module call is read from its source, not listed anywhere."""
    kernels = "cavalcade.ppo.collect"
    before = key_of(kernels)
    assert "cavalcade.ppo.shuffle" not in closure(kernels)
    path = source_of(copy, kernels)
    path.write_text(
        "from cavalcade.ppo import shuffle\n" + path.read_text() + "\n\n@kernel\ndef _another(x):\n    shuffle.f(x)\n"
    )
    assert key_of(kernels) != before
    assert {"cavalcade.ppo.shuffle", "cavalcade.core.rng"} <= closure(kernels)


def test_the_key_is_of_what_compiles_them_too(monkeypatch):
    before = sources_key("cavalcade.ppo.collect")
    monkeypatch.setattr(numba, "__version__", "0.0")
    assert sources_key("cavalcade.ppo.collect") != before


def compiled_functions() -> dict[str, list[Dispatcher]]:
    """All compiled functions of the package, by the module that they are written in."""
    found: dict[str, list[Dispatcher]] = {}
    for info in pkgutil.walk_packages([str(PACKAGE)], "cavalcade."):
        if info.name.startswith(
            ("cavalcade.envs", "cavalcade.ppo", "cavalcade.core", "cavalcade.workflow", "cavalcade.policy")
        ):
            try:
                module = importlib.import_module(info.name)
            except ImportError:  # of a package that is not installed here
                continue
            here = [x for x in vars(module).values() if isinstance(x, Dispatcher) and x.py_func.__module__ == info.name]
            found[info.name] = here
    return found


def called(function: FunctionType) -> set[str]:
    """The modules of all compiled functions that a function can call, looked up as Python would."""
    left, seen = [function], set()
    while left:
        now = left.pop()
        if now in seen:
            continue
        seen.add(now)
        names, held = set(now.__code__.co_names), now.__globals__
        values = [held[name] for name in names if name in held]
        for module in [x for x in values if isinstance(x, ModuleType) and x.__name__.startswith("cavalcade")]:
            values += [getattr(module, name) for name in names if hasattr(module, name)]
        values += inspect.getclosurevars(now).nonlocals.values()
        left += [x.py_func for x in values if isinstance(x, Dispatcher)]
    return {one.__module__ for one in seen}


def test_no_kernel_calls_anything_outside_its_sources():
    """The sources found by reading, against what the functions themselves refer to once they are imported."""
    count = 0
    for module, functions in compiled_functions().items():
        for function in functions:
            beyond = called(function.py_func) - closure(module)
            assert not beyond, f"{module}.{function.py_func.__name__}"
            count += 1
    assert count > 100


def play() -> None:
    """Has every kind of kernel compiled for the arguments that it is called with."""
    for env in (Gridworld(8), WorkflowCage2(8, red="bline")):
        env.reset()
        for dedup in ("on", "off"):
            learner, _ = make_engine(env, PPOConfig(num_envs=8, rollout_steps=10, hidden=(8,), dedup=dedup), [0])
            learner.collect()
            learner.update(0.0)
    env = WorkflowCage2(8, red="bline", horizon=10)
    env.reset()
    env.assign(slice(0, 8), order=CAGE2.parse("user_priority"), seed=0, mask="mask")
    config = PPOConfig(num_envs=8, rollout_steps=10, hidden=(8,))
    engine = CudaEngine(env, DeviceCage2(env, torch.device("cpu")), config, [0])
    engine.collect()
    engine.update(0.0)
    advance(recurrent_learner())


def records(kind: types.Type) -> set[type]:
    """All named tuples in a type: compiled code knows their fields by position."""
    inside = set().union(*map(records, kind.types)) if isinstance(kind, types.BaseTuple) else set()
    return inside | ({kind.instance_class} if isinstance(kind, types.BaseNamedTuple) else set())


def swap_fields(path: Path, name: str) -> None:
    """Exchanges the first two fields of a named tuple."""
    source = path.read_text()
    (record,) = (x for x in ast.parse(source).body if isinstance(x, ast.ClassDef) and x.name == name)
    first, second = [x.lineno - 1 for x in record.body if isinstance(x, ast.AnnAssign)][:2]
    lines = source.splitlines(keepends=True)
    lines[first], lines[second] = lines[second], lines[first]
    path.write_text("".join(lines))


def test_the_key_changes_with_the_records_that_kernels_take(copy):
    """A field that moves within a named tuple changes no type: only the key can tell that a kernel is out of date."""
    play()
    taken = {
        (module, record.__module__, record.__name__)
        for module, functions in compiled_functions().items()
        for function in functions
        if isinstance(function._cache, FunctionCache)
        for signature in function.signatures
        for record in set().union(*map(records, signature))
    }
    assert len(taken) > 10
    unnoticed = []
    for kernels, module, name in sorted(taken):
        path, before = source_of(copy, module), key_of(kernels)
        source = path.read_text()
        swap_fields(path, name)
        assert path.read_text() != source
        if key_of(kernels) == before:
            unnoticed.append(f"{module}.{name} in {kernels}")
        path.write_text(source)
    assert not unnoticed


def run(folder, cache):
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, env=environment, capture_output=True, text=True)
    return done.stdout


def compiled(cache):
    return sorted(path.name for path in cache.rglob("*.nbc"))


def test_an_edit_in_a_called_module_takes_effect(tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(PACKAGE, tmp_path / "cavalcade", ignore=shutil.ignore_patterns("__pycache__"))
    first = run(tmp_path, cache)
    kernels = compiled(cache)
    assert kernels
    assert run(tmp_path, cache) == first
    assert compiled(cache) == kernels, "the second process compiled nothing"

    called = tmp_path / "cavalcade" / "core" / "rng.py"  # the kernel itself is in cpu.py
    source = called.read_text()
    called.write_text(source.replace("0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"))
    assert run(tmp_path, cache) != first
    assert len(compiled(cache)) == 2 * len(kernels)

    called.write_text(source)
    assert run(tmp_path, cache) == first
    assert len(compiled(cache)) == 2 * len(kernels)


def test_an_edit_elsewhere_compiles_nothing(tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(PACKAGE, tmp_path / "cavalcade", ignore=shutil.ignore_patterns("__pycache__"))
    first = run(tmp_path, cache)
    kernels = compiled(cache)
    elsewhere = tmp_path / "cavalcade" / "config" / "ppo.py"
    elsewhere.write_text(elsewhere.read_text() + "\n_ANOTHER = 1\n")
    assert run(tmp_path, cache) == first
    assert compiled(cache) == kernels


def test_old_folders_are_cleared_away(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    module = "cavalcade.ppo.collect"
    parent = tmp_path / "cavalcade" / "kernels" / module
    for age in range(12):
        (parent / f"old{age}").mkdir(parents=True)
        os.utime(parent / f"old{age}", (1000 - age, 1000 - age))
    other = tmp_path / "cavalcade" / "kernels" / "cavalcade.ppo.gae" / "old"
    other.mkdir(parents=True)
    jit.cache_path.cache_clear()
    try:
        folder = Path(jit.cache_path(module))
    finally:
        jit.cache_path.cache_clear()
    assert folder.is_dir()
    assert folder == parent / sources_key(module)
    assert len(list(parent.iterdir())) == 8
    assert (parent / "old0").exists()
    assert not (parent / "old11").exists()
    assert other.exists()  # kernels of another module are its own business


def test_the_users_own_cache_setting_is_left_alone():
    before = jit.config.CACHE_DIR
    jit.kernel(lambda: 0)
    assert before == jit.config.CACHE_DIR
