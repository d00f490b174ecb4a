#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""A model file, a budget, three passes, from Python alone: first.py libresidency_c.so model.safetensors 50% [DEVICE]"""
import ctypes
import json
import sys


class Options(ctypes.Structure):  # residency_options
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("budget", ctypes.c_char_p), ("tier", ctypes.c_char_p),
                ("steps", ctypes.c_void_p), ("step_count", ctypes.c_size_t), ("strict", ctypes.c_uint32)]


class Weight(ctypes.Structure):  # residency_weight
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("block_bits", ctypes.c_uint32),
                ("block_elements", ctypes.c_uint32), ("rank", ctypes.c_uint32), ("is_mutable", ctypes.c_uint32),
                ("shape", ctypes.POINTER(ctypes.c_uint64)), ("strides", ctypes.POINTER(ctypes.c_uint64)),
                ("bytes", ctypes.c_uint64), ("data", ctypes.c_void_p)]


class Residency:
    """The library, with its errors as exceptions: residency.open(path, options, model) calls residency_open(path, options, model)."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        for function in ("version", "status_name", "error_text"):
            getattr(self.library, "residency_" + function).restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.library, "residency_" + name)

        def call(*arguments):
            status = function(*arguments)
            if status != 0:
                kind, text = self.library.residency_status_name(status), self.library.residency_error_text()
                raise RuntimeError(f"{kind.decode()}: {text.decode()}")

        return call


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: first.py LIBRARY MODEL BUDGET [DEVICE]")
    residency = Residency(sys.argv[1])
    options = Options(size=ctypes.sizeof(Options), budget=sys.argv[3].encode())
    if len(sys.argv) > 4:
        options.device = sys.argv[4].encode()
    model, stream, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint32()
    residency.open(sys.argv[2].encode(), ctypes.byref(options), ctypes.byref(model))
    residency.get_weight_count(model, ctypes.byref(count))
    residency.create_stream(model, ctypes.byref(stream))  # or torch.cuda.current_stream().cuda_stream

    for _ in range(3):  # the order of the first pass is learned
        residency.begin_pass(model, stream)
        for number in range(count.value):
            lease, weight = ctypes.c_void_p(), Weight(size=ctypes.sizeof(Weight))
            residency.acquire_weights(model, ctypes.byref(ctypes.c_uint32(number)), ctypes.c_size_t(1), stream, ctypes.byref(lease))
            residency.get_leased_weight(lease, ctypes.c_uint32(number), ctypes.byref(weight))
            # weight.data is the address on the device, weight.shape[:weight.rank] its extents.
            residency.release(lease)
        residency.end_pass(model)
    residency.drain(model)

    text = ctypes.c_char_p()
    residency.get_statistics_json(model, ctypes.byref(text))
    statistics = json.loads(text.value)
    print(statistics["last_pass"]["fetched_bytes"], "bytes copied per pass, inside", statistics["budget"])
    residency.close(model)


if __name__ == "__main__":
    main()
