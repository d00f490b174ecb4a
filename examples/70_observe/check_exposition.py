#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Standard input, checked by the rules of Prometheus's text format 0.0.4.

    check_exposition.py NAME…    fails where a rule is broken, or where a sample that is named (with its labels) is missing or 0
    check_exposition.py --trips  breaks each rule once, and fails if that is not noticed

The rules: lines end with a line feed, the last one too; `# HELP name text` and `# TYPE name kind` come once for a metric and before its
samples; all lines of a metric stand together; a sample is a name, labels in braces with quoted values, and a number; no sample comes twice;
counters end in _total and are not negative.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(\{{(?:{LABEL}(?:,{LABEL})*,?)?\}})? (\S+)(?: -?\d+)?")


def problems(text):
    found, kinds, helped, samples, finished, current = [], {}, set(), {}, set(), None
    if not text.endswith("\n"):
        found.append("the last line does not end")
    for line in text.split("\n")[:-1]:
        comment = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
        sample = SAMPLE.fullmatch(line)
        if not comment and not sample:
            found.append(f"no line of the format: {line!r}")
            continue
        name = comment[2] if comment else sample[1]
        if name != current:
            if name in finished:
                found.append(f"{name}: its lines do not stand together")
            if current:
                finished.add(current)
            current = name
        if comment:
            if comment[1] == "HELP":
                if name in helped:
                    found.append(f"{name}: two lines of help")
                helped.add(name)
                continue
            if name in kinds or any(key.split("{")[0] == name for key in samples):
                found.append(f"{name}: its type comes twice, or after a sample")
            if comment[3] not in ("counter", "gauge", "histogram", "summary", "untyped"):
                found.append(f"{name}: no type {comment[3]}")
            kinds[name] = comment[3]
            continue
        key = name + (sample[2] or "")
        if key in samples:
            found.append(f"{key}: comes twice")
        try:
            samples[key] = float(sample[3])
        except ValueError:
            found.append(f"{key}: {sample[3]} is no number")
            samples[key] = 0.0
        if kinds.get(name) == "counter" and (not name.endswith("_total") or samples[key] < 0):
            found.append(f"{key}: a counter ends in _total, and is not negative")
        if name not in kinds:
            found.append(f"{name}: no type")
    return found, samples


def trips():
    good = '# HELP a_total Help.\n# TYPE a_total counter\na_total{k="v"} 1\na_total{k="w"} 2.5e-1\n'
    other = "# TYPE b gauge\nb 1\n"
    bad = [
        good[:-1],
        good + 'a_total{k="v"} 1\n',
        good.replace("2.5e-1", "two"),
        good.replace("2.5e-1", "-1"),
        good.replace('"w"', "w"),
        good.replace("a_total", "a"),
        good.replace("counter", "number"),
        "a_total 1\n",
        good + "# TYPE a_total counter\n",
        good + other + 'a_total{k="x"} 1\n',
        "# HELP a_total Help.\n" + good,
    ]
    assert not problems(good)[0] and not problems(good + other)[0]
    for text in bad:
        if not problems(text)[0]:
            sys.exit(f"not noticed: {text!r}")


def main(arguments):
    if arguments == ["--trips"]:
        return trips()
    found, samples = problems(sys.stdin.read())
    found += [f"{name}: missing, or 0" for name in arguments if not samples.get(name)]
    sys.exit("\n".join(found)) if found else print(f"{len(samples)} samples")


if __name__ == "__main__":
    main(sys.argv[1:])
