# Tandem: `make demo` runs the main job, `make test` passes the tests.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
ENV ?= post-us-east-2
EXPERIMENT ?= post
export PATH := $(CURDIR)/$(BIN):$(PATH)
export CDK_DISABLE_CLI_TELEMETRY := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := # hundreds of processes of a test run read the same modules
NPM_INSTALL := $(BIN)/npm install --no-save --package-lock=false --no-audit --no-fund --loglevel=error
CHECKED := build/check.txt
REHEARSED := build/run
REHEARSE := $(BIN)/python -m rehearsal.run --env $(ENV) --experiment $(EXPERIMENT)

.PHONY: help setup demo test proof conform check render golden deploy-local rehearse-run docs lock audit look bench bench-artifacts bench-load llmperf usual-ways worlds theory upgrade-diff quality real record-real others site look-site release clean figures

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: .venv/.ready node_modules/.ready ## make .venv and node_modules with what the demo needs

# two steps: what has no wheel is built by the build lock's setuptools, not by one that pip fetches without a hash;
# then the distribution with all its extras, of which the lock has brought everything: --no-index fetches nothing.
# --no-compile: Python compiles a module when it is first imported, and most modules of the CDK never are
.venv/.ready: requirements-build.txt requirements.txt pyproject.toml setup.py
	@echo "==> Python packages into .venv (0.9 GB, half a minute with a fast network)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -qq --no-compile --require-hashes -r requirements-build.txt
	$(BIN)/pip install -qq --no-compile --require-hashes --no-build-isolation -r requirements.txt
	$(BIN)/pip install -qq --no-index --no-build-isolation --editable '.[all]'
	@touch $@

node_modules/.ready: package.json .venv/.ready
	@echo "==> the CDK CLI into node_modules (30 MB)"
	$(NPM_INSTALL) --omit=dev
	@touch $@

.PHONY: setup-test
setup-test: .venv/.checks node_modules/.checks ## add what tests and checks need: make test does it by itself
# a registry must answer here, and at no later time: the tests need no address beyond this machine
	@$(BIN)/python -c "from rehearsal.aws.installation import ensure_python; ensure_python()"
	@$(BIN)/python tests/images/recipe.py tools

.venv/.checks: requirements-test.txt .venv/.ready
	@echo "==> packages of tests and checks into .venv (0.4 GB)"
	$(BIN)/pip install -qq --no-compile --require-hashes --no-build-isolation -r requirements-test.txt
	@touch $@

node_modules/.checks: node_modules/.ready
	@echo "==> schemas of Argo CD and Flux into node_modules (30 MB)"
	$(NPM_INSTALL)
	@touch $@

check: setup ## hold every spec against the rules
	$(BIN)/tandem check

render: setup ## write manifests/
	$(BIN)/tandem render

deploy-local: setup ## deploy ENV to the local AWS endpoint, renew, destroy, adopt
	$(BIN)/python -m rehearsal.aws rehearse --env $(ENV)

demo: setup ## the main job: check, deploy to a local account, run EXPERIMENT on simulated servers, judge, end at zero
	@mkdir -p $(dir $(CHECKED)); $(BIN)/tandem check $(ENV) > $(CHECKED) 2>&1 || { cat $(CHECKED); exit 2; }
	@echo "==> 1/2 tandem check $(ENV): $$(grep ' errors, ' $(CHECKED)) ($(CHECKED))"
	@echo "==> 2/2 deploy to a made-up account of this machine, run, judge: about two minutes; the report is on the last line"
	@rm -rf $(REHEARSED)
	@$(REHEARSE) --time-scale 25 --out $(REHEARSED) -- --quick || test $$? -eq 4

rehearse-run: setup ## the run alone, as demo runs it; HOLD=1: a fresh world like the demo's, held for commands of yours
	@$(if $(HOLD),:,rm -rf $(REHEARSED))
	@$(REHEARSE) $(if $(HOLD),--hold,--out $(REHEARSED) -- --quick)

# The one gate: .ci/run runs it. What takes seconds comes first and ends it at once. Types are checked while the tests
# run, and told when they have ended. Three processes on two cores: tests wait much.
test: setup-test ## format, lint, imports, types and the tests, but for those of make proof
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	@mkdir -p build; $(BIN)/mypy > build/mypy.log 2>&1 & types=$$!; echo "$(BIN)/mypy (beside the tests)"; \
	$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder; tests=$$?; \
	wait $$types; types=$$?; cat build/mypy.log; exit $$((tests ? tests : types))

proof: setup-test ## long proofs: kills, bad weather, flipped bytes; SEED=N repeats one
	@$(BIN)/python tests/images/recipe.py tools run lm-eval
	TANDEM_PROOF_SEED=$(SEED) $(BIN)/pytest -p no:cacheprovider -m 'proof or not proof' tests/proofs
	TANDEM_PROOF_SEED=$(SEED) $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder -m proof tests --ignore=tests/proofs

