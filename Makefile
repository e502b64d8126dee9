# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check

PAPERS := $(patsubst experiments/%/notes.md,%,$(wildcard experiments/*/notes.md))

.PHONY: demo test lint types layers docs serve-docs examples tests lowest wheel format bench reproduce
.PHONY: $(PAPERS:%=reproduce-%) reproduce-check clean

demo: $(VENV)/.run
	$(BIN)/holdfast demo

test: lint types layers tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: $(VENV)/.dev
	$(BIN)/lint-imports

# The site, strictly and without network, into site/; also writes the generated parts of README.md and docs/.
docs: $(VENV)/.dev
	$(BIN)/python -m docs.generator
	$(BIN)/zensical build --strict --clean

serve-docs: $(VENV)/.dev
	$(BIN)/python -m docs.generator
	$(BIN)/zensical serve

# The scripts of docs/examples anew, with their pages and pictures.
examples: $(VENV)/.dev
	$(BIN)/python -m docs.generator.examples

tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

# The core of the tests with the lowest versions that pyproject.toml allows, in an environment of its own. Warnings
# are not errors there: old versions warn about one another. The extra `files` asks for more than the library does,
# so the tests of skops files are left out.
LOWEST ?= .venv-lowest
CORE   := tests/test_laws.py tests/schema tests/retraining tests/test_recourse.py tests/models
lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install -q --upgrade 'pip>=25.1'
	$(PYTHON) .ci/lowest.py > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/pip install -q -r $(LOWEST)/requirements.txt
	$(LOWEST)/bin/pip install -q --no-deps -e .
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider -W default $(CORE) --ignore=tests/models/formats/skops

# The wheel into dist/, built twice: the bytes must be the same.
wheel: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1735689600)
wheel:
	rm -rf build/twice dist
	$(PYTHON) -m venv build/venv
	build/venv/bin/pip install -q --upgrade 'pip>=25.1'
	build/venv/bin/pip wheel -q --no-deps -w dist .
	build/venv/bin/pip wheel -q --no-deps -w build/twice .
	cmp dist/*.whl build/twice/*.whl
	sha256sum dist/*.whl

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# Ratios measured in one run; needs HOLDFAST_DATA and an otherwise idle machine. Writes to benchmarks/results/.
BENCHMARKS := engine retraining shift hardening teaching images trees
bench: $(VENV)/.dev
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit 1; done

# The papers again (`make reproduce-black2022`), or all of them; each goes on where it was stopped. Needs HOLDFAST_DATA,
# writes to experiments/cells/ and experiments/results/, on one core. `python -m experiments run --list` says what is
# there and how long the rest takes, `python -m experiments run --minutes 60` makes the most important of it.
reproduce: $(PAPERS:%=reproduce-%)

$(PAPERS:%=reproduce-%): reproduce-%: $(VENV)/.dev
	$(BIN)/python -m experiments $*

# One cheap cell of each paper again; fails if its digits are not those that are kept. Needs HOLDFAST_DATA.
reproduce-check: $(VENV)/.dev
	$(BIN)/python -m experiments check

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade 'pip>=25.1'
	$(PIP) install -q -c constraints.txt -e '.[plot,files]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install -q -c constraints.txt --group dev
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) build dist site .cache docs/api docs/reproductions/*/ holdfast-demo .pytest_cache .ruff_cache .hypothesis
