# Everything runs in a .venv of this checkout; each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
INSTALL := $(BIN)/pip install --disable-pip-version-check -c constraints.txt
CORE := $(wildcard src/isthmus/kernels/csrc/*)
CODE := src tests benchmarks tools examples setup.py

.PHONY: demo test test-all fuzz lint format derived docs coverage bench-engine bench-kernels bench-workers bench-accuracy bench-baselines bench-chaos bench-plan bench-psc \
	bench-overlap bench-norms bench-papers bench-minibatch clean
.DEFAULT_GOAL := demo

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml setup.py constraints.txt $(CORE) | $(BIN)/python
	@echo "Installing Isthmus and what it needs, mostly torch, into $(VENV): some minutes, the first time only"
	$(INSTALL) -e .
	touch $@

# What tests and benchmarks need besides: Ray, PyG, a browser and so on.
$(READY): pyproject.toml setup.py constraints.txt $(CORE) | $(BIN)/python
	@echo "Installing Isthmus and all that its tests need into $(VENV): some minutes, the first time only"
	$(INSTALL) -e '.[dev]'
	touch $(INSTALLED) $@

demo: $(INSTALLED)  ## train a synthetic graph on three workers of this machine
	$(BIN)/isthmus train synthetic:flickr@0.2 --workers 3 --model sage --steps 60 --lr 0.003
	@run=$$(ls -td runs/* | head -1); printf '  %-40s %s\n' 'What next?' '' \
		'. $(BIN)/activate' 'from now on the command is isthmus' \
		"isthmus report $$run" 'writes a page about this run into its folder' \
		"isthmus predict $$run --out nodes.csv" 'class and score of every node' \
		'isthmus train --help' 'your own graph: docs/data.md, your own model: docs/models.md'

test: $(READY)  ## the test suite: what must pass before a change is merged
	$(BIN)/python -m pytest -n 3 --dist worksteal --ignore=tests/device
	$(BIN)/python -m pytest -n 2 tests/device  # the pretend accelerator, in processes of its own

test-all: $(READY)  ## the same with whole products of cases (marked full) where make test has every pair
	ISTHMUS_ORACLE_STEPS=30 $(BIN)/python -m pytest -n 2 -m '' --ignore=tests/device
	$(BIN)/python -m pytest -n 2 -m '' tests/device

coverage: $(READY)  ## the suite with a count of the lines that it runs: build/coverage/index.html, and a table of the rooms
	$(BIN)/python -m pytest -n 2 --cov=isthmus --cov-report=html:build/coverage --cov-report=term

fuzz: $(READY)  ## 50,000 spoiled inputs, each of which must succeed or be refused in one line (make test has 1,000)
	ISTHMUS_FUZZ_CASES=50000 $(BIN)/python -m pytest tests/fuzz

lint: $(READY)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])" \
		| xargs $(INSTALL)
	touch $@

docs: $(VENV)/.docs  ## the site, with the API reference from the docstrings: build/site/index.html; any warning fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

derived: $(READY)  ## write what is derived from declarations: keywords for type checkers, tables in the docs
	$(BIN)/python tools/derive.py

bench-engine: $(READY)  ## a full-graph epoch against PyG (DEVICE=cuda: there; and DGL: make bench-engine DGL=/path/to/python)
	$(BIN)/python benchmarks/engine.py $(if $(DEVICE),--device $(DEVICE)) $(if $(DGL),--dgl $(DGL)) $(ASK)

bench-minibatch: $(READY)  ## mini-batches against torch, PyG (and GraphBolt, DGL, DistDGL: make bench-minibatch DGL=/path/to/python), and over links (needs root)
	$(BIN)/python benchmarks/minibatch.py $(if $(DGL),--dgl $(DGL))
	$(BIN)/python benchmarks/minibatch.py --graph synthetic:products@1 --order given --repeats 3 $(if $(DGL),--dgl $(DGL))
	$(BIN)/python benchmarks/distdgl.py $(if $(DGL),--dgl $(DGL))
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/minibatch_links.py

bench-kernels: $(READY)  ## aggregation against torch, PyG (and DGL), and against the memory's speed
	$(BIN)/python benchmarks/kernels.py $(if $(DGL),--dgl $(DGL))

bench-workers: $(READY)  ## two workers with one thread each against one worker with two
	$(BIN)/python benchmarks/workers.py

bench-accuracy: $(READY)  ## real graphs against published figures: make bench-accuracy DATASETS=folder
	$(BIN)/python benchmarks/accuracy.py $(DATASETS)

bench-baselines: $(READY)  ## accuracy of the sampling baselines beside full-graph training; can be stopped, and goes on
	$(BIN)/python benchmarks/baselines.py

bench-chaos: $(READY)  ## kill workers at 20 random moments and compare the end with an undisturbed run, bit for bit
	$(BIN)/python benchmarks/chaos.py

bench-plan: $(READY)  ## predicted against measured step times, over loopback and narrow links (needs root)
	$(BIN)/python benchmarks/plan.py

bench-norms: $(READY)  ## BatchNorm over all workers' rows against BatchNorm of each worker's own, 4 workers
	$(BIN)/python benchmarks/norms.py $(ASK)
	$(BIN)/python benchmarks/norms.py --graph synthetic:products@0.05 $(ASK)

bench-overlap: $(READY)  ## what pipelining gives against what it can give at most, on narrow links (needs root)
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/overlap.py

PAPERS := PYTHONPATH=benchmarks $(BIN)/python -m papers

bench-psc: $(READY)  ## tables II and III of PSC-GCN at a larger scale, beside the published ratios (needs root)
	$(PAPERS) --only psc --tables "Table II,Table III" --size large $(ASK)

bench-papers: $(READY)  ## the tables of five papers in minutes, beside the published ratios (needs root; ASK="--only bns")
	$(PAPERS) $(ASK)

clean:
	rm -rf $(VENV) build runs src/*.egg-info src/isthmus/kernels/*.so
