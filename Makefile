# Every target sets up what it needs first. ARGS is passed on: make test ARGS='-k store'
BIN := .venv/bin
ARGS ?=
UV = $(or $(wildcard $(BIN)/uv),uv)
COMPILE = UV_CUSTOM_COMPILE_COMMAND='make lock' $(UV) pip compile --quiet --python $(BIN)/python --python-version 3.12 \
	--universal --generate-hashes --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help env libero approve budgets check test test-all durations test-next tour tour-picture notebook lint format lock bench-quick gpu docs wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

env: ## make .venv with the locked packages; instant when it is up to date
	@scripts/env.sh

libero: ## make .venv-libero, an environment of its own for the LIBERO simulator (Linux; needs cmake to build)
	@scripts/env.sh libero

# Bytecode is kept, whatever the environment says: hundreds of processes start, and each would compile all of Strobe.
approve check test test-all durations test-next: export PYTHONDONTWRITEBYTECODE :=

# Two processes, whatever the machine has: some tests fill the memory of a small one. ARGS='-n 0' for one.
# xdist 3.8 waits for ever for a worker that it put in a dead one's place: the other one does the rest in its stead.
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0 --durations=10 --durations-min=5

# Folders and files of tests that load neither a policy nor LeRobot and start no process but a browser, which is left out
# too. Collecting a file imports what it imports: what reads a loop's events imports LeRobot, for seconds.
CHECKED := tests/core/devices tests/core/findings tests/core/measure tests/core/report tests/core/results \
	tests/core/test_errors.py tests/core/test_kinds.py tests/core/runs/test_store.py tests/core/cli/test_flags.py \
	tests/core/cli/test_showing.py tests/budget tests/history tests/*/test_findings_*.py tests/sweep/test_grid.py \
	tests/sweep/test_scaling_best.py tests/evaluate/test_best_arm.py tests/evaluate/test_paired_rates.py \
	tests/evaluate/test_sequence.py tests/evaluate/test_time_to_task.py tests/preflight/test_paired_error.py \
	tests/loops/test_rollout_figures.py --ignore=tests/core/measure/test_accounting.py

check: env ## what to run before each commit: style, types, floors, and the tests that need no policy
	@linted=$$(mktemp); $(MAKE) --no-print-directory lint TYPED='src packages' >$$linted 2>&1 & lint=$$!; \
	$(PYTEST) -m "not matrix and not browser and not long" --hypothesis-profile=few $(CHECKED) $(ARGS); tests=$$?; \
	wait $$lint; linting=$$?; cat $$linted; rm -f $$linted; [ $$tests = 0 ] && [ $$linting = 0 ]

# The tests of one question with the contracts and the core's quick tests; scripts/slices.py prints the questions.
SLICE ?=
test: env ## run the tests, each mechanism on one architecture; SLICE=tune, servers, … for those of one question
	@files=; if [ -n "$(SLICE)" ]; then \
		$(BIN)/lint-imports >/dev/null || { $(BIN)/lint-imports; exit 1; }; \
		files=$$($(BIN)/python scripts/slices.py --files "$(SLICE)") || exit 2; \
	fi; $(PYTEST) -m "not matrix" $(if $(SLICE),--with-slow) $$files $(ARGS)

budgets: env ## lower the budgets of size that have room to spare
	@$(BIN)/python scripts/house.py --budgets $(ARGS)

durations: env ## measure how long each test takes, on a machine at rest: tests/durations.json; ARGS=FILES for some
	@$(PYTEST) --record-durations $(ARGS)

test-all: env ## run all tests, as CI does
	@$(PYTEST) $(ARGS)

approve: env ## write what Strobe prints into tests/approved again; read the diff before you commit it
	@STROBE_APPROVE=1 $(BIN)/python -m pytest tests/core/report tests/rollout/test_golden_events.py -k approved $(ARGS)
	@git status --short tests/approved docs/examples

# The tests in which LeRobot's own code runs.
NEXT := $(filter-out tests/core tests/docs tests/history tests/budget tests/trials,$(patsubst src/strobe/%/__init__.py,tests/%,$(wildcard \
	src/strobe/*/__init__.py))) tests/plugin tests/core/studies tests/core/sameness tests/act_relative_rtc
LEROBOT ?= $(firstword $(wildcard ../shared/lerobot-main/*.whl))
test-next: ## run the tests that touch LeRobot on another one: LEROBOT=WHEEL or folder, NEWER='torch==2.15.* torchvision'
	@NEWER="$(NEWER)" scripts/env.sh next "$(LEROBOT)"
	@.venv-next/bin/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder $(NEXT) $(ARGS)

notebook: env ## run docs/notebook.ipynb and write its outputs
	@$(BIN)/python scripts/notebook.py

tour: env ## from nothing to insight: record, break down, compare
	@$(BIN)/python scripts/tour.py $(ARGS)

lint: env ## check style, formatting, types and the floors, all of them even if one fails
	@failed=0; for check in "ruff check ." "ruff format --check ." "python -m pyright $(TYPED)" lint-imports; do \
		$(BIN)/$$check || failed=1; \
	done; exit $$failed

format: env ## put the code in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: env ## pin every package again; ARGS=--upgrade takes the newest
	@$(COMPILE) $(ARGS) --extra all --group dev -o requirements/lock.txt pyproject.toml
	@$(COMPILE) $(ARGS) --extra libero --extra diffusion --extra pi --extra smolvla --extra pusht --group dev \
		-o requirements/libero.txt pyproject.toml
	@echo uv | $(COMPILE) $(ARGS) --no-annotate -o requirements/uv.txt -

bench-quick: env ## run every benchmark for a quick answer; ARGS='--record' keeps how each ended
	@$(BIN)/python scripts/bench.py $(ARGS)

gpu: env ## on a machine with a GPU: its tests, strobe doctor and five ladders at full size, into one folder (25 min)
	@$(BIN)/python scripts/gpu.py $(ARGS)

wheel: env ## build the wheel and the sdist into dist/, and try the wheel in an environment that is not this one
	@scripts/wheel.sh

tour-picture: env ## draw docs/images/tour.svg: what stops of the tour print; ARGS='--of runs/tour' takes one that ran
	@$(BIN)/python scripts/tour_svg.py $(ARGS)

docs: env ## build the documentation as a site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo "read it: $(BIN)/python -m http.server --directory site, then http://localhost:8000"

clean: ## remove the environment and the caches; runs stay
	rm -rf .venv .venv-libero .venv-next build dist site src/*.egg-info packages/*/src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
