# Every target brings its own environment: `make test` works on a machine that has Python 3.11 and pip.
PYTHON  ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 2

# The environment, and in it one stamp for each set of extras that pyproject.toml names.
VENV := .venv
RUN  := $(VENV)/bin/
PIP  := $(RUN)python -m pip --disable-pip-version-check -qq install

# The oldest supported JAX, and the tests that it has to pass.
OLDEST := .venv-oldest
CORE    = $(wildcard tests/state tests/transforms tests/rngs* tests/test_rngs* tests/test_random* \
                     tests/optim tests/checkpoint)

# What runs here is developed on a CPU; JAX_PLATFORMS=cuda on the command line says otherwise.
export JAX_PLATFORMS ?= cpu

.PHONY: help demo test parity oldest bench docs notebooks lint format clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@echo "make demo       train a network on handwritten digits"
	@echo "make test       the tests, without PyTorch"
	@echo "make parity     the tests against PyTorch"
	@echo "make oldest     the core tests on the oldest supported JAX"
	@echo "make bench      the benchmarks against raw JAX, Flax and Equinox"
	@echo "make docs       the documentation, into docs/_build/html"
	@echo "make notebooks  execute the guides afresh; fail where one raises"
	@echo "make lint       ruff and mypy"
	@echo "make format     let ruff rewrite what it can"
	@echo "make clean      remove environments, caches and what was built"

demo: $(VENV)/.has-examples
	$(RUN)python examples/digits.py --epochs 6
	$(RUN)python examples/digits.py --resume

test: $(VENV)/.has-test
	$(RUN)python -m pytest -n $(WORKERS) --ignore=tests/parity --ignore=tests/benchmarks

parity: $(VENV)/.has-parity
	$(RUN)python -m pytest -n $(WORKERS) tests/parity

oldest: $(OLDEST)/.has-test
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) $(CORE)

bench: $(VENV)/.has-bench
	@set -e; for script in tests/benchmarks/bench_*.py; do \
	    echo "== $$script"; $(RUN)python "$$script"; \
	done

docs: $(VENV)/.has-docs
	$(RUN)python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html

notebooks: $(VENV)/.has-docs $(VENV)/.has-examples
	$(RUN)python docs/execute.py

lint: $(VENV)/.has-lint
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: $(VENV)/.has-lint
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

clean:
	rm -rf $(VENV) $(OLDEST) dist docs/_build
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg $(OLDEST)/pyvenv.cfg:
	$(PYTHON) -m venv $(@D)

$(VENV)/.has-%: pyproject.toml | $(VENV)/pyvenv.cfg
	$(PIP) --editable '.[$*]'
	@touch $@

$(OLDEST)/.has-test: pyproject.toml | $(OLDEST)/pyvenv.cfg
	$(OLDEST)/bin/python -m pip --disable-pip-version-check -qq install \
	    jax==0.5.3 jaxlib==0.5.3 --editable '.[test]'
	@touch $@
