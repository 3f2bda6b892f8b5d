# make demo             set up, start the embedded stack, run the demonstration, leave its artifacts here
# make up               set up and keep serving on http://127.0.0.1:8080/v1 (MOORAGE_PORT changes it)
# make setup            only set up: what 'make up' needs
#
# make setup-deploy     only set up: what the next four need; no bubblewrap, on Linux and macOS
# make synth            synthesise the CDK app into cdk.out
# make bootstrap        prepare the account and region for the CDK, once
# make deploy           deploy it with the credentials of this shell; ends with what to do next
# make deployed         say once more what 'make deploy' ended with
# make destroy          take the deployment down, all but its data
# make cost             count on the emulator what a turn asks of AWS, and price it (DOCS=--docs rewrites the tables of prices and docs/scale.md)
#
# make test             set up and run every test that needs no account
# make quick            the inner loop, within a minute: linters, types, and the tests that start nothing
# make check            the tests of one area: AREA=egress, or a folder of tests/unit (api, cli, local, loop, model, sandbox, wire ...)
# make setup-dev        only set up: what 'make test' needs
# make format           put code, and the blocks of the documentation, into the form that make lint demands
# make lint             linters, types, and the English of the documentation
# make lint-template    checkov and cfn-lint over the synthesised templates
# make test-docker      sandboxes as containers of a real engine, and the images (as root; apt-get install docker.io mmdebstrap)
# make test-deploy      deploy the synthesised templates onto an emulator, call them, destroy and deploy again
# make afternoon        deploy into an account of AWS's, prove what no emulator can, and take it down again (docs/aws_tests.md)
# make test-templates   fetch the chat templates of open models and render conversations with them
# make test-egress      attack the egress proxy
# make test-localstack  run the state machine in LocalStack's interpreter, and turns on LocalStack itself (needs Python 3.13, no Docker)
# make judges           have AWS's own programs judge what stands in for AWS in the tests (they need Maven and cargo)
# make clients          have other people's clients do real tasks here (DOCS=--docs rewrites the table of docs/clients.md)
# make conformance      run the public conformance suites of the protocol (OPTIONS=--agents plays only the SDKs' own tests of agents)
# make chaos            kill, freeze and cut off the processes of a stack under load (SEED=7 KILLS=100; DOCS=--docs adds it to docs/durability.md)
# make simulate         play 100,000 histories of the loop over fakes, and 30,000 of teams, from their numbers alone
# make soak             two thousand rounds of one loop, then a stack under load for half an hour, and what grows in it (the same DOCS)
# make fuzz             damage streams of model servers, then send 10,000 requests and compare the answers with the OpenAPI document
# make judges-files     read the documents of public packages' tests, and compare with other readers (it needs a package index)
# make bench            measure what moorage adds to a request; writes docs/benchmarks.md (a quiet machine, please; BEFORE=clone measures another release beside)
# make bench-peers      install the gateways that make bench then measures beside it (under .build/)
# make bench-cold       package sizes and cold import times of the functions
# make bench-egress     only the egress proxy
# make bench-sandbox    only the sandboxes, beside containers of an engine where one can be started
# make bench-console    how quick the console is in Chromium
#
# make console-screens  take pictures of the console in both themes (under .build/console/screens; those of the documentation too)
#
# make dist             build wheel and sdist into dist/ (DIST=...), and check them as a package index does
# make release-check    compare TAG=v1.2.3 with the version and the changelog
# make docs             build the documentation's site into .build/site; a warning or a dead link fails
# make wheel            build dist/moorage-*.whl, which holds all that one machine needs
# make image            build the image of all of moorage (docs/docker.md); PLATFORM=linux/arm64 for another processor, BASE_IMAGE=... on another Debian
# make lock             resolve requirements/*.in anew
# make clean            remove environments and what was built; state under .moorage/ stays

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# Where Python may not write bytecode (many container images say so), each of the stack's processes compiles all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-deploy demo up test quick check format lint lint-template test-templates test-egress test-docker test-deploy test-localstack judges judges-files synth \
	afternoon bootstrap deploy deployed destroy clients conformance chaos simulate soak fuzz cost bench bench-peers bench-cold bench-egress bench-sandbox bench-console wheel dist release-check docs \
	image lock clean console-screens

help:
	@sed -n '/^$$/q; s/^# *//p' Makefile

$(UV): requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "moorage needs Python 3.11 or newer; PYTHON=... chooses one.")'
	@echo 'moorage: Making the environment $(VENV) ...'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt || \
		{ echo "moorage: pip could not get uv. The first setup needs a network, or an index of packages that PIP_INDEX_URL names."; exit 1; }
	@touch $@

