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
    need libbenchmark-dev 'the benchmarks' has_package benchmark
    need nlohmann-json3-dev 'reads and writes JSON' has_package nlohmann_json
    need libcli11-dev 'reads command lines' has_package CLI11
    need libutf8proc-dev 'knows letters and accents, for the encoder' test -e /usr/include/utf8proc.h
    need libglpk-dev 'solves linear programs to compare bounds with' test -e /usr/include/glpk.h
    install_missing
}

# build PRESET TARGET...: configures and builds as much as possible, and shows the compiler's messages where that fails.
build() {
    local preset=$1 log
    shift
    mkdir -p build
    log=build/$preset.log
    printf 'building %s (%s) …\n' "$*" "$preset"
    if ! cmake --preset "$preset" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    sed -n 's/^-- residency: /cmake: /p' "$log"
    if ! cmake --build --preset "$preset" --target "$@" -- -k 0 >>"$log" 2>&1; then
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
    rm -f "$folder/junit.xml"
    ctest --test-dir "$folder" --parallel "$(nproc)" --output-junit junit.xml --no-tests=error --output-on-failure \
        --test-output-size-passed 1000000 --test-output-size-failed 10000000 "$@" >"$folder/ctest.log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        grep -vE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed |^ +Start +[0-9]+:' "$folder/ctest.log" || true
    fi
    awk -v "failed=$failed" -f tests/count.awk "$folder/junit.xml" || status=1
    return "$status"
}
