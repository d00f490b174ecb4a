#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM FOLDER: which budgets residency-lab takes, and that what it does not understand ends it: one line, and 2.
set -uo pipefail
program=$1
folder=$2
mkdir -p "$folder"
trace="$folder/small.csv"
for i in $(seq 0 199); do printf '%d,%d\n' $((i * i % 17)) 1000; done > "$trace"

fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
cache() { "$program" cache --trace "$trace" --format csv --object-column 1 --bytes-column 2 --policy lru --csv "$@"; }

# The same budget in other words gives the same rows but for those words; several at once; more than everything is everything.
rows() { cache "--budget=$1" 2> "$folder/errors" || fail "$1: $(cat "$folder/errors")"; }
[[ $(rows 4000) == "$(rows 4kB)" ]] || fail "4kB is not 4000"
[[ $(rows 100%) == "$(rows 18446744073709551615%)" ]] || fail "more than all weights is not all"
[[ $(rows 4000,50% | wc -l) -eq $(($(rows 4000 | wc -l) + 1)) ]] || fail "two budgets are not two rows"
[[ $(rows 2000) != "$(rows 8000)" ]] || fail "the budget makes no difference"

refuses() {  # text pattern
    local command
    for command in cache run; do
        if [[ $command == cache ]]; then
            output=$(cache "--budget=$1" 2>&1 >"$folder/output")
        else
            output=$("$program" run --workload draft-and-target --passes 1 "--budget=$1" 2>&1 >"$folder/output")
        fi
        status=$?
        [[ $status -eq 2 ]] || fail "$command --budget=$1: exit $status, expected 2: $output"
        [[ ! -s "$folder/output" ]] || fail "$command --budget=$1 prints something"
        [[ $output == residency-lab:* && $output != *$'\n'* ]] || fail "$command --budget=$1: not one line: $output"
        [[ $output == *"$2"* ]] || fail "$command --budget=$1: no $2 in: $output"
    done
}
refuses '' '--budget: 1 required TEXT missing'
refuses ' ' 'found " "'
refuses ' 8' 'found " 8"'
refuses '8 GiB' 'found " GiB"'
refuses '-1' 'no budget is negative'
refuses '+8' 'found "+8"'
refuses '8G' 'found "G"'
refuses '8gib' 'found "gib"'
refuses '8GiB;' 'found "GiB;"'
refuses '0x10' 'found "x10"'
refuses '2.5GiB' 'found ".5GiB"'
refuses '60%%' 'found "%%"'
refuses '60%freeze' 'found "%freeze"'
refuses '101%free' 'at most 100%free'
refuses 'Auto' 'expected digits'
refuses '18446744073709551616' 'beyond 64 bits'
refuses '16777216TiB' 'beyond 64 bits'
refuses '25%,8 GiB' 'found " GiB"'
# Without a GPU: what needs one says so.
if ! nvidia-smi -L > /dev/null 2>&1; then
    for option in '--link measured' '--device cuda'; do
        # shellcheck disable=SC2086
        output=$("$program" run --workload draft-and-target --passes 1 $option 2>&1 >"$folder/output")
        status=$?
        [[ $status -eq 2 ]] || fail "$option: exit $status, expected 2: $output"
        [[ $output == "residency-lab: $option needs a GPU: "* && $output != *$'\n'* ]] || fail "$option: $output"
    done
fi
pcie() { "$program" run --workload draft-and-target --policy planned --passes 1 --budget 25% --csv "$@" | grep planned | cut -d, -f5; }
[[ $(pcie --link pcie3) > $(pcie) ]] || fail "a slower link is not slower"

refuses 'auto' 'there is no device'
refuses '60%free' 'there is no device'
echo "residency-lab: fine"
