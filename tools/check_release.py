"""Builds wheel and sdist, and tries them in fresh environments outside the clone.

    python -m tools.check_release                              # this interpreter
    python -m tools.check_release --pythons python3.11 python3.12 python3.13 --work /tmp/release
    python -m tools.check_release --extras onnx sb3 watch      # also installs extras, one after the other
    python -m tools.check_release --lowest                     # oldest versions of direct dependencies instead

Needs `build`, `twine` and, for --lowest, `uv`. Environments below --work are kept, and used again by the next call.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS_IMPORT = {
    "docs": "sphinx, myst_nb", "mettagrid": "mettagrid", "onnx": "onnx, onnxruntime", "old-gym": "gym, shimmy",
    "ray": "ray", "sb3": "stable_baselines3", "tensorboard": "torch.utils.tensorboard", "wandb": "wandb",
    "watch": "starlette, uvicorn", "cuda": "numba_cuda",
}  # fmt: skip
API = """
import cavalcade, gymnasium
run = cavalcade.train("cage2", red="meander", episodes=400, num_envs=50, run="runs/api", progress=False)
scores = run.evaluate(episodes=20, revisions=("head",))
policy = cavalcade.load_policy(run.path)
env = gymnasium.make("cavalcade/Cage2-v0", red="meander")
observation, info = env.reset(seed=0)
env.step(policy(observation, info["action_mask"]))
assert cavalcade.__file__.count("site-packages"), cavalcade.__file__
print(cavalcade.__version__, len(run.metrics()), "updates")
"""
COMMANDS = (
    ["--version"],
    ["verify"],
    ["train", "cage2", "--episodes", "1000", "--run", "runs/cage2"],
    ["train", "--resume", "runs/cage2", "--episodes", "1200"],
    ["evaluate", "runs/cage2", "--episodes", "20", "--revisions", "head"],
    ["train", "gym:CartPole-v1", "--steps", "8192", "--run", "runs/pole"],
    ["play", "runs/cage2", "--horizon", "3"],
    ["models"],
)
EXAMPLES = (
    "first_steps",
    "batch_environment",
    "resume_and_evaluate",
    "callbacks",
    "own_environment",
    "own_network",
    "own_red",
)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    work = options.work.resolve() if options.work else Path(tempfile.mkdtemp(prefix="cavalcade-release-"))
    if ROOT in (work, *work.parents):
        sys.exit(f"--work is {work}; it must be outside the clone")
    wheel = build(work / "dist")
    for python in options.pythons:
        version = _output([python, "-c", "import platform; print(platform.python_version())"]).strip()
        try_wheel(wheel, python, work / f"venv-{version}{'-lowest' * options.lowest}", options)
    print(f"everything passed; files are in {work}")
    return 0


def build(dist: Path) -> Path:
    """Wheel and sdist of the working tree; their metadata is checked."""
    shutil.rmtree(dist, ignore_errors=True)
    _run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)])  # the wheel is built from the sdist
    files = sorted(dist.iterdir())
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    return next(file for file in files if file.suffix == ".whl")


def try_wheel(wheel: Path, python: str, venv: Path, options: argparse.Namespace) -> None:
    """Installs a wheel into an environment and uses it from a folder of its own."""
    if not venv.exists():
        _run([python, "-m", "venv", str(venv)])
    inner = str(venv / "bin/python")
    if options.lowest:
        _run([*_pip(inner, options.constraint), "torch"])  # uv would take a build with CUDA instead of one for the CPU
        uv = ["uv", "pip", "install", "--quiet", "--python", inner, "--constraint", str(options.constraint)]
        _run([*uv, "--resolution", "lowest-direct", "--requirement", str(ROOT / "pyproject.toml")])
        _run([*uv, "--no-deps", "--reinstall", str(wheel)])
    else:
        _run([*_pip(inner, options.constraint), "--force-reinstall", "--no-deps", str(wheel)])
        _run([*_pip(inner, options.constraint), str(wheel)])
    _run([inner, "-m", "pip", "check"])
    folder = Path(tempfile.mkdtemp(prefix="outside-", dir=venv.parent))
    for command in COMMANDS[:3] if options.quick else COMMANDS:
        _run([str(venv / "bin/cavalcade"), *command], folder)
    _run([inner, "-c", API], folder)
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name in EXAMPLES[:1] if options.quick else EXAMPLES:
        _run([inner, "-W", "ignore", f"examples/{name}.py"], folder)
    for extra in options.extras:
        _run([*_pip(inner, options.constraint), f"{wheel}[{extra}]"])
        _run([inner, "-m", "pip", "check"])
        _run([inner, "-W", "ignore", "-c", f"import {EXTRAS_IMPORT[extra]}"], folder)
    shutil.rmtree(folder)


def _pip(python: str, constraint: Path) -> list[str]:
    return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(constraint)]


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    """Runs a command, without the clone on its path; its output only if it fails."""
    print("$", " ".join(command).replace(API, "API")[:160], flush=True)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nexit status {done.returncode}")


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _parser() -> argparse.ArgumentParser:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="interpreters to try")
    parser.add_argument("--work", type=Path, help="folder for files and environments, outside the clone")
    parser.add_argument("--constraint", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--extras", nargs="*", default=[], choices=sorted(set(known) & set(EXTRAS_IMPORT)))
    parser.add_argument("--quick", action="store_true", help="fewer commands and one example: half of the compiling")
    parser.add_argument("--lowest", action="store_true", help="oldest versions of direct dependencies")
    return parser


if __name__ == "__main__":
    sys.exit(main())
