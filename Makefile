# The two commands that matter: `make run` and `make test`. Everything they need is set up on the way, once.

NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(firstword $(foreach v,python3.13 python3.12 python3.11 python3,$(shell $(v) $(NEW_ENOUGH) 2>/dev/null && echo $(v))))
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ARGS ?=

export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help run setup test lint types layers format clean

help: ## Say what can be made here.
	@printf 'twoloop: makes a model better from what its users tell it, on repeat.\n\n'
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{ printf "  make %-8s %s\n", $$1, $$2 }'
	@printf '\nARGS goes to the turn: make run ARGS="--train.steps 4 --seed 1".\n'
	@printf 'PYTHON chooses the interpreter (3.11 or newer): make setup PYTHON=python3.12.\n'

run: setup ## Set up, then run one whole turn; prints the verdict and where the report is.
	@$(BIN)/twoloop turn $(ARGS)

setup: $(VENV)/.installed ## Create .venv and install twoloop into it, once.

test: $(VENV)/.installed-test lint types layers ## Set up, then run every check and the tests.
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

layers: $(VENV)/.installed-test
	$(BIN)/lint-imports

format: $(VENV)/.installed-test ## Put the code into its one format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the venv and the caches of the tools (workspaces stay).
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing twoloop into $(VENV) (a few minutes, once) …"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing twoloop and its test tools into $(VENV) (a few minutes, once) …"
	@$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.installed

# Debian ships venv's pip apart (python3-venv). Where it is missing but pip itself is there, that pip fills the venv.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed. On Debian or Ubuntu: apt install python3 python3-venv" >&2; exit 2; }
	@$(PYTHON) $(NEW_ENOUGH) || \
		{ echo "$(PYTHON) is $$($(PYTHON) -V 2>&1); 3.11 or newer is needed. Name another: make PYTHON=python3.12" >&2; exit 2; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		$(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --quiet --python $(VENV)/bin/python install pip \
			|| { rm -rf $(VENV); exit 2; }; \
	else \
		echo "This Python cannot make a virtual environment. On Debian or Ubuntu: apt install python3-venv" >&2; \
		echo "(the package is named after the version too, e.g. python3.12-venv)" >&2; exit 2; \
	fi
