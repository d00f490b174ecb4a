#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The library beside what else streams weights, in one run: the same PyTorch operations, the same weights in the same pinned
memory, the same budget as the driver counts it, passes of the arms in turns, the host waiting once a pass as an engine that samples
a token does. Outputs must equal those of the resident pass bit for bit."""

import argparse
import gc
import os
import sys
import time
import traceback

sys.dont_write_bytecode = True

try:
    import torch
except ImportError as error:
    print(f"skipped: no PyTorch: {error}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import split
import tables
from arms import Accelerate, Bench, Ours, Resident, Ring, ZeroCopy
from device import Cuda, Host
from model import Model, Work
from records import Records
from streamed import Library, StreamedError

GRANULE = 2**21  # what device memory comes in
STREAMING = ("layers", "tensors", "accelerate")
LAYER_TARGETS = {50: ">= 1.1", 90: ">= 1.6", 95: ">= 2"}
ENOUGH = 20  # passes, for a median


def median(values):
    return sorted(values)[len(values) // 2]


class Arms:
    """The arms of one budget, built, checked and measured in turns."""

    def __init__(self, bench, records, name, budget, reference):
        self.bench, self.records, self.name, self.budget = bench, records, name, budget
        self.reference = reference
        self.arms, self.runs, self.times, self.wrong = [], {}, {}, {}
        self.failed = []

    def build(self, name, make, modes=("eager", "graph")):
        """Makes an arm, counts what it takes of the device, and checks its passes. None where it cannot run or fails."""
        device = self.bench.device
        modes = [mode for mode in modes if mode == "eager" or device.is_cuda]
        names = {mode: name if mode == "eager" else name + ".graph" for mode in modes}
        made = []

        def first_pass():
            made.append(make())
            made[0].run()

        try:
            taken = device.bytes_taken(first_pass)
            if name != "resident":
                self.records.add(f"{self.name}{names[modes[0]]}.device_bytes_over_budget", taken / self.budget, "ratio",
                                 "<= 1")
            if "eager" in modes:
                self.add(names["eager"], made[0].run)
            if "graph" in modes:
                made[0].capture()
                self.add(names["graph"], made[0].graph)
            return made[0]
        except ValueError as error:
            print(f"{name} cannot run at this budget: {error}", flush=True)
        except Exception:
            self.failed.append(self.name + name)
            print(f"FAILED: {self.name}{name}", flush=True)
            traceback.print_exc()
        finally:
            self.arms += made
        return None

    def add(self, name, run):
        self.runs[name], self.times[name], self.wrong[name] = run, [], 0
        self.bench.device.drain()
        self.bench.work.outputs.zero_()
        run()
        self.check(name)

    def check(self, name):
        self.bench.device.drain()
        got, expected = (each.view(torch.int16) for each in (self.bench.work.outputs, self.reference))
        self.wrong[name] += int((got != expected).sum())

    def measure(self, name, passes):
        """Some passes in a row; the first, which finds what the arm brought while others ran, does not count."""
        run, wait = self.runs[name], self.bench.device.wait
        self.bench.device.drain()
        for number in range(passes + 1):
            begin = time.perf_counter()
            run()
            wait()
            if number > 0:
                self.times[name].append(time.perf_counter() - begin)
        self.check(name)

    def close(self):
        self.bench.device.drain()
        self.runs.clear()
        while self.arms:
            self.arms.pop().close()
        gc.collect()


def search(bench, arena, units, candidates, count):
    """The split whose passes are the fastest, of those that the simulation likes best."""
    found = []
    for chosen in split.best(units, candidates, bench.seconds, bench.link[:2], count):
        arm = Ring(bench, arena, units, chosen)
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            arm.run()
            bench.device.wait()
            times.append(time.perf_counter() - begin)
        bench.device.drain()
        found.append((min(times[1:]), chosen))
    if not found:
        raise ValueError("no split fits")
    found.sort(key=lambda each: each[0])
    chosen = found[0][1]
    names = ", ".join(f"{seconds * 1e3:.2f}" for seconds, _ in found)
    print(f"  split: {len(chosen.streamed)} of {len(units)} units streamed "
          f"({sum(units[unit].bytes for unit in chosen.streamed) / 1e6:.0f} MB) through a ring of {chosen.ring / 1e6:.0f} MB; "
          f"measured ms: {names}; of {len(candidates)} candidates", flush=True)
    return chosen


def measure_budget(bench, records, library, mapped, reference, percent, options, clock):
    """All arms at one budget; by arm the median seconds of a pass."""
    model, device = bench.model, bench.device
    name = f"peers.{percent:g}%."
    budget = int(model.bytes * percent / 100)
    print(f"\n== {percent:g} % of the weights: {budget / 1e9:.3f} GB; {clock.left():.0f} s left", flush=True)
    rate = device.copy_rate(bench.host) or bench.link[0]
    records.add(name + "link.rate", rate / 1e9, "GB/s")
    bench = bench._replace(link=(rate, *bench.link[1:]))
    if library:
        library.set_rate(rate)
    arms = Arms(bench, records, name, budget, reference)
    arena_bytes = budget // GRANULE * GRANULE if device.is_cuda else budget
    ours = bound = floor = None
    try:
        if library:
            ours = arms.build("ours", lambda: Ours(bench, library, budget, False), ("eager",))
            if device.is_cuda:
                arms.build("ours", lambda: Ours(bench, library, budget, True), ("graph",))
        if ours:
            bound, floor = ours.figures["bound"], max(ours.figures["bound"], ours.figures["latency_floor"])
            records.add(name + "bound", bound * 1e3, "ms")
            records.add(name + "bound_or_latency_floor", floor * 1e3, "ms")
            records.add(name + "ours.bytes_a_pass_over_deficit",
                        ours.figures["bytes_a_pass"] / max(1, model.bytes - budget), "ratio")
        for arm, units, candidates, count in (
                ("layers", model.by_layer(), split.by_layers, 3), ("tensors", model.by_tensor(), split.by_tensors, 4)):

            def ring():
                arena = device.arena(arena_bytes)
                chosen = search(bench, arena, units, candidates(units, arena_bytes), count)
                return Ring(bench, arena, units, chosen)

            arms.build(arm, ring)
        # Long passes in fewer rounds: the first of each does not count.
        a_pass = 1.05 * (model.bytes - budget) / rate
        rounds = min(options.rounds, 2) if a_pass > 0.1 else options.rounds
        passes = -(-options.passes // rounds)
        seconds = rounds * (passes + 1) * a_pass
        if device.is_cuda and clock.left() < len(arms.runs) * seconds + 3 * (seconds + 5 * a_pass):
            print("accelerate and zero-copy reads are left out here: not enough time", flush=True)
        else:
            if options.accelerate:
                arms.build("accelerate", lambda: Accelerate(bench, budget), ("eager",))
            if mapped is not None:
                arms.build("zero_copy", lambda: ZeroCopy(bench, device.arena(arena_bytes), mapped), ("eager",))
        arms.build("resident", lambda: Resident(bench))
        long_arms = sum(not arm.startswith("resident") for arm in arms.runs)
        if device.is_cuda and clock.left() < long_arms * seconds:
            passes = max(1, int(clock.left() / (long_arms * rounds * a_pass)) - 1)
            print(f"only {rounds * passes} passes here: not enough time", flush=True)

        gc.collect()
        gc.disable()
        for _ in range(rounds):
            for arm in arms.runs:
                arms.measure(arm, passes)
        gc.enable()
        print(f"  {rounds} rounds of {passes} passes", flush=True)
        records.add(name + "link.rate_afterwards", (device.copy_rate(bench.host) or rate) / 1e9, "GB/s")
        times = {arm: median(each) for arm, each in arms.times.items()}
        for arm, seconds in times.items():
            records.add(f"{name}{arm}.time", seconds * 1e3, "ms")
            records.add(f"{name}{arm}.passes", len(arms.times[arm]), "passes", f">= {ENOUGH}")
            records.add(f"{name}{arm}.wrong_outputs", arms.wrong[arm], "outputs", "<= 0")
        compare(records, name, percent, times, bound, floor)
        return arms.failed
    finally:
        gc.enable()
        arms.close()
        records.write()


def compare(records, name, percent, times, bound, floor):
    if "ours" not in times:
        return
    for arm in ("ours", "ours.graph"):
        if arm in times:
            records.add(f"{name}{arm}.time_over_bound", times[arm] / bound, "ratio")
            records.add(f"{name}{arm}.time_over_bound_or_latency_floor", times[arm] / floor, "ratio",
                        "<= 1.01" if arm == "ours" else "")
    peers = {arm: seconds for arm, seconds in times.items() if arm.split(".")[0] in STREAMING}
    for arm, seconds in times.items():
        if not arm.startswith(("ours", "resident")):
            records.add(f"{name}{arm}_over_ours", seconds / times["ours"], "ratio")
    eager = {arm: seconds for arm, seconds in peers.items() if not arm.endswith(".graph")}
    graphs = {arm: seconds for arm, seconds in peers.items() if arm.endswith(".graph")}
    if peers:
        records.add(name + "best_peer_over_ours", min(peers.values()) / times["ours"], "ratio", ">= 1")
        records.add(name + "best_eager_peer_over_ours", min(eager.values()) / times["ours"], "ratio", ">= 1")
    if graphs and "ours.graph" in times:
        records.add(name + "best_graph_over_our_graph", min(graphs.values()) / times["ours.graph"], "ratio", ">= 1")
    layers = [seconds for arm, seconds in times.items() if arm.startswith("layers")]
    if layers:
        records.add(name + "best_layer_wise_over_ours", min(layers) / times["ours"], "ratio",
                    LAYER_TARGETS.get(percent, ""))


def positive(text):
    """Of the command line: a number of something."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number from 1 on')
    return value


