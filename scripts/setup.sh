#!/usr/bin/env bash
# What `make` needs before it can do its work, on any machine. A part that is there already is left alone.
#
#   scripts/setup.sh venv    .venv with the locked dependencies and the project itself (editable)
#   scripts/setup.sh java    a Java for Spark; its home is written to .venv/java-home
#   scripts/setup.sh postgres   a PostgreSQL for tests; without one they are skipped
#   scripts/setup.sh browser a Chromium for the tests of the page; they are skipped where there is none
#   scripts/setup.sh nodes   iproute2, for tests whose nodes have a network of their own; without it, or without root, they are folders
#   scripts/setup.sh kafka   a Kafka broker and a schema registry for the tests; without them those that need one are skipped
#   scripts/setup.sh lock    a new requirements.lock from pyproject.toml; further arguments go to `uv pip compile`
#
# PYTHON=… names the interpreter to build .venv with; JAVA_HOME the Java to use.
set -euo pipefail
cd "$(dirname "$0")/.."

MIN_JAVA=17
STAMP=.venv/springtide-stamp    # what is installed, written last

say() { printf 'set-up: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ── Debian packages ──────────────────────────────────────────────────────────────────────────────────────────────

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_quietly() {
    local log
    log=$(mktemp)
    DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; rm -f "$log"; return 1; }
    rm -f "$log"
}

# Installs the first of the named packages that Debian has.
apt_install_best() {
    local package
    apt_quietly update || return 1
    for package in "$@"; do
        if [ -n "$(apt-cache show "$package" 2>/dev/null)" ]; then
            say "installing $package"
            mkdir -p /usr/share/man/man1    # slim images lack it, and without it Java's package does not install
            apt_quietly install --no-install-recommends "$package"
            return
        fi
    done
    return 1
}

# ── Python ───────────────────────────────────────────────────────────────────────────────────────────────────────

python_version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints the interpreter to build environments with.
find_python() {
    local candidate
    if [ -z "${PYTHON:-}" ] && ! command -v python3 >/dev/null && can_apt; then
        apt_install_best python3-venv || true
    fi
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if python_is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    candidate=${PYTHON:-python3}
    die "Python 3.11 or newer is needed, $candidate is $(python_version "$candidate" || echo missing):" \
        "install one, or name it with PYTHON=…"
}

# Debian's plain python3 comes without ensurepip, which venv needs.
create_venv() {
    local directory=$1 python package
    python=$(find_python)
    if ! "$python" -c 'import venv; from ensurepip import bootstrap' 2>/dev/null; then
        package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        can_apt && apt_install_best "$package" ||
            die "$python cannot make virtual environments: install the package $package"
    fi
    say "creating $directory with Python $(python_version "$python")"
    "$python" -m venv --clear "$directory"
}

# Runs pip and keeps of its output a line for each large download and each build; errors come through whole.
pip_install() {
    .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@" |
        sed -n -E -e 's|^ *Downloading ([^ ]*/)?([^ /-]+-[0-9.]*[0-9])[^ ]* \(([0-9.]+ MB)\).*|set-up:   \2 (\3)|p' \
            -e 's|^ *Building wheel for ([^ ]+) .*: started|set-up:   building \1|p' >&2
}

# The stamp has a line for the dependencies and one for the project; what has no line, or an old one, is installed.
setup_venv() {
    local lock project
    lock="lock $(cksum <requirements.lock)"
    project="project $(cksum <pyproject.toml) in $PWD"

    # No stamp: a set-up never got to its end, and what it left cannot be trusted.
    if [ ! -f "$STAMP" ] || ! .venv/bin/python -c '' 2>/dev/null; then
        create_venv .venv
    fi
    if ! has_stamp "$lock"; then
        rm -f "$STAMP"
        say "installing the locked dependencies (about 700 MB the first time, most of it Spark)"
        # PySpark is published as source only. Its build must not fetch a setuptools that nobody locked, so ours goes first.
        awk '/^[a-z]/ { wanted = /^setuptools==/ } wanted' requirements.lock >.venv/build-requirements.txt
        pip_install --require-hashes -r .venv/build-requirements.txt
        pip_install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
        write_stamp "$lock"
    fi
    if ! has_stamp "$project"; then
        say "installing springtide itself"
        pip_install --no-deps --no-build-isolation --editable .
        write_stamp "$lock" "$project"
        say "done"
    fi
}

has_stamp() { grep -qxF -e "$1" "$STAMP" 2>/dev/null; }

write_stamp() {
    printf '%s\n' "$@" >"$STAMP.new"
    mv "$STAMP.new" "$STAMP"
}

# ── Java ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# Prints the first Java home that is new enough: JAVA_HOME, then the PATH, then where Debian puts them.
find_java() {
    local java settings home version
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java /usr/lib/jvm/*/bin/java; do
        settings=$("$java" -XshowSettings:properties -version 2>&1) || continue
        home=$(sed -n 's/^ *java\.home = //p' <<<"$settings")
        version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
        if [ "${version%%.*}" -ge "$MIN_JAVA" ] 2>/dev/null; then    # "1.8" is Java 8
            printf '%s\n' "$home"
            return
        fi
    done
    return 1
}

setup_java() {
    local home
    if ! home=$(find_java); then
        can_apt && apt_install_best openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless &&
            home=$(find_java) ||
            die "Spark needs Java $MIN_JAVA or newer: install one (Debian: openjdk-17-jre-headless or newer), or point JAVA_HOME at it"
    fi
    printf '%s\n' "$home" >.venv/java-home
}

# ── Chromium ─────────────────────────────────────────────────────────────────────────────────────────────────────

has_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

setup_browser() {
    has_browser || { can_apt && apt_install_best chromium && has_browser; } ||
        say "there is no Chromium, and it cannot be installed here: the tests that look at the page in a browser will be skipped"
}

# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────────────────

# Tests start a server of their own; nothing else needs it, so it is no error if there is none.
setup_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
        { can_apt && apt_install_best postgresql; } ||
        say "no PostgreSQL: its tests are skipped (Debian: install postgresql)"
}

# ── Nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Debian's images for containers lack it; unshare and nsenter are always there.
setup_nodes() {
    { command -v ip && command -v tc; } >/dev/null ||
        { can_apt && apt_install_best iproute2; } ||
        say "no iproute2: in the tests of nodes that share nothing, these are folders instead of namespaces (Debian: install iproute2)"
}

# ── The lock ─────────────────────────────────────────────────────────────────────────────────────────────────────

# The lock is the same wherever it is made: no index, no host and no path of this machine gets into it.
setup_lock() {
    local scratch
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    create_venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
    say "resolving"
    "$scratch/venv/bin/uv" pip compile pyproject.toml --quiet --no-config --extra dev --extra plots --extra forecast --extra ui \
        --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
        --output-file requirements.lock "$@"
}

case "${1:-}" in
    venv) setup_venv ;;
    java) setup_java ;;
    postgres) setup_postgres ;;
    browser) setup_browser ;;
    nodes) setup_nodes ;;
    lock) shift; setup_lock "$@" ;;
    kafka) .venv/bin/python -m tests.kafka.jars && .venv/bin/python -m tests.kafka.registry ;;
    *) die "usage: scripts/setup.sh venv | java | browser | postgres | nodes | kafka | lock" ;;
esac
