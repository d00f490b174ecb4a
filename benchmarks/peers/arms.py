# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The ways to run the same pass inside the same budget. Each arm has run(), which enqueues a pass and does not wait."""

import ctypes
from collections import namedtuple

import torch

import split
from streamed import Weights

Bench = namedtuple("Bench", "device model work host seconds link")  # link: bytes a second, seconds a copy


class Arm:
    """`graph`: the same pass, replayed; None where there is none."""

    graph = None

    def close(self):
        pass


class Ours(Arm):
    """The preset Planned."""

    def __init__(self, bench, library, budget, captured):
        self.weights = Weights(library, budget, bench.seconds, captured, bench.device.compute.cuda_stream)
        views = [bench.device.bytes_at(address, weight.bytes).view(torch.bfloat16).view(weight.shape)
                 for address, weight in zip(self.weights.addresses(), bench.model.weights)]
        self.operations = bench.work.bind(views)
        self.weights.drain()
        self.figures = self.weights.figures()

    def run(self):
        self.weights.run(self.operations)

    def capture(self):
        self.weights.capture(self.operations)
        self.graph = self.weights.launch

    def close(self):
        self.weights.drain()
        self.weights.close()


class Ring(Arm):
    """Units that stay, and units that are copied through a ring on a stream of their own, as far ahead as what they overwrite has
    been read, across the end of a pass into the next."""

    def __init__(self, bench, arena, units, chosen):
        device, model = bench.device, bench.model
        self.device, self.host, self.arena = device, bench.host, arena
        self.ago = chosen.blockers
        ring_at = dict(zip(chosen.streamed, chosen.offsets))
        views, end = [None] * len(model.weights), chosen.ring
        self.copies, self.turns = [], []  # (to, from) by streamed unit; (streamed?, calls) by unit
        for number, unit in enumerate(units):
            streamed = number in ring_at
            at = ring_at[number] if streamed else end
            end += 0 if streamed else split.rounded(unit.bytes)
            to, source = arena[at:at + unit.bytes], bench.host[unit.offset:unit.offset + unit.bytes]
            if streamed:
                self.copies.append((to, source))
            else:
                to.copy_(source)
            for step in unit.steps:
                for weight in model.steps[step]:
                    there = model.weights[weight]
                    views[weight] = model.view(arena, there, at + there.offset - unit.offset)
        if end > arena.numel():
            raise ValueError(f"the split needs {end} bytes and the budget has {arena.numel()}")
        operations = bench.work.bind(views)
        for number, unit in enumerate(units):
            calls = [call for step in unit.steps for call in operations[step]]
            self.turns.append((number in ring_at, calls))
        self.stream = device.new_stream()
        self.arrived, self.read = self._events(), self._events()
        self.fetched = self.used = 0
        device.drain()

    def _events(self):
        return [self.device.new_event() for _ in self.copies]

    def run(self, before=0, there=0):
        """`before`, `there`: uses that are over, and copies that are there, without an event that says so."""
        count, compute = len(self.copies), self.device.compute
        for streamed, calls in self.turns:
            if streamed:
                self._fetch(before)
                turn = self.used % count
                if self.used >= there:
                    compute.wait_event(self.arrived[turn])
            for call in calls:
                call()
            if streamed:
                self.read[turn].record(compute)
                self.used += 1
                self._fetch(before)

    def _fetch(self, before):
        count = len(self.copies)
        while self.fetched < self.used + count:
            turn = self.fetched % count
            blocker = self.fetched - self.ago[turn]
            if blocker >= self.used:
                return
            if blocker >= before:
                self.stream.wait_event(self.read[blocker % count])
            self.device.copy(*self.copies[turn], self.stream)
            self.arrived[turn].record(self.stream)
            self.fetched += 1

    def capture(self):
        """The copies that run ahead into the next pass ride at the end of the graph."""
        self.run()
        self.device.drain()
        outside = self.arrived, self.read, self.fetched, self.used
        self.arrived, self.read = self.inside = self._events(), self._events()

        def work():
            self.stream.wait_stream(self.device.compute)
            self.run(before=self.used, there=self.fetched)
            self.device.compute.wait_stream(self.stream)

        graph = self.device.capture(work)
        ahead = self.fetched - self.used
        self.arrived, self.read, self.fetched, self.used = outside
        if ahead != self.fetched - self.used:
            raise RuntimeError("a graph of a pass leaves other copies ahead than it found")
        self.graph = graph.replay


class Resident(Ring):
    """Everything stays."""

    def __init__(self, bench):
        units = bench.model.by_tensor()
        arena = bench.device.arena(sum(split.rounded(unit.bytes) for unit in units))
        super().__init__(bench, arena, units, split.lay_out(units, (), 0))


class ZeroCopy(Arm):
    """Tensors stay as far as the budget goes, the first ones; kernels read the others from the host."""

    def __init__(self, bench, arena, mapped):
        views, end = [], 0
        for weight in bench.model.weights:
            if end + weight.bytes <= arena.numel():
                view = bench.model.view(arena, weight, end)
                view.copy_(bench.model.view(bench.host, weight))
                end += split.rounded(weight.bytes)
            else:
                view = bench.model.view(mapped, weight)
            views.append(view)
        self.calls = [call for calls in bench.work.bind(views) for call in calls]

    def run(self):
        for call in self.calls:
            call()


class Matrix(torch.nn.Module):
    """A step as a module."""

    def __init__(self, bench, step):
        super().__init__()
        *norm, matrix = [torch.nn.Parameter(bench.model.view(bench.host, bench.model.weights[weight]),
                                            requires_grad=False) for weight in bench.model.steps[step]]
        self.norm, self.weight = norm[0] if norm else None, matrix
        self.bind = bench.work.bind_step
        self.step = step

    def forward(self, token):
        for call in self.bind(self.step, [*(() if self.norm is None else (self.norm,)), self.weight]):
            call()
        return token


class Accelerate(Arm):
    """accelerate's hooks over pinned parameters: modules stay as far as the budget goes, the head and the first ones, beside room
    for the largest of the others."""

    def __init__(self, bench, budget):
        import accelerate

        units = bench.model.by_tensor()
        self.token = torch.zeros(1, device=bench.device.torch)
        modules = [Matrix(bench, step) for step in range(len(units))]
        self.module = torch.nn.Sequential(*modules)
        if not bench.device.is_cuda:
            self.module = accelerate.cpu_offload(self.module, execution_device=bench.device.torch)
            return
        # What torch's allocator takes of the driver: small blocks come two to 20 MiB.
        sizes = [max(10 * 2**20, -(-unit.bytes // 2**21) * 2**21) for unit in units]
        head, left = len(units) - 1, budget - 2**26
        room = max(sizes[:head])
        order = [head, *range(head)] if sizes[head] + room <= left else range(head + 1)
        left -= room if order[0] == head else max(sizes)
        places = {}
        for step in order:
            left = left - sizes[step] if sizes[step] <= left else -1
            places[str(step)] = "cpu" if left < 0 else 0
        if 0 not in places.values():
            raise ValueError("nothing fits beside the largest module")
        self.module = accelerate.dispatch_model(self.module, places, main_device=0)

    def run(self):
        self.module(self.token)

    def close(self):
        from accelerate.hooks import remove_hook_from_module

        remove_hook_from_module(self.module, recurse=True)
        self.module = None
