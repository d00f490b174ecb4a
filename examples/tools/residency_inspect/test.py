#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What residency-inspect --json says of odd models, against the packages that wrote them and read them back.

    test.py PROGRAM FOLDER [--seed N] [--models N]

Needs the packages safetensors, gguf and numpy; exits with 77 where one is missing."""

import argparse
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys

try:
    import gguf
    import numpy
    import safetensors
    import safetensors.numpy
    from gguf.constants import GGML_QUANT_SIZES
except ImportError as error:
    print(f"SKIPPED: {error}: the reference packages are not there (pip install safetensors gguf numpy)")
    sys.exit(77)

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
        "C64": 64, "F32": 32, "F64": 64, "I64": 64, "U64": 64}
NUMPY = ["bool", "u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "f8", "i8", "u8", "c8"]
LETTERS = ["a", "Z", "0", ".", "_", "/", " ", "\t", "\n", "\"", "\\", "é", "重", "\u202e", "\x7f", "\U0001f600"]


def demand(holds, *what):
    if not holds:
        raise SystemExit("residency-inspect: " + " ".join(repr(x) for x in what))


def name_of(rng, used):
    while True:
        name = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 12)))
        if name not in used and name != "__metadata__":
            used.add(name)
            return name


def check(program, path, form, files, expected):
    """expected: name → (dtype, shape, bytes), as the reference reads them."""
    ran = subprocess.run([program, path, "--json"], capture_output=True, check=False)
    demand(ran.returncode == 0 and not ran.stderr, path, ran.returncode, ran.stderr)
    said = json.loads(ran.stdout)
    demand(list(said) == ["format", "total_bytes", "floor_bytes", "storages", "weights"], path, list(said))
    demand(said["format"] == form, path, said["format"])
    demand(said["total_bytes"] == sum(s["bytes"] for s in said["storages"]), path, "total_bytes")
    demand(said["floor_bytes"] == max((s["bytes"] for s in said["storages"]), default=0), path, "floor_bytes")
    contents = {str(file): pathlib.Path(file).read_bytes() for file in files}
    for storage in said["storages"]:
        demand(list(storage) == ["bytes", "offset", "file"] and storage["file"] in contents, path, storage)
    demand(len(said["weights"]) == len(expected), path, len(said["weights"]), len(expected))
    for weight in said["weights"]:
        demand(list(weight) == ["name", "dtype", "shape", "storage", "offset_bytes", "bytes"], path, weight)
        demand(weight["name"] in expected, path, weight["name"])
        dtype, shape, data = expected.pop(weight["name"])
        demand(weight["dtype"] == dtype and weight["shape"] == shape, path, weight, dtype, shape)
        storage = said["storages"][weight["storage"]]
        demand(weight["offset_bytes"] + weight["bytes"] <= storage["bytes"], path, weight, storage)
        begin = storage["offset"] + weight["offset_bytes"]
        demand(contents[storage["file"]][begin:begin + weight["bytes"]] == data, path, weight, "its bytes differ")


def read_safetensors(files):
    return {name: (value["dtype"], list(value["shape"]), bytes(value["data"]))
            for file in files for name, value in safetensors.deserialize(pathlib.Path(file).read_bytes())}


def safetensors_by_hand(rng, path):
    """Every type, whatever the package's writer takes; entries and fields in any order, with blanks."""
    used, entries, data = set(), [], b""
    for _ in range(rng.randint(0, 12)):
        dtype = rng.choice(list(BITS))
        shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randint(0, 4))]
        count = 1
        for extent in shape:
            count *= extent
        if count * BITS[dtype] % 8:
            shape, count = shape + [8], count * 8
        size = count * BITS[dtype] // 8
        fields = [("dtype", dtype), ("shape", shape), ("data_offsets", [len(data), len(data) + size])]
        rng.shuffle(fields)
        entries.append((name_of(rng, used), dict(fields)))
        data += rng.randbytes(size) if dtype != "BOOL" else bytes(rng.randint(0, 1) for _ in range(size))
    rng.shuffle(entries)
    if rng.random() < 0.5:
        entries.insert(rng.randint(0, len(entries)), ("__metadata__", {name_of(rng, set()): "zeile\n" * rng.randint(0, 3)}))
    text = json.dumps(dict(entries), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 0, 3])).encode()
    text += b" " * rng.randint(0, 9)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def safetensors_by_package(rng, path, used):
    tensors = {}
    for _ in range(rng.randint(0, 8)):
        shape = [rng.choice([0, 1, 2, 3, 5]) for _ in range(rng.randint(0, 5))]
        kind = numpy.dtype(rng.choice(NUMPY))
        count = int(numpy.prod(shape, dtype=int))
        raw = rng.randbytes(count * kind.itemsize) if kind != "bool" else bytes(rng.randint(0, 1) for _ in range(count))
        tensors[name_of(rng, used)] = numpy.frombuffer(raw, dtype=kind).reshape(shape)
    # Longer than any name: one that names a tensor would be a tie.
    metadata = {name_of(rng, set()): "longer: " + name_of(rng, set()) * 2 for _ in range(rng.randint(0, 3))} or None
    safetensors.numpy.save_file(tensors, path, metadata=metadata)
    return tensors


