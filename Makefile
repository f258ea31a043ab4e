# `make run` and `make test` work from a fresh clone with Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# make TORCH=2.11.0 … installs another build of torch than the one in constraints.txt.
ifdef TORCH
CONSTRAINTS := $(VENV)/constraints.txt
else
CONSTRAINTS := constraints.txt
endif
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

# Several test processes share the cores: threads that wait for work must not spin.
test test-fast tests warm-up: export OMP_WAIT_POLICY := passive
test test-fast tests: export RAY_worker_niceness := 0

.PHONY: run test test-fast lint types warm-up tests bench docs docs-check notebooks figures wheel clean

run: $(VENV)/installed
	$(BIN)/cavalcade search cage2

test: $(VENV)/installed-test
	$(MAKE) --jobs 3 lint types warm-up
	$(MAKE) tests

test-fast: $(VENV)/installed-test  # what to run while working: about a minute and a half once kernels are compiled
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

lint: $(VENV)/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/installed-test
	$(BIN)/pyright

warm-up: $(VENV)/installed-test
	$(BIN)/python -m tests.warm_up

tests: $(VENV)/installed-test
	tests/install_chromium.sh
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

docs: $(VENV)/installed-docs  # the site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

docs-check: $(VENV)/installed-docs  # does what the tutorials say and compares what is printed: minutes
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tools.check_docs

notebooks: $(VENV)/installed-docs  # runs them and keeps their outputs
	$(BIN)/python -m tools.notebooks

figures: $(VENV)/installed  # measures docs/data/figures anew and writes the tables; on a quiet machine
	$(BIN)/python -m tools.figures measure
	$(BIN)/python -m tools.figures write

wheel: $(VENV)/installed-release  # builds wheel and sdist and tries them outside the clone
	$(BIN)/python -m tools.check_release

bench: $(VENV)/installed
	$(BIN)/cavalcade bench sim
	$(BIN)/cavalcade bench envs
	$(BIN)/cavalcade bench train
	$(BIN)/cavalcade bench gp
	$(BIN)/cavalcade bench speedup

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/constraints.txt: $(BIN)/python
	printf 'torch==%s\n' '$(TORCH)' > $@

$(VENV)/installed: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	$(INSTALL) --editable .
	touch $@

$(VENV)/installed-test: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	$(INSTALL) --editable '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-docs: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	$(INSTALL) --editable '.[docs,onnx,ray,sb3,watch]'
	touch $@ $(VENV)/installed

$(VENV)/installed-release: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	$(INSTALL) --editable '.[release]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV)
