# make demo   builds the environment and runs the main job on a real model
# make test   runs everything that CI runs
# make dist   builds what a release consists of, for this machine, into dist/
.PHONY: demo test setup check dist bench soak mutants generate lock clean
SHELL := /bin/bash
BIN := .venv/bin
# Where scripts/environment.sh puts uv when the machine has none; fetching the starter model uses it too.
export PATH := $(PATH):$(CURDIR)/.tools/uv/bin

demo:
	@scripts/environment.sh .run requirements/run.lock
	@.run/bin/python scripts/demo.py

test: setup check
	@$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered --cov-fail-under=95

setup:
	@scripts/system.sh
	@scripts/environment.sh .venv requirements/dev.lock editable
	@scripts/node.sh
	@scripts/wheels.sh
	@$(BIN)/yarrow models pull

check:
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@PATH="$(PWD)/$(BIN):$$PATH" buf lint
	@PATH="$(PWD)/$(BIN):$$PATH" buf format -d --exit-code
	@PATH="$(PWD)/$(BIN):$$PATH" buf breaking --against proto/base.binpb
	@scripts/generated.sh
	@$(BIN)/python scripts/pages.py --check
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pyright
	@$(BIN)/pyright --pythonplatform Windows src/yarrow/platform
	@$(BIN)/pyright --pythonplatform Darwin src/yarrow/platform

dist:
	@scripts/dist.sh

generate:
	@scripts/generate.sh
	@$(BIN)/python scripts/pages.py docs

lock:
	@scripts/lock.sh

bench: setup
	@scripts/environment.sh .bench requirements/base.lock
	@$(BIN)/python bench/run.py --yarrow .bench/bin/yarrow --size-of .bench --write docs/performance.md $(BENCH)

soak: setup
	@SENTENCES=$${SENTENCES:-1000} $(BIN)/pytest -n 0 -m soak tests/process
	@PROGRAMS=$${PROGRAMS:-20000} SCENES=$${SCENES:-5000} $(BIN)/pytest -n 2 -m soak tests/policy
	@SEEDS=$${SEEDS:-200} $(BIN)/pytest -n 2 tests/process/test_concurrent_history.py tests/service/test_provider_faults.py

mutants: setup
	@$(BIN)/python scripts/mutants.py

clean:
	rm -rf .venv .run .bench .dist .tools dist build
