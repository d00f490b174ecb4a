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
if ! "$python" -c 'import sys; sys.path.append(sys.argv[1]); import safetensors, versions; sys.exit(versions.version_refused())' \
    "$source/residency_export" 2>/dev/null; then
    echo "SKIPPED: no PyTorch that the export takes, and safetensors, in $python: no model was exported (examples/50_compiled/requirements.txt)"
    exit "$failed"
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}  # the models are too small for more
"$python" -W ignore "$source/test_export.py" "$folder/model" || { echo 'FAILED: the export'; exit 1; }
torch=$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
for model in "$folder"/model/*/; do
    expect 0 'outputs equal those of the packages without the library bit for bit' "$model" --torch "$torch" --rounds 2
done
expect 0 'stored: the stored budget 50% ' "$folder/model/markers" --torch "$torch" --rounds 1 --budget 100%,stored \
    --timeline "$folder/timeline.json" --report "$folder/run.html" --json "$folder/figures.json"
for part in "<title>compiled: $folder/model/markers" 'What to change' 'b.1.up.weight' '</html>'; do
    grep -q "$part" "$folder/run.html" || { echo "FAILED: no $part in the report"; failed=1; }
done
"$python" "$source/../support/check_timeline.py" "$folder/timeline.json" --copies b.1.up.weight || { echo 'FAILED: the timeline'; failed=1; }
grep -q 'cpp_fused_.*"note": *"cpp_fused_[^"]*(.*b\.1' "$folder/timeline.json" || { echo 'FAILED: no kernel with its module in the timeline'; failed=1; }
"$python" - "$folder/figures.json" <<'END' || { echo 'FAILED: the figures'; failed=1; }
import json, sys
figures = json.load(open(sys.argv[1]))
runs = {(run["budget"], run["method"]): run for run in figures["runs"]}
assert set(runs) == {(b, m) for b in ("none", "100%", "stored") for m in ("prefill", "decode")}, runs.keys()
assert all(run["right"] for run in runs.values()) and not figures["left_out"] and not figures["refused"], figures
assert runs["100%", "decode"]["copied_bytes"] == 0 < runs["stored", "decode"]["copied_bytes"]
assert all(run["driver_bytes"] == run["held_bytes"] <= run["budget_bytes"] for (b, _), run in runs.items() if b != "none"), figures
END
expect 0 'decode, stored, chosen: in a run of .* steps waited .* MiB hold what is streamed' "$folder/model/markers" --torch "$torch" --rounds 1 \
    --budget 100%,stored --waits --json "$folder/waits.json"
expect 0 'from the folder to the first outputs of prefill: ' "$folder/model/markers" --torch "$torch" --first --budget 100% --json "$folder/first.json"
expect 0 'total of 40.0 MiB to 60.0 MiB: .* more than [0-9]+ rounds take' "$folder/model/markers" --beside "$folder/model/elsewhere" --torch "$torch" --rounds 1 \
    --total 40MiB,60MiB,40MiB --json "$folder/totals.json"
"$python" - "$folder" <<'END' || { echo 'FAILED: the figures of waits, of the first outputs or of a total'; failed=1; }
import json, sys
waits, first, totals = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("waits", "first", "totals"))
for run in waits["runs"]:
    assert ("why" in run) == (run["copied_bytes"] > 0), run
    why = run.get("why")
    if why and why["waits"] > 0:
        assert 0 < why["longest_milliseconds"] <= why["waited_milliseconds"] and why["step"].split(",")[0] in why["text"] and why["cause"], why
assert any(run["why"]["waits"] > 0 for run in waits["runs"] if "why" in run), waits
assert first["first"]["method"] == "prefill" and first["first"]["run_milliseconds"] > 0 and first["first"]["hashes"], first
assert [each["total_bytes"] >> 20 for each in totals["totals"]] == [60, 40] and all(each["right"] and each["rounds"] > 0 for each in totals["totals"]), totals
END
expect 2 'give two totals at least' "$folder/model/markers" --beside "$folder/model/elsewhere" --torch "$torch" --total 40MiB
expect 0 'refused: the load-time budget 1% .* is below the smallest that works' "$folder/model/markers" --torch "$torch" --rounds 1 --budget 1%,100%
expect 2 '^compiled: --graph: the model was compiled for the CPU' "$folder/model/markers" --torch "$torch" --graph
expect 2 'has no method "fly"' "$folder/model/markers" --torch "$torch" --method fly

# The same through ExecuTorch's CUDA backend, for the CPU, where the package is there.
if "$python" -c 'import importlib.metadata as m; assert m.version("executorch").startswith("1.5.") and m.version("torch").startswith("2.11.")' 2>/dev/null; then
    "$python" -W ignore "$source/test_executorch.py" "$folder/executorch" || { echo 'FAILED: the export through ExecuTorch'; failed=1; }
    expect 0 'outputs equal those of the packages without the library bit for bit' "$folder/executorch/model" --torch "$torch" --rounds 1
    expect 0 'stored: the stored budget 75% ' "$folder/executorch/model" --torch "$torch" --rounds 1 --budget stored
    expect 2 'libaoti_cuda_shims.so" cannot be loaded' "$folder/executorch/model" --shims "$folder/libaoti_cuda_shims.so"
else
    echo "SKIPPED: no ExecuTorch 1.5 and PyTorch 2.11 in $python: nothing was exported through it (examples/50_compiled/requirements-executorch.txt)"
fi

# The commands of docs/compiled.md, from its first export on, and the messages that it quotes.
root=$(cd "$source/../.." && pwd)
mkdir -p "$folder/page/build/release"
ln -s "$root/examples" "$root/tests" "$folder/page"
ln -s "$(cd "$(dirname "$program")" && pwd)" "$folder/page/build/release/bin"
ln -s "$("$python" -c 'import sys; print(sys.prefix)')" "$folder/page/torch"
commands=$(awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/docs/compiled.md" | sed -n '/compiled.py model/,$p')
if ! ls -d "$folder"/page/torch/lib/python3*/site-packages/torch >/dev/null 2>&1; then
    echo "SKIPPED: the commands of docs/compiled.md: $python is not in a virtual environment with PyTorch"
    commands=
