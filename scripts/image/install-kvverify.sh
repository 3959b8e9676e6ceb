#!/bin/sh
# usage: install-kvverify.sh SOURCE
#
# Runs inside an image build: installs our package beside the engine, and lays the folders and the user that it runs with.
set -eu

python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-cache-dir --no-index --no-deps \
    --no-build-isolation "$1"

useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin kvverify
# Any --user may write here, as far as the root is writable at all or a volume lies there.
for folder in /work /cache /cache/huggingface; do
    mkdir -p "$folder"
    chmod 1777 "$folder"
done
