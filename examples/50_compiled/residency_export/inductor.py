# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Markers in the code that Inductor generates: before each kernel the generated code says which step begins.

The generated library has a hook, a function pointer that is null until a runtime sets it: without one the package runs as any
other, with its constants where the caller put them."""

import contextlib
import re
import zipfile
from dataclasses import dataclass, field

import torch
from torch._inductor import ir, scheduler
from torch._inductor.codegen import cpp_wrapper_cpu
from torch._inductor.codegen.wrapper import FreeLine, PythonWrapperCodegen
from torch._inductor.graph import SubgraphLowering
from torch._inductor.virtualized import V

# Exported by the generated library: the hook, and the number by which a runtime knows what it calls.
HOOK_SOURCE = """
extern "C" {
__attribute__((__visibility__("default"))) int32_t (*residency_step_hook)(void* context, int64_t step) = nullptr;
__attribute__((__visibility__("default"))) int32_t (*residency_probe_hook)(void* context, AtenTensorHandle weight, int64_t probe,
                                                                           AtenTensorHandle* result) = nullptr;
__attribute__((__visibility__("default"))) void* residency_hook_context = nullptr;
__attribute__((__visibility__("default"))) int32_t residency_hook_version = 1;
}
[[maybe_unused]] static inline AOTITorchError residency_step(int64_t step) {
    return residency_step_hook == nullptr ? 0 : residency_step_hook(residency_hook_context, step);
}
static inline AOTITorchError residency_probe(AtenTensorHandle weight, int64_t probe, AtenTensorHandle* result) {
    return residency_probe_hook == nullptr ? aoti_torch_new_tensor_handle(weight, result)
                                           : residency_probe_hook(residency_hook_context, weight, probe, result);
}
extern "C" {
__attribute__((__visibility__("hidden"))) AOTITorchError aoti_torch_cpu_residency_probe(AtenTensorHandle weight, int64_t probe,
                                                                                       AtenTensorHandle* result) {
    return residency_probe(weight, probe, result);
}
__attribute__((__visibility__("hidden"))) AOTITorchError aoti_torch_cuda_residency_probe(AtenTensorHandle weight, int64_t probe,
                                                                                        AtenTensorHandle* result) {
    return residency_probe(weight, probe, result);
}
}
"""

# For graphs: from begin to end, what PyTorch allocates on the stream comes from a pool of its own, which stays until it is released.
POOL_SOURCE = """
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <exception>
#include <iostream>

