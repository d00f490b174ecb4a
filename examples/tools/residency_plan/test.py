#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What residency-plan prints, checked from the printed text alone; and how it refuses what it cannot plan.

    test.py PROGRAM FOLDER [--seed N] [--problems N]

Knows nothing of the library: covers, waits and device ranges are replayed byte range by byte range under timings of its own, the
period comes from a simulation of calls in order, the bound from a linear program of its own."""

import argparse
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys


class Trouble(Exception):
    pass


def demand(holds, *what):
    if not holds:
        raise Trouble(" ".join(str(x) for x in what))


def close(a, b, relative, absolute=1e-15):
    return abs(a - b) <= relative * max(abs(a), abs(b)) + absolute


# ---- The model ------------------------------------------------------------------------------------------------------


def reads_of(problem):
    """By step: what it reads, and what earlier steps keep for it."""
    steps = problem["steps"]
    return [sorted({s for k, step in enumerate(steps[:i + 1]) if k == i or step.get("live_until", k) >= i for s in step["storages"]})
            for i in range(len(steps))]


def joined(ranges):
    """Ranges (begin, end, what), ascending: those that continue each other as one."""
    out = []
    for begin, end, what in ranges:
        if out and out[-1][1] == begin and out[-1][2] == what:
            begin = out.pop()[0]
        out.append((begin, end, what))
    return out


class Printed:
    """A problem and its printed plan."""

    def __init__(self, problem, plan, budget):
        self.plan, self.cyclic = plan, problem["cyclic"]
        self.bytes = [s["bytes"] for s in problem["storages"]]
        self.reads = reads_of(problem)
        self.compute = [s.get("compute_seconds", 0.0) for s in problem["steps"]]
        self.rate = problem["link"]["bytes_per_second"]
        self.latency = problem["link"]["latency_seconds"]
        self.budget = budget if budget else plan["floor_bytes"]
        self.steps = len(self.reads)
        self.readers = [[i for i in range(self.steps) if s in self.reads[i]] for s in range(len(self.bytes))]
        self.calls = []
        for entry in plan["copies"]:
            if entry["call"] == len(self.calls):
                self.calls.append([])
            demand(entry["call"] == len(self.calls) - 1, "calls do not count up:", entry)
            self.calls[-1].append(entry)

    def run(self, passes, step_factor=lambda: 1.0, copy_factor=lambda: 1.0):
        """Times of every step and every call: [pass][step] → (start, end), [pass][call] → (start, end)."""
        link = compute = 0.0
        steps, calls = [], []
        for p in range(passes):
            steps.append([])
            calls.append([])
            for i in range(self.steps):
                while len(calls[p]) < len(self.calls):
                    call = self.calls[len(calls[p])]
                    if min(c["needed_by"] for c in call) > i:
                        break
                    start, wait = link, call[0]["waits_for"]
                    if wait is not None and p + wait["pass"] >= 0:
                        demand(wait["pass"] < 0 or wait["step"] < i, "a call waits for a step that waits for it:", call)
                        start = max(start, steps[p + wait["pass"]][wait["step"]][1])
                    moved = sum(c["end"] - c["begin"] for c in call)
                    link = start + (self.latency + moved / self.rate) * copy_factor()
                    calls[p].append((start, link))
                start = max(compute, calls[p][-1][1] if calls[p] else 0.0)
                compute = start + self.compute[i] * step_factor()
                steps[p].append((start, compute))
        return steps, calls

    def seconds(self):
        if not self.cyclic:
            return self.run(1)[0][0][-1][1]
        steps, _ = self.run(120)
        return (steps[119][-1][1] - steps[59][-1][1]) / 60


def check_shape(it):
    plan, n = it.plan, it.steps
    demand(set(plan) == {"bound_seconds", "usual_bound_seconds", "floor_bytes", "predicted_seconds", "compute_seconds",
                         "bytes_per_pass", "held_bytes", "resident", "copies"}, "other keys:", list(plan))
    demand(plan["held_bytes"] <= it.budget, "holds", plan["held_bytes"], "of", it.budget)
    for entry in plan["resident"] + plan["copies"]:
        is_copy = "call" in entry
        keys = {"storage", "begin", "end", "to", "call", "waits_for", "needed_by", "live_until"} if is_copy else {"storage", "begin", "end", "at"}
        demand(set(entry) in (keys, keys | {"live_until"}), "other keys:", entry)
        demand(it.cyclic or is_copy or set(entry) == keys, "of the pass before, which there is none of:", entry)
        demand(0 <= entry["begin"] < entry["end"] <= it.bytes[entry["storage"]], "not a range of the storage:", entry)
        ranges = entry["to" if is_copy else "at"]
        demand(all(0 <= a < b <= plan["held_bytes"] for a, b in ranges), "not ranges of what is held:", entry)
        demand(sum(b - a for a, b in ranges) == entry["end"] - entry["begin"], "ranges of another length:", entry)
    for s, size in enumerate(it.bytes):
        entries = sorted((e["begin"], e["end"]) for e in plan["resident"] + plan["copies"] if e["storage"] == s
                         and ("call" in e or "live_until" not in e))
        for_next = lambda key: sorted((e["begin"], e["end"], e["live_until"]) for e in plan[key] if e["storage"] == s
                                      and "live_until" in e and (key == "resident" or e["live_until"] < e["needed_by"]))
        demand(joined(for_next("resident")) == joined(for_next("copies")), "the first pass begins with other bytes of storage", s,
               "than the others")
        if not it.readers[s]:
            demand(not entries, "storage", s, "is brought and nobody reads it")
        elif it.cyclic:
            at = 0
            for begin, end in entries:
                demand(begin == at, "storage", s, "is not covered once at", at)
                at = end
            demand(at == size, "storage", s, "is not covered at", at)
    for call in it.calls:
        wait = call[0]["waits_for"]
        demand(all(c["waits_for"] == wait for c in call), "copies of one call wait for different steps:", call)
        if wait is not None:
            demand(set(wait) == {"pass", "step"} and wait["pass"] in (0, -1) and 0 <= wait["step"] < n, "waits for", wait)
            demand(it.cyclic or wait["pass"] == 0, "a one-shot plan waits for a pass before")
            demand(wait["pass"] < 0 or wait["step"] < min(c["needed_by"] for c in call), "waits for its own reader:", call)
        for c in call:
            readers = it.readers[c["storage"]]
            if it.cyclic and c["live_until"] < c["needed_by"]:
                demand(c["live_until"] == max(i for i in readers if i < c["needed_by"]), "does not stay until its last reader:", c)
                demand(c["needed_by"] in readers or c["live_until"] == readers[-1], "not needed by step", c["needed_by"], c)
                continue
            demand(c["needed_by"] in readers or (not it.cyclic and c["needed_by"] > readers[-1]), "not needed by step", c["needed_by"], c)
            demand(not it.cyclic or c["needed_by"] == readers[0], "not needed by its first reader:", c)
            again = min((d["needed_by"] for other in it.calls[it.calls.index(call) + 1:] for d in other if d["storage"] == c["storage"]
                         and d["begin"] < c["end"] and c["begin"] < d["end"]), default=n)
            last = max((i for i in readers if i < again), default=0)
            demand(c["live_until"] >= max(last, c["needed_by"]) and (c["live_until"] in readers or c["live_until"] == c["needed_by"]),
                   "does not stay until its last reader, step", last, c)
            demand(not it.cyclic or c["live_until"] == readers[-1], "does not stay until the last reader of the pass:", c)
    needed = [min(c["needed_by"] for c in call) for call in it.calls]
    demand(needed == sorted(needed), "calls are out of order")


def check_bytes(it, dice, passes):
    """Under any timing a step finds all its bytes, and they stay until it has ended."""
    def spread(entry, ranges):
        at, out = entry["begin"], []
        for a, b in ranges:
            out.append((entry["storage"], at, a, b))
            at += b - a
        return out

    for kind in range(3):
        factor = (lambda: 1.0) if kind == 0 else (lambda: 10 ** dice.uniform(-1, 1))
        steps, calls = it.run(passes, factor, factor)
        writes = []  # start, end, needed_by, pieces
        for entry in it.plan["resident"]:
            writes.append((-2.0, -1.0, spread(entry, entry["at"])))
        for p in range(passes):
            for k, call in enumerate(it.calls):
                start, end = calls[p][k]
                writes.append((start, end, [x for c in call for x in spread(c, c["to"])]))
        # By device byte: every write in the order of the copy stream, and what it leaves there.
        cuts = sorted({x for _, _, ps in writes for _, _, a, b in ps for x in (a, b)})
        index = {x: k for k, x in enumerate(cuts)}
        history = [[] for _ in cuts]
        where = {}  # storage → [(begin, end, cell)]
        for start, end, ps in writes:
            seen = set()
            for s, at, a, b in ps:
                for cell in range(index[a], index[b]):
                    demand(cell not in seen, "a call writes a byte twice")
                    seen.add(cell)
                    offset = at + cuts[cell] - a
                    history[cell].append((start, end, s, offset))
                    where.setdefault(s, {}).setdefault((offset, offset + cuts[cell + 1] - cuts[cell]), set()).add(cell)
        resident = set()
        for _, _, ps in writes[:len(it.plan["resident"])]:
            for _, _, a, b in ps:
                for cell in range(index[a], index[b]):
                    demand(cell not in resident, "two residents share a byte")
                    resident.add(cell)
        for p in range(passes):
            for i in range(it.steps):
                start, end = steps[p][i]
                for s in it.reads[i]:
                    good = []
                    for (low, high), cells in where.get(s, {}).items():
                        for cell in cells:
                            last = None  # the last write that began before the step ended: it must be ours, and complete
                            for w in history[cell]:
                                if w[0] < end or (w[0] <= start and w[1] <= start):
                                    last = w
                            if last is not None and last[2] == s and last[3] == low and last[1] <= start * (1 + 1e-12):
                                good.append((low, high))
                    at = 0
                    for low, high in sorted(good):
                        if low <= at:
                            at = max(at, high)
                    demand(at >= it.bytes[s], "pass", p, "step", i, "misses storage", s, "from byte", at)


def check_times(it):
    plan = it.plan
    compute = sum(it.compute)
    total = sum(b for b, readers in zip(it.bytes, it.readers) if readers)
    deficit = max(0, total - it.budget)
    demand(close(plan["compute_seconds"], compute, 1e-9), "compute_seconds", plan["compute_seconds"], "is", compute)
    demand(plan["bytes_per_pass"] == sum(c["end"] - c["begin"] for c in plan["copies"]), "bytes_per_pass")
    demand(plan["bytes_per_pass"] >= deficit, "moves less than the deficit")
    usual = max(compute, deficit / it.rate)
    demand(close(plan["usual_bound_seconds"], usual, 1e-9), "usual bound", plan["usual_bound_seconds"], "is", usual)
    demand(plan["bound_seconds"] >= usual * (1 - 1e-9), "the bound is below the usual one")
    demand(plan["predicted_seconds"] >= plan["bound_seconds"] * (1 - 1e-9), "beats the bound")
    seconds = it.seconds()
    demand(close(plan["predicted_seconds"], seconds, 1e-6), "predicted", plan["predicted_seconds"], "takes", seconds)


# ---- The bound ------------------------------------------------------------------------------------------------------


def greatest(rows, limits, gains):
    """max gains·x for rows·x <= limits, x >= 0; limits >= 0. Dense simplex, Bland's rule once it could cycle."""
    count, width = len(rows), len(gains)
    table = [row[:] + [1.0 if k == j else 0.0 for j in range(count)] + [limit] for k, (row, limit) in enumerate(zip(rows, limits))]
    top = [-g for g in gains] + [0.0] * (count + 1)
    basis = [width + k for k in range(count)]
    for turn in range(20000):
        if turn < 500:
            column = min(range(width + count), key=lambda j: top[j])
        else:
            column = next((j for j in range(width + count) if top[j] < -1e-9), 0)
        if top[column] >= -1e-9:
            return top[-1]
        pivot, least = None, None
        for k in range(count):
            if table[k][column] > 1e-9:
                ratio = table[k][-1] / table[k][column]
                if pivot is None or ratio < least - 1e-12 or (ratio <= least + 1e-12 and basis[k] < basis[pivot]):
                    pivot, least = k, ratio
        demand(pivot is not None, "the linear program is unbounded")
        scale = table[pivot][column]
        table[pivot] = [x / scale for x in table[pivot]]
        for row in [top] + table[:pivot] + table[pivot + 1:]:
            f = row[column]
            if f != 0.0:
                row[:] = [x - f * y for x, y in zip(row, table[pivot])]
        basis[pivot] = column
    raise Trouble("the linear program does not end")