# uv trusts the certificates that come with it, and not those that a company's proxy puts in the place of others.
COMPANY := { echo "moorage: uv could not get the packages. Behind a proxy with certificates of its own: UV_SYSTEM_CERTS=1 make $(or $(MAKECMDGOALS),up)"; exit 1; }

$(VENV)/.local: $(UV) requirements/local.txt pyproject.toml
	@echo "moorage: Installing its packages into $(VENV) (once; $$(grep -c == requirements/local.txt) packages) ..."
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/local.txt || $(COMPANY)
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.local requirements/dev.txt
	@echo "moorage: Installing what its tests need into $(VENV) (once; $$(grep -c == requirements/dev.txt) packages) ..."
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt || $(COMPANY)
	@touch $@

# What every sandbox offers beside the standard library, and the egress proxy: by the code that makes them for an installed moorage.
.venv-%/.done: requirements/%.txt | $(VENV)/.local
	@$(BIN)/python -m moorage.local.environments $*

# What looks over the templates; checkov pins much of what it uses.
.venv-template/.done: $(UV) requirements/template.txt
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-template
	@$(UV) pip install --quiet --python .venv-template/bin/python --require-hashes -r requirements/template.txt
	@touch $@

# What the console imports; without a network it says so, and the API runs.
.build/console/stamp: console/package-lock.json console/fetch.py | $(UV)
	@$(BIN)/python console/fetch.py && touch $@ || echo "The console will say so until 'make setup' can fetch them."

setup: $(VENV)/.local .venv-toolbox/.done .venv-egress/.done .build/console/stamp
	@sh localstack/system_packages.sh bubblewrap:bwrap

setup-dev: setup $(VENV)/.dev
	@sh localstack/system_packages.sh iproute2:ip curl:curl git:git || echo "Tests that need them are skipped."
	@sh localstack/system_packages.sh chromium-headless-shell:chromium-headless-shell 2>/dev/null || \
		sh localstack/system_packages.sh chromium:chromium || echo "Tests of the console are skipped."
	@sh localstack/system_packages.sh chromium:chromium || echo "Tests of hosted computers are skipped."

# What a deploy needs: no sandbox runs on this machine, so neither bubblewrap nor what is inside of sandboxes and proxy.
setup-deploy: $(VENV)/.dev .build/console/stamp

demo: setup
	@$(BIN)/moorage demo

up: setup
	@exec $(BIN)/moorage up

# The look of the code is the formatter's, in the Markdown's blocks too.
format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/site/prose.py
	@$(MAKE) --no-print-directory types

.PHONY: types suite
types: setup-dev
	$(BIN)/mypy
	$(BIN)/mypy --config-file functions/egress_proxy/mypy.ini --python-executable .venv-egress/bin/python functions/egress_proxy

# Environments are made beside each other, and types looked at beside the tests, which takes half a minute of a processor.
test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs=4 types suite

# In a fresh clone each worker would compile all modules and tests for itself, which takes it fifteen seconds of a core; here they are
# compiled while environments come over the network.
.build/collected: $(VENV)/.dev
	@mkdir -p .build
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	@touch $@

# Three workers and one that waits (tests/lanes.py). Tests run make of their own, which is nobody's helper.
suite: setup-dev .venv-template/.done .build/collected
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder

# Pure tests: no stack, no sandbox, no emulator. Types are checked incrementally. The loop's tests wait for half of their time, so two
# workers run them beside the others.
PURE := tests/unit/wire tests/unit/model tests/unit/tools tests/unit/test_hosts.py tests/unit/test_settings.py \
	tests/unit/test_terminal.py tests/unit/test_codec.py tests/contract/test_architecture.py tests/contract/test_rooms.py \
	tests/contract/test_events.py tests/contract/test_parameters.py tests/contract/test_openapi.py
.PHONY: quick-loop quick-others
quick: setup-dev
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs=2 --output-sync quick-loop quick-others

quick-loop:
	TESTS=quick $(BIN)/python -m pytest -q -n 2 -x tests/unit/loop

quick-others:
	$(BIN)/mypy
	TESTS=quick $(BIN)/python -m pytest -q -x $(PURE)

# An area is a folder of tests/unit; egress has one of its own.
AREA ?=
check: setup-dev
	@test -n "$(AREA)" || { echo "AREA=... names a folder of tests/unit, or egress"; exit 2; }
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(wildcard tests/unit/$(AREA) tests/$(AREA)) tests/contract/test_architecture.py

lint-template: setup-dev .venv-template/.done
	$(BIN)/python -m pytest tests/infra/test_linters.py tests/infra/each_setting.py

