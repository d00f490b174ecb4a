#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Other frameworks read leased weights without a copy: the same address, the same values, and the lease stays open until the tensor dies.

    tensors.py LIBRARY [--need NAME ...]

LIBRARY is library.cpp as a shared library, for the simulated device or for a GPU. A framework that is not installed is skipped, with a
line that says so; where --need names it, that is a failure. Exits with 77 if none is installed. The last line counts the checks."""

import argparse
import ctypes
import gc
import importlib
import json
import sys
import threading

NAMES = {True: b"dltensor_versioned", False: b"dltensor"}
pythonapi = ctypes.pythonapi
pythonapi.PyCapsule_New.restype = ctypes.py_object
pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A capsule that is being destroyed must not be referred to: by its address.
is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", pythonapi))
pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", pythonapi))

passed = 0
failed = 0


def check(what, is_true, found=""):
    global passed, failed
    if is_true:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what} {found}")


class Library:
    def __init__(self, path):
        lib = ctypes.CDLL(path)
        for name, result, arguments in (
            ("error", ctypes.c_char_p, []),
            ("device", ctypes.c_char_p, []),
            ("open", ctypes.c_void_p, []),
            ("close", ctypes.c_uint64, [ctypes.c_void_p]),
            ("count", ctypes.c_uint32, []),
            ("name", ctypes.c_char_p, [ctypes.c_uint32]),
            ("expected", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint32]),
            ("acquire", ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32]),
            ("drop", None, [ctypes.c_void_p]),
            ("open_leases", ctypes.c_uint64, [ctypes.c_void_p]),
            ("collect", None, [ctypes.c_void_p]),
            ("address", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint32]),
            ("synchronize", None, [ctypes.c_void_p]),
            ("tensor", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool, ctypes.c_int64]),
            ("end", None, [ctypes.c_void_p, ctypes.c_bool]),
            ("place", None, [ctypes.c_void_p, ctypes.c_uint32] + [ctypes.POINTER(ctypes.c_int32)] * 2),
            ("array_interface", ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_uint32]),
            ("use_on", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_int64]),
        ):
            function = getattr(lib, "tensors_" + name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

        # What no framework took is ended with its capsule.
        def end_capsule(capsule):
            for is_versioned, name in NAMES.items():
                if is_valid(capsule, name):
                    self.end(pointer_of(capsule, name), is_versioned)

        self.end_capsule = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(end_capsule)

    def failure(self):
        return self.error().decode()


class Lease:
    """A lease on some weights, by number."""

    def __init__(self, lib, model, *weights):
        self.lib = lib
        self.handle = lib.acquire(model, (ctypes.c_uint32 * len(weights))(*weights), len(weights))
        if not self.handle:
            raise RuntimeError(lib.failure())

    def drop(self):
        self.lib.drop(self.handle)
        self.handle = None


class Exported:
    """A leased weight as producers of DLPack are."""

    def __init__(self, lease, weight, is_versioned=True):
        self.lease, self.weight, self.is_versioned = lease, weight, is_versioned
        self.streams = []

    def __dlpack_device__(self):
        kind, ordinal = ctypes.c_int32(), ctypes.c_int32()
        self.lease.lib.place(self.lease.handle, self.weight, kind, ordinal)
        return kind.value, ordinal.value

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a lease is not copied, and stays where it is")
        self.streams.append(stream)
        # Without a version, the framework knows DLPack before 1.0 only.
        is_versioned = self.is_versioned and max_version is not None and max_version[0] >= 1
        on = {None: 1, -1: -1}.get(stream, stream)
        lib = self.lease.lib
        pointer = lib.tensor(self.lease.handle, self.weight, is_versioned, on)
        if not pointer:
            raise BufferError(lib.failure())
        return pythonapi.PyCapsule_New(pointer, NAMES[is_versioned], lib.end_capsule)


class Array:
    """A leased weight as the CUDA array interface is. It keeps the lease open as long as it lives."""

    def __init__(self, lease, weight):
        text = lease.lib.array_interface(lease.handle, weight)
        if not text:
            raise BufferError(lease.lib.failure())
        self.lease = lease
        read = json.loads(text)
        for name in ("shape", "strides", "data"):
            read[name] = None if read[name] is None else tuple(read[name])
        self.__cuda_array_interface__ = read


class Torch:
    name = "torch"
    types = ("f32", "bf16", "f8", "bool", "i64", "transposed", "scalar", "cache", "table")
    reads_host_tensors = True

    def __init__(self, module, device):
        self.module, self.device = module, device
        self.is_there = device == "cpu" or module.cuda.is_available()

    def read(self, exported):
        return self.module.from_dlpack(exported)

    def address(self, tensor):
        return tensor.data_ptr()

    def description(self, tensor):
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride())

    def bytes(self, tensor):
        contiguous = tensor.detach().cpu().t().contiguous() if tensor.dim() == 2 and tensor.stride(0) == 1 else tensor.detach().cpu()
        return bytes(contiguous.reshape(-1).view(self.module.uint8).tolist())


class Numpy:
    name = "numpy"
    types = ("f32", "bool", "i64", "transposed", "scalar", "cache", "table")
    reads_host_tensors = True

    def __init__(self, module, device):
        self.module, self.is_there = module, device == "cpu"

    def read(self, exported):
        return self.module.from_dlpack(exported)

    def address(self, tensor):
        return tensor.__array_interface__["data"][0]

    def description(self, tensor):
        return str(tensor.dtype), tuple(tensor.shape), tuple(stride // tensor.itemsize for stride in tensor.strides)

    def bytes(self, tensor):
        return tensor.tobytes(order="A")


class Cupy(Numpy):
    name = "cupy"
    reads_host_tensors = False

    def __init__(self, module, device):
        super().__init__(module, device)
        self.is_there = device == "cuda" and module.cuda.is_available()

    def address(self, tensor):
        return tensor.data.ptr

    def bytes(self, tensor):
        return tensor.get(order="A").tobytes(order="A")


class Jax(Numpy):
    name = "jax"
    types = ("f32", "bf16", "f8", "bool", "scalar", "cache")  # it has dense arrays only, and 64 bits where it is told to

    def __init__(self, module, device):
        module.config.update("jax_enable_x64", True)
        super().__init__(module, device)
        self.is_there = any(each.platform == {"cpu": "cpu", "cuda": "gpu"}[device] for each in module.devices())

    def read(self, exported):
        return self.module.dlpack.from_dlpack(exported, copy=False)

    def address(self, tensor):
        return tensor.unsafe_buffer_pointer()

    def description(self, tensor):
        strides, stride = [], 1
        for extent in reversed(tensor.shape):
            strides.insert(0, stride)
            stride *= extent
        return str(tensor.dtype), tuple(tensor.shape), tuple(strides)

    def bytes(self, tensor):
        import numpy

        return numpy.asarray(tensor).tobytes()


WANTED = {
    "f32": ("float32", (8, 16), (16, 1)),
    "bf16": ("bfloat16", (8, 16), (16, 1)),
    "f8": ("float8_e4m3fn", (8, 16), (16, 1)),
    "bool": ("bool", (8, 16), (16, 1)),
    "i64": ("int64", (128,), (1,)),
    "transposed": ("float32", (16, 8), (1, 16)),
    "scalar": ("float64", (), ()),
    "cache": ("float16", (8, 16), (16, 1)),
    "table": ("uint8", (8, 16), (16, 1)),
}
SIZES = {"bfloat16": 2, "float8_e4m3fn": 1, "bool": 1, "float16": 2, "float32": 4, "float64": 8, "int64": 8, "uint8": 1}


def expected_bytes(lib, model, number, name):
    dtype, shape, _ = WANTED[name]
    count = SIZES[dtype]
    for extent in shape:
        count *= extent
    return ctypes.string_at(lib.expected(model, number), count)


def read_everything(lib, model, numbers, framework, is_versioned):
    for name in framework.types:
        number = numbers[name]
        if name == "table" and lib.device() == b"cuda" and not framework.reads_host_tensors:
            continue  # a tensor of the processor
        what = f"{framework.name}, {name}, {'versioned' if is_versioned else 'unversioned'}:"
        lease = Lease(lib, model, number)
        lib.synchronize(model)
        exported = Exported(lease, number, is_versioned)
        try:
            tensor = framework.read(exported)
        except Exception as error:  # noqa: BLE001: whatever a framework says is the finding
            check(f"{what} is read", False, repr(error))
            lease.drop()
            continue
        is_on_host = name == "table"
        at = lib.expected(model, number) if is_on_host else lib.address(lease.handle, number)
        check(f"{what} the same address", framework.address(tensor) == at, f"{framework.address(tensor):#x}, not {at:#x}")
        found = framework.description(tensor)
        check(f"{what} dtype, shape and strides", found == WANTED[name], found)
        check(f"{what} the same values", framework.bytes(tensor) == expected_bytes(lib, model, number, name))
        lease.drop()
        gc.collect()
        check(f"{what} the tensor keeps the lease open", lib.open_leases(model) == 1)
        del exported, tensor
        gc.collect()
        lib.collect(model)
        check(f"{what} the end of the tensor ends the lease", lib.open_leases(model) == 0)


def hold_and_release(lib, model, numbers, framework):
    """There is room for two weights at once."""
    what = f"{framework.name}:"
    lease = Lease(lib, model, numbers["f32"])
    lib.synchronize(model)
    tensor = framework.read(Exported(lease, numbers["f32"]))
    lease.drop()
    for others in (("bf16", "f8"), ("bool", "i64")):
        refused = None
        try:
            Lease(lib, model, *(numbers[other] for other in others)).drop()
        except RuntimeError as error:
            refused = str(error)
        check(f"{what} what a tensor holds does not leave", refused is not None and "budget" in refused, refused)
    for other in ("bf16", "f8", "bool", "i64") * 2:  # through the other slot
        Lease(lib, model, numbers[other]).drop()
    check(f"{what} its values are still there", framework.bytes(tensor) == expected_bytes(lib, model, numbers["f32"], "f32"))
    del tensor
    gc.collect()
    lib.collect(model)
    Lease(lib, model, numbers["bf16"], numbers["f8"]).drop()
    check(f"{what} and may leave afterwards", lib.open_leases(model) == 0)

    # The last reference goes away on another thread.
    lease = Lease(lib, model, numbers["f32"])
    lib.synchronize(model)
    held = [framework.read(Exported(lease, numbers["f32"]))]
    lease.drop()
    thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
    thread.start()
    thread.join()
    lib.collect(model)
    check(f"{what} a tensor may be dropped on another thread", lib.open_leases(model) == 0)


def refusals(lib, model, numbers):
    lease = Lease(lib, model, numbers["half a byte"])
    try:
        Exported(lease, numbers["half a byte"]).__dlpack__(stream=-1, max_version=(1, 0))
        check("elements below a byte are refused", False)
    except BufferError as error:
        check("elements below a byte are refused by name", "i4" in str(error) and "half a byte" in str(error), error)
    # A capsule that nobody takes ends its tensor.
    lease.drop()
    lease = Lease(lib, model, numbers["f32"])
    capsule = Exported(lease, numbers["f32"]).__dlpack__(stream=-1, max_version=(1, 0))
    lease.drop()
    check("a capsule keeps the lease open", lib.open_leases(model) == 1)
    del capsule
    gc.collect()
    check("a capsule that nobody took ends its lease", lib.open_leases(model) == 0)


def numpy_knows_read_only(lib, model, numbers, numpy):
    if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (2, 1):
        print("SKIPPED: numpy before 2.1 knows no versioned tensors")
        return
    for name, is_writable in (("f32", False), ("cache", True)):
        lease = Lease(lib, model, numbers[name])
        lib.synchronize(model)
        array = numpy.from_dlpack(Exported(lease, numbers[name]))
        check(f"numpy, {name}: {'writable' if is_writable else 'read-only'}", array.flags.writeable == is_writable)
        lease.drop()


def torch_on_streams(lib, model, numbers, torch):
    """PyTorch names the stream that it reads on: it waits for the bytes, and they stay until it has read them."""
    side = torch.cuda.Stream()
    wanted = torch.frombuffer(bytearray(expected_bytes(lib, model, numbers["f32"], "f32")), dtype=torch.float32)
    for round_number in range(20):
        for name in ("f32", "bf16", "f8", "bool", "i64"):
            lease = Lease(lib, model, numbers[name])
            exported = Exported(lease, numbers[name])
            with torch.cuda.stream(side):
                tensor = torch.from_dlpack(exported)  # nobody has waited for the copy
                copied = tensor.clone()
            lease.drop()
            del tensor  # before the side stream has read it
            lib.collect(model)
            if name == "f32":
                side.synchronize()
                check(f"torch: read on its own stream, round {round_number}", torch.equal(copied.cpu().reshape(-1), wanted))
    check("torch: it named its stream", exported.streams == [side.cuda_stream], exported.streams)


def array_interface(lib, model, numbers, framework, names, read, address, raw):
    for name in names:
        lease = Lease(lib, model, numbers[name])
        lib.synchronize(model)
        array = Array(lease, numbers[name])
        check(f"{framework}, {name}: the stream of the lease", array.__cuda_array_interface__["stream"] > 2)
        tensor = read(array)
        check(f"{framework}, {name}: the same address by the CUDA array interface",
              address(tensor) == lib.address(lease.handle, numbers[name]))
        check(f"{framework}, {name}: the same values", raw(tensor) == expected_bytes(lib, model, numbers[name], name))
        del tensor, array
        lease.drop()
    lease = Lease(lib, model, numbers["bf16"])
    try:
        Array(lease, numbers["bf16"])
        check("the CUDA array interface has no bf16", False)
    except BufferError as error:
        check("the CUDA array interface refuses bf16 by name", "bf16" in str(error), error)
    lease.drop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--need", action="append", default=[])
    arguments = parser.parse_args()
    lib = Library(arguments.library)
    device = lib.device().decode()
    model = lib.open()
    if not model:
        print(f"SKIPPED: {lib.failure()}")
        return 77
    numbers = {lib.name(number).decode(): number for number in range(lib.count())}
    count = 0
    refusals(lib, model, numbers)
    for adapter in (Numpy, Torch, Cupy, Jax):
        try:
            module = importlib.import_module(adapter.name)
            framework = adapter(module, device)
            reason = "" if framework.is_there else f"it has no device \"{device}\""
        except ImportError as error:
            reason = str(error)
        if reason:
            print(f"SKIPPED: {adapter.name}: {reason}")
            check(f"{adapter.name} is there", adapter.name not in arguments.need)
            continue
        count += 1
        print(f"{adapter.name} {module.__version__} on {device}")
        read_everything(lib, model, numbers, framework, True)
        if adapter is not Jax:
            read_everything(lib, model, numbers, framework, False)
        hold_and_release(lib, model, numbers, framework)
        if adapter is Numpy:
            numpy_knows_read_only(lib, model, numbers, module)
        if adapter is Torch and device == "cuda":
            torch_on_streams(lib, model, numbers, module)
            # It refuses arrays that are read-only.
            array_interface(lib, model, numbers, "torch", ("cache",), lambda array: module.as_tensor(array, device="cuda"),
                            framework.address, framework.bytes)
        if adapter is Cupy:
            array_interface(lib, model, numbers, "cupy", ("f32", "bool", "i64", "transposed", "scalar", "cache"), module.asarray,
                            framework.address, framework.bytes)
    check("the simulated device found nothing", lib.close(model) == 0)
    print(f"{passed} passed, {failed} failed")
    if failed:
        return 1
    return 0 if count else 77


if __name__ == "__main__":
    sys.exit(main())