def exact_bound(it):
    """Seconds. A storage, between a reader and the next, keeps some bytes and fetches the rest: beside the steps between, or in
    stalls before them. Slot 2 i is the stall before step i, slot 2 i + 1 the step."""
    n, unit = it.steps, float(max(1, sum(it.bytes)))
    room = it.budget
    gaps = []  # storage, slots in order; the last one is the stall before the reader
    for s, readers in enumerate(it.readers):
        if it.bytes[s] == 0:
            continue
        for k, v in enumerate(readers):
            if k == 0 and not it.cyclic:
                gaps.append((s, list(range(0, 2 * v + 1))))
                continue
            u = readers[k - 1]
            stop = v if v > u else v + n
            gaps.append((s, [t % (2 * n) for t in range(2 * u + 2, 2 * stop + 1)]))
    kept, fetched, width = [], [], 0
    for s, slots in gaps:
        kept.append(width)
        fetched.append({t: width + 1 + k for k, t in enumerate(slots[:-1])})
        width += len(slots)
    rows, limits = [], []

    def row(entries, limit):
        out = [0.0] * width
        for column in entries:
            out[column] += 1.0
        rows.append(out)
        limits.append(limit / unit)

    for (s, _), h, x in zip(gaps, kept, fetched):
        row([h] + list(x.values()), it.bytes[s])
    for i in range(n):
        row([x[2 * i + 1] for x in fetched if 2 * i + 1 in x], it.rate * it.compute[i])
    for t in range(2 * n):
        full = sum(it.bytes[s] for s in it.reads[t // 2])
        entries = []
        for (s, slots), h, x in zip(gaps, kept, fetched):
            if t in x:
                entries += [h] + [x[y] for y in slots[:slots.index(t) + 1]]
        row(entries, room - full)
    gains = [0.0] * width
    for h, x in zip(kept, fetched):
        gains[h] = 1.0
        for t, column in x.items():
            if t % 2 == 1:
                gains[column] = 1.0
    stalled = sum(it.bytes[s] for s, _ in gaps) - unit * greatest(rows, limits, gains)
    return sum(it.compute) + max(0.0, stalled) / it.rate


# ---- Problems -------------------------------------------------------------------------------------------------------


def random_problem(dice, small):
    n = dice.randint(1, 5 if small else 24)
    kind = dice.choice(["one each", "several each", "neighbours", "anything", "repeats", "both ends"])
    count = n if kind == "one each" else dice.randint(1, 5 if small else 30)
    chunk = dice.choice([1, 64, 4096, 8192, 1 << 21]) if not small else dice.choice([256, 4096])
    most = {1: 400, 64: 20000}.get(chunk, 100000 if chunk < 1 << 21 else 10**7)
    size = lambda: dice.choice([0, dice.randint(1, 1 + most // 300)] + [dice.randint(1, most)] * 6)
    steps = []
    for i in range(n):
        near = [min(count - 1, i * count // n + k) for k in range(dice.randint(0, 3))]
        reads = {"one each": [i], "several each": list(range(i, count, n)), "neighbours": near,
                 "anything": dice.sample(range(count), min(count, dice.randint(0, 3))), "both ends": near + [0] * (i in (0, n - 1)),
                 "repeats": dice.sample(range(count), min(count, dice.randint(1, 2)))}[kind]
        steps.append({"compute_seconds": 0.0, "storages": reads})
    storages = [{"name": "layer.%d \u00e4\"" % s, "bytes": size()} for s in range(count)]
    if dice.random() < 0.4:
        for i, step in enumerate(steps):
            if dice.random() < 0.3:
                step["live_until"] = min(n - 1, i + dice.choice([0, 1, 1, 2, n]))
    rate = dice.choice([1e9, 55.5e9])
    scale = sum(s["bytes"] for s in storages) / rate / n * 10 ** dice.uniform(-2, 0.5)
    timed = dice.choice(["all", "all", "all", "none", "some"])
    for step in steps:
        if timed == "none" or (timed == "some" and dice.random() < 0.5):
            del step["compute_seconds"]
        else:
            step["compute_seconds"] = scale * dice.choice([0.0, dice.random(), dice.random(), 3 * dice.random()])
    return {"link": {"bytes_per_second": rate, "latency_seconds": dice.choice([0, 1e-7, 2.4e-6])}, "budget_bytes": 0,
            "chunk_bytes": chunk, "cyclic": dice.random() < 0.65, "storages": storages, "steps": steps}


class Program:
    def __init__(self, path):
        self.path = path

    def run(self, text, arguments=("-",)):
        data = text if isinstance(text, bytes) else text.encode()
        return subprocess.run([self.path, *arguments], input=data, capture_output=True, timeout=300)

    def plan(self, problem, arguments=()):
        done = self.run(json.dumps(problem), ("-", *arguments))
        demand(done.returncode == 0 and not done.stderr, "exit", done.returncode, done.stderr.decode(errors="replace"))
        return json.loads(done.stdout)

    def refuses(self, text, part, arguments=("-",)):
        done = self.run(text, arguments)
        said = done.stderr.decode(errors="replace")
        demand(done.returncode == 2, "exit", done.returncode, "where", part, "is wrong:", said)
        demand(not done.stdout, "prints something where", part, "is wrong")
        demand(said.count("\n") == 1 and said.endswith("\n"), "not one line:", repr(said))
        demand(part in said, "no", repr(part), "in", repr(said))


def check_problem(program, problem, dice, small):
    floor = program.plan(problem)["floor_bytes"]
    total = sum(s["bytes"] for s in problem["storages"])
    chunk = problem["chunk_bytes"]
    budgets = [0, floor, floor + 1, floor + dice.randint(0, max(1, total)), (floor + total) // 2, total, total + 3 * chunk + 1]
    for budget in budgets if small else dice.sample(budgets, 4):
        if (budget == 0 and floor == 0) or 0 < budget < floor:
            continue
        problem["budget_bytes"] = budget
        plan = program.plan(problem)
        it = Printed(problem, plan, budget)
        demand(plan["floor_bytes"] == floor, "another floor at another budget")
        live = max(sum(it.bytes[s] for s in reads) for reads in it.reads)
        demand(floor >= live and floor % chunk == 0, "floor", floor)
        check_shape(it)
        check_times(it)
        check_bytes(it, dice, 3 if it.cyclic else 1)
        if budget > total + 2 * chunk and not it.cyclic:
            demand(not plan["copies"] or plan["held_bytes"] < total, "everything fits and something streams")
        if small:
            bound, step = exact_bound(it), it.steps / it.rate
            demand(abs(plan["bound_seconds"] - bound) <= 1e-6 * bound + step, "bound", plan["bound_seconds"], "is", bound)
    if floor > 1:
        problem["budget_bytes"] = floor - 1
        program.refuses(json.dumps(problem), f"{floor:,} bytes")


# ---- Packed weights -------------------------------------------------------------------------------------------------

PACKED = ("exact_bound_seconds", "unpack_seconds", "unpacked_bytes", "states", "unpacks")


def check_unpacking(problem, plan):
    """Every storage is raw once and for all, or there for each of its readers since a reader that unpacks it, in bytes of its own meanwhile."""
    raw = [s.get("unpacked_bytes", 0) for s in problem["storages"]]
    reads = reads_of(problem)
    readers = [[i for i, step in enumerate(reads) if s in step] for s in range(len(raw))]
    states = {e["storage"]: e for e in plan["states"]}
    demand(len(states) == len(plan["states"]) and set(states) == {s for s in range(len(raw)) if readers[s]}, "not one state each")
    for e in plan["states"]:
        s = e["storage"]
        demand(set(e) == {"storage", "state", "at"} and e["state"] in ("raw", "resident", "streamed"), "not a state:", e)
        demand((e["at"] is not None) == (raw[s] > 0), "a place for what is not unpacked, or none:", e)
        demand(e["at"] is None or (0 <= e["at"][0] and e["at"][1] <= plan["unpacked_bytes"] and e["at"][1] - e["at"][0] == raw[s]), "no place:", e)
        demand(e["state"] != "raw" or raw[s] > 0, "never packed, and raw:", e)
        copied = any(c["storage"] == s for c in plan["copies"])
        demand(copied == (e["state"] == "streamed"), "copied or not:", e)
        demand(e["state"] != "raw" or all(r["storage"] != s for r in plan["resident"]), "raw, and there packed too:", e)
    live = {s: [(-1, len(reads))] for s, e in states.items() if e["state"] == "raw"}  # by storage: the steps between which it is there
    at = 0
    for u in plan["unpacks"]:
        s = u["storage"]
        demand(set(u) == {"storage", "step", "live_until"} and s in states and states[s]["at"] is not None, "not to be unpacked:", u)
        demand(states[s]["state"] != "raw", "raw already:", u)
        demand(at <= u["step"] < len(reads), "unpackings are out of order:", u)
        demand(u["step"] in readers[s] and u["live_until"] in readers[s], "not between readers, when its packed bytes are there:", u)
        live.setdefault(s, []).append((u["step"], u["live_until"]))
        at = u["step"]
    for s, e in states.items():
        if e["at"] is not None and e["state"] != "raw":
            between = live.get(s, [])
            demand([i for i in readers[s] if any(a <= i <= b for a, b in between)] == readers[s], "a reader finds no storage", s, "in", between)
            demand(all(a <= b for a, b in between) and all(b < a for (_, b), (a, _) in zip(between, between[1:])), "is there twice:", between)
    for s in live:
        for other in live:
            a, b = states[s]["at"], states[other]["at"]
            if s < other and a[0] < b[1] and b[0] < a[1]:
                demand(all(d < e or f < c for c, d in live[s] for e, f in live[other]), "storages", s, "and", other, "are unpacked over each other")


def rest_of(problem, plan):
    """The problem and the plan of what travels: nothing of what is raw, and steps that take as long as unpacking and kernels."""
    rest, copied = copy.deepcopy(problem), copy.deepcopy(plan)
    for e in plan["states"]:
        if e["state"] == "raw":
            rest["storages"][e["storage"]]["bytes"] = 0
    unpacker, seconds = problem["unpacker"], 0.0
    for i, step in enumerate(rest["steps"]):
        unpacked = sum(problem["storages"][u["storage"]]["unpacked_bytes"] for u in plan["unpacks"] if u["step"] == i)
        more = unpacker["launch_seconds"] + unpacked / unpacker["bytes_per_second"] if unpacked else 0.0
        step["compute_seconds"] = step.get("compute_seconds", 0.0) + more
        seconds += more
    demand(close(plan["unpack_seconds"], seconds, 1e-6, 1e-12), "unpack_seconds", plan["unpack_seconds"], "is", seconds)
    copied["compute_seconds"] += plan["unpack_seconds"]
    for key in PACKED:
        del copied[key]
    return rest, copied


def check_packed(problem, plan, dice):
    demand(set(PACKED) <= set(plan), "lacks keys:", list(plan))
    check_unpacking(problem, plan)
    demand(plan["held_bytes"] + plan["unpacked_bytes"] <= problem["budget_bytes"], "holds more than the budget")
    rest, copied = rest_of(problem, plan)
    it = Printed(rest, copied, problem["budget_bytes"] - plan["unpacked_bytes"])
    check_shape(it)
    check_times(it)
    check_bytes(it, dice, 3 if it.cyclic else 1)
    demand(plan["exact_bound_seconds"] <= plan["predicted_seconds"] * (1 + 1e-9), "beats the exact bound")
    demand(plan["exact_bound_seconds"] >= sum(s.get("compute_seconds", 0.0) for s in problem["steps"]) * (1 - 1e-9), "less than the kernels")


def packed_problem(dice):
    """A random one where most storages are packed."""
    while True:
        problem = random_problem(dice, small=True)
        for step in problem["steps"]:
            step.pop("live_until", None)
        for storage in problem["storages"]:
            if storage["bytes"] and dice.random() < 0.8:
                storage["unpacked_bytes"] = storage["bytes"] * 3 // 2 + 1
        problem["unpacker"] = {"bytes_per_second": problem["link"]["bytes_per_second"] * dice.choice([2, 20]), "launch_seconds": dice.choice([0, 3e-6])}
        if any("unpacked_bytes" in problem["storages"][s] for step in problem["steps"] for s in step["storages"]):
            return problem


def check_packed_problem(program, dice):
    problem = packed_problem(dice)
    floor = program.plan(problem)["floor_bytes"]
    total = sum(s.get("unpacked_bytes", s["bytes"]) for s in problem["storages"])
    last = None
    for budget in (floor, floor + total // 3, floor + total, 3 * (floor + total)):
        problem["budget_bytes"] = budget
        plan = program.plan(problem)
        demand(plan["floor_bytes"] == floor, "another floor at another budget")
        check_packed(problem, plan, dice)
        demand(last is None or plan["exact_bound_seconds"] <= last * (1 + 1e-9), "more memory, and a greater bound")
        last = plan["exact_bound_seconds"]
    demand(not plan["unpacks"] and not plan["copies"], "everything fits, and something is unpacked or streams")
    problem["budget_bytes"] = 1
    program.refuses(json.dumps(problem), "enough")


def packed_base():
    return {"link": {"bytes_per_second": 1e9, "latency_seconds": 1e-7}, "budget_bytes": 70000, "chunk_bytes": 256, "cyclic": True,
            "storages": [{"name": "layer.%d" % s, "bytes": 10000, "unpacked_bytes": 15000} for s in range(8)],
            "unpacker": {"bytes_per_second": 2e10, "launch_seconds": 1e-7},
            "steps": [{"compute_seconds": 2e-6, "storages": [i] if i < 7 else [7, 1]} for i in range(8)]}


def twice_base():
    """Too little memory for what two steps read to stay unpacked between them."""
    return dict(packed_base(), budget_bytes=100000,
                steps=[{"compute_seconds": 2e-6, "storages": [i % 8]} for i in range(16)])


def check_the_packed_checks(program):
    """Of the preset's plan, each change is found."""
    problem = packed_base()
    plan = program.plan(problem)

    def trips(change):
        spoilt = copy.deepcopy(plan)
        change(spoilt)
        try:
            check_packed(problem, spoilt, random.Random(1))
        except Trouble:
            return True
        return False

    demand(not trips(lambda p: None), "the plan itself is refused")
    demand(len(plan["unpacks"]) > 1 and len({u["step"] for u in plan["unpacks"]}) > 1, "nothing to spoil:", plan)
    unpacked = [e for e in plan["states"] if e["state"] != "raw"]
    first = plan["states"].index(unpacked[0])
    changes = [lambda p: p["unpacks"].pop(), lambda p: p["unpacks"].append(p["unpacks"][0]), lambda p: p["unpacks"].reverse(),
               lambda p: p["unpacks"][-1].update(step=p["unpacks"][-1]["step"] - 1), lambda p: p["unpacks"][0].update(step=7),
               lambda p: p["unpacks"][0].update(live_until=6), lambda p: p["states"].pop(), lambda p: p["states"][first].update(state="raw"),
               lambda p: p["states"][first].update(at=None), lambda p: p.update(unpacked_bytes=p["unpacked_bytes"] * 2),
               lambda p: p.update(unpack_seconds=p["unpack_seconds"] * 1.01), lambda p: p.update(exact_bound_seconds=p["predicted_seconds"] * 1.01),
               lambda p: [e.update(at=[0, e["at"][1] - e["at"][0]]) for e in p["states"]],
               lambda p: p["copies"].clear(), lambda p: [c.update(waits_for=None) for c in p["copies"]]]
    for k, change in enumerate(changes):
        demand(trips(change), "change", k, "of a packed plan goes unnoticed")
    problem = twice_base()
    plan = program.plan(problem)
    demand(not trips(lambda p: None), "the plan of what is read twice is refused")
    twice = [k for k, u in enumerate(plan["unpacks"]) if u["storage"] in [v["storage"] for v in plan["unpacks"][:k]]]
    demand(twice, "nothing is unpacked again:", plan)
    changes = [lambda p: p["unpacks"].pop(twice[0]), lambda p: p["unpacks"][twice[0]].update(live_until=15),
               lambda p: p["unpacks"][0].update(live_until=p["unpacks"][0]["step"] + 8)]
    for k, change in enumerate(changes):
        demand(trips(change), "change", k, "of a plan that unpacks again goes unnoticed")
    problem = packed_base()
    plan = program.plan(problem)

    def refuses(change, part):
        spoilt = packed_base()
        change(spoilt)
        program.refuses(json.dumps(spoilt), part)

    refuses(lambda p: p.pop("unpacker"), '"unpacker" is missing')
    refuses(lambda p: p["unpacker"].pop("launch_seconds"), '"unpacker.launch_seconds" is missing')
    refuses(lambda p: p["unpacker"].update(bytes_per_second=0), "unpacker.bytes_per_second")
    refuses(lambda p: p["unpacker"].update(launch_seconds=-1), "unpacker.launch_seconds")
    refuses(lambda p: p.update(unpacker=3), "unpacker: expected an object")
    refuses(lambda p: p["storages"][0].update(unpacked_bytes=10000), "storages[0].unpacked_bytes: 10000 is not above the 10000")
    refuses(lambda p: p["storages"][0].update(unpacked_bytes="x"), "storages[0].unpacked_bytes: expected a whole number")
    refuses(lambda p: p["steps"][0].update(live_until=1), "steps[0].live_until")
    half = program.plan(packed_base(), ("--budget=90%",))  # of the raw bytes
    demand(half == program.plan(dict(packed_base(), budget_bytes=120000 * 9 // 10)), "90%")
    described = program.run("", ("--help",)).stdout.decode()
    for key in {key for each in (plan, plan["states"][0], plan["unpacks"][0], problem, problem["storages"][0], problem["unpacker"]) for key in each}:
        demand(re.search(r"\b%s\b" % key, described), "--help says nothing of", key)


# ---- Everything else ------------------------------------------------------------------------------------------------


def base():
    return {"link": {"bytes_per_second": 1e9, "latency_seconds": 1e-6}, "budget_bytes": 0, "chunk_bytes": 4096, "cyclic": True,
            "storages": [{"name": "a", "bytes": 10000}, {"name": "b", "bytes": 20000}, {"name": "c", "bytes": 5000}],
            "steps": [{"compute_seconds": 1e-6, "storages": [i], "live_until": i} for i in range(3)]}


def check_refusals(program, folder):
    program.plan(base())

    def edited(path, value):
        problem = copy.deepcopy(base())
        at = problem
        for key in path[:-1]:
            at = at[key]
        if value is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        return json.dumps(problem)

    def name(path):
        out = ""
        for key in path:
            out += "[%d]" % key if isinstance(key, int) else ("." if out else "") + key
        return out

    number_fields = [("link", "bytes_per_second"), ("link", "latency_seconds"), ("steps", 1, "compute_seconds")]
    whole_fields = [("budget_bytes",), ("chunk_bytes",), ("storages", 1, "bytes"), ("steps", 1, "live_until")]
    others = [("link",), ("cyclic",), ("storages",), ("steps",), ("storages", 1, "name"), ("steps", 2, "storages")]
    for path in number_fields + whole_fields + others:
        if path[-1] not in ("compute_seconds", "live_until"):
            program.refuses(edited(path, KeyError), '"%s" is missing' % name(path))
        wrong = ["1", None, [], {"x": 1}, True] if path in number_fields + whole_fields else [7, None, "x"]
        for value in wrong:
            if path[-1] == "name" and value == "x":
                continue
            program.refuses(edited(path, value), name(path))
    for path in number_fields:
        program.refuses(edited(path, -1e-3), path[-1])
        for word in ("NaN", "Infinity", "1e400", "-1e400"):
            program.refuses(edited(path, "@").replace('"@"', word), "not JSON")
    for path in whole_fields:
        for value in (-1, 0.5, 1e300, 2**64, -2**70):
            program.refuses(edited(path, value), name(path))
    for rate, shown in ((0, "0"), (5, "5"), (5e15, "5e+15")):
        program.refuses(edited(("link", "bytes_per_second"), rate),
                        f"link.bytes_per_second is {shown}, and only 1e6 to 1e13 bytes per second (PCIe 4.0 x16: 25e9) are plausible")
    program.refuses(edited(("link", "latency_seconds"), 1000), "link.latency_seconds is 1000, and only 0 to 1 seconds")
    program.refuses(edited(("chunk_bytes",), 0), "chunk_bytes")
    program.refuses(edited(("chunk_bytes",), 5000), "standard input: chunk_bytes is 5000")
    program.refuses(edited(("storages", 2, "bytes"), 2**63), "storage 2")
    program.refuses(edited(("steps", 1, "storages"), [3]), "steps[1].storages: 3 is not one of the 3 storages")
    program.refuses(edited(("steps", 1, "storages"), [-1]), "steps[1].storages")
    program.refuses(edited(("steps", 1, "storages"), ["a"]), "steps[1].storages")
    program.refuses(edited(("steps", 1, "storages"), [2**32]), "steps[1].storages")
    program.refuses(edited(("steps", 1), []), "steps[1]: expected an object")
    program.refuses(edited(("steps", 1, "live_until"), 0), "steps[1].live_until: 0 lies before the step itself; name the last step, from 1 on")
    program.refuses(edited(("steps", 1, "live_until"), 3), "steps[1].live_until: 3 is not one of the 3 steps")
    program.refuses(edited(("storages", 0), 4), "storages[0]: expected an object")
    program.refuses(edited(("steps",), []), "no steps")
    program.refuses(edited(("budget_bytes",), 5), "below the floor of 20,480 bytes (20 KiB), which step 1 sets")
    text = json.dumps(base())
    program.refuses(text.replace('"cyclic"', '"chunk_bytes"'), '"chunk_bytes" is there twice')
    for bad in ("", " ", "[", text[:-1], text + "x", "nonsense\nof two lines", "\0", "[" * 100000, "[" * 65 + "]" * 65):
        program.refuses(bad, "standard input: not JSON")
    program.refuses("[", "not JSON: parse error at line 1, column 2: ")
    program.refuses(b'{"link": "\xff\xfe"}', "not JSON")
    deep = "[" * 1000000 + "]" * 1000000  # what prints or copies it would call itself a million times
    for at in ("budget_bytes", "comment"):
        program.refuses(json.dumps(dict(base(), **{at: "@"})).replace('"@"', deep), "nested more than 64 levels deep")
    program.refuses(json.dumps(dict(base(), budget_bytes=json.loads("[" * 60 + "]" * 60))), "budget_bytes: expected a whole number")
    program.refuses(json.dumps(dict(base(), budget_bytes="\u009b31m\u202e" + "x" * 10**6)), "budget_bytes: expected a whole number that is not negative, found \"\\xc2\\x9b31m")
    program.refuses("{}", '"link", "budget_bytes", "chunk_bytes", "cyclic", "storages", "steps" are missing; --example')
    program.refuses('{"link": {}, "cyclic": true, "storages": [{}, {"name": "x"}], "steps": [{}]}',
                    '"link.bytes_per_second", "link.latency_seconds", "budget_bytes", "chunk_bytes", "storages[0].name", '
                    '"storages[0].bytes", "storages[1].bytes", "steps[0].storages" are missing')
    program.refuses(json.dumps(dict(base(), storages=[{}] * 1000)), " and 1988 more are missing")

    # The example is a problem that has all that --help describes, and that is planned.
    example = program.run("", ("--example",))
    demand(example.returncode == 0, "--example")
    planned = program.plan(json.loads(example.stdout))
    demand(planned["copies"] and planned["resident"], "the example does not stream")
    described = program.run("", ("--help",)).stdout.decode()
    inside = [planned, planned["copies"][0], planned["resident"][0], json.loads(example.stdout)]
    inside += [inside[3]["link"], inside[3]["steps"][0], inside[3]["storages"][0]]
    for key in {key for each in inside for key in each}:
        demand(re.search(r"\b%s\b" % key, described), "--help says nothing of", key)
    program.refuses("", "--example", ("-", "--example"))
    for value in ("7", "[]", "null", '"text"'):
        program.refuses(value, "the problem: expected an object")

    # What no step reads takes no room, and the message names the step that does.
    tower = base()
    tower["storages"].append({"name": "vision", "bytes": 400000})
    without = program.plan(base())
    planned = program.plan(tower)
    demand(planned == without, "what no step reads changes the plan")
    tower["budget_bytes"] = 5
    program.refuses(json.dumps(tower), "below the floor of 20,480 bytes (20 KiB), which step 1 sets")
    tower["budget_bytes"] = 1000000
    demand(program.plan(tower)["held_bytes"] < 60000, "what no step reads is held")

    # Other keys are for others; a storage that a step names twice is read once.
    same = copy.deepcopy(base())
    same["comment"] = "x"
    same["steps"][0]["storages"] = [0, 0]
    demand(program.plan(same) == program.plan(base()), "another plan for the same problem")

    # A storage that stays is a storage that each of the steps names, and it raises the floor.
    held = copy.deepcopy(base())
    held["steps"][0]["live_until"] = 2
    named = copy.deepcopy(base())
    for step in named["steps"]:
        del step["live_until"]
    named["steps"][1]["storages"], named["steps"][2]["storages"] = [1, 0], [2, 0]
    demand(program.plan(held) == program.plan(named), "a live range is not what its steps name")
    demand(program.plan(held)["floor_bytes"] > program.plan(base())["floor_bytes"], "a live range costs nothing")

    # A storage of half of the memory that the first and the last step read leaves between them, and comes once a pass.
    ends = {"link": {"bytes_per_second": 55.5e9, "latency_seconds": 2.4e-6}, "budget_bytes": 0, "chunk_bytes": 4096, "cyclic": True,
            "storages": [{"name": "table", "bytes": 49152}] + [{"name": "layer", "bytes": 24576} for _ in range(8)],
            "steps": [{"storages": [i % 9], "compute_seconds": 1e-6} for i in range(10)]}
    plan = program.plan(ends)
    demand(plan["floor_bytes"] == 49152, "the floor is not the largest step:", plan["floor_bytes"])
    table = [c for c in plan["copies"] if c["storage"] == 0]
    demand(table and sum(c["end"] - c["begin"] for c in table) <= 49152, "the table comes more than once, or never:", table)
    demand(all(c["needed_by"] == 9 and c["live_until"] == 0 for c in table), "not from the last step to the first:", table)
    check_shape(Printed(ends, plan, 0))
    check_bytes(Printed(ends, plan, 0), random.Random(1), 4)

    # --budget
    problem = base()
    del problem["budget_bytes"]
    text = json.dumps(problem)
    program.refuses(text, '"budget_bytes" is missing')
    for words, expected in (("24576", 24576), ("24KiB", 24576), ("24 kib", 24576), ("24K", 24576), ("0", 0), ("80%", 28000), ("80.5%", 28175)):
        expected = program.plan(dict(problem, budget_bytes=expected))
        demand(program.plan(problem, ("--budget", words)) == expected, "--budget", words)
    for words, budget in (("200%", 70000), ("35001", 35001)):  # more than the bytes of all, and more than they take on the device or not
        done = program.run(json.dumps(problem), ("-", "--budget=" + words))
        plan = json.loads(done.stdout)
        demand(done.returncode == 0 and plan == program.plan(dict(problem, budget_bytes=budget)), "--budget=" + words)
        used = b"of the budget of %d bytes %d are used" % (budget, plan["held_bytes"]) if plan["bytes_per_pass"] == 0 else b""
        demand(done.stderr.count(b"\n") == (used != b"") and used in done.stderr, "a budget of more than everything takes:", done.stderr)
        demand((used == b"") == (budget == 35001), "the two cases")
    demand(program.plan(base(), ("--budget=24KiB",)) == program.plan(dict(problem, budget_bytes=24576)), "--budget before the file's")
    for words, part in (("", "--budget: 1 required TEXT missing"), (" ", 'found " "'), (" 8", 'found " 8"'), ("8 ", 'found " "'), ("24  KiB", 'found "  KiB"'),
                        ("-5", "no budget is negative"), ("+5", "+5"), ("12 apples", "apples"), ("24KiB;", "KiB;"), ("24Kilo", 'found "Kilo"'),
                        ("24B", 'found "B"'), ("0x10", "x10"), ("1e9", "e9"), ("2.5", "expected a unit"), ("2.KiB", "a digit after the point"), ("%", "expected digits"),
                        ("60  %", 'found "  %"'), ("60%%", "%%"), ("60% free", "% free"), ("101%free", "at most 100%free"), ("Auto", "Auto"),
                        ("18446744073709551616", "beyond 64 bits"), ("16777216TiB", "beyond 64 bits"), ("24KiB\n", "KiB"),
                        ("auto", "no device"), ("60%free", "no device"), ("1KiB", "below the floor"), ("1", "below the floor")):
        program.refuses(text, part, ("-", "--budget=" + words))
        program.refuses(json.dumps(base()), part, ("-", "--budget=" + words))  # and the file's does not stand in for it
    program.refuses("", "FILE", ())
    program.refuses("", "--nonsense", ("-", "--nonsense"))
    program.refuses("", "cannot be opened", (os.path.join(folder, "nothing there"),))
    program.refuses("", folder, (folder,))
    program.refuses("", "cannot be opened", ("two\nlines",))
    program.refuses("", "two\\x0alines", ("two\nlines",))
    pipe = os.path.join(folder, "pipe")
    if not os.path.exists(pipe):
        os.mkfifo(pipe)
    for endless in (pipe, "/dev/zero"):
        program.refuses("", "not a regular file", (endless,))
    file = os.path.join(folder, "problem.json")
    with open(file, "w") as out:
        json.dump(base(), out)
    done = program.run("", (file,))
    demand(done.returncode == 0 and json.loads(done.stdout) == program.plan(base()), "a file is read like standard input")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([program.path, file], stdout=full, stderr=subprocess.PIPE)
        demand(done.returncode == 2 and b"standard output" in done.stderr, "a full disk goes unnoticed")


def check_the_checks(program):
    """Every check is able to fail."""
    problem = dict(base(), budget_bytes=24576)
    plan = program.plan(problem)
    dice = random.Random(1)

    def trips(change):
        spoilt = copy.deepcopy(plan)
        change(spoilt)
        try:
            it = Printed(problem, spoilt, 24576)
            check_shape(it)
            check_times(it)
            check_bytes(it, dice, 3)
            demand(close(spoilt["bound_seconds"], exact_bound(it), 1e-4), "bound")
        except Trouble:
            return True
        return False

    demand(not trips(lambda p: None), "the plan itself is refused")
    changes = [lambda p: p["resident"].pop(), lambda p: p["copies"].pop(), lambda p: p["resident"].append(p["resident"][0]),
               lambda p: p.update(predicted_seconds=p["predicted_seconds"] * 1.01), lambda p: p.update(held_bytes=4096),
               lambda p: p.update(bound_seconds=p["bound_seconds"] * 1.01),
               lambda p: p.update(usual_bound_seconds=p["usual_bound_seconds"] * 1.01),
               lambda p: p["copies"][0].update(to=p["copies"][-1]["to"][:1]),
               lambda p: [c.update(waits_for=None) for c in p["copies"]],
               lambda p: [c.update(needed_by=2) for c in p["copies"]],
               lambda p: p["copies"][0].update(call=5),
               lambda p: p["copies"][0].update(live_until=(p["copies"][0]["live_until"] + 1) % 3)]
    for k, change in enumerate(changes):
        demand(trips(change), "change", k, "goes unnoticed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--problems", type=int, default=72)
    parser.error = lambda message: parser.exit(2, f"{parser.prog}: {message}\n")
    options = parser.parse_args()
    if not shutil.which(options.program):
        parser.error(f"{options.program}: there is no such program: name the built residency-plan")
    program = Program(os.path.abspath(options.program))
    os.makedirs(options.folder, exist_ok=True)
    check_the_checks(program)
    check_the_packed_checks(program)
    check_refusals(program, options.folder)
    for seed in range(options.seed, options.seed + options.problems):
        dice = random.Random(seed)
        problem = random_problem(dice, small=seed % 3 != 0)
        try:
            check_problem(program, problem, dice, small=seed % 3 != 0)
            check_packed_problem(program, random.Random(seed))
        except (Trouble, subprocess.SubprocessError) as trouble:
            print(f"seed {seed}: {trouble}\n{json.dumps(problem)}", file=sys.stderr)
            return 1
    print(f"residency-plan: fine, seeds {options.seed} to {options.seed + options.problems - 1}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        sys.exit(1)
