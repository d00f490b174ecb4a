# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Exports a small model with markers to FOLDER/markers, and checks what the export refuses. The test's model is that of
tests/fixtures/make_program.py, of more bytes."""

import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tests/fixtures")]

from make_program import Model  # noqa: E402
from residency_export import ExportError, export  # noqa: E402


def refused(text, **arguments):
    try:
        export(**arguments)
    except ExportError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"not refused: {text}")


def main():
    folder = sys.argv[1]
    torch.manual_seed(0)
    model = Model(width=512, words=4000, blocks=3).eval()
    methods = {"prefill": (torch.arange(8) % 100,), "decode": (torch.arange(4) % 100,)}
    path = os.path.join(folder, "markers")
    report = export(model, path=path, methods=methods, budget="50%", pin=["b.0.n.weight"])
    print(report)
    assert [method.name for method in report.methods] == ["prefill", "decode"]
    assert {name for name, _, _ in report.resident} == {"b.0.n.weight", "cache"}
    refused('no method reads a weight named "nothing"', model=model, path=os.path.join(folder, "x"), methods=methods, pin=["nothing"])
    refused("name the folder", model=model, args=(torch.arange(4),))
    refused("give either", model=model, args=(torch.arange(4),), path=os.path.join(folder, "x"), methods=methods)
    os.makedirs(os.path.join(folder, "full"))
    open(os.path.join(folder, "full", "file"), "w").close()
    refused("holds no program", model=model, args=(torch.arange(4),), path=os.path.join(folder, "full"))
    os.remove(os.path.join(folder, "full", "file"))
    os.rmdir(os.path.join(folder, "full"))
    assert not os.path.exists(os.path.join(folder, "x"))


if __name__ == "__main__":
    main()
