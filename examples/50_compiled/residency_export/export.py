# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles a PyTorch model so that its weights can be streamed."""

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field

import torch

from . import fake, inductor, program as payload
from .catalog import Catalog
from .progress import Progress
from .versions import version_refused


class ExportError(Exception):
    """What cannot be exported, and what to do."""


@dataclass
class MethodReport:
    name: str
    steps: int = 0
    kernels: int = 0  # markers in the generated code, those of kernels without weights included
    weights: int = 0  # that steps read


@dataclass
class Report:
    """What export() did. str(report) is a text of some lines."""

    path: str = ""
    methods: list = field(default_factory=list)
    streamed_bytes: int = 0
    resident: list = field(default_factory=list)  # (name, bytes, why)
    unused: list = field(default_factory=list)  # names of tensors of the model that no method reads; not exported

    def __str__(self):
        lines = [f"{self.path}: {self.streamed_bytes:,} bytes of weights can be streamed"]
        for method in self.methods:
            lines.append(f"  {method.name}: {method.steps} steps read {method.weights} weights; {method.kernels} markers")
        for name, size, why in self.resident:
            lines.append(f"  resident: {name} ({size:,} bytes): {why}")
        if self.unused:
            lines.append(f"  not exported, since no method reads them: {', '.join(self.unused)}")
        return "\n".join(lines)


def chosen_methods(model, args, path, methods):
    """name -> (module, args). A method of `methods` is a tuple of arguments of the model, or (module, tuple of arguments)."""
    if path is None:
        raise ExportError("name the folder to write: export(model, args, path)")
    if methods is None:
        return {"forward": (model, tuple(args))}
    if args is not None:
        raise ExportError("give either `args`, for the one method forward, or `methods`")
    found = {}
    for name, given in methods.items():
        if not name.isidentifier():
            raise ExportError(f'a method named "{name}": take letters, digits and underscores, since files are named after it')
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], torch.nn.Module):
            found[name] = (given[0], tuple(given[1]))
        else:
            found[name] = (model, tuple(given))
    if not found:
        raise ExportError("`methods` is empty: name at least one")
    return found


_EXPORTED = "residency_export"  # in the meta of a graph: the folder that it was exported to


def refuse_exported(chosen):
    """A second run on the same graph: its probes, or the numbers of its markers, belong to the first."""
    for name, (module, _) in chosen.items():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        if any(node.op == "call_function" and str(node.target).startswith("residency.residency_probe") for node in module.graph.nodes):
            raise ExportError(f"{name}: this graph has probes already; export the model that it was made from")
        if _EXPORTED in module.meta:
            raise ExportError(
                f'{name}: this graph was exported to "{module.meta[_EXPORTED]}" already; export the model that it was made from'
            )


def note_exported(chosen, path):
    """What refuse_exported refuses from now on."""
    for module, _ in chosen.values():
        if isinstance(module, torch.fx.GraphModule):
            module.meta[_EXPORTED] = path


def _original_names(model, module):
    """The model's own name of each tensor of `module`, by identity: a method's module may wrap the model or parts of it."""
    names = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        names.setdefault(id(tensor), []).append(name)
    result = {}
    for name, tensor in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]:
        own = names.get(id(tensor), [])
        result[name] = name if name in own or not own else own[0]
    return result


def architecture(device):
    if device.type != "cuda":
        return device.type
    major, minor = torch.cuda.get_device_capability(device)
    return f"cuda:sm_{major}{minor}"


def _write_weights(path, catalog):
    """One tensor a storage. A storage that is just one weight keeps its type and shape; others are bytes."""
    from safetensors.torch import save_file

    tensors = {}
    for index, storage in enumerate(catalog.storages):
        weights = catalog.weights_of(index)
        first = weights[0].tensor
        if len(weights) == 1 and first.is_contiguous() and storage.bytes == first.numel() * first.element_size():
            own = first.detach()
        else:
            own = torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage())[storage.begin:][: storage.bytes]
        is_part = storage.bytes < first.untyped_storage().nbytes()  # a file has no tensors that share memory
        tensors[storage.tensor_name] = own.clone().cpu() if is_part else own.cpu()
    save_file(tensors, path)


def write_inputs(path, inputs):
    """The example arguments, so that a program in another language has something to run."""
    from safetensors.torch import save_file

    save_file({f"input{i}": value.detach().cpu().contiguous() for i, value in enumerate(inputs)}, path)


