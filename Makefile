# Everything here does its own set-up in .venv: a fresh clone needs CPython 3.11 on Linux x86_64 and nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
# Extra arguments: make test ARGS='-k plan', make verify ARGS='--suite standard', make lock ARGS=--upgrade
ARGS ?=
VERIFY_REPORT = reports/verify-$$(date -u +%Y%m%dT%H%M%SZ).json

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: verify
verify: setup ## verify KV reuse of the real CPU engine with a small real model (a few minutes)
	@model=$$($(PYTHON) scripts/smollm2.py) && mkdir -p reports && \
	exec $(PYTHON) -m kvverify run --model "$$model" --device cpu --kv-connector none --suite smoke \
		--max-model-len 2048 --report "$(VERIFY_REPORT)" $(ARGS)

.PHONY: setup
setup: ## make .venv with the CPU engine and kvverify, and the demo model
	@scripts/setup.sh cpu
	@$(PYTHON) scripts/smollm2.py >/dev/null

.PHONY: setup-dev
setup-dev: ## the same, with the tools that the tests need
	@scripts/setup.sh dev
	@$(PYTHON) scripts/smollm2.py >/dev/null

.PHONY: test
test: setup-dev ## run every test, with coverage
	@$(PYTHON) -m pytest --cov $(ARGS)

.PHONY: lint
lint: ## ruff and mypy, then the shell scripts, the Dockerfile, the workflows and the action
	@scripts/setup.sh dev
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy
	@PATH="$$PWD/.venv/bin:$$PATH" scripts/lint.sh

.PHONY: mutants
mutants: ## change kvverify/comparison in every small way and see that a test notices each
	@scripts/setup.sh dev
	@nice -n 10 $(PYTHON) -m mutmut run --max-children 1 $(ARGS)
	@$(PYTHON) -m mutmut results

.PHONY: lock
lock: ## resolve requirements/*.lock anew
	@scripts/setup.sh dev
	@scripts/lock.sh $(ARGS)

.PHONY: clean
clean: ## remove .venv and what the tools left; reports/ and the model's cache folder stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage mutants dist