test-egress: setup-dev
	$(BIN)/python -m pytest tests/egress

# Only read out of the archive of sources; without a network the test says what it skips.
.build/templates/.done: $(VENV)/.dev tests/templates/requirements.txt
	@mkdir -p .build/templates/archive
	@if $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --require-hashes \
		-r tests/templates/requirements.txt -d .build/templates/archive; then \
		tar -xzf .build/templates/archive/*.tar.gz -C .build/templates --strip-components=5 --wildcards '*/models/templates/*.jinja' && \
		rm -r .build/templates/archive && touch $@; \
	else echo "The chat templates could not be fetched."; fi

test-templates: .build/templates/.done
	$(BIN)/python -m pytest tests/templates

# Sandboxes as containers of a real engine, which the tests start: as root, with docker.io and mmdebstrap of Debian.
test-docker: setup-dev
	$(BIN)/python -m pytest tests/docker/image_ring.py tests/docker/ring.py tests/docker/desk_ring.py

# The life of a deployment is no part of 'make test': it costs two minutes of a core.
test-deploy: setup-dev
	$(BIN)/python -m pytest tests/deploy tests/deploy/life_cycle.py tests/deploy/restore.py tests/deploy/afternoon.py

# npm's 'latest' tag of the CDK is a stray build; this is the version for aws-cdk-lib of requirements/dev.txt.
CDK := PATH="$(abspath $(BIN)):$$PATH" npx --yes aws-cdk@2.1148.1

# Settings for one call, such as OPTIONS='-c moorage:retain=false'; cdk.json is for lasting ones.
OPTIONS ?=

synth: setup-deploy
	$(CDK) synth --quiet $(OPTIONS)

bootstrap: setup-deploy
	$(CDK) bootstrap $(OPTIONS)

DEPLOYED := .build/deployed.json

deploy: setup-deploy
	$(CDK) deploy --all --outputs-file $(DEPLOYED) $(OPTIONS)
	@$(BIN)/python -m infra.deployed $(DEPLOYED)

deployed:
	@$(BIN)/python -m infra.deployed $(DEPLOYED)

# The stack that holds the data is protected, and stays.
STACKS ?= '!(*-state)'
destroy: setup-deploy
	$(CDK) destroy $(STACKS) $(OPTIONS)

# In an account of yours, with the credentials of the shell: docs/aws_tests.md.
afternoon: $(VENV)/.dev
	$(BIN)/python -m tests.afternoon $(OPTIONS)

# LocalStack's interpreter; this version, the newest that needs no token, runs on Python 3.13 alone.
.venv-localstack/.done: $(UV) requirements/localstack.txt
	@$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON313))" .venv-localstack
	@$(UV) pip install --quiet --python .venv-localstack/bin/python --require-hashes -r requirements/localstack.txt
	@touch $@

PYTHON313 ?= python3.13
test-localstack: $(VENV)/.dev .build/judges/dynamodb/.done
	@if $(PYTHON313) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null; then \
		$(MAKE) --no-print-directory .venv-localstack/.done && .venv-localstack/bin/python tests/localstack_asl/run.py && \
		$(BIN)/python -m tests.localstack_asl.ring; \
	else echo "Skipped: LocalStack's interpreter needs Python 3.13 (PYTHON313=... names one)."; fi

# Maven puts it beside what it needs; without Maven, or a network, its judgements are skipped and say so.
.build/judges/dynamodb/.done: tests/judges/dynamodb/pom.xml
	@mkdir -p $(@D)
	@if command -v mvn >/dev/null && mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(@D)); then touch $@; \
	else echo "DynamoDB Local could not be fetched: that needs Maven and a network."; fi

# The newest in the registry; the layer that infra/functions.py names is 1.0.0, before whose release the sources differ in nothing that a
# setting of ours touches.
ADAPTER := 1.0.0-rc1
.build/judges/adapter-$(ADAPTER)/.done:
	@mkdir -p $(@D)
	@if command -v cargo >/dev/null && nice cargo install --quiet --locked --debug --root $(abspath $(@D)) \
		--target-dir $(abspath $(@D))/target lambda_web_adapter@$(ADAPTER); then rm -rf $(@D)/target && touch $@; \
	else echo "The Lambda Web Adapter could not be built: that needs cargo and a network."; fi

# Installing needs a package index. The documents are those of public packages' sources.
.build/judges/files/.done: $(VENV)/.dev tests/judges/files.txt
	@mkdir -p .build/judges
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/judges/files
	@$(UV) pip install --quiet --python .build/judges/files/bin/python --require-hashes -r tests/judges/files.txt && touch $@

judges-files: setup-dev .venv-toolbox/.done .build/judges/files/.done
	$(BIN)/python -m tests.judges.files --report

judges: setup-dev .build/judges/dynamodb/.done .build/judges/adapter-$(ADAPTER)/.done
	$(BIN)/python -m pytest tests/judges/judge_*.py tests/contract/test_tables.py $(OPTIONS)

# Installing needs a network; without one the programs say what they skip.
.build/clients/python/.done: $(UV) tests/clients/requirements.txt
	@mkdir -p .build/clients
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/clients/python
	@$(UV) pip install --quiet --python .build/clients/python/bin/python --require-hashes -r tests/clients/requirements.txt && touch $@ \
		|| echo "The Python clients could not be installed."

# Those that do not fit beside one another have an environment each.
.build/clients/%/.done: $(UV) tests/clients/%.txt
	@mkdir -p .build/clients
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/clients/$*
	@$(UV) pip install --quiet --python .build/clients/$*/bin/python --require-hashes -r tests/clients/$*.txt && touch $@ \
		|| echo "The Python clients of tests/clients/$*.in could not be installed."

