# Each target works alone on a fresh clone: it makes the virtual environment it needs, then runs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SEEDS  ?= 0
GPU_PROCESSES ?= 0
MINUTES ?= 30
SMOKE  ?= build/paper-smoke
TORCH_INDEX ?=
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo paper-smoke test test-attack fuzz test-scale test-browser test-slow test-gpu lint types docs docs-files clean

help:            ## what the targets do
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ocssl needs Python 3.11 or newer; $(PYTHON) is older (set PYTHON=...)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# Packages are pinned by version and by the hashes of their files (requirements/). On Linux the usual index has torch with
# CUDA, gigabytes of packages. TORCH_INDEX=https://download.pytorch.org/whl/cpu takes PyTorch's builds for CPU instead.
HASHED := $(PIP) install --quiet --no-deps --require-hashes

TORCH := $(HASHED) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) --requirement

# The build for CPU where an index or a folder that pip knows has it, else the usual one and its CUDA packages. Any other
# failure, a file with a wrong hash above all, ends here.
$(VENV)/.installed-torch: $(BIN)/python requirements/cpu.txt requirements/torch.txt requirements/cuda.txt
	@echo "Installing torch into $(VENV) (minutes, once)"
	@$(TORCH) requirements/cpu.txt 2>$(VENV)/torch.log || { \
	  grep -q 'No matching distribution' $(VENV)/torch.log || { cat $(VENV)/torch.log; \
	    echo "requirements/cpu.txt cannot be installed; correct what pip says, and use no file with a wrong hash"; exit 1; }; \
	  echo "No index has the build of requirements/cpu.txt; installing the usual one (on Linux with CUDA, gigabytes)"; \
	  $(TORCH) requirements/torch.txt && $(HASHED) --requirement requirements/cuda.txt; }
	@touch $@

$(VENV)/.installed-plot $(VENV)/.installed-dev: $(VENV)/.installed-%: requirements/%.txt $(VENV)/.installed-torch pyproject.toml
	@echo "Installing ocssl[$*] into $(VENV) (minutes, once)"
	@$(HASHED) --requirement requirements/$*.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Extras of other commands: pinned by version.
$(VENV)/.installed-%: $(VENV)/.installed-torch pyproject.toml constraints.txt
	@echo "Installing ocssl[$*] into $(VENV) (minutes, once)"
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

demo: $(VENV)/.installed-plot  ## train three strategies on a drawn stream, with a table and a plot
	@$(BIN)/ocssl demo $(foreach seed,$(SEEDS),--seed $(seed))

paper-smoke: $(VENV)/.installed-plot ## a table of tiny runs on CPU, from runs to report, in build/paper-smoke
	@rm -rf $(SMOKE)
	@$(BIN)/ocssl paper run smoke --seeds 0,1 --results $(SMOKE)/results --runs $(SMOKE)/runs --quiet
	@$(BIN)/ocssl paper show smoke --results $(SMOKE)/results
	@$(BIN)/ocssl report $(SMOKE)/results -o $(SMOKE)/report --format html

test: $(VENV)/.installed-dev   ## ruff, mypy (strict) and the test suite
	@$(MAKE) --no-print-directory lint types
	@$(BIN)/python -m pytest

test-attack: $(VENV)/.installed-dev ## hostile files, foreign folders, signals: every row of the tables
	@$(BIN)/python -m pytest -m 'not slow' tests/attack

fuzz: $(VENV)/.installed-dev   ## random damage to files that ocssl reads, for MINUTES=30
	@$(BIN)/python tests/attack/fuzz.py --minutes $(MINUTES)

test-browser: $(VENV)/.installed-dev $(VENV)/.installed-browser ## a report's page in headless Chromium
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-liberation >/dev/null; } || \
	  { echo "The browser test needs Chromium and its driver; install the packages chromium and chromium-driver."; exit 1; }
	@$(BIN)/python -m pytest --numprocesses=0 -m browser tests/results

test-slow: $(VENV)/.installed-dev $(VENV)/.installed-docs ## the tests that take minutes
	@$(BIN)/python -m pytest --numprocesses=2 -m 'slow and not gpu'

test-scale: $(VENV)/.installed-dev $(VENV)/.installed-scale ## sweeps on Ray and runs on many processes, for real
	@$(BIN)/python -m pytest -m 'scale and not gpu' tests/scale tests/distributed

test-gpu:  ## the tests that need a CUDA device, with whatever Python is active
	@$(PYTHON) -m pytest -m gpu --numprocesses=$(GPU_PROCESSES) tests/gpu

lint: $(VENV)/.installed-dev   ## ruff: style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev  ## mypy, strict, on src/
	@$(BIN)/mypy

docs: $(VENV)/.installed-docs  ## the documentation site, links checked, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-files: $(VENV)/.installed-dev ## the files in docs/ that are made from the code
	@$(BIN)/ocssl list settings --markdown > docs/settings.md
	@$(BIN)/python -c 'import json; from ocssl.results.result import schema; print(json.dumps(schema(), indent=1))' > docs/result.schema.json
	@$(BIN)/python docs/tables

clean:           ## remove the environment and everything generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache demo build site
