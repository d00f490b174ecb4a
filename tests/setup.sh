#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by examples/run, tests/run and .ci/run. Installs what is missing from the distribution's packages, each said in one line.

# As many jobs as there are cores: Ninja's one or two more take longer.
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

# The cmake package configuration of a library, wherever it is installed.
has_package() {
    local prefix
    for prefix in /usr{,/local}/{lib,lib/*,share}; do
        compgen -G "$prefix/cmake/$1*/$1*onfig.cmake" >/dev/null && return 0
    done
    return 1
}
has_command() { command -v "$1" >/dev/null; }
# The driver's device file, or its answer where files lie elsewhere (WSL).
has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || { has_command nvidia-smi && nvidia-smi -L >/dev/null 2>&1; }; }

missing=()
# need PACKAGE WHAT-FOR TEST...: note that PACKAGE is missing where TEST fails.
need() {
    local package=$1 reason=$2
    shift 2
    if ! "$@"; then
        printf 'missing: %s (%s)\n' "$package" "$reason"
        missing+=("$package")
    fi
}

# Installs what need() noted. Without apt, CMake fetches pinned releases of the libraries instead.
install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! has_command apt-get; then
        printf 'no apt-get: please install %s, and run this again\n' "${missing[*]}" >&2
        return 1
    fi
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        has_command sudo || { printf 'please install as root: %s\n' "${missing[*]}" >&2; return 1; }
        root=(sudo)
    fi
    printf 'installing: %s\n' "${missing[*]}"
    local log
    log=$(mktemp)
    if ! { "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        printf 'could not install: %s\n' "${missing[*]}" >&2
        return 1
    fi
    rm -f "$log"
    missing=()
}

# What both commands of the README need.
set_up() {
    need g++ 'the compiler' has_command c++
    need cmake 'configures the build' has_command cmake
    need ninja-build 'runs the build' has_command ninja
    need doctest-dev 'the tests' has_package doctest
    need nlohmann-json3-dev 'reads and writes JSON' has_package nlohmann_json
    need libcli11-dev 'reads command lines' has_package CLI11
    need libutf8proc-dev 'knows letters and accents, for the encoder' test -e /usr/include/utf8proc.h
    need libglpk-dev 'solves linear programs to compare bounds with' test -e /usr/include/glpk.h
    install_missing
}

# progress WHAT LOG: copies what Ninja or CTest says to LOG, and says how far it is: in a line that changes on a terminal, else once a minute.
progress() {
    local what=$1 log=$2 line begin=$SECONDS next=$((SECONDS + 60)) far='' unit=''
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        if [[ $line =~ ^\[([0-9]+/[0-9]+)\]\ (.*) ]]; then  # Ninja
            far=${BASH_REMATCH[1]} unit=${BASH_REMATCH[2]##*/}
        elif [[ $line =~ ^\ *([0-9]+/[0-9]+)\ Test\ +\#[0-9]+:\ ([^ ]+) ]]; then  # CTest
            far=${BASH_REMATCH[1]} unit=${BASH_REMATCH[2]}
        else
            continue
        fi
        if [ -t 1 ]; then
            printf '\r\033[K%s %s, %d s: %.50s' "$what" "$far" $((SECONDS - begin)) "$unit"
        elif [ "$SECONDS" -ge "$next" ]; then
            printf '%s %s, %d s\n' "$what" "$far" $((SECONDS - begin))
            next=$((SECONDS + 60))
        fi
    done
    [ ! -t 1 ] || printf '\r\033[K'
    printf '%s %s, %d s: done\n' "$what" "${far:-nothing}" $((SECONDS - begin))
}

# build PRESET TARGET [CMAKE-ARGUMENT...]: configures and builds as much as possible, and shows the compiler's messages where that fails.
build() {
    local preset=$1 target=$2 log
    shift 2
    mkdir -p build
    log=build/$preset.log
    if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    sed -n 's/^-- residency: /cmake: /p' "$log"
    if ! cmake --build --preset "$preset" --target "$target" -- -k 0 2>&1 | progress "building $target ($preset)" "$log"; then
        grep -vE '^\[[0-9]+/[0-9]+\]' "$log" | grep -E -A 3 'error:|Error|undefined reference|^FAILED: ' | head -n 200
        printf 'the build failed; all of its output is in %s\n' "$log"
        return 1
    fi
}

# run_tests PRESET FAILED CTEST-ARGUMENT...: runs ctest, shows the output of what fails and a table, and last
# `N passed, N failed`, where FAILED failures from before are counted too.
run_tests() {
    local folder=build/$1 failed=$2 status=0
    shift 2
    rm -f "$folder/junit.xml" "$folder/ctest.log"
    ctest --test-dir "$folder" --parallel "$(nproc)" --output-junit junit.xml --no-tests=error --output-on-failure \
        --test-output-size-passed 1000000 --test-output-size-failed 10000000 "$@" 2>&1 | progress tests "$folder/ctest.log" || status=$?
    if [ "$status" -ne 0 ]; then
        grep -vE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed |^ +Start +[0-9]+:' "$folder/ctest.log" || true
    fi
    awk -v "failed=$failed" -f tests/count.awk "$folder/junit.xml" || status=1
    return "$status"
}
