# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What the arms need of a device: a GPU, or the host in its place, where everything happens at once."""

import ctypes

import torch


class Cuda:
    """One compute stream, which is torch's current one from here on."""

    is_cuda = True

    def __init__(self):
        self.name = torch.cuda.get_device_name()
        self.torch = torch.device("cuda", torch.cuda.current_device())
        self.compute = torch.cuda.Stream()
        torch.cuda.set_stream(self.compute)

    def new_stream(self):
        return torch.cuda.Stream()

    def new_event(self):
        return torch.cuda.Event()

    def copy(self, to, source, stream):
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)

    def wait(self):
        self.compute.synchronize()

    def drain(self):
        torch.cuda.synchronize()

    def bytes_taken(self, work):
        """The device bytes that `work` leaves taken as the driver counts them, or took at its peak by torch's allocator."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        free, reserved = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        work()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_reserved() - reserved
        torch.cuda.empty_cache()
        return max(free - torch.cuda.mem_get_info()[0], peak)

    def copy_rate(self, host, rounds=3, pieces=16, piece=2**27):
        """Bytes a second of bare long copies from there, just now; the median of some rounds."""
        pieces = min(pieces, host.numel() // piece)
        if pieces == 0:
            return None
        to, rates = self.arena(piece), []
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for number in range(rounds + 1):
            begin.record()
            for at in range(0, pieces * piece, piece):
                to.copy_(host[at:at + piece], non_blocking=True)
            end.record()
            end.synchronize()
            if number > 0:
                rates.append(pieces * piece / (begin.elapsed_time(end) / 1e3))
        return sorted(rates)[rounds // 2]

    def arena(self, count):
        return torch.empty(count, dtype=torch.uint8, device=self.torch)

    def bytes_at(self, address, count):
        """Bytes that somebody else owns, as a tensor."""

        class Range:
            __cuda_array_interface__ = {
                "shape": (count,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3}

        return torch.as_tensor(Range(), device=self.torch)

    def capture(self, work):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.compute, capture_error_mode="thread_local"):
            work()
        return graph

    def step_seconds(self, operations, passes=5):
        """How long each step takes with everything there: the median of some passes that the host is ahead of."""
        times = []
        for _ in range(passes):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(len(operations) + 1)]
            torch.cuda._sleep(50_000_000)
            events[0].record()
            for calls, event in zip(operations, events[1:]):
                for call in calls:
                    call()
                event.record()
            self.wait()
            times.append([a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:])])
        return [sorted(each)[passes // 2] for each in zip(*times)]


class HostStream:
    cuda_stream = None

    def wait_event(self, event):
        assert event.is_recorded, "a wait for an event that was never recorded orders nothing"

    def wait_stream(self, other):
        pass


class HostEvent:
    is_recorded = False

    def record(self, stream):
        self.is_recorded = True


class Host:
    """To try everything but the GPU. Its times mean nothing."""

    is_cuda = False
    name = "none"
    torch = torch.device("cpu")

    def __init__(self):
        self.compute = HostStream()

    new_stream = staticmethod(HostStream)
    new_event = staticmethod(HostEvent)

    def copy(self, to, source, stream):
        to.copy_(source)

    def wait(self):
        pass

    drain = wait

    def bytes_taken(self, work):
        work()
        return 0

    def copy_rate(self, host):
        return None

    def arena(self, count):
        return torch.full((count,), 255, dtype=torch.uint8)

    def bytes_at(self, address, count):
        return torch.frombuffer((ctypes.c_ubyte * count).from_address(address), dtype=torch.uint8)

    def step_seconds(self, operations):
        return [1e-6 * (1 + step % 5) for step in range(len(operations))]
