# Every target creates .venv and installs what it needs. Requires Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in one process per core, with one BLAS thread each to avoid oversubscription.
JOBS ?= auto

.PHONY: demo test test-slow lint types layers check bench simulations fuzz paper docs docs-write docs-check clean help

help:
	@echo "make demo         run the example: PCA and dPCA side by side, with a figure and a report"
	@echo "make test         run the test suite"
	@echo "make test-slow    run the long simulation tests"
	@echo "make check        run all linters: make lint, make types, make layers"
	@echo "make lint         check style and formatting with ruff"
	@echo "make types        check types with mypy"
	@echo "make layers       check the order of imports with import-linter"
	@echo "make docs         build the documentation site in docs/_build/html"
	@echo "make docs-write   regenerate the generated parts of README.md and docs/"
	@echo "make docs-check   build the site and check links, code, doctests, public names, and pages in a browser"
	@echo "make bench        run the benchmarks and write docs/evidence/benchmarks.md"
	@echo "make simulations  simulate size, power and coverage and write docs/evidence/simulations.md (about 30 minutes)"
	@echo "make fuzz         read damaged files of every type and write docs/evidence/fuzzing.md (about 30 minutes)"
	@echo "make paper        run the experiments of the paper and write docs/evidence/paper.md (about 15 minutes;"
	@echo "                  data from STANDOUT_DATA or OpenML)"
	@echo "make clean        remove .venv, build products and caches"

$(VENV)/.made:
	@PYTHON="$(PYTHON)" sh scripts/make-venv "$(VENV)"
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cli]"
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,docs]"
	@touch $@ $(VENV)/.dev $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/python -m standout demo

test: $(VENV)/.dev
	@sh scripts/install-debian java "Spark tests" openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
	@sh scripts/install-debian chromium "Browser tests" chromium
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -rs -m "not slow and not docs"

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
	$(BIN)/python -m benchmarks --write docs/evidence/benchmarks.md

simulations: $(VENV)/.dev
	$(BIN)/python -m simulations --write docs/evidence/simulations.md

fuzz: $(VENV)/.dev
	$(BIN)/python -m fuzz --write docs/evidence/fuzzing.md

paper: $(VENV)/.dev
	$(BIN)/python -m experiments all --out paper-results
	$(BIN)/python scripts/write_paper.py paper-results

# The site in docs/_build/html, from the pages as they are; examples and tutorials run during the build.
docs: $(VENV)/.docs
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -j auto -q -b html docs docs/_build/html

docs-write: $(VENV)/.docs
	$(BIN)/python scripts/write_docs.py

# Links, public names, the site in a browser, code and generated parts of the pages, the examples, and doctests.
DOCS_TESTS ?= tests/site tests/test_docs.py tests/test_examples.py tests/test_paper_page.py src
docs-check: docs
	@sh scripts/install-debian chromium "Browser tests" chromium
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -rs $(DOCS_TESTS)

clean:
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/tutorials docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
