#!/usr/bin/env bash
# Runs a suite of a few minutes on a PySpark that is not the locked one, in an environment of its own.
#
#   scripts/sparks.sh 4.1          the newest 4.1 that there is
#   scripts/sparks.sh 4.1.0 -x     that very one; further arguments go to pytest
#
# The environments are in .venv-spark/; what they have besides PySpark is what requirements.lock says. PYTHON=… names the interpreter to build them with.
# The suite runs on a copy of the project: files that are edited meanwhile would be old in the driver, and new in workers that start later.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=${1:?usage: scripts/sparks.sh VERSION [ARGUMENTS OF PYTEST]}
shift
ENVIRONMENT=.venv-spark/$VERSION
PYTHON_IN_IT=$PWD/$ENVIRONMENT/bin/python
STAMP=$ENVIRONMENT/springtide-stamp    # what is installed, written last

# What touches Spark: every call into the JVM, every place where its words or its files are read, and tasks that die.
TESTS=(
    tests/spark/test_sparks.py tests/unit/test_sparks.py tests/spark/test_lakes.py tests/spark/test_cluster.py
    tests/spark/test_replicas_on_spark.py::test_one_replica_after_the_other_gets_another_spark
    tests/spark/test_run.py tests/spark/test_rows.py tests/spark/test_sinks.py tests/spark/test_faults.py tests/spark/test_savepoints.py
    tests/spark/test_cli_run.py::test_bounded_query_in_a_pipe
    tests/spark/test_cli_run.py::test_settings_and_packages
    tests/spark/test_cli_run.py::test_a_session_function
    tests/spark/test_engine.py::test_a_run_is_scaled_while_it_runs
    "tests/spark/test_crashes.py::test_a_driver_killed_at_a_random_moment_leaves_every_row_once[0]"
    tests/spark/test_crashes.py::test_a_worker_killed_in_the_middle_of_a_task_is_replaced
)
# What these tests need besides springtide and PySpark.
NEEDS=(pytest pytest-xdist hypothesis psutil matplotlib "moto[server]" deltalake "pyiceberg[sql-sqlite]")
# Who else reads lakes. PyPI has DuckDB's extensions for these versions, signed by DuckDB; the locked DuckDB is newer than any.
NEEDS+=(duckdb==1.5.5 duckdb-extension-{httpfs,delta,avro,iceberg}==1.5.5 pytz)

# PySpark 4.0 leaves it to the garbage collector to close the sockets that results come through.
OLD_HABITS=(-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning)

say() { printf 'sparks: %s\n' "$*" >&2; }

installed() { "$PYTHON_IN_IT" -c 'import pyspark; print(pyspark.__version__)' 2>/dev/null; }

setup() {
    local wanted pip
    wanted="$(cksum <requirements.lock) $(cksum <pyproject.toml) ${NEEDS[*]} in $PWD"
    [ "$(cat "$STAMP" 2>/dev/null)" = "$wanted" ] && installed >/dev/null && return
    say "making $ENVIRONMENT (about 700 MB, most of it PySpark $VERSION)"
    mkdir -p .venv-spark
    "${PYTHON:-.venv/bin/python}" -m venv --clear "$ENVIRONMENT"
    pip=("$PYTHON_IN_IT" -m pip install --quiet --disable-pip-version-check --constraint "$ENVIRONMENT/constraints.txt")
    # The lock as constraints: the same versions of everything but Spark.
    grep -E '^[a-z]' requirements.lock | sed -E 's/ *\\$//' | grep -v -E '^(pyspark|py4j|duckdb)==' >"$ENVIRONMENT/constraints.txt"
    "${pip[@]}" setuptools hatchling
    "${pip[@]}" --no-build-isolation --use-pep517 "pyspark==$VERSION$([[ $VERSION == *.*.* ]] || echo '.*')" "${NEEDS[@]}" --editable .
    printf '%s\n' "$wanted" >"$STAMP"
}

copy() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        # 1: a file was changed, or removed, at this very moment
        git ls-files --cached --others --exclude-standard -z | tar -c --ignore-failed-read --null -T - 2>/dev/null | tar -x -C "$1" || [ $? = 1 ]
    else
        tar -c --exclude='./.venv*' . | tar -x -C "$1"
    fi
}

setup
JAVA_HOME=${JAVA_HOME:-$(cat .venv/java-home)}
export JAVA_HOME
export SPRINGTIDE_OTHER_PYTHON=$PWD/.venv/bin/python    # the locked Spark, for a replica that runs on it beside one that does not
COPY=$(mktemp -d)
trap 'rm -rf "$COPY"' EXIT
copy "$COPY"
cd "$COPY"
say "PySpark $(installed) with $("$PYTHON_IN_IT" --version)"
PYSPARK_PYTHON=$PYTHON_IN_IT PYTHONPATH=$COPY/src \
    "$PYTHON_IN_IT" -m pytest -q -n 2 --dist loadfile -p no:cacheprovider "${OLD_HABITS[@]}" "$@" "${TESTS[@]}"
