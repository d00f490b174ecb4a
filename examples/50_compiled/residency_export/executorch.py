# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Exports a model through ExecuTorch's CUDA backend, with the same markers: a program (.pte) and its data (.ptd).

ExecuTorch is an optional package; nothing of it is imported before an export asks for it."""

import contextlib
import importlib.metadata
import os
from dataclasses import dataclass, field
from unittest import mock

import torch

from . import inductor, program as payload, versions
from .catalog import Catalog, Storage, Weight
from .export import (
    ExportError, MethodReport, Report, architecture, chosen_methods, new_folder, note_exported, one_device, refuse_exported, settle,
    write_inputs,
)

PROGRAM_KEY = "residency_program"  # under which the program lies among the named data of the .pte
PROGRAM_FILE = "model.pte"


def version_refused():
    """What is wrong with ExecuTorch or PyTorch here, or None."""
    try:
        version = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        return "ExecuTorch is not installed; install executorch==1.5.*"
    if version.split(".")[:2] != ["1", "5"]:
        return (
            f"ExecuTorch {version}: this export reads the insides of its CUDA backend, which differ between versions, and is "
            "written for 1.5; install executorch==1.5.*"
        )
    return versions.version_refused(("2.11",))


@dataclass
class _Method:
    """What the backend did with one method."""

    record: inductor.Recording = None
    sources: list = field(default_factory=list)  # texts of the generated code
    entries: list = field(default_factory=list)  # of the backend's description: one a constant
    mutated: set = field(default_factory=set)
    inputs: list = field(default_factory=list)  # tensors, in the order of the compiled library
    parts: int = 0


class _Everything:
    """Names of kernels: PyTorch's libraries, which run what is compiled for the CPU, have them all."""

    def __contains__(self, name):
        return True


@contextlib.contextmanager
def _hooks(device, settings, finish):
    """While it is open, the CUDA backend compiles with markers. Gives what it did, by the method's name. `finish(methods)` returns the
    bytes of the program, once all methods are compiled."""
    from executorch.backends.cuda.cuda_backend import CudaBackend
    from executorch.backends.cuda.cuda_weight_collector import CudaWeightCollector

    methods = {}
    original_preprocess = CudaBackend._preprocess_with_weight_collector
    original_context = CudaBackend.get_extra_aoti_compile_context_manager
    original_options = CudaBackend.get_aoti_compile_options
    original_materialize = CudaBackend.materialize_weights_blob
    original_result = CudaWeightCollector.add_preprocess_result
    original_finish = CudaWeightCollector.finish
    current = []

    def preprocess(edge_program, compile_specs, collector):
        method = methods.setdefault(CudaBackend.method_name_from_compile_specs(compile_specs), _Method())
        method.parts += 1
        signature = edge_program.graph_signature
        method.mutated |= set(signature.buffers_to_mutate.values())
        method.inputs = [
            node.meta["val"] for node in edge_program.graph.nodes if node.op == "placeholder" and node.name in signature.user_inputs
        ]
        current.append(method)
        try:
            return original_preprocess(edge_program, compile_specs, collector)
        finally:
            current.pop()

    @contextlib.contextmanager
    def context(compile_specs=None):
        with original_context(compile_specs), inductor.recording(pools=False) as record:
            yield
        current[-1].record = record

    def options(compile_specs):
        chosen = original_options(compile_specs)
        if device.type == "cpu":  # for tests: what only CUDA has
            for name in ("max_autotune", "max_autotune_gemm_backends", "max_autotune_conv_backends",
                         "aot_inductor.emit_multi_arch_kernel", "aot_inductor.embed_kernel_binary"):
                chosen.pop(name, None)
        return {**chosen, **inductor.settings(), **settings}

    def materialize(paths, compile_specs):
        for path in paths if isinstance(paths, list) else []:
            if isinstance(path, str) and path.endswith(".wrapper.cpp"):
                with open(path) as file:
                    current[-1].sources.append(file.read())
        return original_materialize(paths, compile_specs)

    def add_preprocess_result(self, result, artifact, device_name):
        original_result(self, result, artifact, device_name)
        current[-1].entries = artifact.entries

    def finish_store(self):
        self._store.add_named_data(PROGRAM_KEY, finish(methods), alignment=8)
        original_finish(self)

    with contextlib.ExitStack() as stack:
        for owner, name, function in (
            (CudaBackend, "_preprocess_with_weight_collector", staticmethod(preprocess)),
            (CudaBackend, "get_extra_aoti_compile_context_manager", staticmethod(context)),
            (CudaBackend, "get_aoti_compile_options", staticmethod(options)),
            (CudaBackend, "materialize_weights_blob", staticmethod(materialize)),
            (CudaWeightCollector, "add_preprocess_result", add_preprocess_result),
            (CudaWeightCollector, "finish", finish_store),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
        if device.type == "cpu":
            stack.enter_context(mock.patch.object(CudaBackend, "get_device_name", staticmethod(lambda: "cpu")))
            stack.enter_context(mock.patch.object(CudaBackend, "get_supported_fallback_kernels", staticmethod(_Everything)))
        yield methods


# PyTorch's types by ExecuTorch's numbers.
DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 11: torch.bool, 15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
    25: torch.float8_e5m2fnuz, 26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32, 29: torch.uint64,
}


