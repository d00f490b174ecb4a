#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Plausible mistakes of one line, each put into a copy of the headers, where the random programs have to notice it.

    tests/mutation/run.py [--jobs N] [--only PART] [--cxx COMPILER] [--check]

Exits with 1 where a mistake survives, or where the text that it replaces is no longer there exactly once; with --check, the latter
is all that is looked at."""

import argparse
import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXECUTOR = "core/executor.hpp"
TIMELINE = "core/timeline.hpp"
ONLINE = "core/online.hpp"
ENGINE = "core/engine.hpp"
PLANNED = "core/planned.hpp"
CALL_PROGRESS = "core/call_progress.hpp"
SLAB = "pool/slab.hpp"
ORDERED = "pool/stream_ordered.hpp"
PINNED = "transport/pinned.hpp"
JOINED = "transport/joined_copies.hpp"
TOKEN_RING = "plan/impl/token_ring.ipp"
DRAFT = "plan/draft.hpp"
INTERVALS = "plan/interval_ring.hpp"
AGGRESSIVE = "plan/aggressive.hpp"
TIMELINE_OF_PLAN = "plan/timeline.hpp"
PLANNER = "plan/impl/planner.ipp"
ARENA = "plan/arena.hpp"
IMAGE = "plan/image.hpp"
SINGLE_USE_BOUND = "plan/single_use_bound.hpp"

# name, header, text, what it becomes
MISTAKES = [
    ("copies do not wait for uses", EXECUTOR,
     "    if (auto done = reader.timeline.order_after(point, copy_stream_); !done) { return done; }\n", ""),
    ("copies take one use more for waited for", EXECUTOR,
     "if (point <= reader.followed || reader", "if (point <= reader.followed + 1 || reader"),
    ("readers do not wait for arrivals", EXECUTOR,
     "        if (auto done = copies_.order_after(arrival, reader.timeline.stream()); !done) { return done; }\n", ""),
    ("readers take one arrival more for waited for", EXECUTOR,
     "if (arrival <= reader.arrived) { return {}; }", "if (arrival <= reader.arrived + 1) { return {}; }"),
    ("the first reader is not followed", EXECUTOR,
     "    for (ReaderId id = 0; id < readers_.size(); ++id) {\n        if (auto done = follow(id, readers",
     "    for (ReaderId id = 1; id < readers_.size(); ++id) {\n        if (auto done = follow(id, readers"),
    ("a use is recorded for the first storage only", EXECUTOR,
     "for (const StorageId storage : storages) { reader.last_use",
     "for (const StorageId storage : storages.first(storages.empty() ? 0 : 1)) { reader.last_use"),
    ("a reader with open leases goes to another stream", EXECUTOR, "reader.pass == pass_ || reader.leases > 0", "reader.pass == pass_"),
    ("a reader with work outstanding goes to another stream", EXECUTOR,
     "        if (!reader.timeline.is_idle()) { continue; }\n", ""),
    ("an arrival is recorded before the copy", EXECUTOR,
     "    if (auto sent = transport_->enqueue(fetches, copy_stream_); !sent) { return sent.error(); }\n"
     "    auto arrival = copies_.record();\n",
     "    auto arrival = copies_.record();\n"
     "    if (auto sent = transport_->enqueue(fetches, copy_stream_); !sent) { return sent.error(); }\n"),
    ("one point too many is known to be complete", TIMELINE,
     "known_complete(Point point) const noexcept { return point <= complete_; }",
     "known_complete(Point point) const noexcept { return point <= complete_ + 1; }"),
    ("recorded is taken for complete", TIMELINE, "if (point <= complete_) { return {}; }", "if (point <= issued_) { return {}; }"),
    ("an event is recorded over the one before", TIMELINE,
     "device_->record(event(issued_ + 1), stream_)", "device_->record(event((std::max)(issued_, Point{1})), stream_)"),
    ("polling takes everything for complete", TIMELINE, "    if (*all) {\n", "    if (*all || issued_ > 3) {\n"),
    ("a leased storage leaves for a miss", ONLINE,
     "return stage_.tenants[index(id)].leases == 0 && marks_[index(id)] != epoch_;", "return marks_[index(id)] != epoch_;"),
    ("what is asked for leaves for the rest of it", ONLINE,
     "return stage_.tenants[index(id)].leases == 0 && marks_[index(id)] != epoch_;", "return stage_.tenants[index(id)].leases == 0;"),
    ("a leased storage leaves for a guess", ONLINE, "if (tenant.leases > 0 || tenant.hollow) { return false; }", "if (tenant.hollow) { return false; }"),
    ("what is about to be sent leaves for a guess", ONLINE,
     "if (tenant.leases > 0 || tenant.hollow) { return false; }", "if (tenant.leases > 0) { return false; }"),
    ("what was just brought leaves for a guess", ONLINE,
     "        for (const StorageId id : wanted) { ++stage_.tenants[index(id)].leases; }\n        pump(now);\n"
     "        for (const StorageId id : wanted) { --stage_.tenants[index(id)].leases; }\n", "        pump(now);\n"),
    ("the memory of a victim is given away while it is read", ONLINE,
     "    if (auto followed = stage_.executor->follow_uses(id); !followed) { return followed; }\n", ""),
    ("a victim that was half sent is forgotten", ONLINE, "    if (id == partial_.storage) { partial_ = {}; }\n", ""),
    ("half a storage is taken for all of it", ONLINE,
     "tenant.hollow = fetch.offset_bytes + fetch.bytes < raw_bytes_[index(fetch.storage)];", "tenant.hollow = false;"),
    ("the rest of a storage goes to its beginning", ONLINE,
     "raw_bytes_[index(id)] - from, stage_.tenants[index(id)].address + from,", "raw_bytes_[index(id)] - from, stage_.tenants[index(id)].address,"),
    ("an arrival is the one before", ONLINE, "    tenant.arrival = arrival;\n", "    tenant.arrival = arrival - 1;\n"),
    ("what was taken back keeps its address", ONLINE,
     "stage_.executor->copy_stream())) { continue; }\n        leave(id);\n", "stage_.executor->copy_stream())) { continue; }\n"),
    ("a lease is not counted", ENGINE,
     "    for (const StorageId storage : storages) { ++tenants_[index(storage)].leases; }\n    if (reader) {",
     "    if (reader) {"),
    ("the end of a lease is not counted", ENGINE,
     "    for (const StorageId storage : lease.storages) { --tenants_[index(storage)].leases; }\n    decider_.released",
     "    decider_.released"),
    ("a lease waits for the first arrival only", ENGINE,
     "arrival = (std::max)(arrival, tenants_[index(storage)].arrival);",
     "arrival = arrival == 0 ? tenants_[index(storage)].arrival : (std::min)(arrival, tenants_[index(storage)].arrival);"),
    ("only leases on what never leaves are recorded", ENGINE,
     "return !std::ranges::all_of(storages, [&](StorageId id) { return decider_.never_leaves(id); });",
     "return std::ranges::all_of(storages, [&](StorageId id) { return decider_.never_leaves(id); });"),
    ("one that never leaves stands for all", ENGINE,
     "return !std::ranges::all_of(storages, [&](StorageId id) { return decider_.never_leaves(id); });",
     "return !std::ranges::any_of(storages, [&](StorageId id) { return decider_.never_leaves(id); });"),
    ("a storage is asked for twice", ENGINE,
     "if (std::exchange(seen_[index(storage)], epoch_) != epoch_) { wanted_.push_back(storage); }",
     "wanted_.push_back(storage);"),
    ("the offset of a weight is lost", ENGINE, "+ weight_offset_[index(weight)];", "+ 0 * weight_offset_[index(weight)];"),
    ("nobody waits for the residents", ENGINE,
     "    for (const transport::Fetch& fetch : fetches) { tenants_[index(fetch.storage)].arrival = *arrival; }\n", ""),
    ("slots lie one too far", SLAB, "static_cast<void*>(first_ + slot * slot_)", "static_cast<void*>(first_ + (slot + 1) * slot_)"),
    ("slots overlap", SLAB, "static_cast<void*>(first_ + slot * slot_)", "static_cast<void*>(first_ + slot * slot_ - slot)"),
    ("a piece more than the budget has", SLAB, "> cap_pieces_) { --slots; }", "> cap_pieces_ + 1) { --slots; }"),
    ("memory goes back while a lease behind the slots is open", SLAB,
     "        if (used_[slot]) { want(slot * slot_ / piece_, pieces_of(slot + 1)); }\n", ""),
    ("the cap is rounded up", ORDERED,
     "limit_ = round_down(cap_bytes, device.pool_granularity());", "limit_ = round_up(cap_bytes + 1, device.pool_granularity());"),
    ("what comes back is counted without its rounding", ORDERED, "requested_ -= occupied(bytes);", "requested_ -= bytes;"),
    ("what is handed out is not counted", ORDERED, "        requested_ += taken;\n", ""),
    ("neighbours on the host are taken for neighbours on the device", JOINED,
     "== from &&\n                static_cast<std::byte*>(last.to) + last.bytes == fetch.to) {", "== from) {"),
    ("pieces come from the beginning of their storage", PINNED, "source.at + fetch.offset_bytes", "source.at"),
    ("a planned copy does not wait for its step", PLANNED, "(waits && after >= steps_.ended())", "(waits && after > steps_.ended())"),
    ("a leased chunk is given away", PLANNED, "(marks_[occupant] != epoch_ && !is_leased(occupant))", "(marks_[occupant] != epoch_)"),
    ("a lease at rest is not counted", PLANNED, "        account(wanted, position, false);\n        return {};",
     "        for (const StorageId id : wanted) { stage_.count_access(id, plan_.storage_bytes(index(id))); }\n        return {};"),
    ("leases off the plan are forgotten", PLANNED, "return calls_.is_cautious() || unplanned_ > 0 || !guests_.empty();", "return false;"),
    ("a graph has a call too many", CALL_PROGRESS, "next_ < end_of_capture()", "next_ <= end_of_capture()"),
    ("a one-shot plan that begins anew trusts what is there", CALL_PROGRESS, "        cautious_until_ = next_ + calls_;\n", ""),
    ("a piece comes before the reader of its block is over", TOKEN_RING, "        if (!previous && wait >= use.first) { return false; }\n", ""),
    ("a call of several steps waits for its own reader", TOKEN_RING, "if (!previous && wait >= back.needed_by) { return false; }", ""),
    ("a call of several pieces waits for the first only", TOKEN_RING,
     "                back.wait_step = wait;\n                back.wait_previous = previous;\n", ""),
    ("all chunks of a piece go to one slot", TOKEN_RING, "out.slots.push_back(slot++);", "out.slots.push_back(slot);"),
    ("a shared chunk is free after its first reader", TOKEN_RING, "use.last = (std::max)(use.last, now.last);", "use.last = now.first;"),
    ("the search knows no latency", TOKEN_RING, "latency_ * (config_.captured ? use.runs : 1) + transfer", "transfer"),
    ("a call of which nothing is left takes its wait with it", DRAFT, "if (order(call.wait) < order(carried)) { call.wait = carried; }", ""),
    ("chunks that share a slot stay", DRAFT, "if (user[slot] != none && user[slot] != c) { is_shared[slot] = true; }", ""),
    ("neighbours of two calls are one copy", DRAFT,
     "while (next < draft.moves.size() && draft.moves[next].call == number &&", "while (next < draft.moves.size() &&"),
    ("a cell takes the slot of its own step", INTERVALS,
     "if (released >= static_cast<std::int64_t>(cell.first)) { return false; }",
     "if (released > static_cast<std::int64_t>(cell.first)) { return false; }"),
    ("a slot is free after the first reader", INTERVALS, "free.emplace(cell.last, slot, slot);", "free.emplace(cell.first, slot, slot);"),
    ("what is used sooner leaves", AGGRESSIVE, "if (use <= step || (fixed && use != none)) { break; }", "if (fixed && use != none) { break; }"),
    ("a load waits for one of its victims", AGGRESSIVE,
     "if (last != none && (!wait.exists() || last > wait.step)) { wait = {last, 0}; }",
     "if (last != none && !wait.exists()) { wait = {last, 0}; }"),
    ("every wait is one of the pass before", TIMELINE_OF_PLAN,
     "const double at = call.wait_previous ? before_[call.wait_step] : after_[call.wait_step];",
     "const double at = before_[call.wait_step];"),
    ("a budget of one chunk too few is taken", PLANNER, "if (budget < floor.chunks) {", "if (budget + 1 < floor.chunks) {"),
    ("a storage runs over the end of the ring", ARENA, "if (at + room_of(s) > ring) { at = 0; }", ""),
    ("a shared chunk is read by the first storage only", IMAGE,
     "shared.last = shared.last == none ? cell.last : (std::max)(shared.last, cell.last);",
     "shared.last = shared.last == none ? cell.last : shared.last;"),
    ("a chunk of a pinned storage streams with its neighbour", IMAGE, "shared.keep = shared.keep || cell.keep;", ""),
    ("a ring looks at one window too many", SINGLE_USE_BOUND, "work_[i] + work_[(i + 1) % n]);", "work_[i] + 3 * work_[(i + 1) % n]);"),
]


def prepare(folder, cxx):
    """A copy of the headers, and what every mutant includes or links unchanged, compiled once."""
    shutil.copytree(ROOT / "include", folder / "include")
    (folder / "common.hpp").write_text('#pragma once\n#include <algorithm>\n#include <functional>\n#include <random>\n'
                                       '#include <string>\n#include <vector>\n#include "residency/device/simulated.hpp"\n'
                                       '#include "residency/model/catalog_builder.hpp"\n#include "residency/plan/planner.hpp"\n')
    subprocess.run([*compiler(folder, cxx), "-x", "c++-header", folder / "common.hpp", "-o", folder / "common.hpp.gch"], check=True)
    subprocess.run([*compiler(folder, cxx), "-c", ROOT / "tests/model_based/run.cpp", "-o", folder / "run.o"], check=True)


def compiler(folder, cxx):
    return [cxx, "-std=c++20", "-O0", "-w", "-DRESIDENCY_TEST_COMPOSITIONS_HERE", f"-I{folder / 'include'}", f"-I{ROOT}"]


def build_and_run(folder, cxx, programs):
    """None: it does not compile. True: the programs pass. Otherwise what they say."""
    program = folder / "program"
    if programs == "PLAN":  # nothing is compiled beforehand of the planner itself
        source = [ROOT / "tests/mutation/plan_program.cpp"]
    elif programs == "GRAPHS":  # programs that capture passes too
        source = [ROOT / "tests/main.cpp", ROOT / "tests/planned/random.cpp"]
    else:
        source = [programs, "-include", folder / "common.hpp", ROOT / "tests/mutation/program.cpp", folder / "run.o"]
    built = subprocess.run([*compiler(folder, cxx), *source, "-o", program], capture_output=True, text=True)
    if built.returncode != 0:
        return None, built.stderr
    try:
        done = subprocess.run([program], capture_output=True, text=True, timeout=900, errors="replace")
    except subprocess.TimeoutExpired:
        return False, "it does not end"
    lines = (done.stdout + done.stderr).strip().splitlines()
    said = [line for line in lines if "ERROR" in line] or lines or [f"exit status {done.returncode}"]
    return done.returncode == 0, said[0]


def programs_for(header):
    """The random programs that have to notice a mistake in a header: PLAN, GRAPHS, or what tells program.cpp which of its own."""
    if header.startswith("plan/"):
        return "PLAN"
    if header in (PLANNED, CALL_PROGRESS):
        return "GRAPHS"
    return "-DONLY_PLANNED" if header == PINNED else "-DONLY_ONLINE"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="mistakes with this in their name or header")
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--check", action="store_true", help="only look whether every text is there")
    arguments = parser.parse_args()

    stale = False
    for name, header, old, _ in MISTAKES:
        found = (ROOT / "include/residency" / header).read_text().count(old)
        if found != 1:
            print(f"{header}: the text of “{name}” is there {found} times")
            stale = True
    if stale or arguments.check:
        return int(stale)
    chosen = [each for each in MISTAKES if arguments.only in each[0] or arguments.only in each[1]]

    with tempfile.TemporaryDirectory() as temporary:
        folders = queue.Queue()
        for i in range(arguments.jobs):
            folder = pathlib.Path(temporary) / str(i)
            prepare(folder, arguments.cxx)
            folders.put(folder)
        folder = folders.get()
        for programs in sorted({programs_for(each[1]) for each in chosen}):
            passes, text = build_and_run(folder, arguments.cxx, programs)
            if not passes:
                print(f"without a mistake: {text}")
                return 1
        folders.put(folder)

        def try_one(mistake):
            name, header, old, new = mistake
            folder = folders.get()
            path = folder / "include/residency" / header
            right = path.read_text()
            try:
                path.write_text(right.replace(old, new))
                return mistake, *build_and_run(folder, arguments.cxx, programs_for(header))
            finally:
                path.write_text(right)
                folders.put(folder)

        survivors = []
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for (name, header, _, _), passes, text in pool.map(try_one, chosen):
                verdict = "does not compile" if passes is None else "SURVIVES" if passes else "caught"
                print(f"{verdict:9} {header}: {name}" + (f"\n          {text[:200]}" if not passes else ""), flush=True)
                if passes is not False:
                    survivors.append(name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mistakes caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