def percents(text):
    """Of the command line: shares of the weights."""
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(0 < value < 100 for value in values):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of percents above 0 and below 100, as 90,50,10')
    return values


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries everything but the GPU; times mean nothing")
    add("--library", help="what streamed.cpp was built into, for --device cpu without WITH_CUDA; without it only the peers run")
    add("--layers", type=positive, default=32)
    add("--hidden", type=positive, default=4096)
    add("--inner", type=positive, default=14336)
    add("--key-value", type=positive, default=1024)
    add("--vocabulary", type=positive, default=128256)
    add("--budgets", type=percents, default="90,50,95,75,25,10", help="percent of the weights, the most wanted first")
    add("--rounds", type=positive, default=4, help="in which the arms take turns; two at most where passes are long")
    add("--passes", type=positive, default=ENOUGH, help="of an arm in all rounds, beside the first of each, which does not count")
    add("--seconds", type=float, default=218, help="for everything; what does not fit is left out, and said")
    parser.error = lambda message: parser.exit(2, f"{parser.prog}: {message}\n")
    options = parser.parse_args()
    clock = Clock(options.seconds)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)

    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    try:
        import accelerate
        import logging

        logging.getLogger("accelerate").setLevel(logging.ERROR)
        options.accelerate = True
        print(f"torch {torch.__version__}, accelerate {accelerate.__version__}", flush=True)
    except ImportError as error:
        options.accelerate = False
        print(f"torch {torch.__version__}; accelerate's arm is skipped: {error}", flush=True)

    device = Cuda() if options.device == "cuda" else Host()
    library = None
    if options.library:
        try:
            library = Library(options.library)
        except (OSError, StreamedError) as error:
            print(f"{parser.prog}: --library: {error}: '.ci/gpu build' makes it", file=sys.stderr)
            return 2
    else:
        print("no --library: only the peers run", flush=True)
    records = Records("gpu-peers", device.name)

    model = Model(options.layers, options.hidden, options.inner, options.key_value, options.vocabulary)
    if library:
        address = library.pinned(model.bytes)
        host = Host().bytes_at(address, model.bytes)
    else:
        host = torch.empty(model.bytes, dtype=torch.uint8, pin_memory=device.is_cuda)
        address = host.data_ptr()
    model.fill(host, device.torch)
    device.drain()
    print(f"{model.bytes / 1e9:.2f} GB of pinned weights after {options.seconds - clock.left():.1f} s", flush=True)
    mapped = device.bytes_at(library.device_view(address) if library else address, model.bytes)

    link = (55.5e9, 2.4e-6, 2.7e-6)
    if library:
        library.describe(address, model.bytes, [weight.offset for weight in model.weights],
                         [weight.bytes for weight in model.weights], model.steps)
        link = library.measure_link()
    records.add("peers.weights", model.bytes / 1e9, "GB")
    records.add("peers.link.rate", link[0] / 1e9, "GB/s")
    records.add("peers.link.latency", link[1] * 1e6, "us")

    work = Work(model, device.torch)
    bench = Bench(device, model, work, host, None, link)
    resident = Resident(bench)
    for _ in range(3):  # libraries loaded, workspaces there
        resident.run()
        device.drain()
    reference = work.outputs.clone()
    operations = [calls for _, calls in resident.turns]
    seconds = device.step_seconds(operations)
    begin = time.perf_counter()
    resident.run()
    device.wait()
    whole = time.perf_counter() - begin
    # The events between steps cost time too, which is not the steps'.
    seconds = [each * min(1.0, whole / sum(seconds)) for each in seconds]
    records.add("peers.resident.sum_of_steps", sum(seconds) * 1e3, "ms")
    records.add("peers.resident.pass", whole * 1e3, "ms")
    bench = bench._replace(seconds=seconds)
    del resident, operations
    gc.collect()
    if library:  # what the driver allocates once and keeps is not of the first budget
        for captured in (False, True):
            ours = Ours(bench, library, model.bytes // 2, captured)
            ours.run()
            if captured and device.is_cuda:
                ours.capture()
                ours.graph()
            ours.close()

    failures = []
    for percent in options.budgets:
        expected = (1 - percent / 100) * model.bytes / link[0] * 190 + 8
        if device.is_cuda and clock.left() < expected:
            print(f"\nNOT MEASURED: {percent:g} % takes at least {expected:.0f} s, and {clock.left():.0f} s are left")
            failures.append(f"{percent:g} %")
            continue
        failures += measure_budget(bench, records, library, mapped, reference, percent, options, clock)
    print("\n" + "\n".join(tables.peers(records.entries)))
    records.write()
    print(f"\n{options.seconds - clock.left():.0f} s in all", flush=True)
    del mapped, host, bench
    if library:
        device.drain()
        library.unpin(address)
        library.close()
    wrong = any(entry["name"].endswith("wrong_outputs") and entry["value"] > 0 for entry in records.entries)
    if failures:
        print("failed or not measured: " + ", ".join(failures))
    return 1 if wrong or failures else 0


if __name__ == "__main__":
    sys.exit(main())
