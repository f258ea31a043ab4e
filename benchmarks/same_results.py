"""Trains with every engine at two revisions on one machine and compares weights, games and logs to the bit.

    python benchmarks/same_results.py OLD NEW [--only NAME …] [--device cuda]

OLD and NEW are git revisions, or folders with a checkout. Options are spelt as in the older of the two; renamed options
keep working for a release. Timings are left out of the comparison, and renamed metrics are compared under their new
name. Exits with 1 if anything differs.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

_CAGE2 = "train cage2 --num-envs 20 --update-steps 50 --checkpoint-every 0 --threads 2 --quiet"
_GYM = "--num-envs 8 --update-steps 32 --minibatches 2 --steps 4096 --threads 1 --quiet"
_METTAGRID = (
    "train mettagrid --task forage --env-options agents=4 --num-envs 4 --batch-size 1024 --minibatch-size 256 "
    "--bptt-horizon 16 --width 32 --steps 6144 --monitor-every 0 --workers 2 --threads 1 --quiet"
)
_SEARCH = "--num-envs 10 --max-episodes 4 --score-episodes 8 --confirm 2 --rivals 2 --threads 2 --quiet"
CASES = {
    "cpu": f"{_CAGE2} --device cpu --episodes 300 --minibatches 4 --seed 3",
    "cpu-plain": f"{_CAGE2} --device cpu --episodes 200 --rows plain --value-clip 0.2 --target-kl 0.002 --policies 2 "
    "--minibatches 5 --accumulate 2",
    "cpu-many": f"{_CAGE2} --device cpu --episodes 200 --red mixed --extras scans,time --policies 3 --target-kl 0.002 "
    "--minibatches 2 --normalise-observations",
    "torch": f"{_CAGE2} --device cpu --episodes 200 --learner torch --target-kl 0.002 --minibatches 2 --policies 2 "
    "--normalise-observations",
    "torch-replay": f"{_CAGE2} --device cpu --episodes 200 --replay 2 --minibatches 2 --horizon-ends",
    "order": f"{_CAGE2} --device cpu --episodes 200 --order critical_first --enforce lagrangian --red meander",
    "gym": f"train gym:CartPole-v1 --backend async --workers 2 {_GYM}",
    "gym-box": f"train gym:Pendulum-v1 --backend serial {_GYM}",
    "gym-ray": f"train gym:CartPole-v1 --backend ray --workers 1 --staleness 0 {_GYM}",
    "recurrent": f"{_METTAGRID} --priority-alpha 0.6 --contrastive-coef 0.1 --epochs 2",
    "recurrent-vtrace": f"{_METTAGRID} --vtrace --core gru --optimizer muon --epochs 2 --statistics-every 2",
    "recurrent-teacher": f"{_METTAGRID} --teacher {{recurrent}} --kickstart-steps 4096 --encoder conv",
    "ranks": f"torchrun 2 {_CAGE2} --device cpu --episodes 200 --minibatches 4",
    "search": f"search cage2 --device cpu --n-workflows 6 --total-episodes 400 {_SEARCH}",
    "search-tail": f"search cage2 --device cpu --searcher halving --n-workflows 6 --total-episodes 800 --score tail "
    f"--enforce lagrangian --red meander {_SEARCH}",
    "search-warm": f"search cage2 --device cpu --warm-start universal --n-workflows 4 --total-episodes 400 {_SEARCH}",
    "search-gridworld": f"search checkpoints --n-workflows 6 --total-episodes 400 {_SEARCH}",
    "search-ray": f"search cage2 --engine ray --searcher fixed --orders critical_first,user_priority --n-workflows 2 "
    f"--together 1 --total-episodes 400 {_SEARCH}",
}
CUDA_CASES = {
    "cuda": f"{_CAGE2} --device cuda --episodes 400 --minibatches 4",
    "cuda-many": f"{_CAGE2} --device cuda --episodes 400 --red mixed --policies 3 --target-kl 0.002 --precision bf16",
    "cuda-order": f"{_CAGE2} --device cuda --episodes 400 --order critical_first --enforce lagrangian --red meander",
    "cuda-search": f"search cage2 --device cuda --n-workflows 6 --total-episodes 400 {_SEARCH}",
}
RENAMED = {"distinct_rows": "distinct_observations", "label": "kind"}  # metrics and columns
TIMES = ("seconds",)


def checkout(revision: str, folder: Path) -> Path:
    """A folder with a revision: one that is there already, or a new worktree."""
    if Path(revision).is_dir():
        return Path(revision).resolve()
    path = folder / revision.replace("/", "-")
    subprocess.run(["git", "worktree", "add", "--detach", "--force", str(path), revision], check=True)
    return path


def digest(run: Path) -> dict[str, str]:
    """Hashes of what a run has left behind, by name."""
    found = {}
    latest = max(run.glob("checkpoints/*"))
    for path in sorted([*latest.glob("*.safetensors"), *run.glob("policies/*.safetensors")]):
        tensors = load_file(path)
        content = b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors))
        found[str(path.relative_to(run))] = hashlib.sha256(content).hexdigest()
    for path in sorted(latest.glob("state.npz")):
        with np.load(path) as games:
            content = b"".join(name.encode() + games[name].tobytes() for name in sorted(games.files))
        found[str(path.relative_to(run))] = hashlib.sha256(content).hexdigest()
    for name in ("metrics.jsonl", "episodes.csv", "search.csv"):
        if (run / name).exists():
            found[name] = hashlib.sha256(_log(run / name).encode()).hexdigest()
    return found


def _log(path: Path) -> str:
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = list(csv.DictReader(path.open()))
    kept = [{RENAMED.get(k, k): v for k, v in row.items() if k not in TIMES} for row in rows]
    return json.dumps(kept, sort_keys=True)


def play(source: Path, case: str, words: list[str], runs: Path) -> dict[str, str]:
    """Runs a case at a revision; the hashes of what it left."""
    run = runs / case
    if not run.exists():
        module = [sys.executable, "-m", "cavalcade"]
        if words[0] == "torchrun":
            module = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={words[1]}"]
            module, words = [*module, "-m", "--", "cavalcade"], words[2:]
        words = [word.format(recurrent=runs / "recurrent") for word in words]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(source / "src"), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "2",
        }
        done = subprocess.run(
            [*module, *words, "--run", str(run)], env=environment, cwd=runs, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{case} at {source}: {done.stderr.strip()[-2000:]}")
    return digest(run)


def main() -> int:
    """Compares, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--keep", type=Path, help="folder for runs of OLD, used again if they are there")
    given = parser.parse_args()
    cases = CUDA_CASES if given.device == "cuda" else CASES
    differ = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = (checkout(revision, folder) for revision in (given.old, given.new))
        places = [given.keep or folder / "old-runs", folder / "new-runs"]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        for case, text in cases.items():
            if given.only and case not in given.only:
                continue
            before, after = (play(s, case, text.split(), runs) for s, runs in zip((old, new), places, strict=True))
            wrong = sorted(key for key in before | after if before.get(key) != after.get(key))
            differ += bool(wrong)
            state = f"DIFFERS in {', '.join(wrong)}" if wrong else f"equal, {len(before)} files"
            print(f"{case:<20} {state}", flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
