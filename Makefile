# The one entry for people. Every target sets up what it needs, once; scripts/setup.sh knows how.
#   PYTHON=…     the interpreter to build .venv with (default: python3)
#   JAVA_HOME=…  the Java to run Spark on (default: the first one of version 17 or newer)
#   ARGS=…       further arguments, for example: make test ARGS="-k gate"

PYTHON_IN_VENV = .venv/bin/python
# Spark's workers must be the same Python as the driver.
WITH_SPARK = JAVA_HOME="$$(cat .venv/java-home)" PYSPARK_PYTHON="$(CURDIR)/$(PYTHON_IN_VENV)"

.DEFAULT_GOAL := help
.PHONY: help demo pipeline test sparks check format chaos contract docs bench lock clean venv java browser postgres nodes kafka

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: java ## Run a query on Spark for a minute whose instances follow the load, with a live view
	@$(WITH_SPARK) $(PYTHON_IN_VENV) -m springtide.cli demo $(ARGS)

pipeline: java postgres kafka ## Run examples/kafka_to_postgres.py with a Kafka broker and a PostgreSQL of its own; kill it, and compare the rows
	@$(WITH_SPARK) $(PYTHON_IN_VENV) -m scripts.pipeline $(ARGS)

test: java browser postgres nodes kafka ## Run all tests; the soak and chaos tests with ARGS="-m slow"
	@$(WITH_SPARK) $(PYTHON_IN_VENV) -m pytest -n 2 --dist worksteal $(ARGS)

sparks: java ## Run a suite of a few minutes on PySpark 4.0, 4.1 and 4.2, each in an environment of its own; SPARK=4.1 for one
	@for version in $(or $(SPARK),4.0 4.1 4.2); do scripts/sparks.sh $$version $(ARGS) || exit 1; done

check: venv ## Lint, formatting and types: ruff and mypy --strict
	@$(PYTHON_IN_VENV) -m ruff check .
	@$(PYTHON_IN_VENV) -m ruff format --check .
	@$(PYTHON_IN_VENV) -m mypy --strict src

format: venv ## Format the code and apply ruff's safe fixes
	@$(PYTHON_IN_VENV) -m ruff check --fix-only .
	@$(PYTHON_IN_VENV) -m ruff format .

chaos: java ## Run queries under random kills, changes and restarts for SECONDS=60; SEED=… repeats, ARGS=--cluster kills executors
	@$(WITH_SPARK) $(PYTHON_IN_VENV) -m tests.chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

contract: venv ## Run random cases of every kind in two processes for SECONDS=60; SEED=…, KIND=…, CASES=… choose
	@$(PYTHON_IN_VENV) -m tests.contract --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND)) $(if $(CASES),--cases $(CASES)) $(ARGS)

docs: venv ## Build the documentation site in build/site; warnings are errors
	@$(PYTHON_IN_VENV) -m scripts.site $(ARGS)

bench: java ## Run the benchmark NAME=…; without NAME list them
	@$(WITH_SPARK) $(PYTHON_IN_VENV) -m benchmarks $(NAME) $(ARGS)

lock: ## Write requirements.lock anew from pyproject.toml; newer versions with ARGS=--upgrade
	@scripts/setup.sh lock $(ARGS)

clean: ## Remove caches and outputs; .venv stays
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

venv:
	@scripts/setup.sh venv

java: venv
	@scripts/setup.sh java

browser: venv
	@scripts/setup.sh browser

postgres:
	@scripts/setup.sh postgres

nodes:
	@scripts/setup.sh nodes

kafka: java
	@scripts/setup.sh kafka
