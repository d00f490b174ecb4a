# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Exports a small model to FOLDER/markers, with probes to FOLDER/probes, and as for a device that does not hold its weights to
FOLDER/elsewhere; checks what the export refuses, and what the proof compares. The test's model is that of
tests/fixtures/make_program.py, of more bytes."""

import functools
import importlib
import os
import re
import sys
import threading
from unittest import mock

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tests/fixtures")]

import models  # noqa: E402
import proof  # noqa: E402
from make_program import Model  # noqa: E402
from refused import check_refused  # noqa: E402
from residency_export import export, inductor, probes  # noqa: E402
from residency_export.export import in_storages_of  # noqa: E402
from residency_export.progress import Progress  # noqa: E402

refused = functools.partial(check_refused, export)


class Doubled(torch.nn.Linear):
    """Computes from its weight what a compiler may compute before the first run."""

    def __init__(self):
        super().__init__(8, 8, bias=False)

    def forward(self, x):
        return x @ (self.weight * 2)


class OnStream(torch.nn.Linear):
    """Puts a kernel on a stream of its own, as torch.cuda.stream does where the compiler follows it."""

    def forward(self, x):
        with torch.fx.traceback.annotate({"stream": 1}):
            return super().forward(x)


class Written(torch.nn.Module):
    """Writes one of two buffers that lie in one tensor."""

    def __init__(self):
        super().__init__()
        both = torch.zeros(8)
        self.register_buffer("first", both[:4])
        self.register_buffer("second", both[4:], persistent=False)
        self.register_buffer("other", torch.ones(4))

    def forward(self, x):
        self.first.add_(x)
        return self.first + self.second + self.other


class Recurrent(torch.nn.Module):
    """Layers whose parameters lie in one flat tensor, as those of torch.nn.LSTM do on a GPU; the last two share rows."""

    def __init__(self, width=1024, layers=4):
        super().__init__()
        flat = torch.randn(15 + layers * (width * width + width)) / width**0.5
        self.start = torch.nn.Parameter(flat[:15])  # what follows begins at no multiple of the alignment
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        for begin in range(15, flat.numel(), width * width + width):
            self.weights.append(torch.nn.Parameter(flat[begin : begin + width * width].view(width, width)))
            self.biases.append(torch.nn.Parameter(flat[begin + width * width :][:width]))
        self.shared = torch.nn.Parameter(self.weights[-1].detach()[-2:])

    def forward(self, x):
        state = torch.zeros_like(x) + self.start.sum()
        for weight, bias in zip(self.weights, self.biases):
            for _ in range(2):
                state = torch.tanh(x @ weight.T + bias + state)
        return state + (self.shared @ state.T).sum()


def check_flat(folder):
    """Weights that share no byte of a storage have storages of their own."""
    from safetensors import safe_open

    model = Recurrent().eval()
    export(model, (torch.randn(4, 1024),), os.path.join(folder, "flat"))
    with safe_open(os.path.join(folder, "flat", "weights.safetensors"), "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    assert len(tensors) == 9, tensors.keys()  # 10 weights, of which two share bytes
    largest = max(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert largest < 1024 * 1024 * 4 + 256, largest  # not the whole model
    assert tensors["start"].shape == (15,) and torch.equal(tensors["start"], model.start)


def check_progress():
    """A long export says what it is at; a short one says nothing."""
    lines, said = [], threading.Event()
    with Progress(lambda line: (lines.append(line), said.set()), every_seconds=0.001) as progress:
        progress.at("decode (2 of 2): AOTInductor compiles it")
        assert said.wait(60)
        said.clear()
        assert said.wait(60)
    assert re.fullmatch(r"residency_export: (decode \(2 of 2\): AOTInductor compiles it)? for \d+ s, \d+ s in all", lines[0]), lines[0]
    assert lines[-1].startswith("residency_export: decode (2 of 2): AOTInductor compiles it for "), lines[-1]
    with Progress(lines.append) as progress:
        progress.at("nothing")
    assert "nothing" not in lines[-1]


def check_gone():
    """Where a name of the compiler is gone, the message is that of the version."""
    with mock.patch.dict(sys.modules, {"torch._inductor.codegen.wrapper": None}), mock.patch.object(torch, "__version__", "2.99.1"):
        for name in [name for name in sys.modules if name.startswith("residency_export")]:
            del sys.modules[name]
        try:
            importlib.import_module("residency_export")
            raise AssertionError("not refused: an import of what is gone")
        except ImportError as error:
            assert str(error).startswith("PyTorch 2.99.1: this export reads"), error


def check_proof(folder):
    """What the proof says of its models before they are exported."""
    from safetensors.torch import save_file

    # A model on its device still has views of one tensor, and its tied weights.
    model = models.Transformer(64, 2, 100, 2, 16, torch.float32)
    before = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    after = models.moved(model, "cpu").state_dict()
    storage = lambda tensor: tensor.untyped_storage()._cdata
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) and storage(tensor) != storage(after[name]), name
        for other in before:
            assert (storage(tensor) == storage(before[other])) == (storage(after[name]) == storage(after[other])), (name, other)
    assert storage(after["blocks.1.query"]) == storage(after["blocks.1.value"]) and model.head.weight is model.embedding.weight

    # Two files of weights, and what differs.
    path, other = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.safetensors")
    tensors = {"a": torch.arange(4.0), "b": torch.arange(3), "c": torch.zeros(2, 2), "d": torch.zeros(1), "nan": torch.tensor([torch.nan])}
    save_file(tensors, path)
    save_file(tensors, other, metadata={"other": "bytes"})
    assert proof.different_tensors(path, other) == []
    save_file({"a": torch.tensor([0.0, 1, 2, 4]), "b": tensors["b"].int(), "c": torch.zeros(4), "e": torch.ones(1), "nan": tensors["nan"]}, other)
    assert proof.different_tensors(path, other) == [
        f"d: not in {other}", f"e: not in {path}", "a: 1 of 16 bytes differ", "b: torch.int64 [3] and torch.int32 [3]",
        "c: torch.float32 [2, 2] and torch.float32 [4]",
    ], proof.different_tensors(path, other)
    os.remove(path)
    os.remove(other)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    check_proof(folder)
    check_progress()
    torch.manual_seed(0)
    check_flat(folder)
    model = Model(width=512, words=4000, blocks=3).eval()
    methods = {"prefill": (torch.arange(8) % 100,), "decode": (torch.arange(4) % 100,)}
    path = os.path.join(folder, "markers")
    report = export(model, path=path, methods=methods, budget="50%", pin=["b.0.n.weight"])
    print(report)
    assert [method.name for method in report.methods] == ["prefill", "decode"]
    assert {name for name, _, _ in report.resident} == {"b.0.n.weight", "cache"}
    assert str(export(model, path=os.path.join(folder, "probes"), methods=methods, probes=True)).count("steps read") == 2

    # The compiler sees fake tensors, and makes the same of them.
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    elsewhere = export(model, path=os.path.join(folder, "elsewhere"), methods=methods, budget="50%", pin=["b.0.n.weight"], device="cpu")
    for name, tensor in tensors.items():
        assert model.get_parameter(name) is tensor if isinstance(tensor, torch.nn.Parameter) else model.get_buffer(name) is tensor
    assert elsewhere.resident == report.resident and elsewhere.streamed_bytes == report.streamed_bytes
    for name in ("program.residency", "weights.safetensors", "decode.inputs.safetensors"):
        with open(os.path.join(path, name), "rb") as a, open(os.path.join(folder, "elsewhere", name), "rb") as b:
            assert a.read() == b.read(), name
    if not torch.cuda.is_available():
        refused("there is no GPU here", model=model, path=os.path.join(folder, "x"), methods=methods, device="cuda")

    # A second run on the same graph.
    graph = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(1, 8),)).module()
    for has_probes, text in ((False, "was exported to"), (True, "was exported to")):
        if not has_probes:
            export(graph, (torch.ones(1, 8),), os.path.join(folder, "graph"))
        refused(text, model=graph, args=(torch.ones(1, 8),), path=os.path.join(folder, "x"), probes=has_probes)
    with inductor.recording():
        try:
            export(model, path=os.path.join(folder, "x"), methods=methods)
            raise AssertionError("not refused: an export in an export")
        except RuntimeError as error:
            assert "an export is under way" in str(error), error

    refused('no method reads a weight named "nothing"', model=model, path=os.path.join(folder, "x"), methods=methods, pin=["nothing"])
    # What stands in the way of an export.
    with mock.patch.object(torch, "__version__", "2.99.1"):
        refused("PyTorch 2.99.1: this export reads the compiler's insides", model=model, path=os.path.join(folder, "x"), methods=methods)
    check_gone()
    small = torch.nn.Linear(8, 8).eval()
    small.register_buffer("elsewhere", torch.ones(1, device="meta"))
    refused("the model lies on cpu, meta: move it to one device", model=small, args=(torch.ones(1, 8),), path=os.path.join(folder, "x"))
    folding = {"aot_inductor.use_runtime_constant_folding": True}
    refused("the compiler folded", model=Doubled(), args=(torch.ones(1, 8),), path=os.path.join(folder, "x"), settings=folding)
    with torch.fx.traceback.preserve_node_meta():
        refused("on streams of their own", model=OnStream(8, 8), args=(torch.ones(1, 8),), path=os.path.join(folder, "x"))
    # What kernels write gets no probe, and neither does a view of it.
    written = torch.export.export(Written(), (torch.ones(4),)).run_decompositions({})
    mutated = set(written.graph_signature.buffers_to_mutate.values())
    assert mutated == {"first"} and in_storages_of(mutated, written) == {"first", "second"}
    assert probes.insert(written, skip=in_storages_of(mutated, written)) == ["other"]

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
