# make demo: set everything up and run the main job on the demo scenes
# make test: set everything up and run all tests
# The virtual environment .venv is made once and re-used until what it depends on changes.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format fuzz bench-models bench-ops bench-reading bench-tiling viz clean lock

BIN := .venv/bin
STAMP := .venv/.made-of
# Options for pytest, such as ARGS="-k geometry".
ARGS ?=
# The first Python that fits; PYTHON=/path/to/python chooses another.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
VERSION := import sys; print("%d.%d" % sys.version_info[:2])
ifndef PYTHON
PYTHON := $(shell for python in python3.11 python3.12 python3.13 python3; do \
	if $$python -c '$(FITS)' 2>/dev/null; then echo $$python; break; fi; done)
endif

export DO_NOT_TRACK := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:
	@sed -n '1,3s/^# //p' Makefile
	@echo "also: setup lint format fuzz bench-models bench-ops bench-reading bench-tiling viz clean lock (see Makefile)"

# .venv belongs to this folder, this Python, the lock file and pyproject.toml. Commands in it start
# with the path of the folder they were made in: in a folder that was moved they do not run.
setup:
	@$(PYTHON) -c '$(FITS)' 2>/dev/null || { \
		echo "make: needs Python 3.11, 3.12 or 3.13; say which one: make setup PYTHON=/path/to/python" >&2; \
		exit 1; }
	@version="$$($(PYTHON) -c '$(VERSION)')"; \
	key="$(CURDIR) $$version $$(cat requirements.lock pyproject.toml | cksum)"; \
	if [ "$$key" = "$$(cat $(STAMP) 2>/dev/null)" ]; then exit 0; fi; \
	echo "Setting up .venv (once; some minutes)"; \
	{ [ "$$version" = "$$($(BIN)/python -c '$(VERSION)' 2>/dev/null)" ] && \
		grep -qsF "$(CURDIR)/.venv" $(BIN)/activate; } || $(PYTHON) -m venv --clear .venv; \
	$(BIN)/python -m pip install --quiet --requirement requirements.lock; \
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	echo "$$key" > $(STAMP)

demo: setup
	$(BIN)/kedro run --config .kedro.yml
	@echo "Report: $$(ls -d "$${OBBFLOW_DATA_DIR:-data}"/08_reporting/report.html/*/report.html | tail -n 1)"

test: setup
	$(BIN)/python -m pytest $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every reader of text with this many damaged files, new ones each time; ARGS="-k coco" for one.
fuzz: setup
	OBBFLOW_FUZZ_EXAMPLES=$${OBBFLOW_FUZZ_EXAMPLES:-100000} $(BIN)/python -m pytest tests/fuzz $(ARGS)

# Time and memory of reading and checking labels, see docs/benchmarks.md; ARGS="--quick".
bench-reading: setup
	$(BIN)/python benchmarks/reading.py $(ARGS)

# Time and memory of the detectors, see docs/benchmarks.md; ARGS="--quick".
bench-models: setup
	$(BIN)/python benchmarks/models.py $(ARGS)

# Time and memory of the box operations beside others', see docs/benchmarks.md; ARGS="--quick".
bench-ops: setup
	$(BIN)/python benchmarks/ops.py $(ARGS)

# Speed and memory of tiling; ARGS="--giant" for a TIFF of 30,000 x 30,000 px too, or "--quick".
bench-tiling: setup
	$(BIN)/python benchmarks/tiling.py $(ARGS)

# The lineage page in a browser; stop it with Ctrl-C.
viz: setup
	$(BIN)/kedro viz run

# What tools leave behind. Data and .venv stay.
clean:
	rm -rf build dist .viz .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Pins what is in .venv now. CUDA packages exist for Linux on x86_64 only.
lock:
	@{ sed -n '/^#/p' requirements.lock; \
	$(BIN)/python -m pip freeze --all --exclude-editable | sed -E \
		-e '/^(pip|pytest-xdist|execnet)==/d' \
		-e '/^(nvidia-|cuda-|triton)/s/$$/ ; sys_platform == "linux" and platform_machine == "x86_64"/' \
		-e '/^(uvloop|pexpect|ptyprocess)==/s/$$/ ; sys_platform != "win32"/'; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock
