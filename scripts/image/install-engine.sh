#!/bin/sh
# usage: install-engine.sh LOCK
#
# Runs inside an image build: installs a lock, every file checked by its sha256, into the base's Python. Files in /wheels
# (the build context's wheels/ folder) are used where the lock names them; with OFFLINE=1 nothing else is.
set -eu

lock=$1
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
# The base's certificates instead of the installers' own, so that a build behind a proxy needs only its CA mounted there.
export PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt

set -- --no-deps --require-hashes --find-links /wheels
[ "${OFFLINE:-0}" = 0 ] || set -- "$@" --no-index
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-cache-dir "$@" \
    --target "$tools" -r "${lock%/*}/bootstrap.lock"

# torch's CPU build comes from /wheels, else from PyTorch's own index, which uv knows by this name.
if grep -q '^torch==[^ ]*+cpu' "$lock" && ! ls /wheels/torch-*+cpu-* >/dev/null 2>&1; then
    set -- "$@" --torch-backend cpu
fi
# Bytecode is compiled now: a container with a read-only root could not keep it and would compile at every start.
UV_HTTP_TIMEOUT="${PIP_DEFAULT_TIMEOUT:-180}" "$tools/bin/uv" pip install --system --quiet --no-cache --link-mode copy \
    --compile-bytecode "$@" -r "$lock"
