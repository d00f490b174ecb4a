# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""docs/compiled.md quotes this program, and examples/50_compiled/test.sh runs it: compiled.py FOLDER exports a small model there."""

import sys

sys.path.insert(0, "examples/50_compiled")

import torch
from torch import nn

from residency_export import export


class Text(nn.Module):
    def __init__(self, width=1024, words=1000, blocks=4):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(blocks))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.table.weight  # tied: one weight, with two names
        self.register_buffer("seen", torch.zeros(width))

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = x + block(x)
        self.seen.add_(x.sum(0))  # a buffer that the model writes
        return self.head(x)


torch.manual_seed(0)
model = Text().eval()  # on the GPU: .cuda(), and the arguments too
report = export(
    model,
    path=sys.argv[1],
    methods={"prefill": (torch.arange(32),), "decode": (torch.arange(1),)},
    budget="75%",
    pin=["blocks.0.1.weight"],
)
print(report)
