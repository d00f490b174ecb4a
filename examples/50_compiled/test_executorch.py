# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Exports a small model through ExecuTorch's CUDA backend, for the CPU, to FOLDER/model, and checks what the export refuses."""

import functools
import importlib.metadata
import os
import sys
from unittest import mock

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tests/fixtures")]

from make_program import Model  # noqa: E402
from refused import check_refused  # noqa: E402
from residency_export import export, export_executorch  # noqa: E402

refused = functools.partial(check_refused, export_executorch)


def main():
    folder = sys.argv[1]
    torch.manual_seed(0)
    model = Model(width=512, words=4000, blocks=2).eval()
    methods = {"prefill": (torch.arange(8) % 100,), "decode": (torch.arange(4) % 100,)}
    path = os.path.join(folder, "model")
    other = os.path.join(folder, "x")
    with mock.patch.object(importlib.metadata, "version", lambda name: "1.4.1"):
        refused("ExecuTorch 1.4.1: this export reads the insides of its CUDA backend", model=model, path=other, methods=methods)
    with mock.patch.object(torch, "__version__", "2.12.1"):
        refused("written for 2.11; install torch==2.11.*", model=model, path=other, methods=methods)
    refused("name the folder", model=model, args=(torch.arange(4),))
    refused("give either", model=model, args=(torch.arange(4),), path=other, methods=methods)

    report = export_executorch(model, path=path, methods=methods, budget="75%", pin=["b.0.n.weight"])
    print(report)
    assert [method.name for method in report.methods] == ["prefill", "decode"]
    assert {name for name, _, _ in report.resident} == {"b.0.n.weight", "cache"}
    assert not report.unused, report.unused  # the tied embedding is an alias
    files = {"model.pte", "aoti_cpu_blob.ptd", "prefill.inputs.safetensors", "decode.inputs.safetensors"}
    assert set(os.listdir(path)) == files, os.listdir(path)

    small = Model(width=16, words=100, blocks=1).eval()
    refused('no method reads a weight named "nothing"', model=small, args=(torch.arange(4),), path=other, pin=["nothing"])
    os.makedirs(os.path.join(folder, "full"))
    open(os.path.join(folder, "full", "file"), "w").close()
    refused("holds no program", model=small, args=(torch.arange(4),), path=os.path.join(folder, "full"))
    graph = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(1, 8),)).module()
    export(graph, (torch.ones(1, 8),), os.path.join(folder, "graph"))
    refused("was exported to", model=graph, args=(torch.ones(1, 8),), path=other)
    assert not os.path.exists(other)


if __name__ == "__main__":
    main()
