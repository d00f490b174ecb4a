#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM FOLDER: what it writes is Prometheus's text format, and has what ran; what to change is said.
set -euo pipefail
program=$1 folder=$2 source=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
if ! command -v python3 >/dev/null; then
    printf 'SKIPPED: no python3: the text is not parsed\n'
    exit 77
fi
python3 "$source/check_exposition.py" --trips
"$program" >"$folder/metrics.txt" 2>"$folder/report.txt"
python3 "$source/check_exposition.py" 'residency_passes_total{kind="eager"}' 'residency_passes_total{kind="graph"}' \
    residency_copied_bytes_total residency_evicted_bytes_total residency_budget_bytes 'residency_stalls_total{cause="link"}' \
    'residency_stall_seconds_total{cause="link"}' <"$folder/metrics.txt"
grep -q '^residency_passes_total{kind="graph"} 5$' "$folder/metrics.txt"
grep -q '^residency_failures_total 0$' "$folder/metrics.txt"
grep -q 'more budget removes it' "$folder/report.txt"
