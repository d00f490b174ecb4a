#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# 01_minimal.sh PROGRAM FOLDER: what it prints for a small model, and that it refuses what it cannot do.
set -uo pipefail
program=$1
fixtures=$(dirname "$0")/../tests/fixtures/safetensors

output=$("$program" "$fixtures/every_dtype.safetensors" 0 2>&1)
status=$?
printf '%s\n' "$output"
if [[ $program == *cuda && $status -ne 0 && $output =~ (GPU|driver) ]]; then exit 77; fi
[[ $status -eq 0 && $output =~ ^[1-9][0-9]*\ bytes\ held,\ [0-9]+\ copied\ a\ pass$ ]] || exit 1

refuses() {  # pattern argument...
    local pattern=$1
    shift
    output=$("$program" "$@" 2>&1)
    status=$?
    printf '%s\n' "$output"
    [[ $status -eq 2 && $output =~ $pattern ]] || { printf 'FAILED: exit %d, expected 2 and %s\n' "$status" "$pattern"; exit 1; }
}
refuses 'usage: minimal MODEL BUDGET'
refuses 'minimal: .*cannot be opened' "$fixtures/none.safetensors" 0
refuses 'minimal: .*below the smallest that works' "$fixtures/every_dtype.safetensors" 1
refuses 'minimal: budget' "$fixtures/every_dtype.safetensors" much