def in_storages_of(names, exported):
    """The names of all tensors of an exported program that lie in the storages of these."""
    tensors = {name: tensor for name, tensor in {**exported.constants, **exported.state_dict}.items() if isinstance(tensor, torch.Tensor)}
    storages = {tensors[name].untyped_storage()._cdata for name in names}
    return {name for name, tensor in tensors.items() if tensor.untyped_storage()._cdata in storages}


def _export_method(name, module, args, original_names, tensors, catalog, folder, use_probes, settings, device, at):
    at("torch.export traces it")
    exported = tensors.export(module, args)
    # Only after decompositions does the signature name every buffer that the graph mutates.
    exported = exported.run_decompositions({})
    if any("stream" in node.meta.get("custom", {}) for node in exported.graph.nodes):
        raise ExportError(f"{name}: kernels of it are on streams of their own, and a marker holds for one stream; leave them out")
    mutated = set(exported.graph_signature.buffers_to_mutate.values())
    package = f"{name}.pt2"
    path = os.path.join(folder, package)
    probed = None
    if use_probes:
        from . import probes

        probed = probes.insert(exported, skip=in_storages_of(mutated, exported))
        chosen = inductor.settings(torch.ops.residency.residency_probe.default, device.type)
    else:
        chosen = inductor.settings()
    chosen.update(settings)
    at("AOTInductor compiles it")
    with inductor.recording(markers=not use_probes) as record:
        torch._inductor.aoti_compile_and_package(exported, package_path=path, inductor_configs=chosen)
    if inductor.name_kernels(inductor.generated_code(path), record.steps) != ([] if use_probes else list(range(len(record.steps)))):
        raise ExportError(f"{name}: the generated code has not each marker once and in order; report this, and use probes=True")
    if record.folded:
        raise ExportError(
            f'{name}: the compiler folded {", ".join(record.folded)} at run time; leave aot_inductor.use_runtime_constant_folding off'
        )

    is_parameter = set(exported.graph_signature.parameters)
    index_of = {}  # by the name in the generated code
    constants = []
    for constant, (original, tensor) in record.constants.items():
        source = exported.state_dict.get(original, exported.constants.get(original, tensor))
        if source.shape != tensor.shape or source.dtype != tensor.dtype:
            source = tensor
        source = tensors.real(source)
        if source is None:
            raise ExportError(
                f'{name}: the compiler computes "{original}" from weights, of which it has no bytes; export the model on the device'
            )
        known = original_names.get(original, original)
        index = index_of[constant] = catalog.add(known, source.detach(), original in is_parameter)
        constants.append((constant, original, index))
        if original in mutated:
            catalog.storages[catalog.weights[index].storage].is_mutable = True
    for alias, own in original_names.items():  # names of tied weights, of which the compiler keeps one
        tensor = tensors.real(exported.state_dict.get(alias))
        if tensor is not None and catalog.holds(tensor):
            catalog.add(own, tensor.detach(), alias in is_parameter)

    if use_probes:
        order, until = probes.live_ranges(path)
        if sorted(order) != list(range(len(probed))):
            raise ExportError(f"{name}: of {len(probed)} probes, {len(order)} are in the generated code; report this, and use markers")
        steps = [
            ([catalog.find(original_names.get(probed[number], probed[number]))], last, -1, f"probe {number}", "")
            for number, last in zip(order, until)
        ]
    else:
        steps = [
            ([index_of[constant] for constant in step.constants], payload.NO_STEP, step.compute_ns, " ".join(step.kernels), step.module)
            for step in record.steps
        ]
    returned = {index_of[constant] for constant in record.returned}
    inputs = [value for value in torch.utils._pytree.tree_leaves(args) if isinstance(value, torch.Tensor)]
    write_inputs(os.path.join(folder, f"{name}.inputs.safetensors"), inputs)
    report = MethodReport(name, len(steps), record.markers, len({index for step in steps for index in step[0]}))
    return payload.Method(name, package, inputs, sorted(constants), steps), returned, report


