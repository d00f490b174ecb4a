#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# alone.sh LIST COMPILER FLAG...: every header of the list compiles by itself, and twice in one file.
set -euo pipefail
list=$1
shift
alone() {
    local header=$1
    shift
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" | "$@" -fsyntax-only -x c++ - || { printf 'not alone: %s\n' "$header"; return 1; }
}
export -f alone
printf '%d headers\n' "$(wc -l <"$list")"
xargs -P "$(nproc)" -I '{}' bash -c 'alone "$@"' bash '{}' "$@" <"$list"