elif [[ $(wc -l <<<"$commands") -lt 4 ]]; then
    echo 'FAILED: the page has lost its commands'
    failed=1
fi
while read -r command; do
    [[ -n $command ]] || continue
    if [[ ! -x $folder/page/${command%% *} ]]; then
        printf 'SKIPPED: %s: it was not built\n' "$command"
        continue
    fi
    (cd "$folder/page" && bash -c "$command" </dev/null) >"$folder/page/output" 2>&1 || { printf 'FAILED: %s\n%s\n' "$command" "$(cat "$folder/page/output")"; failed=1; }
    printf 'ran: %s\n' "$command"
done <<<"$commands"
messages=$(sed -nE '/^## When it refuses/,/^## Limits/s/^\| `([^`]+)` .*/\1/p' "$root/docs/compiled.md")
[[ $(wc -l <<<"$messages") -ge 10 ]] || { echo 'FAILED: the page has lost its messages'; failed=1; }
while read -r message; do
    grep -rqF -e "$message" "$root/include/residency" "$source/residency_export" || { printf 'FAILED: nothing says "%s"\n' "$message"; failed=1; }
done <<<"$messages"
# What the export takes from PyTorch's insides stands in the page's list.
insides=$(sed -nE 's/^from torch\.(_|fx)\S* import //p' "$source"/residency_export/*.py | tr -d , | tr ' ' '\n'
    grep -ohE '\b(V|CppWrapperCpu|PythonWrapperCodegen|CudaBackend|CudaWeightCollector)\.\w+(\.\w+)?' "$source"/residency_export/*.py | tr . '\n')
[[ $(wc -l <<<"$insides") -ge 40 ]] || { echo 'FAILED: the insides that the export takes were not found'; failed=1; }
list=$(sed -n '/^## What the export reads of the compiler/,/^## Probes/p' "$root/docs/compiled.md")
for inside in $(sort -u <<<"$insides"); do
    grep -qE "\\b$inside\\b" <<<"$list" || { printf 'FAILED: docs/compiled.md does not list %s\n' "$inside"; failed=1; }
done
exit "$failed"