@contextlib.contextmanager
def new_folder(path, program):
    """A folder that becomes `path` once what is done with it succeeds. Replaces one that holds a `program`, and nothing else."""
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path) and not os.path.exists(os.path.join(path, program))):
        raise ExportError(f'"{path}" exists and holds no program; name a new folder, or one that an export wrote')
    parent = os.path.dirname(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".residency-", dir=parent)
    os.chmod(folder, os.stat(parent).st_mode & 0o777)  # mkdtemp makes it for its owner alone
    try:
        yield folder
        if os.path.exists(path):
            shutil.rmtree(path)
        os.replace(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def one_device(model):
    """The device of a model's tensors."""
    devices = {tensor.device for tensor in [*model.parameters(), *model.buffers()]}
    if len(devices) > 1:
        raise ExportError(f"the model lies on {', '.join(sorted(map(str, devices)))}: move it to one device, make the others inputs, or name `device`")
    return devices.pop() if devices else torch.device("cpu")


def settle(result, catalog, returned, pin, report, model):
    """Decides what stays on the device, and says so in the report."""
    read = {index for method in result.methods for step in method.steps for index in step[0]}
    pins = set()
    for name in pin:
        index = catalog.find(name)
        if index is None:
            raise ExportError(f'pin: no method reads a weight named "{name}"')
        pins.add(index)
    resident = {}
    for index, weight in enumerate(catalog.weights):
        if catalog.storages[weight.storage].is_mutable:
            resident[index] = "kernels write it"
        elif index in returned:
            resident[index] = "the method returns it"
            pins.add(index)
        elif index in pins:
            resident[index] = "pinned"
        elif index not in read:
            resident[index] = "no step reads it by itself"
            pins.add(index)
    result.pins = sorted(pins)
    report.resident = [
        (catalog.weights[index].name, catalog.storages[catalog.weights[index].storage].bytes, why) for index, why in resident.items()
    ]
    resident_storages = {catalog.weights[index].storage for index in resident}
    report.streamed_bytes = sum(s.bytes for i, s in enumerate(catalog.storages) if i not in resident_storages)
    report.unused = sorted(name for name in model.state_dict() if catalog.find(name) is None)


def export(model, args=None, path=None, *, budget="", pin=(), methods=None, probes=False, device=None, settings=None):
    """Compiles `model` with AOTInductor and writes a folder `path`: a package (.pt2) a method, its example
    arguments (METHOD.inputs.safetensors), the weights (weights.safetensors) and the program, which says what each step reads (program.residency). Returns a Report.

    args     the example arguments of forward; or `methods`: name -> arguments, or name -> (module, arguments)
    budget   stored in the program: the runtime's default ("60%", "8 GiB"; "": the runtime decides)
    pin      names of weights that stay on the device
    probes   True: operators instead of markers, for compositions without fixed addresses
    device   to compile for, such as "cuda"; the model and the arguments stay where they are, and need not fit there. None: where
             the model is
    settings further settings of Inductor

    The model is left as it was. Everything that is mutated by kernels, returned, or pinned stays on the device."""
    refused = version_refused()
    if refused:
        raise ExportError(refused)
    chosen = chosen_methods(model, args, path, methods)
    refuse_exported(chosen)
    catalog, returned, report = Catalog(), set(), Report(path)
    if device is not None:
        device, placement = torch.device(device), fake.weights_elsewhere
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ExportError(f'device="{device}": there is no GPU here; the compiler tries its kernels on one, if only on a small part of the model')
    else:
        device, placement = one_device(model), fake.weights_in_place
    with new_folder(path, "program.residency") as folder, Progress() as progress:
        result = payload.Program(f"torch {torch.__version__}", architecture(device), "weights.safetensors", budget)
        with torch.no_grad():
            for number, (name, (module, arguments)) in enumerate(chosen.items(), 1):
                at = lambda phase: progress.at(f"{name} ({number} of {len(chosen)}): {phase}")
                original_names = _original_names(model, module)
                with placement(module, device) as tensors:
                    method, its_returned, its_report = _export_method(
                        name, module, arguments, original_names, tensors, catalog, folder, probes, settings or {}, device, at
                    )
                result.methods.append(method)
                returned |= its_returned
                report.methods.append(its_report)

        progress.at("the weights are written")
        catalog.separate()
        settle(result, catalog, returned, pin, report, model)
        _write_weights(os.path.join(folder, result.weights_file), catalog)
        with open(os.path.join(folder, "program.residency"), "wb") as file:
            file.write(payload.save(result, catalog))
    note_exported(chosen, path)
    return report
