# Two commands do all the set-up: `make demo` and `make test`. They need Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests run on one process for each core; BLAS threads inside them would only get in the way.
JOBS ?= auto

.PHONY: demo test test-slow lint types layers check bench simulations paper docs clean help

help:
	@echo "make demo       the embedded example: PCA and dPCA side by side, with a picture and a report"
	@echo "make test       the test suite"
	@echo "make test-slow  the long simulations"
	@echo "make check      linters, types and the layer check"
	@echo "make bench      the benchmark table"
	@echo "make simulations  size, power and coverage of the tests, as tables (about half an hour)"
	@echo "make paper      run the experiments of the paper and write docs/paper.md (15 minutes; data from STANDOUT_DATA or OpenML)"
	@echo "make docs       write the generated parts of the documentation anew"

$(VENV)/.made:
	@PYTHON="$(PYTHON)" sh scripts/make-venv "$(VENV)"
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cli]"
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/python -m standout demo

test: $(VENV)/.dev
	@sh scripts/install-java
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -rs -m "not slow"

test-slow: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

check: lint types layers

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --write docs/benchmarks.md

simulations: $(VENV)/.dev
	$(BIN)/python -m simulations --write docs/simulations.md

paper: $(VENV)/.dev
	$(BIN)/python -m experiments all --out paper-results
	$(BIN)/python scripts/write_paper.py paper-results

docs: $(VENV)/.dev
	$(BIN)/python scripts/write_docs.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