# KUBECONFIG and CONTEXT count only on the command line: a shell's own must not choose the cluster
named = $(if $(filter command,$(firstword $(origin $(1)))),$($(1)))
conform: setup .venv/.checks ## check manifests, rights and the runner on a cluster that nobody needs: KUBECONFIG=FILE CONTEXT=NAME
	CONFORM_KUBECONFIG="$(call named,KUBECONFIG)" CONFORM_CONTEXT="$(call named,CONTEXT)" CONFORM_ADDRESS="$(ADDRESS)" \
		KUBECTL="$(KUBECTL)" $(BIN)/pytest -p no:cacheprovider -q -n 0 -m conform tests/conform

golden: setup-test ## write again what tests/frozen and the sample of the bench hold; read the diff
	$(BIN)/python tests/frozen/freeze.py --write
	TANDEM_GOLDEN=write $(BIN)/pytest -q tests/cli/test_first_screens.py tests/publish/test_publish_measured.py

.venv-lock/.ready: supply/requirements.txt
	@echo "==> uv into .venv-lock (70 MB)"
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install -qq --require-hashes -r $<
	@touch $@

lock: .venv-lock/.ready ## write every lock from its input (*.in); UPGRADE=1 takes newer packages
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$(PIP_FIND_LINKS)}" .venv-lock/bin/python -m supply.make_locks $(if $(UPGRADE),--upgrade)

audit: .venv/.checks ## known vulnerabilities of every lock: 0 none, 1 some, 3 the database cannot be reached
	@$(BIN)/python -m supply.audit

docs: setup ## write the generated references
	$(BIN)/python docs/write_pages.py

.venv-site/.ready: supply/site/requirements.txt
	@echo "==> mkdocs-material into .venv-site (155 MB)"
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install -qq --no-compile --require-hashes -r $<
	@touch $@

site: .venv-site/.ready ## the docs as a site, with a search that needs no server: build/site/index.html
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet --config-file supply/site/mkdocs.yml

.venv-look/.ready: benchmarks/look-requirements.txt
	@echo "==> Playwright into .venv-look (190 MB), which drives chromium"
	$(PYTHON) -m venv .venv-look
	.venv-look/bin/pip install -qq --no-compile --require-hashes -r $<
	@touch $@

look-site: .venv-look/.ready site ## the site in a real browser, at 390 and 1440 px, light and dark: build/look/site; needs chromium
	.venv-look/bin/python benchmarks/look_site.py build/site index.html bench.html reference/rights.html measurement.html

look: setup .venv-look/.ready ## the verdict's report in a real browser: build/look; needs chromium
	rm -rf build/look && mkdir -p build/look/judged
	cp -r tests/monitoring/measured/run tests/benchmarks/real_run/ngram build/look/judged/
	@for run in build/look/judged/*; do $(BIN)/tandem bench report $$run > $$run/verdict.txt || test $$? -eq 4; done
	.venv-look/bin/python benchmarks/look_report.py build/look/judged/*/report.html --out build/look/report

bench: setup ## measure synthesis, check and render; figures in docs/performance.md
	$(BIN)/python benchmarks/measure.py

.PHONY: first-minute
first-minute: setup ## measure setup, demo and packages on a fresh clone: s and MB; COMMIT=NAME, TEST=1: make test too
	$(BIN)/python benchmarks/first_minute.py $(COMMIT) $(if $(TEST),--test)

.PHONY: pip-install
pip-install: setup ## install Tandem by pip into an empty environment; its MB and seconds, and a verdict from two URLs
	$(BIN)/python benchmarks/pip_install.py

.venv-awscli/.ready: benchmarks/awscli-requirements.txt
	@echo "==> the AWS CLI into .venv-awscli (190 MB)"
	$(PYTHON) -m venv .venv-awscli
	.venv-awscli/bin/pip install -qq --require-hashes -r $<
	@touch $@

bench-artifacts: setup .venv-awscli/.ready ## measure uploads and downloads against the AWS CLI; needs 16 GB of disk, ten minutes
	$(BIN)/python benchmarks/artifacts.py

.venv-llmperf/.ready: images/llmperf/requirements.txt
	@echo "==> llmperf's packages into .venv-llmperf (about 650 MB)"
	$(PYTHON) -m venv .venv-llmperf
	.venv-llmperf/bin/pip install -qq --only-binary=:all: --no-deps --require-hashes -r $<
	@touch $@

