# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Writes what the runtime needs to know beside the compiled packages (include/residency/format/program.hpp describes its bytes)."""

from dataclasses import dataclass, field

from .catalog import ALIGNMENT_BYTES, DTYPES
from .container import KIND_PROGRAM, Section, container

PROGRAM_VERSION = 1
NO_STEP = 0xFFFFFFFF


@dataclass
class Method:
    name: str
    package: str  # file name of the package, beside the program
    inputs: list  # tensors, as exported
    constants: list  # (name in the generated code, original name, index of the weight), in order of the first
    steps: list  # (indices of the weights, live_until or NO_STEP, compute_ns or -1, kernels, module)


@dataclass
class Program:
    compiler: str
    device: str  # "cuda:sm_90" or "cpu"
    weights_file: str
    budget: str = ""  # empty: the runtime's own
    pins: list = field(default_factory=list)  # indices of weights
    methods: list = field(default_factory=list)


def save(program, catalog):
    head = Section("HEAD")
    for text in (program.compiler, program.device, program.weights_file, program.budget):
        head.text(text)

    storages = Section("STOR")
    storages.u64(len(catalog.storages))
    for storage in catalog.storages:
        storages.u64(storage.bytes)
        storages.u64(ALIGNMENT_BYTES)
        storages.u8(int(storage.is_mutable))
        storages.text(storage.tensor_name)

    weights = Section("WGTS")
    weights.u64(len(catalog.weights))
    for weight in catalog.weights:
        weights.text(weight.name)
        weights.text(DTYPES[weight.tensor.dtype][0])
        weights.array("Q", weight.tensor.shape)
        weights.array("Q", weight.tensor.stride())
        weights.u32(weight.storage)
        weights.u64(weight.offset_bytes)
        weights.u8(0 if weight.is_parameter else 1)

    aliases = Section("ALIA")
    aliases.u64(len(catalog.aliases))
    for name, original in sorted(catalog.aliases.items()):
        aliases.text(name)
        aliases.u32(catalog.find(original))

    pins = Section("PINS")
    pins.array("I", sorted(set(program.pins)))

    methods = Section("METH")
    methods.u64(len(program.methods))
    for method in program.methods:
        methods.text(method.name)
        methods.text(method.package)
        methods.u64(len(method.inputs))
        for tensor in method.inputs:
            methods.text(DTYPES[tensor.dtype][0])
            methods.array("Q", tensor.shape)
        methods.u64(len(method.constants))
        for name, original, weight in method.constants:
            methods.text(name)
            methods.text(original)
            methods.u32(weight)
        methods.u64(len(method.steps))
        for indices, live_until, compute_ns, kernels, module in method.steps:
            methods.array("I", indices)
            methods.u32(live_until)
            methods.i64(compute_ns)
            methods.text(kernels)
            methods.text(module)
    return container(KIND_PROGRAM, PROGRAM_VERSION, catalog.hash(), [head, storages, weights, aliases, pins, methods])
