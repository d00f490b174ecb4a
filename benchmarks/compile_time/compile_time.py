#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What a file costs to compile that uses the library: user seconds and peak memory, each beside a unit that is compiled in the same
turn. For g++ and clang the unit is json.cpp (nlohmann/json's parse and dump), for nvcc it is thrust.cu.

    compile_time.py [--turns N] [CASE ...]      by default all cases, one turn; --list names them

`.ci/measure compile` records medians of several turns in benchmarks/results/cpu-compile.json. CXX and NVCC name the compilers; without
nvcc or without the CUDA headers its cases are left out."""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path("benchmarks/compile_time")
CXX = os.environ.get("CXX", "c++")
NVCC = os.environ.get("NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
CUDA = pathlib.Path(os.path.realpath(NVCC)).parents[1] if shutil.which(NVCC) else None

COMPILED = ["-DRESIDENCY_HEADER_ONLY=0"]  # as a program that links residency::compiled
LRU = HERE / "lru.cpp"


def cxx(source, *flags):
    return [CXX, "-std=c++20", "-Iinclude", *flags, "-c", source]


def nvcc(source):
    return [NVCC, "-std=c++20", "-arch=sm_90", "-Iinclude", "-c", source]


def cases():
    """{name: (command, its unit's name or None)}. The units come first."""
    found = {}
    for level in ("O0", "O2"):
        found[f"json.{level}"] = (cxx(HERE / "json.cpp", f"-{level}"), None)
    for level in ("O0", "O2"):
        unit = f"json.{level}"
        found[f"umbrella.{level}"] = (cxx(HERE / "umbrella.cpp", f"-{level}"), unit)
        found[f"lru.{level}"] = (cxx(LRU, f"-{level}"), unit)
        found[f"planned.{level}"] = (cxx(HERE / "planned.cpp", f"-{level}"), unit)
        found[f"planned.{level}.compiled"] = (cxx(HERE / "planned.cpp", f"-{level}", *COMPILED), unit)
        found[f"minimal.{level}"] = (cxx("examples/01_minimal.cpp", f"-{level}"), unit)
        found[f"minimal.{level}.compiled"] = (cxx("examples/01_minimal.cpp", f"-{level}", *COMPILED), unit)
        if CUDA:
            cuda = ["-DON_CUDA", "-isystem", CUDA / "include"]
            found[f"planned_cuda.{level}"] = (cxx(HERE / "planned.cpp", f"-{level}", *cuda), unit)
            found[f"planned_cuda.{level}.compiled"] = (cxx(HERE / "planned.cpp", f"-{level}", *cuda, *COMPILED), unit)
    if CUDA:
        found["thrust.nvcc"] = (nvcc(HERE / "thrust.cu"), None)
        found["umbrella.nvcc"] = (nvcc(HERE / "umbrella.cu"), "thrust.nvcc")
    return found


def compile_once(command):
    """(user seconds, peak memory in MB) of a compiler and of what it starts. Blocks."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command, "-o", os.path.join(folder, "object.o")], cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("does not compile: " + " ".join(map(str, command)))
    return usage.ru_utime, usage.ru_maxrss / 1000


def own_headers(source):
    """The library's headers that a file includes, directly or not."""
    listed = subprocess.run([CXX, "-std=c++20", "-Iinclude", "-MM", source], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(word for word in listed.stdout.split() if word.startswith("include/residency/"))


def measure(turns, chosen=None, progress=None):
    """Yields (name, value, unit). Every case is compiled once per turn; values are medians of the turns."""
    every = cases()
    wanted = dict(every)
    if chosen:
        units = {every[name][1] for name in chosen}
        wanted = {name: case for name, case in every.items() if name in chosen or name in units}
    seconds = {name: [] for name in wanted}
    memory = {name: [] for name in wanted}
    for turn in range(turns):
        for name, (command, _) in wanted.items():
            took, peak = compile_once(command)
            seconds[name].append(took)
            memory[name].append(peak)
            if progress:
                progress(f"turn {turn + 1}: {name}: {took:.2f} s, {peak:.0f} MB")
    for name, (_, unit) in wanted.items():
        yield f"{name}.time", statistics.median(seconds[name]), "s"
        yield f"{name}.memory", statistics.median(memory[name]), "MB"
        if unit:
            yield f"{name}.time_over_unit", statistics.median(map(lambda a, b: a / b, seconds[name], seconds[unit])), f"of {unit}"
            yield f"{name}.memory_over_unit", statistics.median(map(lambda a, b: a / b, memory[name], memory[unit])), f"of {unit}"
    if not chosen or any(name.startswith("lru.") for name in chosen):
        yield "lru.other_own_headers", len(own_headers(LRU)) - 1, "headers"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("case", nargs="*")
    arguments = parser.parse_args()
    names = list(cases())
    if arguments.list:
        print("\n".join(names))
        return 0
    for name in arguments.case:
        if name not in names:
            parser.error(f"no case {name}: there are {', '.join(names)}")
    for name, value, unit in measure(arguments.turns, arguments.case, lambda line: print(line, file=sys.stderr, flush=True)):
        print(f"{name:40} {value:10.4g} {unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
