# Everything runs in .venv, made from a lock file on first use: what the library needs for the demo, what its development needs for the rest.
# It needs Python 3.11 or newer and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
PEERS := .venv-peers
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check format bench compare lock docs clean

help:
	@echo "make demo      an agent that is killed a dozen times and loses nothing (MODEL=openai:… uses a real model)"
	@echo "make test      all tests, under 10 minutes"
	@echo "make test-all  the long form: hundreds of real kills and seeds"
	@echo "make check     lint, format and types"
	@echo "make bench     what durability costs here, as ratios"
	@echo "make compare   the same work by other libraries, in an environment of their own (about 20 minutes)"
	@echo "make docs      redraw the tables that are drawn from the code"

$(RUNS): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "perdure needs Python 3.11 or newer (PYTHON=… chooses one)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r requirements.txt
	@touch $@

$(READY): $(RUNS) requirements-dev.txt pyproject.toml
	$(INSTALL) --require-hashes -r requirements-dev.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY)

# A real model needs its provider's package, which the library alone does not.
demo: $(if $(MODEL),$(READY),$(RUNS))
	@PYTHONPATH=src $(BIN)/python -m perdure demo $(if $(MODEL),--model $(MODEL))

test: $(READY)
	@$(BIN)/python -m tests.run

test-all: $(READY)
	@$(BIN)/python -m tests.run --long

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python -m benchmarks

compare: $(PEERS)/.ready
	@$(PEERS)/bin/python -m benchmarks.peers

$(PEERS)/.ready: benchmarks/peers/requirements.txt pyproject.toml
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/peers/requirements.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

docs: $(READY)
	@$(BIN)/python docs/draw.py

lock:
	uv pip compile --quiet --upgrade pyproject.toml requirements-dev.in --all-extras --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" -o requirements-dev.txt
	uv pip compile --quiet pyproject.toml -c requirements-dev.txt --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" -o requirements.txt
	uv pip compile --quiet --upgrade pyproject.toml benchmarks/peers/requirements.in --extra postgres --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" -o benchmarks/peers/requirements.txt

clean:
	rm -rf $(VENV) $(PEERS) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
