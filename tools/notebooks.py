"""Runs the notebooks of the documents in a folder of their own, and keeps their outputs.

python -m tools.notebooks                # all: about two minutes on two cores
python -m tools.notebooks first-steps
"""

import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient

from tools.doc_blocks import ROOT

FOLDER = ROOT / "docs" / "notebooks"


def main(names: list[str]) -> int:
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, nbformat.NO_CONVERT)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=1200, resources=resources, record_timing=False).execute()
        nbformat.write(notebook, path)
        print(f"{path.relative_to(ROOT)}: {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
