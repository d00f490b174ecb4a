# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The library from Python: streamed.cpp through ctypes, on a GPU or on the simulated device."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p

BODY = CFUNCTYPE(c_int)


class StreamedError(RuntimeError):
    pass


class Library:
    """One model's weights on one device, and Weights of it inside budgets."""

    def __init__(self, path):
        calls = ctypes.CDLL(path)
        signatures = {
            "error": (c_char_p,),
            "open": (c_void_p,),
            "close": (None, c_void_p),
            "pinned": (c_void_p, c_void_p, c_uint64),
            "device_view": (c_void_p, c_void_p, c_void_p),
            "unpin": (c_int, c_void_p, c_void_p),
            "measure_link": (c_int, c_void_p, POINTER(c_double)),
            "set_rate": (None, c_void_p, c_double),
            "describe": (c_int, c_void_p, c_void_p, c_uint64, c_uint32, POINTER(c_uint64), POINTER(c_uint64), c_uint32,
                         POINTER(c_uint32)),
            "create": (c_void_p, c_void_p, c_uint64, POINTER(c_double), c_int),
            "destroy": (None, c_void_p),
            "begin": (c_int, c_void_p, c_void_p),
            "end": (c_int, c_void_p),
            "acquire": (c_int, c_void_p, c_uint32),
            "release": (None, c_void_p),
            "addresses": (c_int, c_void_p, c_void_p, POINTER(c_void_p)),
            "capture": (c_int, c_void_p, c_void_p, BODY),
            "launch": (c_int, c_void_p, c_void_p),
            "drain": (c_int, c_void_p),
            "figures": (None, c_void_p, POINTER(c_double)),
        }
        for name, (result, *arguments) in signatures.items():
            call = getattr(calls, "streamed_" + name)
            call.restype, call.argtypes = result, arguments
            setattr(self, "_" + name, call)
        self.handle = self._open()
        if not self.handle:
            raise self.failure()

    def failure(self):
        return StreamedError(self._error().decode())

    def checked(self, code):
        if code:
            raise self.failure()

    def close(self):
        self._close(self.handle)

    def pinned(self, count):
        """Pinned host memory: its address."""
        at = self._pinned(self.handle, count)
        if not at:
            raise self.failure()
        return at

    def device_view(self, at):
        """The address under which kernels read it."""
        view = self._device_view(self.handle, at)
        if not view:
            raise self.failure()
        return view

    def unpin(self, at):
        self.checked(self._unpin(self.handle, at))

    def measure_link(self):
        """Bytes a second, seconds a call, seconds a copy node of a graph."""
        figures = (c_double * 3)()
        self.checked(self._measure_link(self.handle, figures))
        return tuple(figures)

    def set_rate(self, rate):
        """What is planned from now on is planned for so many bytes a second, the latencies as they were measured."""
        self._set_rate(self.handle, rate)

    def describe(self, host, host_bytes, offsets, sizes, steps):
        """`steps`: weights in a row, by their ids, which go up from 0."""
        ends, end = [], 0
        for step in steps:
            end += len(step)
            ends.append(end)
        count = len(sizes)
        self.weights, self.steps = count, len(steps)
        self.checked(self._describe(self.handle, host, host_bytes, count, (c_uint64 * count)(*offsets),
                                    (c_uint64 * count)(*sizes), len(ends), (c_uint32 * len(ends))(*ends)))


class Weights:
    """The weights inside a budget of device bytes. `captured`: for passes that are replayed as a graph."""

    FIGURES = ("bound", "latency_floor", "predicted", "compute", "bytes_a_pass", "held_bytes")

    def __init__(self, library, budget, seconds, captured, stream):
        self.library, self.stream = library, stream
        self.handle = library._create(library.handle, budget, (c_double * len(seconds))(*seconds), int(captured))
        if not self.handle:
            raise library.failure()

    def addresses(self):
        """Where each weight lies, for ever. Runs a pass."""
        at = (c_void_p * self.library.weights)()
        self.library.checked(self.library._addresses(self.handle, self.stream, at))
        return list(at)

    def run(self, operations):
        """A pass: step i calls operations[i] between the lease's beginning and its end."""
        library = self.library
        library.checked(library._begin(self.handle, self.stream))
        self.steps(operations)
        library.checked(library._end(self.handle))

    def steps(self, operations):
        handle, acquire, release = self.handle, self.library._acquire, self.library._release
        for step, calls in enumerate(operations):
            if acquire(handle, step):
                raise self.library.failure()
            for call in calls:
                call()
            release(handle)

    def capture(self, operations):
        raised = []

        def body():
            try:
                self.steps(operations)
                return 0
            except BaseException as error:  # must not cross the library
                raised.append(error)
                return 1

        code = self.library._capture(self.handle, self.stream, BODY(body))
        if raised:
            raise raised[0]
        self.library.checked(code)

    def launch(self):
        if self.library._launch(self.handle, self.stream):
            raise self.library.failure()

    def drain(self):
        self.library.checked(self.library._drain(self.handle))

    def figures(self):
        figures = (c_double * len(self.FIGURES))()
        self.library._figures(self.handle, figures)
        return dict(zip(self.FIGURES, figures))

    def close(self):
        self.library._destroy(self.handle)
