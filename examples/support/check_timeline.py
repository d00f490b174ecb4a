#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""A timeline of a tool, checked as ui.perfetto.dev reads it.

    check_timeline.py FILE [--copies NAME] [--stalls]

The rules are those of Chrome's trace event format and of Perfetto's importer of it: events with a negative time or duration are
dropped; the operations of a row nest; an arrow begins and ends inside an operation, and does not point to the past. With Perfetto's
trace processor (RESIDENCY_TRACE_PROCESSOR names the program trace_processor_shell, and the Python package perfetto is there) the file is
loaded in it too, and it must have dropped nothing.
"""

import argparse
import collections
import json
import os
import sys


def fail(*words):
    sys.exit("timeline: " + " ".join(str(word) for word in words))


def read(path):
    with open(path, encoding="utf-8", errors="strict") as file:
        trace = json.load(file)
    rows, slices, arrows, counters = {}, collections.defaultdict(list), collections.defaultdict(dict), collections.defaultdict(list)
    for event in trace["traceEvents"]:
        phase = event["ph"]
        if phase == "M":
            if event["name"] == "thread_name":
                rows[event["tid"]] = event["args"]["name"]
            continue
        if not (isinstance(event["ts"], (int, float)) and event["ts"] >= 0):
            fail("a time before zero is dropped:", event)
        if phase == "X":
            if event["dur"] < 0:
                fail("an operation of negative length:", event)
            # In whole nanoseconds, as they are written.
            start = round(event["ts"] * 1000)
            slices[event["tid"]].append((start, start + round(event["dur"] * 1000), event["name"], event.get("args", {})))
        elif phase in "sf":
            if phase == "f" and event.get("bp") != "e":
                fail("without bp=e an arrow ends at the next operation, not at this one:", event)
            if phase in arrows[event["id"]]:
                fail("two ends of one arrow:", event)
            arrows[event["id"]][phase] = (event["tid"], round(event["ts"] * 1000))
        elif phase == "C":
            counters[event["name"]].append((event["ts"], event["args"]["value"]))
        else:
            fail("an event of another kind:", event)
    if len(set(rows.values())) != len(rows):
        fail("two rows of one name:", rows)
    return rows, slices, arrows, counters


def check_nesting(row, operations):
    """In the order of the file; what begins while another runs ends by its end."""
    open_ones, last = [], 0
    for start, end, name, _ in operations:
        if start < last:
            fail(row, "is not in the order of its times at", name)
        last = start
        while open_ones and open_ones[-1][1] <= start:
            open_ones.pop()
        if open_ones and end > open_ones[-1][1]:
            fail("in", row, repr(name), "begins inside", repr(open_ones[-1][2]), "and ends after it")
        open_ones.append((start, end, name))


def inside(operations, at):
    found = [each for each in operations if each[0] <= at < each[1]]
    return found[-1] if found else None


def check(path, copies, stalls):
    rows, slices, arrows, counters = read(path)
    names = {name: tid for tid, name in rows.items()}
    for tid, operations in slices.items():
        if tid not in rows:
            fail("a row without a name:", tid)
        check_nesting(rows[tid], operations)
    if "compute" not in names:
        fail("no row compute in", sorted(names))
    compute = slices[names["compute"]]
    if not any(args.get("note") for _, _, _, args in compute):
        fail("no kernel has a step")
    for name in ("held bytes", "budget bytes"):
        if not counters[name]:
            fail("no curve of", name)
    if max(value for _, value in counters["held bytes"]) > max(value for _, value in counters["budget bytes"]):
        fail("more is held than the budget")
    if copies is not None:
        if "copies to the device" not in names:
            fail("no row of copies in", sorted(names))
        named = [name for _, _, name, _ in slices[names["copies to the device"]]]
        if not any(copies in name for name in named):
            fail("no copy of", copies, "in", named[:5])
        if any(name.startswith("bytes of no weight") for name in named):
            fail("a copy without a weight")
    if stalls and not any(name.startswith("stall: waits for ") for _, _, name, _ in compute):
        fail("no stall")
    for number, ends in arrows.items():
        if set(ends) != {"s", "f"}:
            fail("half an arrow:", number)
        (from_row, begin), (to_row, end) = ends["s"], ends["f"]
        if end < begin:
            fail("an arrow to the past:", number)
        copy, kernel = inside(slices[from_row], begin), inside(slices[to_row], end)
        if copy is None or kernel is None or rows[from_row] != "copies to the device" or not rows[to_row].startswith("compute"):
            fail("an arrow that is not from a copy to a kernel:", number, copy, kernel)
        if kernel[2].startswith("stall"):
            fail("an arrow to a stall:", number)
    if stalls and not arrows:
        fail("no arrow from a copy to the kernel that waited for it")
    return sum(len(each) for each in slices.values()), len(arrows)


def load(path, operations, arrows):
    """In Perfetto's own trace processor, where it is there."""
    shell = os.environ.get("RESIDENCY_TRACE_PROCESSOR")
    if not shell:
        return "not loaded: RESIDENCY_TRACE_PROCESSOR does not name Perfetto's trace_processor_shell"
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=shell)) as processor:
        one = lambda query: next(iter(processor.query(query))).n
        if one("select count(*) as n from slice") != operations:
            fail("the trace processor has another number of operations")
        if one("select count(*) as n from flow") != arrows:
            fail("the trace processor has another number of arrows")
        dropped = "select coalesce(sum(value), 0) as n from stats where severity in ('error', 'data_loss')"
        if one(dropped):
            fail("the trace processor reports errors")
    return "loaded in the trace processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--copies", help="a part of the name of a weight that is copied")
    parser.add_argument("--stalls", action="store_true", help="there are stalls, and arrows")
    options = parser.parse_args()
    operations, arrows = check(options.file, options.copies, options.stalls)
    print(f"timeline: {operations} operations, {arrows} arrows; {load(options.file, operations, arrows)}")


if __name__ == "__main__":
    main()