class _ByKey:
    """A catalog of the storages that the backend wrote, by their keys: as the library reads the files (format/executorch.hpp)."""

    def __init__(self):
        self.catalog = Catalog()
        self._storages = {}

    def add(self, method, entry, is_parameter):
        """The index of the weight."""
        dtype = DTYPES.get(entry.dtype)
        if dtype is None:
            raise ExportError(f'{method}: weight "{entry.fqn}" has the type {entry.dtype}, which the library does not know')
        catalog = self.catalog
        storage = self._storages.get(entry.storage_key)
        if storage is None:
            storage = self._storages[entry.storage_key] = len(catalog.storages)
            catalog.storages.append(Storage(entry.storage_key, torch.empty(entry.storage_nbytes, dtype=torch.uint8, device="meta")))
        whole = torch.empty(entry.storage_nbytes // dtype.itemsize, dtype=dtype, device="meta")
        view = whole.as_strided(entry.sizes, entry.strides, entry.storage_offset)
        for name in (entry.fqn, f"{method}/{entry.fqn}"):
            known = catalog.find(name)
            if known is None:
                catalog.weights.append(Weight(name, view, storage, is_parameter))
                catalog._by_name[name] = len(catalog.weights) - 1
                return len(catalog.weights) - 1
            other = catalog.weights[known]
            if (other.storage, other.tensor.storage_offset(), other.tensor.shape, other.tensor.stride(), other.tensor.dtype) == (
                storage, view.storage_offset(), view.shape, view.stride(), dtype
            ):
                return known
        raise ExportError(f'{method}: two different tensors are named "{entry.fqn}"')


def _inputs_of(lowered, name, arguments):
    """The method's tensors in the order in which its one delegate takes them; refuses what the backend did not take."""
    exported = lowered.exported_program(name)
    values = [value for value in torch.utils._pytree.tree_leaves(arguments) if isinstance(value, torch.Tensor)]
    users = [user for user in exported.graph_signature.user_inputs if isinstance(user, str)]
    taken = None
    for node in exported.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "__name__", "") == "getitem":
            continue
        if "executorch_call_delegate" not in str(node.target):
            raise ExportError(f"{name}: the CUDA backend does not take {node.target}; every operator of a method has to be one of its")
        if taken is not None:
            raise ExportError(f"{name}: the CUDA backend took it in several parts; a method has to be one")
        taken = [users.index(argument.name) for argument in node.args[1:]]
    if taken is None:
        raise ExportError(f"{name}: the CUDA backend took none of it")
    return [values[index] for index in taken]


