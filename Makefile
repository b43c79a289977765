# The two front doors are `make train` and `make test`; the rest is for people who change the code.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRESET ?= apex-cartpole
ARGS ?=

# A plain torch from PyPI brings gigabytes of CUDA on Linux, so set-up takes the CPU build:
#   1. from wherever pip is told to look (a folder of wheels by PIP_FIND_LINKS, say), else
#   2. from the index in TORCH_INDEX.
# `TORCH=cuda make train` takes PyPI's own build, which runs on NVIDIA GPUs.
TORCH ?= cpu
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

PACKAGES := libs/protos libs/core libs/algorithms services/replay services/param_server \
            services/learner services/actor cli
INPUTS := Makefile constraints.txt requirements/build.txt \
          $(PACKAGES:%=%/pyproject.toml) libs/protos/hatch_build.py $(wildcard protos/mycelia/*/v1/*.proto)
IMPORTED := mycelia_param_server.main, mycelia_replay.main, mycelia_actor.main, mycelia_learner.session, mycelia_cli.main, \
            mycelia_cli.train, gymnasium.envs.classic_control, tensorboard.summary, matplotlib.figure, \
            matplotlib.backends.backend_agg
PIP := $(BIN)/pip --disable-pip-version-check --quiet
# One stamp per kind of torch, so that asking for the other kind installs it.
READY := $(VENV)/.ready-$(TORCH)
READY_DEV := $(VENV)/.ready-dev-$(TORCH)

.PHONY: help train test test-slow lint protos bench setup clean

help: ## Says what there is to make.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

train: $(READY) ## Sets up, then trains PRESET (apex-cartpole) with all services as local processes.
	@$(BIN)/mycelia train $(PRESET) $(ARGS)

test: $(READY_DEV) ## Sets up, then runs the fast tests.
	@$(BIN)/python -m pytest -n 2 $(ARGS)

test-slow: $(READY_DEV) ## Runs the learning runs and the chaos tests.
	@$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(READY_DEV) ## Checks style, types, import directions, declared dependencies and protos.
	@.ci/lint $(BIN)

protos: $(READY) ## Generates the stubs again after an edit in protos/.
	@$(BIN)/python libs/protos/hatch_build.py && echo "stubs are up to date"

bench: $(READY_DEV) ## Runs the benchmarks; each prints one JSON object last.
	@$(BIN)/python -m benchmarks $(ARGS)

setup: $(READY_DEV) ## Creates .venv and installs everything; does nothing if that is done.

$(READY): $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Mycelia needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try PYTHON=python3.12 make ...")'
	@echo "set-up 1/3: creating $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "set-up 2/3: installing the libraries (torch $(TORCH_VERSION) for $(TORCH); a few minutes at most)"
	@.ci/install-torch $(BIN) $(TORCH) $(TORCH_VERSION) $(TORCH_INDEX)
	@$(PIP) install --no-compile -c constraints.txt -r requirements/build.txt
	@echo "set-up 3/3: installing Mycelia and generating the protocol's stubs"
	@$(PIP) install --no-compile -c constraints.txt --no-build-isolation $(PACKAGES:%=-e %)
	@# Bytecode for what a run imports; compiling all that is installed would take longer than the rest.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import $(IMPORTED)'
	@rm -f $(VENV)/.ready-* && touch $@

$(READY_DEV): $(READY) requirements/dev.txt
	@echo "set-up for tests: installing the tools and optional environments"
	@$(PIP) install -c constraints.txt -r requirements/dev.txt
	@touch $@

clean: ## Removes .venv and what was generated; runs/ stays.
	rm -rf $(VENV) libs/protos/src .pytest_cache .mypy_cache .ruff_cache .hypothesis
