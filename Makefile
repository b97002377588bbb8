# Each target also works alone; tools go to $DPD_CACHE (~/.cache/dpd), nothing into the checkout.
DPD_CACHE ?= $(HOME)/.cache/dpd
export DPD_CACHE

PYTHON := $(DPD_CACHE)/engine/bin/python
PLUGINS := $(CURDIR)/plugins/dpd-router/src:$(CURDIR)/plugins/dpd-vllm/src:$(CURDIR)/plugins/dpd-local/src:$(CURDIR)/plugins/dpd-convert/src

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit generate lock install test-next clean clean-cache

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo:  ## run the chart's pods here on CPU, send the test prompts, stay up; ONCE=1 ends by itself
	@ci/install demo
	@exec env PATH="$(DPD_CACHE)/bin:$$PATH" PYTHONPATH="$(PLUGINS)" $(PYTHON) -m dpd_local demo $(if $(ONCE),--once)

test:  ## every check and test, with real engines on CPU
	@ci/install test
	@ci/test

lint:  ## the checks that take seconds
	@ci/install test
	@ci/test generated helm-lint ct-lint metaschema ruff ruff-format mypy

unit:  ## the tests that start no engine
	@ci/install test
	@ci/test helm-unittest pytest-quick

generate:  ## rewrite the generated files: the values schema, the plugins' copies in the chart
	@ci/install engine
	@ci/generate

lock:  ## rewrite ci/pins/*.txt after changing a version in ci/pins/*.in
	@ci/lock

install:  ## only install what demo and test need
	@ci/install test

# Not over several nodes: on a CPU, stages of a pipeline after the first fail in vLLM 0.32 itself, with any model.
test-next:  ## the engine tests with the newer pair: vLLM 0.32 and LMCache 0.5, on one node each
	@ci/install test
	@ci/install next
	@DPD_ENGINE=engine-next PATH="$(DPD_CACHE)/bin:$$PATH" $(PYTHON) -m pytest tests/engine -m slow --ignore=tests/engine/test_nodes.py

clean:  ## remove what Python and the tools left in the checkout
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache

clean-cache:  ## remove the installed tools and engines
	rm -rf "$(DPD_CACHE)"