.build/clients/node/.done: tests/clients/package-lock.json
	@mkdir -p .build/clients/node
	@cp tests/clients/package.json tests/clients/package-lock.json .build/clients/node/
	@cd .build/clients/node && npm ci --silent --no-audit --no-fund && touch .done || echo "The Node clients could not be installed."

clients: setup $(patsubst %,.build/clients/%/.done,python frameworks agents aider node)
	$(BIN)/python tests/clients/run.py $(DOCS)

.build/conformance/python/.done: $(UV) tests/conformance/requirements.txt
	@mkdir -p .build/conformance
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/conformance/python
	@$(UV) pip install --quiet --python .build/conformance/python/bin/python --require-hashes -r tests/conformance/requirements.txt \
		&& touch $@ || echo "llm-comply could not be installed."

.build/conformance/servers/.done: $(UV) tests/conformance/servers.txt
	@mkdir -p .build/conformance
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/conformance/servers
	@$(UV) pip install --quiet --python .build/conformance/servers/bin/python --require-hashes -r tests/conformance/servers.txt && touch $@ \
		|| echo "The reference servers of tests/conformance/servers.in could not be installed."

# The tests of the SDKs are in their source archives alone.
.build/conformance/agents/.done: $(VENV)/.dev tests/conformance/agents_tests.txt tests/conformance/agents_source.txt
	@mkdir -p .build/conformance
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/conformance/agents
	@mkdir -p .build/conformance/agents/source
	@$(UV) pip install --quiet --python .build/conformance/agents/bin/python --require-hashes -r tests/conformance/agents_tests.txt && \
		$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary openai,openai-agents --require-hashes \
			-r tests/conformance/agents_source.txt -d .build/conformance/agents/source && \
		for archive in .build/conformance/agents/source/*.tar.gz; do \
			tar -xzf $$archive -C .build/conformance/agents/source --wildcards '*/tests/*' '*/pyproject.toml' || exit 1; done && touch $@ \
		|| echo "The tests of openai-python and openai-agents could not be fetched."

conformance: setup-dev .build/conformance/python/.done .build/conformance/servers/.done .build/conformance/agents/.done
	$(BIN)/python tests/conformance/run.py $(OPTIONS)

.build/fuzz/.done: $(UV) tests/fuzz/requirements.txt
	@mkdir -p .build
	@$(UV) venv --quiet --clear --python $(BIN)/python .build/fuzz
	@$(UV) pip install --quiet --python .build/fuzz/bin/python --require-hashes -r tests/fuzz/requirements.txt && touch $@

# There are wheels for Linux alone, and for few versions of Python.
.build/atheris/.done: $(UV) tests/fuzz/atheris.txt
	@rm -rf .build/atheris && mkdir -p .build/atheris
	@$(UV) pip install --quiet --python $(BIN)/python --target .build/atheris --require-hashes --only-binary :all: -r tests/fuzz/atheris.txt \
		&& touch $@ || echo "atheris could not be installed here: the fuzzer that is led by coverage is left out, and Hypothesis runs alone."

SEED ?= $(shell date +%s)
KILLS ?= 100
chaos: setup-dev
	$(BIN)/python -m tests.chaos.run --seed $(SEED) --kills $(KILLS) $(DOCS) $(OPTIONS)

HISTORIES ?= 100000
TEAM_HISTORIES ?= 30000
simulate: setup-dev
	$(BIN)/python -m tests.simulation.simulate --histories $(HISTORIES) $(OPTIONS)
	$(BIN)/python -m tests.simulation.simulate --histories $(TEAM_HISTORIES) --team $(OPTIONS)

