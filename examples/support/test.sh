# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by the examples' test.sh, which set program, folder, cache, device and failed=0.

# expect EXIT PATTERN... -- ARGUMENT...: runs it, and looks for every pattern in what it prints.
expect() {
    local exit=$1 patterns=() output status
    shift
    while [[ $1 != -- ]]; do patterns+=("$1"); shift; done
    shift
    output=$("$program" --device "$device" --cache "$cache" "$@" 2>"$folder/stderr")
    status=$?
    if [[ $exit -eq 2 && $(wc -l <"$folder/stderr") -ne 1 ]]; then
        printf 'FAILED: %s: not one line of message\n' "$*"
        failed=1
    fi
    output+=$(cat "$folder/stderr")
    if [[ $status -ne $exit ]]; then printf 'FAILED: %s: exit %d, expected %d\n%s\n' "$*" "$status" "$exit" "$output"; failed=1; fi
    for pattern in "${patterns[@]}"; do
        if ! grep -qE -e "$pattern" <<<"$output"; then
            printf 'FAILED: %s: no "%s" in\n%s\n' "$*" "$pattern" "$output"
            failed=1
        fi
    done
    printf 'ran: %s\n' "${*:-without arguments}"
}

# expect_full_disk ARGUMENT...: that its results cannot be written is an exit of 1 and one line.
expect_full_disk() {
    local status
    "$program" "$@" >/dev/full 2>"$folder/stderr"
    status=$?
    if [[ $status -ne 1 ]] || ! grep -q 'standard output: not all of it could be written: make room' "$folder/stderr" ||
        [[ $(wc -l <"$folder/stderr") -ne 1 ]]; then
        printf 'FAILED: %s >/dev/full: exit %d, %s\n' "$*" "$status" "$(cat "$folder/stderr")"
        failed=1
    fi
}

# check_timeline FILE OPTION...: see check_timeline.py.
check_timeline() {
    grep -q '"ph":"X"' "$1" || { echo 'FAILED: no timeline'; failed=1; }
    if ! command -v python3 >/dev/null; then
        echo "SKIPPED: no python3: the timeline $1 is not checked"
    elif ! python3 "$source/../support/check_timeline.py" "$@"; then
        echo "FAILED: the timeline $*"
        failed=1
    fi
}

# edited MODEL FILE SED-COMMAND: $bad becomes the model with another file.
bad=$folder/bad
edited() {
    rm -rf "$bad"
    mkdir "$bad"
    ln -s "$1"/* "$bad"
    rm "$bad/$2"
    sed "$3" "$1/$2" >"$bad/$2"
}
