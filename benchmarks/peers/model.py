# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""A decode step at the shapes of a Llama, one matrix-vector product a matrix, over weights in one range of host memory."""

from dataclasses import dataclass
from functools import partial

import torch

ALIGNMENT = 256


@dataclass(frozen=True)
class Weight:
    name: str
    shape: tuple
    offset: int  # bytes into the range
    bytes: int


@dataclass(frozen=True)
class Unit:
    """What an arm moves at once: weights in a row, and the steps that read them."""

    offset: int
    bytes: int
    steps: range


class Model:
    """Everything but the embedding table, whose rows an engine reads from the host. In the order of use."""

    def __init__(self, layers, hidden, inner, key_value, vocabulary):
        self.weights, self.steps, self.layers = [], [], []
        self.hidden, self.inner = hidden, inner
        self.bytes = 0
        for layer in range(layers):
            first = len(self.steps)
            name = f"model.layers.{layer}."
            self._step(name + "input_layernorm", name + "self_attn.q_proj", hidden, hidden)
            self._step(None, name + "self_attn.k_proj", key_value, hidden)
            self._step(None, name + "self_attn.v_proj", key_value, hidden)
            self._step(None, name + "self_attn.o_proj", hidden, hidden)
            self._step(name + "post_attention_layernorm", name + "mlp.gate_proj", inner, hidden)
            self._step(None, name + "mlp.up_proj", inner, hidden)
            self._step(None, name + "mlp.down_proj", hidden, inner)
            self.layers.append(range(first, len(self.steps)))
        self._step("model.norm", "lm_head", vocabulary, hidden)
        self.layers.append(range(len(self.steps) - 1, len(self.steps)))

    def _weight(self, name, *shape):
        count = 2
        for extent in shape:
            count *= extent
        self.weights.append(Weight(name + ".weight", shape, self.bytes, count))
        self.bytes += -(-count // ALIGNMENT) * ALIGNMENT
        return len(self.weights) - 1

    def _step(self, norm, matrix, rows, columns):
        step = () if norm is None else (self._weight(norm, columns),)
        self.steps.append((*step, self._weight(matrix, rows, columns)))

    def unit(self, steps):
        """The weights of these steps."""
        first, last = self.weights[self.steps[steps[0]][0]], self.weights[self.steps[steps[-1]][-1]]
        return Unit(first.offset, last.offset + last.bytes - first.offset, steps)

    def by_layer(self):
        return [self.unit(steps) for steps in self.layers]

    def by_tensor(self):
        """A matrix each, with the norm before it."""
        return [self.unit(range(step, step + 1)) for step in range(len(self.steps))]

    def fill(self, host, device):
        """Random weights into the host's range, a uint8 tensor."""
        generator = torch.Generator(device=device).manual_seed(20261121)
        for weight in self.weights:
            made = torch.empty(weight.bytes // 2, dtype=torch.bfloat16, device=device)
            made.normal_(std=weight.shape[-1] ** -0.5, generator=generator)
            self.view(host, weight).copy_(made.view(weight.shape))

    @staticmethod
    def view(image, weight, offset=None):
        """A weight in a uint8 tensor, by default where the whole model has it."""
        begin = weight.offset if offset is None else offset
        return image[begin:begin + weight.bytes].view(torch.bfloat16).view(weight.shape)


class Work:
    """The inputs, the outputs, and the operations of each step over weights that lie anywhere."""

    def __init__(self, model, device):
        self.model = model
        generator = torch.Generator(device=device).manual_seed(1)
        make = partial(torch.randn, dtype=torch.bfloat16, device=device, generator=generator)
        self.inputs = {model.hidden: make(model.hidden), model.inner: make(model.inner)}
        self.normed = make(model.hidden)
        rows = [model.weights[step[-1]].shape[0] for step in model.steps]
        self.outputs = torch.zeros(sum(rows), dtype=torch.bfloat16, device=device)
        self.output = torch.split(self.outputs, rows)

    def bind(self, views):
        """By step: calls that enqueue it on the current stream, reading `views`, a tensor for each weight."""
        return [self.bind_step(step, [views[weight] for weight in weights])
                for step, weights in enumerate(self.model.steps)]

    def bind_step(self, step, views):
        *norm, matrix = views
        calls = []
        # The norm of q is also that of k and v, as that of gate is of up.
        reads_norm = bool(norm) or self.model.weights[self.model.steps[step][-1]].name.endswith(
            ("k_proj.weight", "v_proj.weight", "up_proj.weight"))
        if norm:
            calls.append(partial(torch.mul, self.inputs[self.model.hidden], norm[0], out=self.normed))
        source = self.normed if reads_norm else self.inputs[matrix.shape[1]]
        calls.append(partial(torch.mv, matrix, source, out=self.output[step]))
        return calls