MINUTES ?= 30
soak: setup-dev
	SOAK_ROUNDS=2000 $(BIN)/python -m pytest tests/chaos/test_long_loop.py
	$(BIN)/python -m tests.chaos.soak --minutes $(MINUTES) $(DOCS) $(OPTIONS)

fuzz: setup-dev .build/fuzz/.done .build/atheris/.done
	$(BIN)/python -m pytest -q -n 0 tests/fuzz/decoders.py
	PYTHONPATH=.build/atheris $(BIN)/python tests/fuzz/guided.py
	$(BIN)/python tests/fuzz/run.py

cost: setup-dev
	$(BIN)/python -m tests.bench.cost $(DOCS)

bench-cold: setup-dev
	$(BIN)/python -m tests.bench.bench_cold

bench-egress: setup-dev
	$(BIN)/python -m tests.bench.bench_proxy

bench-sandbox: setup-dev
	$(BIN)/python -m tests.bench.bench_exec
	$(BIN)/python -m tests.bench.bench_desk

bench-console: setup-dev
	@sh localstack/system_packages.sh chromium:chromium
	$(BIN)/python -m tests.bench.console

console-screens: setup-dev
	@sh localstack/system_packages.sh chromium:chromium
	$(BIN)/python -m tests.console_screens

# Sphinx and its theme, which nothing else needs.
.venv-docs/.done: $(UV) requirements/docs.txt
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-docs
	@$(UV) pip install --quiet --python .venv-docs/bin/python --require-hashes -r requirements/docs.txt
	@touch $@

docs: .venv-docs/.done
	@.venv-docs/bin/python docs/site/pages.py

wheel: $(UV)
	@$(UV) build --quiet --out-dir dist
	@ls dist/*.whl

# Another processor than this machine's takes buildx.
IMAGE ?= moorage
PLATFORM ?=
image:
	docker $(if $(PLATFORM),buildx build --load --platform $(PLATFORM),build) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) \
		--file docker/Dockerfile --tag $(IMAGE) .

# What checks the packages, apart from what is checked.
DIST ?= dist
.venv-release/.done: $(UV) requirements/release.txt
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-release
	@$(UV) pip install --quiet --python .venv-release/bin/python --require-hashes -r requirements/release.txt
	@touch $@

dist: .venv-release/.done
	@rm -rf $(DIST)
	@$(UV) build --quiet --out-dir $(DIST)
	@.venv-release/bin/twine check --strict $(DIST)/*

TAG ?=
release-check: $(UV)
	@version=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' layers/core/python/moorage/__init__.py); \
	test "$(TAG)" = "v$$version" || { echo "The tag is '$(TAG)', and the version is $$version."; exit 1; }; \
	grep -q "^## \[$$version\]" CHANGELOG.md || { echo "CHANGELOG.md has no section for $$version."; exit 1; }

lock:
	PATH="$(BIN):$$PATH" sh requirements/lock.sh

clean:
	rm -rf $(VENV) .venv-toolbox .venv-egress .venv-template .venv-docs .venv-release .venv-localstack .build build dist cdk.out

PEERS_PYTHON ?= python3.12
bench: setup-dev
	$(BIN)/python -m tests.bench.run $(if $(BEFORE),--before $(BEFORE))
	$(BIN)/python -m tests.bench.retrieval --report
	$(BIN)/python -m tests.bench.bench_proxy
	$(BIN)/python -m tests.bench.bench_exec
	$(BIN)/python -m tests.bench.bench_desk
	$(BIN)/python -m tests.bench.bench_mcp
	$(BIN)/python -m tests.bench.lists --report

bench-peers: $(UV)
	$(UV) venv --quiet --clear --python $(BIN)/python .build/peer-litellm
	$(UV) pip install --quiet --python .build/peer-litellm/bin/python 'litellm[proxy]==1.106.2'
	@if $(PEERS_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
		$(UV) venv --quiet --clear --python $(PEERS_PYTHON) .build/peer-ogx && \
		$(UV) pip install --quiet --python .build/peer-ogx/bin/python ogx==1.5.0 'sqlalchemy[asyncio]' aiosqlite pillow pandas \
			'mcp>=2.0' redis pymongo asyncpg matplotlib fire httpx2 opentelemetry-sdk opentelemetry-exporter-otlp-proto-http \
			opentelemetry-exporter-otlp-proto-grpc; \
	else echo "ogx needs Python 3.12 or newer (PEERS_PYTHON=... names one): it is left out."; fi
