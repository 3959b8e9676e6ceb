#!/usr/bin/env bash
# The action's steps. Inputs come as KVV_* in the environment (action.yml); every step reads them from there again.
#
# usage: action.sh verify      check inputs and runner, pull the image, run it, validate its report
#        action.sh conclude    outputs, annotations, step summary; ends with the status that the job must have
#        action.sh cleanup     remove what is left, whatever happened before
set -euo pipefail

ACTION_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=lib/github.sh
source "$ACTION_ROOT/entrypoint/lib/github.sh"
# shellcheck source=lib/inputs.sh
source "$ACTION_ROOT/entrypoint/lib/inputs.sh"
# shellcheck source=lib/runner.sh
source "$ACTION_ROOT/entrypoint/lib/runner.sh"
# shellcheck source=lib/container.sh
source "$ACTION_ROOT/entrypoint/lib/container.sh"

# What every step derives alike, so that cleaning up needs nothing that an earlier step left. RUNNER_TEMP is a runner's own.
set_scene() {
    local runner
    runner=$(printf '%s' "$RUNNER_TEMP" | cksum | cut -d ' ' -f 1)
    STATE=$RUNNER_TEMP/kvverify
    OWNER_LABEL=kvverify.runner=$runner
    CONTAINER=kvverify-$runner-${GITHUB_RUN_ID:-0}-${GITHUB_RUN_ATTEMPT:-0}
    REPORT_DIRECTORY=$(in_workspace "$(input report-directory)")
    REPORT_MOUNTS=(
        --mount "$(mount_option "$REPORT_DIRECTORY" /report)"
        --mount "$(mount_option "$STATE/shown" /shown)"
    )
}

# A report directory that can be written, and that holds no report: one that is there is never overwritten.
prepare_report_directory() {
    [ -n "$(input report-directory)" ] || refuse "input report-directory is empty"
    mkdir -p "$REPORT_DIRECTORY" && [ -w "$REPORT_DIRECTORY" ] ||
        refuse "input report-directory: $REPORT_DIRECTORY cannot be written"
    if [ -e "$REPORT_DIRECTORY/report.json" ] || [ -e "$REPORT_DIRECTORY/report.evidence" ]; then
        refuse "input report-directory: $REPORT_DIRECTORY holds a report already; name another directory"
    fi
    RUN_MOUNTS+=(--mount "$(mount_option "$REPORT_DIRECTORY" /report)")
}

prepare_model_cache() {
    local folder
    [ "$NEEDS_HUB" = true ] || return 0
    folder=$(input model-cache)
    folder=$(in_workspace "${folder:-$STATE/hub}")
    mkdir -p "$folder" && [ -w "$folder" ] || refuse "input model-cache: $folder cannot be written"
    RUN_MOUNTS+=(--mount "$(mount_option "$folder" /cache/huggingface)")
}

hide_token() {
    [ -z "$(input hf-token)" ] || printf '::add-mask::%s\n' "$(input hf-token)"
}

# A cancelled job: GitHub interrupts, and kills ten seconds later.
on_cancel() {
    trap '' INT TERM HUP
    printf 'cancelled: stopping the container\n'
    stop_run 5
    printf 'cancelled before the verification was complete\n' >"$STATE/problem"
    exit 130
}

run_and_wait() {
    start_run
    wait_for_run
}

verify() {
    local status=0
    rm -rf "$STATE"
    mkdir -p "$STATE/shown"
    hide_token
    read_inputs
    choose_image
    require_docker
    remove_leftovers
    require_gpus
    prepare_report_directory
    prepare_model_cache
    obtain_image
    printf '%s\n' "$IMAGE_ID" >"$STATE/image"
    set_output image-digest "$IMAGE_DIGEST"
    require_target

    trap on_cancel INT TERM HUP
    quietly run_and_wait
    trap - INT TERM HUP
    printf '%s\n' "$RUN_STATUS" >"$STATE/run-status"
    printf 'the container ended with status %s\n' "$RUN_STATUS"
    [ ! -d "$REPORT_DIRECTORY/report.evidence" ] || set_output evidence "$REPORT_DIRECTORY/report.evidence"
    [ -s "$REPORT_DIRECTORY/report.json" ] ||
        refuse "the run left no report (it ended with status $RUN_STATUS); its log above says why"
    set_output report "$REPORT_DIRECTORY/report.json"
    [ "$TIMED_OUT" = false ] || refuse "the run was stopped after timeout-minutes: $(input timeout-minutes)"
    quietly in_image validate validate /report/report.json || status=$?
    ((status == 0)) || refuse "the report is not valid (kvverify validate ended with status $status); see the log"
}

# conclude: GitHub shows the report where there is a valid one; without it, why there is none.
conclude() {
    local status=0 lenient=()
    [ "$(input allow-inconclusive)" != true ] || lenient=(--allow-inconclusive)
    if [ ! -s "$STATE/run-status" ]; then
        nothing_verified "$(problem)"
    fi
    IMAGE_ID=$(<"$STATE/image")
    rm -rf "$STATE/shown"
    mkdir -p "$STATE/shown"
    quietly in_image conclude github /report/report.json --into=/shown --ended-with="$(<"$STATE/run-status")" \
        --gate="$(input gate)" --artifact-url="${KVV_ARTIFACT_URL:-}" --shown-as="$(shown_path)" \
        "${lenient[@]}" || status=$?
    if [ ! -s "$STATE/shown/outputs" ] || [ ! -s "$STATE/shown/summary.md" ]; then
        nothing_verified "$(problem)"
    fi
    cat "$STATE/shown/outputs" >>"$GITHUB_OUTPUT"
    [ "$(input annotations)" != true ] || cat "$STATE/shown/annotations"
    [ "$(input summary)" != true ] || cat "$STATE/shown/summary.md" >>"$GITHUB_STEP_SUMMARY"
    [ ! -s "$STATE/problem" ] || exit 2
    exit "$status"
}

problem() {
    if [ -s "$STATE/problem" ]; then
        printf '%s' "$(<"$STATE/problem")"
    else
        printf 'the verification did not run to its end; the log says why'
    fi
}

# nothing_verified WHY: the outputs and the summary of a run without a report, and the status that means it.
nothing_verified() {
    set_output verdict ''
    set_output exit-code 2
    if [ "$(input summary)" = true ]; then
        # The text may quote an input: as an indented block, Markdown and HTML in it are inert.
        printf '## KV reuse: NOT VERIFIED\n\nNo valid report: this says nothing about the cache.\n\n    %s\n' "${1//$'\n'/ }" \
            >>"$GITHUB_STEP_SUMMARY"
    fi
    exit 2
}

cleanup() {
    stop_run 5
    remove_leftovers
    rm -rf "$STATE"
}

# The report's path as its readers know it: below the workspace where it lies there.
shown_path() {
    printf '%s/report.json' "${REPORT_DIRECTORY#"$GITHUB_WORKSPACE"/}"
}

main() {
    set_scene
    case ${1:-} in
        verify | conclude | cleanup) "$1" ;;
        *)
            printf 'usage: action.sh verify|conclude|cleanup\n' >&2
            exit 2
            ;;
    esac
}

# Sourced by a test, this file only defines its functions.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