llmperf: setup $(if $(SOURCE),.venv-llmperf/.ready) ## run the real llmperf against the simulator; SOURCE=DIR is its checkout; OUT=DIR, RECORD=1
	$(BIN)/python benchmarks/llmperf.py --source "$(SOURCE)" $(if $(OUT),--out "$(OUT)") $(if $(RECORD),--record)

.venv-aiperf/.ready: benchmarks/aiperf-requirements.txt
	@echo "==> aiperf into .venv-aiperf (about 1.2 GB)"
	$(PYTHON) -m venv .venv-aiperf
	.venv-aiperf/bin/pip install -qq --require-hashes -r $<
	@touch $@

bench-load: setup .venv-aiperf/.ready ## measure the load's accuracy and capacity beside aiperf
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/records.py

# two steps: as .venv
.venv-lm-eval/.ready: requirements-build.txt images/lm-eval/requirements.txt
	@echo "==> lm-eval into .venv-lm-eval (about 500 MB)"
	$(PYTHON) -m venv .venv-lm-eval
	.venv-lm-eval/bin/pip install -qq --require-hashes -r requirements-build.txt
	.venv-lm-eval/bin/pip install -qq --no-deps --require-hashes --no-build-isolation -r images/lm-eval/requirements.txt
	@touch $@

quality: setup .venv-lm-eval/.ready ## run lm-eval against two real vLLM servers here: docs/quality.md; 4 GB of disk, five minutes
	$(BIN)/python benchmarks/quality.py

upgrade-diff: setup ## what two rehearsed upgrades change: the tables of docs/upgrade.md
	$(BIN)/python benchmarks/upgrade_diff.py --write

usual-ways: setup ## how often the usual ways are wrong on the same runs: a table of docs/coverage.md
	$(BIN)/python benchmarks/usual_ways.py --write

figures: setup ## compare tables of docs/ with what their programs compute again, five minutes; WORLDS=1: an hour more
	$(BIN)/python benchmarks/figures.py $(if $(WORLDS),--worlds)

worlds: setup ## count words of reports in 42 worlds, an hour: the table of docs/coverage.md; SEED=S
	$(BIN)/python benchmarks/worlds.py --write $(if $(SEED),--seed $(SEED))

theory: setup ## hold the model of what speculation gives against published rows: docs/theory.md
	$(BIN)/python benchmarks/theory.py --write
	$(BIN)/python benchmarks/tuning.py --write

real: setup ## measure real vLLM servers on this machine; 4 GB of disk, 40 minutes; BUSY=1 on a busy one; KEEP=1
	$(BIN)/python benchmarks/real.py $(if $(BUSY),--busy) $(if $(KEEP),--keep)

record-real: setup ## record again what real vLLM servers send: tests/bench/streams
	$(BIN)/python benchmarks/record_streams.py

# --no-deps: the lock names all that the servers need; mock-llm is an npm package, of an exact version
.venv-others/.ready: benchmarks/foreign/requirements.txt .venv/.ready
	@echo "==> llama.cpp's server, four mock servers and litellm into .venv-others (680 MB, two minutes)"
	$(PYTHON) -m venv .venv-others
	.venv-others/bin/pip install -qq --no-deps --require-hashes -r $<
	$(BIN)/npm install --prefix .venv-others --no-save --package-lock=false --no-audit --no-fund --loglevel=error \
		@dwmkerr/mock-llm@0.1.29
	@touch $@

others: setup .venv-others/.ready ## measure servers of others (llama.cpp, four mocks, a litellm proxy); under 15 minutes; RECORD=1
	$(BIN)/python benchmarks/foreign_servers.py $(if $(RECORD),--record)

# --no-deps: the lock names all that guidellm needs; torch's CPU build is of PyTorch's own index
.venv-guidellm/.ready: benchmarks/guidellm-requirements.txt
	@echo "==> guidellm into .venv-guidellm (about 1.2 GB)"
	$(PYTHON) -m venv .venv-guidellm
	.venv-guidellm/bin/pip install -qq --no-compile --no-deps --require-hashes -r $<
	@touch $@

.PHONY: side-by-side
side-by-side: setup .venv-guidellm/.ready .venv-aiperf/.ready ## measure one simulated server by Tandem, guidellm and aiperf, beside its log
	$(BIN)/python benchmarks/load.py --only side-by-side --write

release: setup ## write a release: VERSION=0.2.0 into pyproject.toml and CHANGELOG.md, checksums into build/release
	$(BIN)/python -m supply.release "$(VERSION)"

clean: ## remove what setup made
	rm -rf .venv .venv-aws .venv-awscli .venv-aiperf .venv-guidellm .venv-lm-eval .venv-lm-eval-image .venv-lock .venv-look .venv-others .venv-real .venv-run .venv-site .venv-tools .venv-llmperf node_modules cdk.out build
