# shellcheck shell=bash
# shellcheck disable=SC2034 # what is set here is read by the other files of the action
# The action's inputs, from KVV_* in the environment: refused where kvverify would refuse them, before an image is pulled,
# and turned into arguments and mounts. No input is ever evaluated, and each reaches a command as one word behind its option.

RUN_ARGUMENTS=() # of kvverify run, as seen inside the container
RUN_MOUNTS=()    # of docker run

readonly INPUT_NAMES=(
    suite model model-revision tokenizer tokenizer-revision kv-connector native-prefix-caching lmcache-config
    compare-native fixture prompt-format reuse-counts max-tokens seed dtype gpu-memory-utilization max-model-len
    block-size chunk-size tenant device image gpus model-cache hf-token timeout-minutes gate allow-inconclusive summary
    annotations report-directory artifact-name
)

# input NAME: its value, from KVV_NAME in capitals and underscores.
input() {
    local variable=KVV_${1//-/_}
    variable=${variable^^}
    printf '%s' "${!variable-}"
}

# An input that GitHub hands over with control characters was built from something that nobody meant as an option.
check_plain() {
    local name value
    for name in "${INPUT_NAMES[@]}"; do
        value=$(input "$name"; printf .)
        case ${value%.} in
            *[[:cntrl:]]*) refuse "input $name holds a line break or another control character" ;;
        esac
    done
}

# one_of NAME VALUE...: the input is one of the values.
one_of() {
    local name=$1 value choice
    value=$(input "$name")
    shift
    for choice in "$@"; do
        [ "$value" != "$choice" ] || return 0
    done
    refuse "input $name is '$value'; choose one of: $*"
}

# whole_number NAME MINIMUM MAXIMUM: the input is one, or empty.
whole_number() {
    local value
    value=$(input "$1")
    [ -n "$value" ] || return 0
    if ! [[ $value =~ ^(0|[1-9][0-9]{0,9})$ ]] || ((value < $2 || value > $3)); then
        refuse "input $1 is '$value'; write a whole number from $2 to $3"
    fi
}

check_choices() {
    one_of suite standard smoke acceptance
    one_of kv-connector LMCacheConnectorV1 none
    one_of native-prefix-caching '' true false
    one_of compare-native true false
    one_of prompt-format '' raw chat both
    one_of device cuda cpu
    one_of dtype float16 bfloat16 float32
    one_of gate verdict acceptance
    one_of allow-inconclusive true false
    one_of summary true false
    one_of annotations true false
}

check_numbers() {
    local share
    whole_number max-tokens 1 999999999
    whole_number seed 0 4294967295
    whole_number max-model-len 1 999999999
    whole_number block-size 1 999999999
    whole_number chunk-size 1 999999999
    whole_number timeout-minutes 1 1440
    [ -n "$(input timeout-minutes)" ] || refuse "input timeout-minutes is empty; name the minutes after which to stop"
    share=$(input gpu-memory-utilization)
    if ! [[ $share =~ ^0?\.[0-9]*[1-9][0-9]*$ || -z $share ]]; then
        refuse "input gpu-memory-utilization is '$share'; write a number between 0 and 1, both excluded"
    fi
    check_reuse_counts
}

check_reuse_counts() {
    local value part seen=,
    value=$(input reuse-counts)
    [ -n "$value" ] || return 0
    [[ $value =~ ^[0-9]+(,[0-9]+)*$ ]] || refuse "input reuse-counts is '$value'; write for instance 1,3"
    while read -rd, part; do
        [[ $part =~ ^[1-9][0-9]{0,8}$ ]] || refuse "input reuse-counts: '$part' is not a positive whole number"
        [[ $seen != *,$part,* ]] || refuse "input reuse-counts names $part twice"
        seen+=$part,
    done <<<"$value,"
}

