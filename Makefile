# Each target is one plain command; read it as documentation.
PYTHON ?= python3
VENV ?= .venv
DEMO ?= .venv-demo
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all lint fix native bench docs dist clean

# Everything is installed once; touch pyproject.toml or setup.py to install again.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	touch $@

# The demonstration has an environment of its own: what `pip install .` brings and no more.
$(DEMO)/.installed: pyproject.toml setup.py $(wildcard native/*)
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check .
	touch $@

demo: $(DEMO)/.installed  ## run a two-word demo
	$(DEMO)/bin/python examples/demo.py

test: $(VENV)/.installed  ## the suite, on all cores
	$(BIN)/python -m pytest -n auto -m "not slow and not published"

test-all: $(VENV)/.installed  ## the slow tests too
	$(BIN)/python -m pytest -n auto -m "not published"

lint: $(VENV)/.installed  ## style and types
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

fix: $(VENV)/.installed  ## let ruff repair what it can
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

native: $(VENV)/.installed  ## build the C extension in place
	ELMORE_NATIVE=require $(BIN)/python setup.py build_ext --inplace

bench: $(VENV)/.installed  ## speed of embedding, compared with a step-by-step LSTM
	$(BIN)/python benchmarks/embed.py

docs: $(VENV)/.installed  ## the site, strictly and without network: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.installed  ## sdist and wheel
	$(BIN)/python -m build --outdir dist .

clean:  ## remove what the targets above made
	rm -rf $(VENV) $(DEMO) build dist site src/*.egg-info src/elmore/*.so
