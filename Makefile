# The whole set-up of Tierdex: `make run` tries it, `make test` proves it. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Three on two cores: a third of their time they wait for servers, disks and each other.
TEST_PROCESSES ?= 3
STAMPS := $(VENV)/stamps
# Where it is set, each of the hundreds of processes that tests start compiles the package once more.
unexport PYTHONDONTWRITEBYTECODE
# What is imported is compiled then: a third of what is installed never is, and all of it takes 18 s.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -q install --no-compile

.DEFAULT_GOAL := help
.PHONY: help run serve test test-fast lint-and-kernels kernels audit lint format docs openapi site dist bench bench-quick torture clean tree-kernels wheel clouds release rocketmq-plugin

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tierdex needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; run: apt-get install -y python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade 'pip>=25.1'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/run: $(STAMPS)/venv pyproject.toml
	$(INSTALL) -e '.[server,s3]'
	$(INSTALL) --no-deps --group demo
	@touch $@

# Where the machine has Node.js, a browser's driver is made from its sources, which bring none (150 MB).
NODE := $(shell node -p 'process.versions.node.split(".")[0] >= 20' 2>/dev/null)

# Without Spark, Java and a browser: half of the whole.
$(STAMPS)/fast: $(STAMPS)/venv pyproject.toml
	$(INSTALL) -e '.[server,jwt,otel,s3,kafka,redis,nats,rabbitmq,schemas]' --group lint --group fast
	$(INSTALL) --no-deps --group demo
	@touch $(STAMPS)/run $@

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	$(INSTALL) -e '.[all]' --group lint --group test $(if $(filter true,$(NODE)),--no-binary playwright)
	@$(BIN)/python -c 'from tierdex.pipeline.java import use_java; use_java()' 2>/dev/null || $(INSTALL) --group java
	@$(BIN)/python -m tools.trim_spark
	$(INSTALL) --no-deps --group demo
	@touch $(STAMPS)/run $(STAMPS)/fast $@

$(STAMPS)/bench: $(STAMPS)/test
	$(INSTALL) --group bench
	@touch $@

run: $(STAMPS)/run tree-kernels ## load a year of real flights, publish them, serve on http://127.0.0.1:8080 (ARGS="--port 8081")
	@$(BIN)/python -m tools.demo $(ARGS)

tree-kernels: $(STAMPS)/run  # without them numba compiles each kernel at its first call
	-@$(BIN)/python -m tools.kernel_library

serve: $(STAMPS)/run ## serve ./data without loading anything
	@$(BIN)/tierdex serve --data data

lint: $(STAMPS)/fast ## style, types, layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/fast ## rewrite the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Both fill a core for most of a minute, and pytest's processes would compile the same kernels twice.
lint-and-kernels: $(STAMPS)/test
	@$(MAKE) --no-print-directory -j2 lint kernels

kernels: $(STAMPS)/test
	$(BIN)/python -m compileall -q tierdex tests tools
	$(BIN)/python -m tools.kernel_library

test: lint-and-kernels ## lint, then every test, by three processes (TEST_PROCESSES=0: in one, TEST_ARGS=tests/app/http: only those)
	@mkdir -p .cache
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --junitxml=.cache/test-report.xml $(TEST_ARGS)

test-fast: $(STAMPS)/fast ## the tests of the inner loop, without lint (see CONTRIBUTING.md)
	@$(BIN)/python -m tools.kernel_library
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --fast $(TEST_ARGS)

audit: $(STAMPS)/test ## ask the advisory service about everything installed
	@$(INSTALL) --group audit
	@$(BIN)/python -m tools.audit

docs: $(STAMPS)/test ## write the generated parts of docs/ and openapi.yaml
	$(BIN)/python -m tools.generate_docs

openapi: docs ## the same: openapi.yaml is one of the generated documents

$(STAMPS)/site $(STAMPS)/dist: $(STAMPS)/venv pyproject.toml
	$(INSTALL) --group $(@F)
	@touch $@

site: $(STAMPS)/site ## build the pages of README and docs/ into build/site/html, checking every link
	$(BIN)/python -m tools.make_site

wheel: $(STAMPS)/dist ## wheels with compiled kernels, and a pure one, in dist/ (PYTHONS="python3.11 python3.12")
	$(BIN)/python -m build --wheel --outdir dist .
	$(BIN)/python -m tools.make_wheel $(PYTHONS)

dist: $(STAMPS)/dist ## build and check the wheels and sources of both distributions, in dist/
	rm -rf dist
	$(BIN)/python -m tools.check_release
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m tools.make_wheel $(PYTHONS)
	$(BIN)/python -m build --outdir dist packages/tierdex-client
	$(BIN)/python -m twine check --strict dist/*

release: dist ## everything that a release has, in dist/, and a trial of each extra (PYTHONS="python3.11 python3.12")
	$(BIN)/python -m tools.release

rocketmq-plugin: $(STAMPS)/venv ## build the plug-in of RocketMQ's broker for each minor version, in dist/ (Maven, Java 17)
	$(BIN)/python -m tools.rocketmq_plugin dist

bench: $(STAMPS)/bench ## ratios against peers and the C floor, about 15 minutes
	$(BIN)/python -m benchmarks

bench-quick: $(STAMPS)/bench ## the same at a tenth of the size, about 2 minutes
	$(BIN)/python -m benchmarks --quick

clouds: $(STAMPS)/test ## install emulators of Azure and Google (npm, Go: minutes), and run the stores' contract on them
	$(BIN)/python -m tools.azurite
	GOBIN=$(CURDIR)/.cache/gcs go install github.com/fsouza/fake-gcs-server@v1.56.1
	$(BIN)/python -m pytest -q tests/testing/test_store_contract_on_clouds.py

torture: $(STAMPS)/test ## try hard to break the promises: make torture ARGS="--seconds 600 --seed 1 --jobs 2"
	$(BIN)/python -m tests.torture $(ARGS)

clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
