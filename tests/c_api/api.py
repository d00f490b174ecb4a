#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The C API from Python's ctypes, on the simulated device: api.py libresidency_c.so FOLDER

Bytes are compared with those of the file; errors, a change of the budget, a capture with a body in Python, and a second thread.
"""
import ctypes
import json
import pathlib
import struct
import sys
import threading
import unittest

from first import Options, Residency, Weight

LIBRARY, FOLDER = sys.argv[1:3]
LAYERS, EXTENTS = 6, (1024, 768)
BYTES = 2 * EXTENTS[0] * EXTENTS[1]


class Step(ctypes.Structure):  # residency_step
    _fields_ = [("name", ctypes.c_char_p), ("weights", ctypes.POINTER(ctypes.c_char_p)), ("weight_count", ctypes.c_size_t),
                ("compute_ns", ctypes.c_int64)]


def content(layer):
    pattern = bytes((i * 13 + layer * 37 + (i >> 8)) % 256 for i in range(4096 + layer))
    return (pattern * (BYTES // len(pattern) + 1))[:BYTES]


def write_model(path):
    """A safetensors file: the length of the header, the header, the bytes."""
    header = {f"größe.{i}": {"dtype": "F16", "shape": EXTENTS, "data_offsets": [i * BYTES, (i + 1) * BYTES]} for i in range(LAYERS)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content(i) for i in range(LAYERS)))


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = pathlib.Path(FOLDER) / "api_py.safetensors"
        write_model(cls.path)
        cls.residency = Residency(LIBRARY)

    @classmethod
    def tearDownClass(cls):
        cls.path.unlink()

    def open(self, budget="50%", with_steps=True):
        options = Options(size=ctypes.sizeof(Options), device=b"simulated", budget=budget.encode())
        self.names = [(ctypes.c_char_p * 1)(f"größe.{i}".encode()) for i in range(LAYERS)]
        self.steps = (Step * LAYERS)(*(Step(b"a step", names, 1, 0) for names in self.names))
        if with_steps:
            options.steps, options.step_count = ctypes.addressof(self.steps), LAYERS
        self.model = ctypes.c_void_p()
        self.residency.open(str(self.path).encode(), ctypes.byref(options), ctypes.byref(self.model))
        self.addCleanup(self.residency.library.residency_close, self.model)  # refused where the test has closed it

    def refused(self, kind, function, *arguments):
        with self.assertRaisesRegex(RuntimeError, f"^{kind}: ."):
            getattr(self.residency, function)(*arguments)

    def acquire(self, step):
        lease = ctypes.c_void_p()
        self.residency.acquire_step(self.model, ctypes.c_uint32(step), None, ctypes.byref(lease))
        return lease

    def bytes_of(self, lease, number):
        weight = Weight(size=ctypes.sizeof(Weight))
        self.residency.get_leased_weight(lease, ctypes.c_uint32(number), ctypes.byref(weight))
        self.assertEqual(weight.name.decode(), f"größe.{number}")
        self.assertEqual(weight.dtype, b"f16")
        self.assertEqual(tuple(weight.shape[: weight.rank]), EXTENTS)
        self.assertIsNotNone(weight.data)
        buffer = ctypes.create_string_buffer(weight.bytes)
        self.residency.read_leased_weight(lease, ctypes.c_uint32(number), ctypes.c_uint64(0), ctypes.c_uint64(weight.bytes), buffer)
        return buffer.raw

    def run_pass(self):
        self.residency.begin_pass(self.model, None)
        for number in range(LAYERS):
            lease = self.acquire(number)
            self.assertEqual(self.bytes_of(lease, number), content(number))
            self.residency.release(lease)
        self.residency.end_pass(self.model)

    def statistics(self):
        text = ctypes.c_char_p()
        self.residency.get_statistics_json(self.model, ctypes.byref(text))
        return json.loads(text.value)

    def test_every_byte(self):
        self.open()
        for _ in range(3):
            self.run_pass()
        statistics = self.statistics()
        self.assertTrue(statistics["is_streaming"])
        self.assertEqual(statistics["weight_bytes"], LAYERS * BYTES)
        self.assertEqual(statistics["since_open"]["passes"], 3)
        self.assertGreater(statistics["last_pass"]["fetched_bytes"], 0)
        self.assertLessEqual(statistics["held_bytes"], statistics["budget_bytes"])
        self.assertEqual(statistics["reports"], 0)
        self.assertIn("50%", statistics["budget"])

    def test_an_order_that_is_learned(self):
        self.open(with_steps=False)
        self.run_pass()
        self.run_pass()
        self.assertIn("order", self.statistics()["learning"])

    def test_another_budget(self):
        self.open()
        self.run_pass()
        self.residency.set_budget(self.model, b"100%")
        self.run_pass()
        self.assertFalse(self.statistics()["is_streaming"])
        self.residency.set_budget(self.model, b"0")
        self.run_pass()
        statistics = self.statistics()
        self.assertEqual(statistics["budget_bytes"], statistics["floor_bytes"])
        self.refused("malformed", "set_budget", self.model, b"lots")
        self.refused("budget", "set_budget", self.model, b"1")
        self.assertEqual(self.statistics()["budget_bytes"], statistics["budget_bytes"])

    def test_errors(self):
        self.open()
        self.refused("wrong_state", "acquire_step", self.model, ctypes.c_uint32(0), None, ctypes.byref(ctypes.c_void_p()))
        self.residency.begin_pass(self.model, None)
        self.refused("invalid_argument", "acquire_step", self.model, ctypes.c_uint32(LAYERS), None, ctypes.byref(ctypes.c_void_p()))
        lease = self.acquire(0)
        self.residency.release(lease)
        self.refused("invalid_handle", "release", lease)
        self.refused("invalid_handle", "release", None)
        self.residency.close(self.model)
        self.refused("invalid_handle", "close", self.model)
        self.refused("io", "open", b"nowhere.safetensors", None, ctypes.byref(ctypes.c_void_p()))

    def test_texts_of_errors_belong_to_their_thread(self):
        self.open()
        self.refused("malformed", "set_budget", self.model, b"lots")
        seen = []
        thread = threading.Thread(target=lambda: seen.append(self.residency.library.residency_error_text()))
        thread.start()
        thread.join()
        self.assertEqual(seen, [b""])
        self.assertIn(b"lots", self.residency.library.residency_error_text())

    def test_a_second_thread_is_refused(self):
        """While the body of a capture runs, this thread is in the model."""
        self.open()
        found = []

        def second_thread():
            for function in ("close", "end_pass", "drain"):
                try:
                    getattr(self.residency, function)(self.model)
                except RuntimeError as error:
                    found.append(str(error))

        def body(_):
            thread = threading.Thread(target=second_thread)
            thread.start()
            thread.join()
            for step in range(LAYERS):
                self.residency.release(self.acquire(step))
            return 0

        graph = ctypes.c_void_p()
        callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(body)
        stream = ctypes.c_void_p()
        self.residency.create_stream(self.model, ctypes.byref(stream))
        self.acquire = lambda step: self.acquire_on(stream, step)
        self.residency.capture(self.model, stream, callback, None, ctypes.byref(graph))
        self.assertEqual(len(found), 3)
        for text in found:
            self.assertRegex(text, "^wrong_state: another thread")
        self.residency.launch(graph, stream)
        self.residency.synchronize_stream(self.model, stream)
        self.assertEqual(self.statistics()["since_open"]["passes"], 1)
        self.residency.destroy_graph(graph)

    def acquire_on(self, stream, step):
        lease = ctypes.c_void_p()
        self.residency.acquire_step(self.model, ctypes.c_uint32(step), stream, ctypes.byref(lease))
        return lease

    def test_models_in_threads(self):
        """Each in a thread of its own, at once."""
        failed = []

        def run():
            try:
                case = Api("test_every_byte")
                case.test_every_byte()
                case.doCleanups()
            except Exception as error:  # to be shown by the thread that waits
                failed.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
