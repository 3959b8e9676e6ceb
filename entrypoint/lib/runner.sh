# shellcheck shell=bash
# shellcheck disable=SC2034 # what is set here is read by the other files of the action
# The runner before a container starts: is Docker there, does it give out GPUs, is there room, which image.

readonly GPU_IMAGE_GIB=25 # while it is pulled: layers, compressed and unpacked
readonly CPU_IMAGE_GIB=8
readonly IMAGE_FILE=entrypoint/image.digest

require_docker() {
    local answer
    command -v docker >/dev/null || refuse "this runner has no docker command; install Docker Engine on it"
    answer=$(docker version --format '{{.Server.Version}}' 2>&1) ||
        refuse "Docker does not answer on this runner: $answer; start it, and let the runner's user use its socket"
    printf 'Docker %s\n' "$answer"
}

# gpu_options: what docker run needs for the GPUs that were asked for, one word a line.
gpu_options() {
    local gpus
    gpus=$(input gpus)
    [ "$(input device)" = cuda ] && [ -n "$gpus" ] && [ "$gpus" != none ] || return 0
    case $gpus in
        device=*) printf -- '--gpus\n"%s"\n' "$gpus" ;; # quotes of docker's own: the list holds commas
        *) printf -- '--gpus\n%s\n' "$gpus" ;;
    esac
}

# Ask Docker for the GPUs before gigabytes are pulled, with an image of nothing. Whatever else goes wrong with that image
# is no news: only Docker's word that it has no GPU to give counts.
require_gpus() {
    local options probe answer
    mapfile -t options < <(gpu_options)
    ((${#options[@]})) || return 0
    probe=$(tar -c -f - -T /dev/null | docker import - 2>&1) || return 0
    answer=$(docker run --rm --name "$CONTAINER-gpu" --network none "${options[@]}" "$probe" /nothing 2>&1) || true
    # A container that never started is not removed by --rm.
    docker rm --force "$CONTAINER-gpu" >/dev/null 2>&1 || true
    docker image rm "$probe" >/dev/null 2>&1 || true
    case $answer in
        *'could not select device driver'* | *'failed to discover GPU'* | *'nvidia-container-cli: initialization error'*)
            refuse "Docker on this runner gives out no GPU (${answer//$'\n'/ }); install the NVIDIA driver and the NVIDIA Container Toolkit, or set device: cpu"
            ;;
    esac
}

# default_image: this action's own image, by the digest that the release recorded beside it.
default_image() {
    local repository=${ACTION_REPOSITORY:-$GITHUB_REPOSITORY} digest=
    [ ! -f "$ACTION_ROOT/$IMAGE_FILE" ] || digest=$(tr -d '[:space:]' <"$ACTION_ROOT/$IMAGE_FILE")
    [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || return 1
    printf 'ghcr.io/%s@%s' "${repository,,}" "$digest"
}

# Sets IMAGE to what was asked for, or to the default.
choose_image() {
    IMAGE=$(input image)
    [ -n "$IMAGE" ] || IMAGE=$(default_image) ||
        refuse "this ref of the action records no released image; use a release, or name one with input image"
}

have_image() {
    docker image inspect "$IMAGE" >/dev/null 2>&1
}

# Where the image has to be pulled: is there room for it where Docker keeps images?
require_disk() {
    local folder free needed=$CPU_IMAGE_GIB
    [ "$(input device)" = cpu ] || needed=$GPU_IMAGE_GIB
    folder=$(docker info --format '{{.DockerRootDir}}')
    free=$(df --output=avail -k "$folder" 2>/dev/null | tail -n 1) || return 0 # a daemon elsewhere: nothing to look at
    ((free >= needed << 20)) ||
        refuse "Docker's folder $folder has $((free >> 20)) GiB free and the image needs $needed; run docker system prune, or enlarge the disk"
}

pull_image() {
    local answer
    printf 'pulling %s\n' "$IMAGE"
    answer=$(docker pull --quiet "$IMAGE" 2>&1) ||
        refuse "the image $IMAGE cannot be pulled: ${answer//$'\n'/ }; check the reference, and the login where it is private"
}

# obtain_image: a local image is used as it is, and named by what it is rather than by a tag that can move.
obtain_image() {
    if ! have_image; then
        require_disk
        pull_image
    fi
    IMAGE_ID=$(docker image inspect --format '{{.Id}}' "$IMAGE")
    IMAGE_DIGEST=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$IMAGE" | head -n 1)
    IMAGE_DIGEST=${IMAGE_DIGEST:-$IMAGE_ID}
    printf 'image %s is %s\n' "$IMAGE" "$IMAGE_DIGEST"
    case $IMAGE in
        *@sha256:*) ;;
        *) annotate notice kvverify "the image $IMAGE is named by a tag, which can move; this run used $IMAGE_DIGEST" ;;
    esac
}
