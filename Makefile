# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check

.PHONY: demo test lint types layers docs serve-docs tests format bench reproduce-black2022 reproduce-guo2023 reproduce-krishna2024 reproduce-altmeyer2025 reproduce-hoeltgen2021 clean

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

# Ratios measured in one run; needs HOLDFAST_DATA and an otherwise idle machine.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/engine.py benchmarks/results/engine.json
	$(BIN)/python benchmarks/retraining.py benchmarks/results/retraining.json
	$(BIN)/python benchmarks/shift.py benchmarks/results/shift.json
	$(BIN)/python benchmarks/hardening.py benchmarks/results/hardening.json
	$(BIN)/python benchmarks/teaching.py benchmarks/results/teaching.json
	$(BIN)/python benchmarks/images.py benchmarks/results/images.json
	$(BIN)/python benchmarks/trees.py benchmarks/results/trees.json

# Tables 1 to 4 of Black et al. 2022, about half an hour; goes on where it was stopped.
reproduce-black2022: $(VENV)/.dev
	$(BIN)/python -m experiments black2022

# Tables 2, 3, 6 to 11 and the curves of Guo et al. 2023, some hours, most of them for the loans; goes on where it was
# stopped.
reproduce-guo2023: $(VENV)/.dev
	$(BIN)/python -m experiments guo2023

# The figures of Krishna et al. 2024 and a verdict on each of its claims, about half an hour; goes on where it was stopped.
reproduce-krishna2024: $(VENV)/.dev
	$(BIN)/python -m experiments krishna2024

# The tables of Altmeyer et al. 2025, about an hour; goes on where it was stopped.
reproduce-altmeyer2025: $(VENV)/.dev
	$(BIN)/python -m experiments altmeyer2025

# The tables of Höltgen et al. 2021 on MNIST, some hours on two cores; goes on where it was stopped.
reproduce-hoeltgen2021: $(VENV)/.dev
	$(BIN)/python -m experiments hoeltgen2021

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade 'pip>=25.1'
	$(PIP) install -q -c constraints.txt -e '.[plot]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install -q -c constraints.txt --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist site .cache docs/api docs/reproductions/*/ holdfast-demo .pytest_cache .ruff_cache .hypothesis
