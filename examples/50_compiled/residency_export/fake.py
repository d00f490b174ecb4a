# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles for a device that does not hold the weights.

The compiler needs shapes, types and devices of weights, never their bytes. So while a method is exported, its module has fake tensors of
the device in place of its parameters and buffers. Those stay where they are, such as in host memory; views of one storage stay views of
one. What the compiler tries on the device, such as the block sizes of a kernel, takes memory for the arguments of that kernel alone."""

import contextlib

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import graph
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv


class InPlace:
    """The module's own tensors, on the device that is compiled for."""

    def export(self, module, args):
        return torch.export.export(module, args)

    def real(self, tensor):
        """The tensor whose bytes are those of a tensor of the export; None: there is none."""
        return tensor


class Fakes:
    """Fake tensors of a device for the tensors of modules."""

    def __init__(self, device):
        # Without an index, tensors of the same device differ.
        index = device.index if device.type == "cpu" or device.index is not None else torch.cuda.current_device()
        self.device = torch.device(device.type, index)
        # A new one would be made for inputs of one that tracks none.
        self._mode = FakeTensorMode(shape_env=ShapeEnv(tracked_fakes=[]), allow_non_fake_inputs=True, export=True)
        self._real = {}  # by the fake's id: the fake, the tensor

    def of(self, tensor):
        fake = self._mode.from_tensor(tensor, static_shapes=True)
        fake.fake_device = self.device
        self._real[id(fake)] = fake, tensor
        return fake

    def export(self, module, args):
        fakes = torch.utils._pytree.tree_map_only(torch.Tensor, self.of, args)
        with tracing(TracingContext(self._mode)):
            return torch.export.export(module, fakes)

    def real(self, tensor):
        if not isinstance(tensor, FakeTensor):
            return tensor
        return self._real.get(id(tensor), (None, None))[1]


def _is_same_tensor(a, b):
    """As the compiler's, which compares addresses of bytes: those of fake tensors are all 0."""
    if isinstance(a, FakeTensor) != isinstance(b, FakeTensor):
        return False
    return (
        not a.is_mkldnn
        and (a.size(), a.stride(), a.storage_offset(), a.dtype, a.device) == (b.size(), b.stride(), b.storage_offset(), b.dtype, b.device)
        and a.untyped_storage()._cdata == b.untyped_storage()._cdata
    )


@contextlib.contextmanager
def weights_elsewhere(module, device):
    """While it is open, the module's parameters and buffers are fake tensors of the device. Gives the Fakes."""
    fakes = Fakes(device)
    original_comparison, replaced = graph.is_same_tensor, []
    try:
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        replaced.append((tensors, name, tensor))
        for tensors, name, tensor in replaced:
            tensors[name] = fakes.of(tensor)
        graph.is_same_tensor = _is_same_tensor
        yield fakes
    finally:
        graph.is_same_tensor = original_comparison
        for tensors, name, tensor in replaced:
            tensors[name] = tensor


@contextlib.contextmanager
def weights_in_place(module, device):
    yield InPlace()
