#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM: the mixture with raw experts and with packed ones. The program compares every result with that of its resident run.
set -uo pipefail
failed=0
for way in '' --packed; do
    "$1" $way || { echo "FAILED: $1 $way"; failed=1; }
done
exit "$failed"
