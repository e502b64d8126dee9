# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check

PAPERS := $(patsubst experiments/%/notes.md,%,$(wildcard experiments/*/notes.md))

.PHONY: demo test lint types layers docs serve-docs tests format bench reproduce $(PAPERS:%=reproduce-%) clean

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

tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# Ratios measured in one run; needs HOLDFAST_DATA and an otherwise idle machine. Writes to benchmarks/results/.
BENCHMARKS := engine retraining shift hardening teaching images trees
bench: $(VENV)/.dev
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit 1; done

# The papers again (`make reproduce-black2022`), or all of them; each goes on where it was stopped. Needs HOLDFAST_DATA,
# writes to experiments/results/. On two cores black2022 and krishna2024 take half an hour, altmeyer2025 an hour, guo2023
# (most of it for the loans) and hoeltgen2021 some hours.
reproduce: $(PAPERS:%=reproduce-%)

$(PAPERS:%=reproduce-%): reproduce-%: $(VENV)/.dev
	$(BIN)/python -m experiments $*

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade 'pip>=25.1'
	$(PIP) install -q -c constraints.txt -e '.[plot,files]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install -q -c constraints.txt --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist site .cache docs/api docs/reproductions/*/ holdfast-demo .pytest_cache .ruff_cache .hypothesis
