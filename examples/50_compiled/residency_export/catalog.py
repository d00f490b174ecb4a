# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The weights of a model and the storages that they lie in."""

import itertools
from dataclasses import dataclass, field

import torch

from .container import StableHash

# PyTorch's types, with the library's names and bits (include/residency/model/dtype.hpp).
DTYPES = {
    torch.float64: ("f64", 64),
    torch.float32: ("f32", 32),
    torch.float16: ("f16", 16),
    torch.bfloat16: ("bf16", 16),
    torch.float8_e4m3fn: ("f8_e4m3fn", 8),
    torch.float8_e4m3fnuz: ("f8_e4m3fnuz", 8),
    torch.float8_e5m2: ("f8_e5m2", 8),
    torch.float8_e5m2fnuz: ("f8_e5m2fnuz", 8),
    torch.int64: ("i64", 64),
    torch.int32: ("i32", 32),
    torch.int16: ("i16", 16),
    torch.int8: ("i8", 8),
    torch.uint64: ("u64", 64),
    torch.uint32: ("u32", 32),
    torch.uint16: ("u16", 16),
    torch.uint8: ("u8", 8),
    torch.bool: ("bool", 8),
    torch.complex64: ("complex64", 64),
}
ALIGNMENT_BYTES = 256  # the library's default


@dataclass
class Weight:
    name: str
    tensor: torch.Tensor
    storage: int
    is_parameter: bool
    storage_begin: int = 0  # of its storage, in bytes of the tensor's

    @property
    def begin(self):
        """Its first byte in the tensor's storage."""
        return self.tensor.storage_offset() * self.tensor.element_size()

    @property
    def end(self):
        """Behind its last byte there."""
        if self.tensor.numel() == 0:
            return self.begin
        last = sum((extent - 1) * stride for extent, stride in zip(self.tensor.shape, self.tensor.stride()))
        return self.begin + (last + 1) * self.tensor.element_size()

    @property
    def offset_bytes(self):
        return self.begin - self.storage_begin


@dataclass
class Storage:
    tensor_name: str  # in the file of weights
    tensor: torch.Tensor  # in whose untyped storage it lies
    is_mutable: bool = False
    begin: int = 0  # there, in bytes
    end: int = None  # None: that of the tensor's storage

    @property
    def bytes(self):
        return (self.tensor.untyped_storage().nbytes() if self.end is None else self.end) - self.begin


@dataclass
class Catalog:
    """Names are unique. A tensor that comes a second time with another name becomes an alias of the first."""

    weights: list = field(default_factory=list)
    storages: list = field(default_factory=list)
    aliases: dict = field(default_factory=dict)  # name -> name of the weight
    _by_name: dict = field(default_factory=dict)
    _by_tensor: dict = field(default_factory=dict)
    _by_storage: dict = field(default_factory=dict)

    @staticmethod
    def _identity(tensor):
        return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def add(self, name, tensor, is_parameter):
        """The index of the weight."""
        if tensor.dtype not in DTYPES:
            raise ValueError(f'weight "{name}" has the type {tensor.dtype}, which the library does not know; keep it out of the graph')
        if tensor.layout != torch.strided:
            raise ValueError(f'weight "{name}" has the layout {tensor.layout}; only dense and strided tensors can be streamed')
        identity = self._identity(tensor)
        known = self._by_tensor.get(identity)
        if known is not None:
            if name != self.weights[known].name:
                self.aliases[name] = self.weights[known].name
            return known
        if name in self._by_name or name in self.aliases:
            raise ValueError(f'two different tensors are named "{name}"; methods of one export share the weights of one model')
        key = tensor.untyped_storage()._cdata
        storage = self._by_storage.get(key)
        if storage is None:
            storage = self._by_storage[key] = len(self.storages)
            self.storages.append(Storage(name, tensor))
        index = len(self.weights)
        self.weights.append(Weight(name, tensor, storage, is_parameter))
        self._by_name[name] = self._by_tensor[identity] = index
        return index

    def holds(self, tensor):
        """Whether a weight is this very tensor."""
        return self._identity(tensor) in self._by_tensor

    def find(self, name):
        """The index of the weight of that name or alias, or None."""
        return self._by_name.get(self.aliases.get(name, name))

    def weights_of(self, storage):
        return [weight for weight in self.weights if weight.storage == storage]

    def separate(self):
        """Weights of one storage that share no byte get storages of their own, without what nobody reads: the parameters of a
        recurrent network lie in one flat tensor, of which a step reads a part. Each keeps its place within the alignment, which kernels
        were compiled for. Storages that kernels write stay whole. The library does the same to files (format/view.hpp)."""
        for index in [index for index, storage in enumerate(self.storages) if not storage.is_mutable]:
            end, groups = -1, []  # of weights that overlap
            for weight in sorted(self.weights_of(index), key=lambda weight: weight.begin):
                if weight.begin >= end:
                    groups.append([])
                groups[-1].append(weight)
                end = max(end, weight.end)
            for group, own in zip(groups, itertools.chain([index], itertools.count(len(self.storages)))):
                begin = group[0].begin // ALIGNMENT_BYTES * ALIGNMENT_BYTES
                part = Storage(group[0].name, group[0].tensor, False, begin, max(weight.end for weight in group))
                self.storages[own:own + 1] = [part]
                for weight in group:
                    weight.storage, weight.storage_begin = own, begin

    def hash(self):
        """Catalog::hash of the library."""
        result = StableHash()
        result.u64(len(self.weights))
        for weight in self.weights:
            name, bits = DTYPES[weight.tensor.dtype]
            result.text(weight.name)
            result.text(name)
            result.u32(bits)
            result.u32(1)
            result.u64(weight.tensor.dim())
            for extent in weight.tensor.shape:
                result.u64(extent)
            for stride in weight.tensor.stride():
                result.u64(stride)
            result.u32(weight.storage)
            result.u64(weight.offset_bytes)
        result.u64(len(self.storages))
        for storage in self.storages:
            result.u64(storage.bytes)
            result.u64(ALIGNMENT_BYTES)
            result.u8(int(storage.is_mutable))
        return result.value
