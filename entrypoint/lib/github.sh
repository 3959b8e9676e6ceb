# shellcheck shell=bash
# Talking to GitHub: workflow commands, outputs, the step summary. Nothing here runs anything.

# A workflow command's data and properties, escaped so that no text can end the command or begin another.
escape_data() {
    local text=$1
    text=${text//'%'/%25}
    text=${text//$'\r'/%0D}
    text=${text//$'\n'/%0A}
    printf '%s' "$text"
}

escape_property() {
    local text
    text=$(escape_data "$1")
    text=${text//:/%3A}
    printf '%s' "${text//,/%2C}"
}

# annotate error|warning|notice TITLE TEXT
annotate() {
    printf '::%s title=%s::%s\n' "$1" "$(escape_property "$2")" "$(escape_data "$3")"
}

# refuse PROBLEM: says what is wrong, where people look, and ends with the status of "nothing was verified".
refuse() {
    [ -z "${STATE:-}" ] || printf '%s\n' "$1" >"$STATE/problem"
    annotate error kvverify "$1"
    exit 2
}

# set_output NAME VALUE: a value with a line break would let its author set any other output.
set_output() {
    case $2 in
        *$'\n'* | *$'\r'*) refuse "the output $1 would hold a line break" ;;
    esac
    printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"
}

# quietly COMMAND...: runs it while GitHub reads no workflow command out of its output, which engines and models write.
quietly() {
    local token status=0
    token=$(random_word)
    printf '::stop-commands::%s\n' "$token"
    "$@" || status=$?
    printf '\n::%s::\n' "$token"
    return "$status"
}

random_word() {
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}