def export_executorch(model, args=None, path=None, *, budget="", pin=(), methods=None, settings=None, compile_specs=()):
    """Compiles `model` with the CUDA backend of ExecuTorch and writes a folder `path`: a program (model.pte), its data (.ptd), and the
    example arguments of each method (METHOD.inputs.safetensors). The program carries what each step reads among its named data, so that
    a folder of these files is all that the runtime needs; ExecuTorch itself runs them as any others. Returns a Report.

    Arguments are those of export(). `compile_specs`: those of CudaPartitioner beside the method's name.

    A model on the CPU is compiled for the CPU, by the same way: that runs with PyTorch's libraries, and is for tests."""
    refused = version_refused()
    if refused:
        raise ExportError(refused)
    from executorch.backends.cuda.cuda_backend import CudaBackend
    from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
    from executorch.exir import to_edge_transform_and_lower

    chosen = chosen_methods(model, args, path, methods)
    refuse_exported(chosen)
    device = one_device(model)
    result = payload.Program(f"executorch {importlib.metadata.version('executorch')}, torch {torch.__version__}", architecture(device),
                             f"aoti_{device.type}_blob.ptd", budget)
    report, by_key = Report(path), _ByKey()

    def finish(compiled):
        returned = set()
        for name in chosen:
            method = compiled.get(name)
            if method is None or method.record is None:
                raise ExportError(f"{name}: the CUDA backend compiled none of it")
            if method.parts != 1:
                raise ExportError(f"{name}: the CUDA backend took it in {method.parts} parts; a method has to be one")
            record, entries = method.record, {entry.fqn: entry for entry in method.entries}
            if record.folded:
                raise ExportError(f'{name}: the compiler folded {", ".join(record.folded)}; leave folding off')
            if len({entry.device_type for entry in method.entries}) > 1:
                raise ExportError(f"{name}: weights on several devices: move it to one device, or make the others inputs")
            if inductor.name_kernels("\n".join(method.sources), record.steps) != list(range(len(record.steps))):
                raise ExportError(f"{name}: the generated code has not each marker once and in order; report this")
            parameters = {known for known, _ in chosen[name][0].named_parameters(remove_duplicate=False)}
            constants, index_of = [], {}
            for constant, (original, _) in record.constants.items():
                if original not in entries:
                    raise ExportError(f'{name}: the backend did not write the weight "{original}"')
                index = index_of[constant] = by_key.add(name, entries[original], original in parameters)
                constants.append((constant, original, index))
                if original in method.mutated:
                    by_key.catalog.storages[by_key.catalog.weights[index].storage].is_mutable = True
            steps = [
                ([index_of[each] for each in step.constants], payload.NO_STEP, step.compute_ns, " ".join(step.kernels), step.module)
                for step in record.steps
            ]
            returned |= {index_of[constant] for constant in record.returned}
            result.methods.append(payload.Method(name, PROGRAM_FILE, method.inputs, sorted(constants), steps))
            report.methods.append(MethodReport(name, len(steps), record.markers, len({index for step in steps for index in step[0]})))
        by_tensor = {}  # names of tied weights, of which the compiler keeps one
        for tied, tensor in model.state_dict(keep_vars=True).items():
            by_tensor.setdefault(id(tensor), []).append(tied)
        for names in by_tensor.values():
            kept = [name for name in names if by_key.catalog.find(name) is not None]
            for name in names if len(kept) == 1 else []:
                if name != kept[0]:
                    by_key.catalog.aliases[name] = kept[0]
        settle(result, by_key.catalog, returned, pin, report, model)
        return payload.save(result, by_key.catalog)

    with new_folder(path, PROGRAM_FILE) as folder, torch.no_grad():
        exported = {name: torch.export.export(module, arguments) for name, (module, arguments) in chosen.items()}
        partitioners = {
            name: [CudaPartitioner([CudaBackend.generate_method_name_compile_spec(name), *compile_specs])] for name in exported
        }
        with _hooks(device, settings or {}, finish):
            lowered = to_edge_transform_and_lower(exported, partitioner=partitioners)
        for name, (_, arguments) in chosen.items():
            write_inputs(os.path.join(folder, f"{name}.inputs.safetensors"), _inputs_of(lowered, name, arguments))
        program = lowered.to_executorch()
        with open(os.path.join(folder, PROGRAM_FILE), "wb") as file:
            program.write_to_file(file)
        program.write_tensor_data_to_file(folder)
    note_exported(chosen, path)
    return report
