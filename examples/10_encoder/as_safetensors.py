#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Converts a model that PyTorch saved, without PyTorch.

    as_safetensors.py FOLDER INTO    pytorch_model.bin becomes model.safetensors; config.json and vocab.txt are copied

Reads what torch.save has written since PyTorch 1.6 of a state_dict(): a ZIP archive with a pickle, of which only what makes
tensors is carried out. Exits with 2 and one line where it cannot."""

import collections
import json
import math
import os
import pathlib
import pickle
import struct
import sys
import zipfile

# Class of a storage → type in safetensors, bytes of an element.
TYPES = {"DoubleStorage": ("F64", 8), "FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
         "LongStorage": ("I64", 8), "IntStorage": ("I32", 4), "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1),
         "ByteStorage": ("U8", 1), "BoolStorage": ("BOOL", 1)}
ALONE = "save the model's state_dict() alone"

Tensor = collections.namedtuple("Tensor", "storage offset shape strides differences")
Storage = collections.namedtuple("Storage", "type size key elements")


class Refused(Exception):
    pass


def tensor(storage, offset, shape, strides, requires_grad=False, hooks=None, differences=None):
    return Tensor(storage, offset, shape, strides, differences)


def parameter(data, *_):
    return data


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        known = {"collections.OrderedDict": collections.OrderedDict, "torch._utils._rebuild_tensor_v2": tensor,
                 "torch._utils._rebuild_parameter": parameter}
        if module == "torch" and name in TYPES:
            return TYPES[name]
        if f"{module}.{name}" not in known:
            raise Refused(f"it needs {f'{module}.{name}'!r}: {ALONE}")
        return known[f"{module}.{name}"]

    def persistent_load(self, identity):
        _, kind, key, _, elements = identity
        if kind not in TYPES.values():
            raise Refused(f"not a dictionary of tensors: {ALONE}")
        return Storage(*kind, key, elements)


def is_dense(shape, strides):
    if 0 in shape:
        return True
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def read(archive):
    """The tensors by name: type, shape, the record with their bytes, where they begin in it, and how many they are."""
    pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise Refused(f"not an archive of torch.save: {ALONE}")
    folder = pickles[0].removesuffix("data.pkl")
    records = {entry.filename: entry for entry in archive.infolist()}
    if f"{folder}byteorder" in records and archive.read(f"{folder}byteorder") != b"little":
        raise Refused("its tensors have another byte order: load them with PyTorch and save them here")
    with archive.open(pickles[0]) as text:
        saved = Unpickler(text).load()
    if not isinstance(saved, dict) or not all(isinstance(name, str) and isinstance(of, Tensor) for name, of in saved.items()):
        raise Refused(f"not a dictionary of tensors: {ALONE}")
    tensors = {}
    for name, of in saved.items():
        if of.differences or not is_dense(of.shape, of.strides):
            raise Refused(f"tensor {name!r} is not stored row by row: save it after contiguous()")
        if not all(type(number) is int and number >= 0 for number in (of.offset, *of.shape)) or name == "__metadata__":
            raise Refused(f"tensor {name!r} has no place or no shape: the file is damaged")
        record = records.get(f"{folder}data/{of.storage.key}")
        begin, size = of.offset * of.storage.size, math.prod(of.shape) * of.storage.size
        if record is None or record.file_size != of.storage.elements * of.storage.size or \
                (size and begin + size > record.file_size):
            raise Refused(f"tensor {name!r} lies outside of its storage: the file is damaged")
        tensors[name] = (of.storage.type, of.shape, record, begin, size)
    return tensors


def write(path, archive, tensors):
    header, end = {}, 0
    for name, (kind, shape, _, _, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (_, _, record, begin, size) in tensors.items():
            with archive.open(record) as data:
                data.seek(begin)
                while size:
                    piece = data.read(min(size, 1 << 20))
                    if not piece:
                        raise Refused(f"tensor {name!r} ends too early: the file is damaged")
                    file.write(piece)
                    size -= len(piece)


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    model, into = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    saved, part = model / "pytorch_model.bin", into / "model.safetensors.part"
    try:
        with zipfile.ZipFile(saved) as archive:
            tensors = read(archive)
            others = {name: (model / name).read_bytes() for name in ("config.json", "vocab.txt")}
            into.mkdir(parents=True, exist_ok=True)
            try:
                write(part, archive, tensors)
                for name, text in others.items():
                    (into / name).write_bytes(text)
                os.replace(part, into / "model.safetensors")
            finally:
                part.unlink(missing_ok=True)
    except zipfile.BadZipFile:
        problem = "damaged, or written before PyTorch 1.6: load it with PyTorch and save its state_dict() again"
    except OSError as error:
        print(f"{error.filename or into}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except Refused as refusal:
        problem = str(refusal)
    except Exception as error:  # what a damaged pickle gives is of many kinds
        problem = f"damaged: {type(error).__name__}: {error}".splitlines()[0]
    else:
        print(f"converted {saved} to {into / 'model.safetensors'}")
        return
    print(f"{saved}: {problem}", file=sys.stderr)
    sys.exit(2)


main()