def gguf_by_package(rng, folder, stem, split):
    writer = gguf.GGUFWriter(folder / f"{stem}.gguf", "test", split_max_tensors=split or 0)
    if not split and rng.random() < 0.5:  # the package's writer names it in the first file only
        writer.add_custom_alignment(rng.choice([8, 32, 64, 256, 4096]))
    writer.add_uint8("m.u8", rng.randint(0, 255))
    writer.add_int64("m.i64", -rng.randint(0, 2**63))
    writer.add_float64("m.f64", rng.random())
    writer.add_bool("m.flag", rng.random() < 0.5)
    writer.add_string("m.text", name_of(rng, set()) * rng.randint(1, 3000))
    writer.add_array("m.texts", [name_of(rng, set()) for _ in range(rng.randint(1, 50))])
    writer.add_array("m.numbers", [rng.randint(-9, 9) for _ in range(rng.randint(1, 300))])
    used = set()
    for _ in range(rng.randint(1, 12)):
        kind = rng.choice(list(GGML_QUANT_SIZES))
        elements, size = GGML_QUANT_SIZES[kind]
        shape = [rng.randint(1, 4) for _ in range(rng.randint(0, 3))] + [size * rng.randint(1, 3)]
        raw = numpy.frombuffer(rng.randbytes(int(numpy.prod(shape))), dtype=numpy.uint8).reshape(shape)
        writer.add_tensor(name_of(rng, used), raw, raw_shape=shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{stem}-*-of-*.gguf")) or [folder / f"{stem}.gguf"]


def read_gguf(files):
    weights = {}
    for file in files:
        reader = gguf.GGUFReader(file)
        for tensor in reader.tensors:
            shape = [int(extent) for extent in reversed(tensor.shape.tolist())]
            data = bytes(reader.data[tensor.data_offset:tensor.data_offset + tensor.n_bytes])
            weights[tensor.name] = (tensor.tensor_type.name, shape, data)
    return weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--models", type=int, default=40)
    parser.error = lambda message: parser.exit(2, f"{parser.prog}: {message}\n")
    arguments = parser.parse_args()
    if not shutil.which(arguments.program):
        parser.error(f"{arguments.program}: there is no such program: name the built residency-inspect")
    print(f"seed {arguments.seed}")
    rng = random.Random(arguments.seed)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    done = 0
    for number in range(arguments.models):
        path = arguments.folder / f"by_hand_{number}.safetensors"
        safetensors_by_hand(rng, path)
        check(arguments.program, path, "safetensors", [path], read_safetensors([path]))

        path = arguments.folder / f"by_package_{number}.safetensors"
        safetensors_by_package(rng, path, set())
        check(arguments.program, path, "safetensors", [path], read_safetensors([path]))

        used, shards, weight_map = set(), [], {}
        for shard in range(rng.randint(1, 4)):
            shards.append(arguments.folder / f"sharded_{number}_{shard}.safetensors")
            tensors = safetensors_by_package(rng, shards[-1], used)
            weight_map.update(dict.fromkeys(tensors, shards[-1].name))
        index = arguments.folder / f"sharded_{number}.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        check(arguments.program, index, "safetensors", shards, read_safetensors(shards))

        files = gguf_by_package(rng, arguments.folder, f"model_{number}", rng.choice([0, 0, 1, 3]))
        check(arguments.program, rng.choice(files), "gguf", files, read_gguf(files))
        if len(files) == 1:  # the same bytes as version 2, and with the last tensor's padding cut off
            old = arguments.folder / f"version_2_{number}.gguf"
            data = bytearray(files[0].read_bytes())
            data[4:8] = struct.pack("<I", 2)
            last = max(t.data_offset + t.n_bytes for t in gguf.GGUFReader(files[0]).tensors)
            old.write_bytes(data[:last])
            check(arguments.program, old, "gguf", [old], read_gguf([old]))
            done += 1
        done += 4
    print(f"residency-inspect: {done} models as their packages read them")


main()
