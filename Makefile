# `make help` lists the targets.  Each target that needs Python makes .venv from requirements.lock first.

VENV := .venv
PY := $(VENV)/bin/python
# .venv is stale when what was installed is older than what asks for it.
LOCKED := $(VENV)/.trilake-locked

# Python keeps what it compiled: the tests start some thousand processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo docs dist test long lint format types contracts doctest check soak reliability interop matrix bench protos clean lock

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(LOCKED): requirements.lock pyproject.toml scripts/venv
	@scripts/venv
	@touch $@

venv: $(LOCKED) ## Make or refresh .venv from the lock file (PYTHON=... chooses the interpreter)

# The classes of Spark, for the many JVMs that tests start.
CLASSES := $(VENV)/spark.jsa

$(CLASSES): $(LOCKED) tests/jvm.py
	@$(PY) -m tests.jvm $@

demo: $(LOCKED) ## Run the main job: the flights of 2013 through Spark into a table and back
	@$(PY) examples/flights.py

# In three processes, as one of two would often wait for Spark; a file is run by one of them, and files begin in their order: the
# longest single test is not last.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

test: $(LOCKED) ## Run the tests but the long ones (ARGS="tests/storage -k contract" for some of them)
	@$(PY) -m pytest $(if $(ARGS),$(ARGS),-m "not long" $(PARALLEL))

long: $(LOCKED) $(CLASSES) ## Run the tests that take long: most on Spark, simulation, kills, damage, every block of the documentation
	@$(PY) -m pytest -m long $(PARALLEL)

lint: $(LOCKED) ## Check style and formatting
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { echo "files need formatting: make format"; exit 1; }

format: $(LOCKED) ## Format the code and repair what can be repaired mechanically
	@$(PY) -m ruff check --quiet --fix-only .
	@$(PY) -m ruff format --quiet .

types: $(LOCKED) ## Check the types, strictly, those of the blocks in the documentation too
	@$(PY) -m mypy
	@$(PY) -m mypy --scripts-are-modules scripts/dist scripts/matrix scripts/mutants scripts/reliability scripts/site/*.py
	@$(PY) -m tests.docs.blocks write build/docs-types
	@$(PY) -m mypy build/docs-types

contracts: $(LOCKED) ## Check that imports point one way through the layers
	@$(VENV)/bin/lint-imports --no-cache

doctest: $(LOCKED) $(CLASSES) ## Run the examples in the docstrings
	@$(PY) -m pytest -q --doctest-modules src --ignore src/trilake/lance/torch/data.py  # which needs torch

docs: $(LOCKED) ## Build the documentation as a site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(PY) -m mkdocs build --quiet --strict
	@echo "the site is build/site; to see it: $(PY) -m http.server -d build/site"

dist: $(LOCKED) ## Build the packages, check them, install the wheel elsewhere and run the demo there
	@PYTHONPATH=src $(PY) scripts/dist

check: ## Run everything that CI runs
	@.ci/run

soak: $(LOCKED) ## Run the randomized tests for long (hours, with more examples)
	@TRILAKE_SOAK=1 $(PY) -m pytest $(ARGS)

reliability: $(LOCKED) ## Run simulation, planted faults, models, crashes and kills for long, write docs/internals/reliability.md
	@$(PY) scripts/reliability $(ARGS)

interop: $(LOCKED) ## Run the tests with other implementations, pylance 0.8.19 and DuckDB 1.5.5 in environments of their own
	@scripts/interop $(ARGS)

matrix: $(LOCKED) ## Run every public call on every release of Spark, write docs/compatibility.md (ARGS="spark-3.5 ...")
	@scripts/matrix $(ARGS)

bench: $(LOCKED) ## Run the benchmarks (ARGS="name --json out.json" for some of them)
	@$(PY) -m bench $(ARGS)

lock: ## Lock the newest dependencies that pyproject.toml allows
	@scripts/lock

protos: $(LOCKED) ## Make the Python modules of Lance's messages anew, after a change of a .proto file
	@scripts/protos

clean: ## Remove .venv and everything that was generated
	rm -rf $(VENV) .venv-interop .venv-interop-duckdb .venv-matrix dist build bench-data demo-data spark-warehouse metastore_db derby.log artifacts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
