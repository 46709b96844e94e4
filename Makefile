# `make` without a target lists the targets. Everything works offline after `make install`, and from any path.
.DEFAULT_GOAL := help
SHELL := /bin/sh
# SPARK=4.1 uses that version of Spark, in a virtual environment of its own; 3.5, 4.0 and 4.2 likewise. Without it, it is the newest.
export SPARK ?=
VENV := .venv$(if $(SPARK),-$(SPARK))
PY := $(VENV)/bin/python
# Tests start hundreds of processes, each of which would compile the operator's modules again.
export PYTHONDONTWRITEBYTECODE :=
# A file is one process's. In this order those that take minutes come first, and none of them is left for the end. Real runs wait as
# well: of three processes, one is always there that needs a core of two.
PYTEST := $(PY) -m pytest --dist loadfile --no-loadscope-reorder --durations 20 --durations-min 5
TESTS := tests/end_to_end tests/spark tests/simulation tests/unit
# What has to hold with every version of Spark: everything else is tested with the newest.
CORE := tests/spark/test_batch_against_streaming.py tests/spark/test_source.py tests/spark/test_sink.py tests/spark/test_placed_checkpoints.py \
	tests/spark/test_batch_spark_compatibility.py tests/spark/test_tables_in_sql.py tests/spark/test_icebergs_runtime.py \
	tests/end_to_end/test_delivered_values.py tests/unit/runtime/test_spark_members.py
CLASSES := $(VENV)/spark-classes.jsa
LOCAL_FILES := $(VENV)/local-files.jar
SITE := .venv-site

.PHONY: help install demo test types test-all simulate test-hostile test-apiserver test-chart e2e lint lint-workflows format generate verify site bench clean release-dry-run

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: ## Make the virtual environment in .venv and check for Java 17+ (SPARK=4.1: with that Spark, in .venv-4.1)
	@sh scripts/install.sh

demo: install ## Run a real backfill on real data, end to end (results in .demo/)
	@$(MAKE) -s $(CLASSES) || echo "It goes on without, which takes a few seconds more"
	@$(PY) examples/demo/demo.py

test: types $(CLASSES) $(LOCAL_FILES) ## Run the tests: units, Spark, and whole runs compared with an oracle (SPARK=3.5: those that every Spark must pass)
	@$(PYTEST) -n 3 -m "not slow" $(if $(SPARK),$(CORE),$(TESTS))

test-all: install $(CLASSES) $(LOCAL_FILES) ## Run those and the slow ones, which `make test` leaves out for the sake of time
	@$(PYTEST) -n 2 $(TESTS)

# What must hold before any test with another Spark. With -j2 it takes no time: the archive takes longer, and one processor.
types: install
	@$(if $(SPARK),$(PY) -m mypy --config-file tests/other-spark.ini,:)

$(CLASSES): | install
	@echo "Archiving Spark's classes, which its processes start with in half the time (half a minute, once)"
	@PYTHONPATH=tests/support $(PY) tests/support/class_archive.py $@ >$@.log 2>&1 || { cat $@.log; exit 1; }

$(LOCAL_FILES): tests/support/LocalFiles.java tests/support/local_files_jar.py | install
	@$(PY) tests/support/local_files_jar.py $@ || echo "Without javac the tests go on, and take a little longer"

simulate: install ## Let everything go wrong in a simulated cluster, in SEEDS different ways (10000), from seed FIRST (0)
	@PYTHONPATH=operator $(PY) tests/simulation/run.py --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)

test-hostile: install ## Play a hostile team: only the tests that attack the operator (all other targets run them as well)
	@$(PYTEST) -n 2 -m hostile tests/unit
	@[ -z "$$KUBEBUILDER_ASSETS" ] || $(PYTEST) -n 2 -m hostile tests/apiserver

# These wait more than they compute: three processes keep two cores busy. Those of the chart belong to test-chart.
test-apiserver: install ## Run the tests on a real API server (KUBEBUILDER_ASSETS: etcd and kube-apiserver; skipped without)
	@$(PYTEST) -n 3 --ignore tests/apiserver/test_chart.py tests/apiserver

test-chart: install ## Check the Helm chart: lint, what it renders, and what an API server says of that (builds helm with Go where it is missing)
	@HELM=$$(sh scripts/helm.sh) || [ -z "$$CI" ] && export HELM && $(PYTEST) -n 2 tests/chart tests/apiserver/test_chart.py

e2e: install ## Run the tests on a real cluster: that of KUBECONFIG where it is a disposable one, else one made with kind (tests/README.md)
	@$(PY) scripts/with_cluster.py $(PYTEST) -n 2 tests/cluster

lint: install ## Check style, types and the direction of imports
	@$(PY) -m ruff check --no-cache operator tests examples scripts charts spark-images
	@$(PY) -m ruff format --check operator tests examples scripts charts spark-images
	@$(PY) -m mypy
	@$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-cache

lint-workflows: ## Check .github/workflows (builds actionlint with Go where it is missing)
	@sh scripts/actionlint.sh

format: install ## Rewrite the code in the house style
	@$(PY) -m ruff check --no-cache --fix operator tests examples scripts charts spark-images
	@$(PY) -m ruff format operator tests examples scripts charts spark-images

generate: install ## Write what is made from models, commands and options: crds/, docs/reference/, and parts of the Helm chart
	@$(PY) scripts/resource_definitions.py
	@$(PY) scripts/resource_reference.py
	@$(PY) scripts/program_reference.py
	@$(PY) scripts/chart.py

verify: install ## Fail if anything that is generated is not current
	@$(PY) scripts/resource_definitions.py --check
	@$(PY) scripts/resource_reference.py --check
	@$(PY) scripts/program_reference.py --check
	@$(PY) scripts/chart.py --check

site: $(SITE)/installed ## Build the documentation as a site with a search, in .site/html; fails if a link is broken
	@$(SITE)/bin/python scripts/documentation_site.py
	@echo "To read it: $(SITE)/bin/python -m http.server --directory .site/html"

$(SITE)/installed: scripts/site-requirements.txt
	@$(or $(PYTHON),python3) -m venv --clear $(SITE)
	@$(SITE)/bin/python -m pip install -q --disable-pip-version-check --no-deps -r $<
	@touch $@

release-dry-run: ## Make what a release publishes, without images and signatures, in .release/dist, and try each part (two minutes)
	@sh scripts/release-dry-run.sh .release

bench: install ## Measure against what one would otherwise run (half an hour; results in .bench/)
	@$(PY) tests/benchmarks/run.py

clean: ## Remove what the targets above made
	rm -rf .venv .venv-* .demo .bench .release .site