check_names() {
    [[ $(input tenant) =~ ^[A-Za-z0-9._-]{0,64}$ ]] ||
        refuse "input tenant is '$(input tenant)'; use at most 64 letters, digits, dot, dash and underscore"
    [[ $(input image) =~ ^([a-zA-Z0-9][a-zA-Z0-9._/:@-]*)?$ ]] ||
        refuse "input image is '$(input image)', which names no image"
    [[ $(input gpus) =~ ^(all|[1-9][0-9]*|device=[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*|none)?$ ]] ||
        refuse "input gpus is '$(input gpus)'; write all, a number, device=0,1 or none"
    [[ $(input hf-token) =~ ^[[:graph:]]*$ ]] || refuse "input hf-token holds a space"
    if [[ $(input artifact-name) =~ [\"\<\>:\|*?\\/] ]]; then
        refuse "input artifact-name holds one of the characters \" < > : | * ? \\ / that GitHub refuses"
    fi
}

# Which inputs go together: what kvverify run would say first, in this order.
check_target() {
    local suite connector device
    suite=$(input suite) connector=$(input kv-connector) device=$(input device)
    if [ "$suite" = acceptance ]; then
        [ -n "$(input fixture)" ] || refuse "suite acceptance needs input fixture"
        [ "$(input compare-native)" = true ] || refuse "suite acceptance needs compare-native: true"
        [ "$connector" != none ] || refuse "suite acceptance needs kv-connector: LMCacheConnectorV1"
        [ -z "$(input prompt-format)$(input reuse-counts)" ] ||
            refuse "suite acceptance: the fixture says how prompts are made and reused; leave out prompt-format and reuse-counts"
    else
        [ -z "$(input fixture)" ] || refuse "input fixture belongs to suite acceptance"
        [ "$(input compare-native)" = false ] || refuse "input compare-native belongs to suite acceptance"
        [ "$(input gate)" = verdict ] || refuse "gate acceptance needs suite acceptance"
    fi
    if [ "$connector" = none ]; then
        [ -z "$(input lmcache-config)" ] || refuse "input lmcache-config needs kv-connector: LMCacheConnectorV1"
    else
        [ -n "$(input lmcache-config)" ] || refuse "kv-connector: $connector needs input lmcache-config"
        [ "$(input native-prefix-caching)" != true ] ||
            refuse "native-prefix-caching together with a connector tests two caches at once, so that neither is isolated"
        [ "$device" != cpu ] || refuse "kv-connector: $connector needs device: cuda"
    fi
}

# in_workspace PATH: as it is where it is absolute, else below the workspace.
in_workspace() {
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s' "$GITHUB_WORKSPACE/$1" ;;
    esac
}

# mount_option SOURCE TARGET [readonly]: the value of docker's --mount, which is CSV: a path may hold commas and quotes.
mount_option() {
    printf 'type=bind,"source=%s",target=%s%s' "${1//\"/\"\"}" "$2" "${3:+,$3}"
}

# add_weights model|tokenizer: a folder of the runner is mounted, a name of the hub goes along with its commit.
add_weights() {
    local part=$1 name revision folder
    name=$(input "$part") revision=$(input "$part-revision")
    if [ -z "$name" ]; then
        [ "$part" = tokenizer ] || refuse "input model is empty"
        [ -z "$revision" ] || refuse "input tokenizer-revision needs input tokenizer"
        return 0
    fi
    folder=$(in_workspace "$name")
    if [ -d "$folder" ]; then
        [ -z "$revision" ] || refuse "input $part-revision: $name is a folder, which has no revision; it is hashed"
        RUN_MOUNTS+=(--mount "$(mount_option "$folder" "/mnt/$part" readonly)")
        RUN_ARGUMENTS+=("--$part=/mnt/$part")
        return 0
    fi
    [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+$ ]] ||
        refuse "input $part: '$name' is no folder of the runner and no organisation/name of the model hub"
    [[ $revision =~ ^[0-9a-f]{40}$ ]] ||
        refuse "input $part-revision: give the commit of $name, 40 lower-case hexadecimal digits; branches and tags can move"
    NEEDS_HUB=true
    RUN_ARGUMENTS+=("--$part=$name" "--$part-revision=$revision")
}

# add_file NAME TARGET: a file of the workspace, or one that this action ships in fixtures/.
add_file() {
    local name=$1 target=$2 value file
    value=$(input "$name")
    [ -n "$value" ] || return 0
    file=$(in_workspace "$value")
    if [ ! -f "$file" ] && [[ $value != */* ]] && [ -f "$ACTION_ROOT/fixtures/$value" ]; then
        file=$ACTION_ROOT/fixtures/$value
    fi
    [ -f "$file" ] || refuse "input $name: there is no file '$value' in the workspace or among the fixtures of this action"
    RUN_MOUNTS+=(--mount "$(mount_option "$file" "$target" readonly)")
    RUN_ARGUMENTS+=("--$name=$target")
}

# add_plain NAME...: inputs that are options of kvverify run as they are; an empty one leaves kvverify's default.
add_plain() {
    local name value
    for name in "$@"; do
        value=$(input "$name")
        [ -z "$value" ] || RUN_ARGUMENTS+=("--$name=$value")
    done
}

# Every input checked, then RUN_ARGUMENTS, RUN_MOUNTS and NEEDS_HUB filled.
read_inputs() {
    check_plain
    check_choices
    check_numbers
    check_names
    check_target
    NEEDS_HUB=false
    RUN_ARGUMENTS=() RUN_MOUNTS=()
    add_weights model
    add_weights tokenizer
    add_file lmcache-config /mnt/lmcache.yaml
    add_file fixture /mnt/fixture.json
    add_plain suite kv-connector prompt-format reuse-counts max-tokens seed device dtype gpu-memory-utilization \
        max-model-len block-size chunk-size tenant
    case $(input native-prefix-caching) in
        true) RUN_ARGUMENTS+=(--native-prefix-caching) ;;
        false) RUN_ARGUMENTS+=(--no-native-prefix-caching) ;;
    esac
    [ "$(input compare-native)" = false ] || RUN_ARGUMENTS+=(--compare-native)
    check_spans
}

# The chunk size is the probes' span, which whole blocks must fill.
check_spans() {
    local chunk block
    chunk=$(input chunk-size) block=$(input block-size)
    if [ -n "$chunk" ] && ((chunk % ${block:-16} != 0)); then
        refuse "input chunk-size $chunk is no multiple of block-size ${block:-16}"
    fi
}
