#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM FOLDER: what the program says to bad input; and where python3, or the one that RESIDENCY_TORCH_PYTHON names, has the
# PyTorch of requirements.txt, the whole way: a model is exported on the CPU, and runs on the simulated device at several budgets.
set -uo pipefail
program=$1 folder=$2 source=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder"
failed=0

expect() {  # EXIT PATTERN ARGUMENT...
    local exit=$1 pattern=$2 output status
    shift 2
    output=$("$program" "$@" 2>&1)
    status=$?
    if [[ $status -ne $exit ]] || ! grep -qE -e "$pattern" <<<"$output"; then
        printf 'FAILED: %s: exit %d, expected %d and "%s" in\n%s\n' "$*" "$status" "$exit" "$pattern" "$output"
        failed=1
    fi
    printf 'ran: %s\n' "$*"
}
expect 2 'model'
expect 2 'program.residency" *: cannot be opened|program.residency.*No such file' "$folder/none"
mkdir "$folder/bad"
echo 'no program' >"$folder/bad/program.residency"
expect 2 'program.residency' "$folder/bad"

python=${RESIDENCY_TORCH_PYTHON:-python3}
if ! "$python" -c 'import torch, safetensors; assert torch.__version__.startswith("2.11.")' 2>/dev/null; then
    echo "SKIPPED: no PyTorch 2.11 and safetensors in $python: no model was exported (examples/50_compiled/requirements.txt)"
    exit "$failed"
fi
"$python" "$source/test_export.py" "$folder/model" || { echo 'FAILED: the export'; exit 1; }
torch=$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
for model in "$folder"/model/*/; do
    expect 0 'outputs equal those of the packages without the library bit for bit' "$model" --torch "$torch" --rounds 2
done
expect 2 'has no method "fly"' "$folder/model/markers" --torch "$torch" --method fly
exit "$failed"
