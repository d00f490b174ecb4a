# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Probes, the other way to tell a runtime when a weight is read: an operator between a weight and each of its readers.

A marker says where a step begins, so that weights must have fixed addresses. A probe gives the kernel another tensor, whose memory
is leased until the generated code drops it, so that any pool will do. The compiler sees a probe and may place it early; that costs
bytes, never correctness."""

import re
import zipfile

import torch


@torch.library.custom_op("residency::residency_probe", mutates_args=())
def residency_probe(weight: torch.Tensor, number: int) -> torch.Tensor:
    return weight.clone()


@residency_probe.register_fake
def _(weight, number):
    return torch.empty_like(weight)


def _is_returned(node):
    """Whether an output of the graph is this tensor, or a view of it."""
    for user in node.users:
        if user.op == "output":
            return True
        schema = getattr(user.target, "_schema", None)
        if schema and any(value.alias_info and not value.alias_info.is_write for value in schema.returns) and _is_returned(user):
            return True
    return False


def insert(program, skip):
    """Puts a probe in front of every reader of a weight of the exported program. `skip`: names of the weights that get none; a
    mutated buffer must be among them, since a write to a probe's result is lost. Returns the weight's name by probe."""
    graph, signature = program.graph_module.graph, program.graph_signature
    names = []
    for node in list(graph.nodes):
        if node.op != "placeholder":
            continue
        name = (
            signature.inputs_to_parameters.get(node.name)
            or signature.inputs_to_buffers.get(node.name)
            or signature.inputs_to_lifted_tensor_constants.get(node.name)
        )
        if name is None or name in skip:
            continue
        value = node.meta["val"]
        # What a method returns stays; and a kernel would read one with gaps or overlaps as if it were dense.
        if _is_returned(node) or torch.empty_like(value).stride() != value.stride():
            continue
        for user in list(node.users):
            with graph.inserting_before(user):
                inserted = graph.call_function(torch.ops.residency.residency_probe.default, (node, len(names)))
            inserted.meta["val"] = torch.empty_like(node.meta["val"])
            user.replace_input_with(node, inserted)
            names.append(name)
    program.graph_module.recompile()
    return names


def live_ranges(package):
    """Reads the generated code of a package. The probes in the order in which it calls them, and for each the position (in that
    order) of the last probe before the code drops its tensor."""
    with zipfile.ZipFile(package) as archive:
        (source,) = [name for name in archive.namelist() if name.endswith("wrapper.cpp")]
        lines = archive.read(source).decode().splitlines()
    order, last, open_probes = [], [], {}
    for line in lines:
        called = re.search(r"\baoti_torch_\w+?_residency_probe\(\w+(?:\.get\(\))?, (\d+)L, &(\w+?)_handle\)", line)
        if called:
            open_probes[called[2]] = len(order)
            order.append(int(called[1]))
            last.append(None)
        dropped = re.match(r"\s*(\w+)\.reset\(\);", line)
        if dropped and dropped[1] in open_probes:
            last[open_probes.pop(dropped[1])] = len(order) - 1
    return order, [position if position is not None else len(order) - 1 for position in last]
