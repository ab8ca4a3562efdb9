.PHONY: help demo test fast setup env check fmt hooks dist bench soak mutants generate lock clean
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
QUICK := $(addprefix tests/,agent client config event extension prompt telemetry wire)
# Location of uv if scripts/environment.sh had to install it; fetching the starter model uses it too.
export PATH := $(PATH):$(CURDIR)/.tools/uv/bin

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' Makefile

demo:  ## run one prompt on a small real model
	@scripts/environment.sh .run requirements/run.lock
	@.run/bin/python scripts/demo.py

test: setup check  ## run everything that CI runs
	@$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered --cov-fail-under=95

fast: env  ## run the quick tests (a minute on two idle cores)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/pytest -n 2 --hypothesis-profile=fast -m "not thorough" $(QUICK)

setup: env  ## install what all tests need
	@scripts/system.sh
	@scripts/node.sh
	@scripts/wheels.sh
	@$(BIN)/yarrow models pull

env:  ## create or update the environment .venv
	@scripts/environment.sh .venv requirements/dev.lock editable

check: env  ## check format, lint, words, types, imports and generated files (2 minutes on two idle cores)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/typos --quiet
	$(BIN)/pytest -n 2 tests/architecture
	$(BIN)/zizmor --offline --quiet .github
	PATH="$(PWD)/$(BIN):$$PATH" buf lint
	PATH="$(PWD)/$(BIN):$$PATH" buf format -d --exit-code
	PATH="$(PWD)/$(BIN):$$PATH" buf breaking --against proto/base.binpb
	scripts/generated.sh
	$(BIN)/python scripts/pages.py --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/pyright
	$(BIN)/pyright --pythonplatform Windows src/yarrow/platform
	$(BIN)/pyright --pythonplatform Darwin src/yarrow/platform

fmt: env  ## format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix --select I .
	@$(BIN)/ruff format --quiet .

hooks: env  ## check each commit with the hooks of .pre-commit-config.yaml
	@$(BIN)/pre-commit install

dist:  ## build a release for this machine into dist/
	@scripts/dist.sh

generate: env  ## generate the gRPC code and the reference pages
	@scripts/generate.sh
	@$(BIN)/python scripts/pages.py docs

lock:  ## lock the dependencies
	@scripts/lock.sh

bench: setup  ## measure, and write docs/performance.md
	@scripts/environment.sh .bench requirements/base.lock
	@$(BIN)/python bench/run.py --yarrow .bench/bin/yarrow --size-of .bench --write docs/performance.md $(BENCH)

soak: setup  ## run the long tests
	@SENTENCES=$${SENTENCES:-1000} $(BIN)/pytest -n 0 -m soak tests/process
	@PROGRAMS=$${PROGRAMS:-20000} SCENES=$${SCENES:-5000} $(BIN)/pytest -n 2 -m soak tests/policy
	@SEEDS=$${SEEDS:-200} $(BIN)/pytest -n 2 tests/process/test_concurrent_history.py tests/service/test_provider_faults.py

mutants: setup  ## check that the tests catch each mutant
	@$(BIN)/python scripts/mutants.py

clean:  ## delete what was built
	rm -rf .venv .run .bench .dist .tools dist build