template <class Call>
static int32_t residency_guarded(Call&& call) {
    try {
        call();
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "residency: " << error.what() << std::endl;
        return 1;
    }
}
extern "C" {
__attribute__((__visibility__("default"))) int32_t residency_pool_begin(int32_t device, void* stream, uint64_t* pool) {
    return residency_guarded([&] {
        const auto id = at::cuda::MemPool::graph_pool_handle();
        c10::cuda::CUDACachingAllocator::beginAllocateToPool(static_cast<c10::DeviceIndex>(device), id,
                                                             [stream](cudaStream_t other) { return other == stream; });
        pool[0] = id.first;
        pool[1] = id.second;
    });
}
__attribute__((__visibility__("default"))) int32_t residency_pool_end(int32_t device, const uint64_t* pool) {
    return residency_guarded(
        [&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(static_cast<c10::DeviceIndex>(device), {pool[0], pool[1]}); });
}
__attribute__((__visibility__("default"))) int32_t residency_pool_release(int32_t device, const uint64_t* pool) {
    return residency_guarded(
        [&] { c10::cuda::CUDACachingAllocator::releasePool(static_cast<c10::DeviceIndex>(device), {pool[0], pool[1]}); });
}
}
"""


@dataclass
class Step:
    constants: list  # names of the graph's constants
    compute_ns: int = -1  # -1: unknown
    kernels: list = field(default_factory=list)
    module: str = ""  # path of the module that the kernel came from


@dataclass
class Recording:
    """What the compiler put into one method."""

    steps: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)  # name in the generated code -> (original name, tensor)
    folded: list = field(default_factory=list)
    returned: set = field(default_factory=set)  # constants that are outputs, or that outputs are views of
    markers: int = 0


def _module_of(node):
    """The paths of the modules that one kernel came from, in the order of the graph, with spaces between."""
    paths = []
    origins = {
        origin: None for each in node.get_nodes() if each.node is not None for origin in each.node.get_origins()
    }
    for origin in sorted(origins):
        stack = origin.meta.get("nn_module_stack")
        if stack and origin.op != "placeholder":
            path = list(stack.values())[-1][0].replace("L['self']", "").replace("L__self__", "").strip(".")
            if path and path not in paths:
                paths.append(path)
    return " ".join(paths)


def _is_probe(node):
    """Whether a node of the scheduler is a probe, or stands for what one returns."""
    kernel = node.node.inputs[0] if isinstance(node.node, ir.MultiOutput) else node.node
    return str(getattr(kernel, "op_overload", "")) == "residency.residency_probe.default"


def _estimate_ns(node):
    try:
        milliseconds = node.get_estimated_runtime()
    except Exception:  # the compiler has no model of this kernel or of this device
        return -1
    return int(milliseconds * 1e6) if milliseconds and milliseconds > 0 else -1


@contextlib.contextmanager
def recording(markers=True, pools=True):
    """While it is open, one graph that Inductor compiles gets markers and is recorded. `pools`: with what graphs need, from PyTorch."""
    record = Recording()
    aliases = {}  # buffer -> constants that it is a view of
    probed = set()  # buffers that probes return: weights, in which no kernel may write

    def constants_of(names):
        found = set()
        for name in names:
            if name in V.graph.constants:
                found.add(name)
            found |= aliases.get(name, set())
        return found

    original_enter = scheduler.Scheduler.enter_context
    original_header = cpp_wrapper_cpu.CppWrapperCpu.write_header
    original_end = cpp_wrapper_cpu.CppWrapperCpu.codegen_model_constructor
    original_free = PythonWrapperCodegen.codegen_free

    def is_outermost():
        return V.graph.aot_mode and not V.graph.is_const_graph and not isinstance(V.graph, SubgraphLowering)

    def enter_context(self, node):
        original_enter(self, node)
        if not is_outermost() or isinstance(node, scheduler.NopKernelSchedulerNode):
            return
        if _is_probe(node):
            V.graph.never_reuse_buffers |= {output.get_name() for output in node.get_outputs()}
            probed.update(output.get_name() for output in node.get_outputs())
        read = set()
        for each in node.get_nodes():
            read |= {dependency.name for dependency in each.read_writes.reads | each.read_writes.writes}
            for output in each.get_outputs():
                of = constants_of(output.get_aliases())
                if of:
                    aliases[output.get_name()] = of
        used = sorted(constants_of(read))
        step = Step(used, _estimate_ns(node), [], _module_of(node))
        if used:
            number = len(record.steps)
            record.steps.append(step)
        else:
            number = -1
        if markers:
            self.flush()  # a group of kernels that is still open belongs before the marker
            V.graph.wrapper_code.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK(residency_step({number}L));")
            record.markers += 1

    def write_header(self):
        original_header(self)
        if V.graph.aot_mode and not V.graph.is_const_graph:
            self.header.splice(HOOK_SOURCE)
            if pools and "cuda" in V.graph.device_types:
                self.header.splice(POOL_SOURCE)

    def codegen_free(self, buffer):
        name = buffer.get_name()
        if name not in probed:
            return original_free(self, buffer)
        if name not in self.freed:  # as soon as nothing reads it, so that its weight may leave
            self.freed.add(name)
            self.writeline(FreeLine(self, buffer))

    def codegen_model_constructor(self):
        for name, tensor in V.graph.constants.items():
            original = V.graph.dynamo_flat_name_to_original_fqn.get(name) or V.graph.allocated_constant_name[name]
            record.constants[name] = (original, tensor)
        record.folded = sorted(V.graph.folded_constants)
        for output in V.graph.get_output_names():
            record.returned |= constants_of([output])
        return original_end(self)

    wrapper = cpp_wrapper_cpu.CppWrapperCpu
    if getattr(original_enter, "is_recording", False):
        raise RuntimeError("an export is under way in this process; exports follow each other")
    enter_context.is_recording = True
    scheduler.Scheduler.enter_context = enter_context
    wrapper.write_header = write_header
    wrapper.codegen_model_constructor = codegen_model_constructor
    PythonWrapperCodegen.codegen_free = codegen_free
    try:
        yield record
    finally:
        scheduler.Scheduler.enter_context = original_enter
        wrapper.write_header = original_header
        wrapper.codegen_model_constructor = original_end
        PythonWrapperCodegen.codegen_free = original_free


def generated_code(package):
    """The text of the wrapper in a package (.pt2)."""
    with zipfile.ZipFile(package) as archive:
        return "\n".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".wrapper.cpp"))


def name_kernels(source, steps):
    """Fills in the kernels of each step from the generated code. Returns the steps of its markers, in the order of the code."""
    step, numbers = None, []
    for line in source.splitlines():
        marker = re.search(r"\bresidency_step\((-?\d+)L\)\)", line)
        if marker:
            number = int(marker[1])
            step = steps[number] if 0 <= number < len(steps) else None
            if number >= 0:
                numbers.append(number)
            continue
        called = re.match(r"\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(?:call_)?(\w+)\(", line) or re.match(r"\s*kernels\.(\w+)", line)
        if step is not None and called and re.match(r"(triton|cpp_fused|aoti_torch_(cpu|cuda)_)\w*", called[1]):
            if called[1] not in step.kernels:
                step.kernels.append(called[1])
    return numbers


def settings(probe_operator=None, device="cpu"):
    """Inductor's settings for a package whose constants the caller manages."""
    chosen = {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.use_runtime_constant_folding": False,
        "freezing": False,
    }
    if probe_operator is not None:
        chosen["aot_inductor.custom_ops_to_c_shims"] = {
            probe_operator: [f"AOTITorchError aoti_torch_{device}_residency_probe(AtenTensorHandle, int64_t, AtenTensorHandle*)"]
        }
    return chosen
