#!/usr/bin/env bash
# What no Python tool checks: shell scripts, the Dockerfile, workflows and the action. The linters come from the dev set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t scripts < <(git ls-files -- '*.sh' .ci/run)
shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}"
hadolint Dockerfile
actionlint .github/workflows/*.yml examples/*.yml
zizmor --offline --no-progress --quiet action.yml .github examples
