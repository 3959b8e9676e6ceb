# shellcheck shell=bash
# shellcheck disable=SC2034 # what is set here is read by the other files of the action
# Containers of the image: how each is confined, and how the one that verifies is stopped whatever happens.

# The options of every container: the runner's own user, nothing more than it needs, nothing kept.
confined() {
    printf '%s\n' --rm --label "$OWNER_LABEL" --user "$(container_user)" --read-only --cap-drop ALL \
        --security-opt no-new-privileges --pids-limit 8192 --tmpfs "/tmp:rw,exec,nosuid,nodev,mode=1777"
}

# Files that the container writes belong to whoever runs this. Under rootless Docker that user is the container's root.
container_user() {
    if [[ $(docker info --format '{{.SecurityOptions}}') == *name=rootless* ]]; then
        printf '0:0'
    else
        printf '%s:%s' "$(id -u)" "$(id -g)"
    fi
}

# in_image NAME ARGUMENT...: kvverify in a container of its own, without a network, with REPORT_MOUNTS.
in_image() {
    local name=$1 options
    shift
    mapfile -t options < <(confined)
    docker run "${options[@]}" --name "$CONTAINER-$name" --network none "${REPORT_MOUNTS[@]}" "$IMAGE_ID" "$@"
}

# Ask the image itself what can run here, with the GPUs it will have.
require_target() {
    local options gpus
    mapfile -t options < <(confined)
    mapfile -t gpus < <(gpu_options)
    quietly docker run "${options[@]}" "${gpus[@]}" --name "$CONTAINER-doctor" --network none "$IMAGE_ID" \
        doctor --device "$(input device)" ||
        refuse "nothing can be verified on this runner with device: $(input device); the lines above say why"
}

# time_limit: seconds that the run may take.
time_limit() {
    printf '%s' "$(($(input timeout-minutes) * 60))"
}

# start_run: the container that verifies, in the background, with its process in RUN_PID. Its standard input is a pipe that
# this script alone holds open: killed without a word, the script takes the container with it. A minute after the time
# limit it ends in any case, so that no GPU stays taken.
start_run() {
    local options gpus network=none limit=$(($(time_limit) + 60)) environment=()
    mapfile -t options < <(confined)
    mapfile -t gpus < <(gpu_options)
    if [ "$NEEDS_HUB" = true ]; then
        network=bridge
        # By name only: a value would stand in the process list.
        [ -z "$(input hf-token)" ] || environment+=(-e HF_TOKEN)
    else
        environment+=(-e HF_HUB_OFFLINE=1)
    fi
    rm -f "$STATE/lifeline"
    mkfifo "$STATE/lifeline"
    HF_TOKEN=$(input hf-token) docker run --interactive -e KVVERIFY_LIFELINE=1 "${options[@]}" "${gpus[@]}" "${environment[@]}" --name "$CONTAINER" \
        --network "$network" --shm-size 8g --entrypoint tini "${RUN_MOUNTS[@]}" "$IMAGE_ID" -s -- \
        timeout --signal=TERM --kill-after=60 "$limit" /opt/kvverify/container.sh \
        run --report=/report/report.json "${RUN_ARGUMENTS[@]}" <"$STATE/lifeline" &
    RUN_PID=$!
    exec 9>"$STATE/lifeline"
}

# stop_run SECONDS: kvverify gets the time to write its report as interrupted; then the container is removed.
stop_run() {
    docker stop --time "$1" "$CONTAINER" >/dev/null 2>&1 || true
    remove_container
}

# It is gone when this returns: Docker says "removal already in progress" and returns at once where --rm came first.
remove_container() {
    local attempt
    docker rm --force "$CONTAINER" >/dev/null 2>&1 || true
    for ((attempt = 0; attempt < 40; attempt++)); do
        docker container inspect "$CONTAINER" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
}

# Containers of an earlier job of this runner, which does one job at a time: they would hold the GPU.
remove_leftovers() {
    local left
    mapfile -t left < <(docker ps --all --quiet --filter "label=$OWNER_LABEL")
    ((${#left[@]} == 0)) || docker rm --force "${left[@]}" >/dev/null 2>&1 || true
}

# wait_for_run: the container's exit status in RUN_STATUS; past the time limit TIMED_OUT is true and it was stopped.
wait_for_run() {
    local timer
    TIMED_OUT=false RUN_STATUS=0
    sleep "$(time_limit)" 9>&- & # it outlives a killed script, and must not hold the pipe
    timer=$!
    # The wait ends when either does; a signal to this script ends it at once, for the trap.
    wait -n "$RUN_PID" "$timer" || RUN_STATUS=$?
    if kill -0 "$RUN_PID" 2>/dev/null; then
        TIMED_OUT=true
        stop_run 30
        wait "$RUN_PID" && RUN_STATUS=0 || RUN_STATUS=$?
    fi
    exec 9>&-
    kill "$timer" 2>/dev/null || true
    wait "$timer" 2>/dev/null || true
}
