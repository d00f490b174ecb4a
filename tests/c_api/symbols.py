#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The library exports exactly what c.h declares: symbols.py NM libresidency_c.so c.h [--trips]

With --trips the header lacks a function and has another one, and both are to be noticed.
"""
import re
import subprocess
import sys


def problems(exported, declared):
    return [f"exported, and not in the header: {name}" for name in sorted(exported - declared)] + [
        f"in the header, and not exported: {name}" for name in sorted(declared - exported)]


def main():
    nm, library, header = sys.argv[1:4]
    output = subprocess.run([nm, "-D", "--defined-only", "--extern-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in output.splitlines()}
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    declared = set(re.findall(r"^[\w *]*?\b(residency_\w+)\(", text, re.M))
    if "--trips" in sys.argv:
        wrong = problems(exported, declared - {"residency_open"} | {"residency_not_there"})
        if len(wrong) != 2:
            sys.exit(f"one function too many and one too few were not noticed: {wrong}")
        return
    wrong = problems(exported, declared)
    if wrong or not declared:
        sys.exit("\n".join(wrong) or "the header declares nothing")
    print(f"{len(declared)} functions, no other symbol")


if __name__ == "__main__":
    main()
