# The two commands of the README are `make demo` and `make test`; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SYSTEM_READY := $(VENV)/.system-ready

# Where the environment forbids byte code, every run would spend its time on compiling the tests again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup demo serve test check format docs bench lock clean

help:
	@echo "make demo    the main job end to end: produce, consume in a group, kill the broker, lose nothing; then a pipeline"
	@echo "make test    every test, with real clients"
	@echo "make simulate SEED=n [SEEDS=count]   a whole cluster in one process, from a seed, with faults"
	@echo "make chaos   a real cluster under 40 faults: kills, pauses, cuts, bad disks and clocks; nothing may be lost"
	@echo "make soak    the same for up to two hours, with simulated seeds; SOAK_MINUTES=n for less"
	@echo "make serve   a broker on 127.0.0.1:9092, data in ./data"
	@echo "make check   format, lint, types, floors, unit and property tests (some minutes on two cores)"
	@echo "make bench   the benchmarks, as JSON in benchmarks/results"
	@echo "make docs    write the generated pages of docs/ anew"
	@echo "make setup   only the virtual environment and, as root, the Debian packages tests use"

setup: $(READY) $(SYSTEM_READY)

# --no-deps and hashes: exactly what requirements.lock names, nothing else.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(SYSTEM_READY): scripts/system_packages.sh
	@mkdir -p $(VENV)
	sh scripts/system_packages.sh
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

serve: $(READY)
	$(BIN)/penstock serve --data-dir data

# Clusters of processes have both cores to themselves: what they show is about leases and time-outs. So has Spark, whose
# tests share one session.
CLUSTERS := tests/cluster tests/chaos/test_cluster_chaos.py tests/clients/test_cluster.py
SPARK := tests/spark
test: setup
	$(BIN)/python -m pytest tests -n 2 --dist loadfile $(addprefix --ignore=,$(CLUSTERS) $(SPARK))
	$(BIN)/python -m pytest $(CLUSTERS)
	$(BIN)/python -m pytest $(SPARK)

# Types and tests side by side: the tests often wait for the disk.
check: $(READY)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-tests

.PHONY: check-types check-tests
check-types: $(READY)
	$(BIN)/ruff format --check src tests scripts benchmarks examples
	$(BIN)/ruff check src tests scripts benchmarks examples
	$(BIN)/lint-imports
	$(BIN)/python scripts/protocol_table.py --check
	$(BIN)/python scripts/configuration_table.py --check
	$(BIN)/python scripts/spark_options_table.py --check
	$(BIN)/python scripts/metrics_table.py --check
	$(BIN)/python scripts/capacity_page.py --check
	$(BIN)/python scripts/benchmarks_page.py --check
	$(BIN)/basedpyright

check-tests: $(READY)
	$(BIN)/python -m pytest tests/unit tests/properties -q -n 2 --dist loadfile

format: $(READY)
	$(BIN)/ruff format src tests scripts benchmarks examples
	$(BIN)/ruff check --fix src tests scripts benchmarks examples

docs: $(READY)
	$(BIN)/python scripts/protocol_table.py
	$(BIN)/python scripts/configuration_table.py
	$(BIN)/python scripts/spark_options_table.py
	$(BIN)/python scripts/metrics_table.py
	$(BIN)/python scripts/capacity_page.py
	$(BIN)/python scripts/benchmarks_page.py

# The rows of the targets; `python benchmarks/compare.py` without --core measures everything, for hours.
bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/compare.py --core
	$(BIN)/python scripts/benchmarks_page.py

# One seed tells all that happened in it; several tell which failed.
.PHONY: simulate
SEED ?= 1
SEEDS ?= 1
simulate: $(READY)
	$(BIN)/python -m tests.simulation.simulate --seed $(SEED) --seeds $(SEEDS)

# CHAOS_SEED=n repeats an order of faults; SOAK_MINUTES=n shortens a soak and what it is to reach.
.PHONY: chaos soak
chaos: setup
	$(BIN)/python -m pytest tests/chaos/test_cluster_chaos.py -s

soak: setup
	$(BIN)/python tests/chaos/cluster_soak.py

# After a change of dependencies in pyproject.toml.
lock: $(READY)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --generate-hashes --no-emit-index-url --no-header -o requirements.lock

clean:
	rm -rf $(VENV) .hypothesis build dist
