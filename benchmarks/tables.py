#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/measured.md, from the records: passes beside peers and over the bound, compiled models, and compile times.

    tables.py [--check FILE] [FOLDER]    FOLDER: of the records, by default results beside this program
"""

import json
import os
import re
import sys

PEERS = (
    ("exact bound", ("bound",)),
    ("**Residency, `Planned`**", ("ours.time",)),
    ("**Residency, as a CUDA graph**", ("ours.graph.time",)),
    ("double buffer by tensors, split found by search", ("tensors.time",)),
    ("the same as a CUDA graph", ("tensors.graph.time",)),
    ("double buffer by layers, best resident prefix", ("layers.time",)),
    ("the same as a CUDA graph", ("layers.graph.time",)),
    ("accelerate, pinned, what fits resident", ("accelerate.time",)),
    ("zero-copy reads of what does not fit", ("zero_copy.time",)),
    ("everything resident; as a CUDA graph", ("resident.time", "resident.graph.time")),
)
BOUNDS = (
    ("Llama-3-8B", "gpu-decode", "decode.{}time_over_bound"),
    ("as a CUDA graph", "gpu-decode", "decode.{}graph.time_over_bound"),
    ("Llama-3-70B, 40 of its layers, 70.6 GB", "gpu-decode-70b", "decode_70b.{}time_over_bound"),
    ("`decoder` at Llama-3-8B's shapes, as a CUDA graph", "gpu-decoder", "decoder.{}graph.over_bound"),
)
MODELS = (
    ("a transformer, 1.05 GB, decode", "transformer.decode"),
    ("its prefill", "transformer.prefill"),
    ("a convolutional network, 54 MB", "convolutions.classify"),
    ("a sentence encoder, 45 MB", "encoder.encode"),
    ("a language model with tied embeddings, 0.60 GB", "text.next"),
    ("a vision transformer, 0.41 GB", "vision.classify"),
    ("a U-Net, 0.14 GB", "unet.denoise"),
    ("a recurrent network, 0.30 GB", "recurrent.read"),
    ("a mixture of gathered experts, 0.54 GB", "mixture.decode"),
)
COMPILED = (
    ("nlohmann/json, parse and dump, to compare with", "json"),
    ("`residency.hpp` alone", "umbrella"),
    ("`evict/queues.hpp` alone", "lru"),
    ("a program with `Planned`, simulated", "planned"),
    ("a program with `Planned` on CUDA", "planned_cuda"),
    ("the example `minimal`, which reads model files", "minimal"),
)


def table(title, rows, budgets):
    lines = [f"| {title} | " + " | ".join(f"{budget} %" for budget in budgets) + " |", "|---" * (len(budgets) + 1) + "|"]
    for name, cells in rows:
        if any(cells):
            bold = "**" if name.startswith("**") else ""
            lines.append(f"| {name} | " + " | ".join(bold + cell + bold if cell else "–" for cell in cells) + " |")
    return lines


def values_of(entries):
    return {entry["name"]: entry["value"] for entry in entries}


def budgets_of(values, pattern):
    found = {match.group(1) for name in values if (match := re.match(pattern, name))}
    return sorted(found, key=float)


def peers(entries):
    """Milliseconds per pass, as lines of Markdown."""
    values = values_of(entries)
    budgets = budgets_of(values, r"peers\.([0-9.]+)%\.")

    def cell(budget, names):
        names = [f"peers.{budget}%.{name}" for name in names]
        return "; ".join(f"{values[name]:.1f}" for name in names if name in values)

    return table("ms per pass", [(row, [cell(budget, names) for budget in budgets]) for row, names in PEERS], budgets)


def over_bounds(read):
    """`read`: the values of a file of records."""
    files = {file: read(file) for _, file, _ in BOUNDS}
    budgets = budgets_of(files["gpu-decode"], r"decode\.([0-9.]+)%\.")

    def cell(file, name, budget):
        value = files[file].get(name.format(budget + "%."))
        return "" if value is None else f"{value:.3f}"

    rows = [(row, [cell(file, name, budget) for budget in budgets]) for row, file, name in BOUNDS]
    return table("over the exact bound", rows, budgets)


def compiled_models(values):
    """Over the least possible, as lines of Markdown; at 100 % over the package alone."""
    budgets = ("100%", "75%", "50%", "25%", "floor")
    lines = ["| over the least | " + " | ".join(budget.replace("%", " %") for budget in budgets) + " |", "|---" * (len(budgets) + 1) + "|"]
    for row, name in MODELS:
        for title, kind in ((row, ""), ("eagerly", ".eager"), ("as a CUDA graph", ".graph")):
            keys = [f"compiled.{name}.{budget}{kind}.over_{'alone' if budget == '100%' else 'least'}" for budget in budgets]
            if not any(key in values for key in keys):
                continue
            lines.append(f"| {title} | " + " | ".join(f"{values[key]:.3f}" if key in values else "–" for key in keys) + " |")
    return lines


def compile_times(values):
    """Seconds and megabytes of one file, as lines of Markdown."""
    columns = (("-O0", "O0"), ("-O0, compiled apart", "O0.compiled"), ("-O2", "O2"), ("-O2, compiled apart", "O2.compiled"))
    lines = ["| one file | " + " | ".join(f"`{title}`" if "," not in title else title for title, _ in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row, name in COMPILED:
        keys = [f"compile.{name}.{column}" for _, column in columns]
        lines.append(f"| {row} | " + " | ".join(f"{values[key + '.time']:.1f} s, {values[key + '.memory']:.0f} MB" if key + ".time" in values else "–" for key in keys) + " |")
    return lines


def main(arguments):
    document = None
    if arguments[:1] == ["--check"]:
        if len(arguments) < 2:
            print("--check: name the file", file=sys.stderr)
            return 2
        document, arguments = arguments[1], arguments[2:]
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")

    def read(file):
        with open(os.path.join(folder, file + ".json")) as records:
            return json.load(records)

    try:
        made = [peers(read("gpu-peers")), over_bounds(lambda file: values_of(read(file))), compiled_models(values_of(read("gpu-compiled"))),
                compile_times(values_of(read("cpu-compile")))]
        lines = open(document).read().splitlines() if document else []
    except (OSError, ValueError, KeyError) as error:
        print(f"cannot read the records: {error}: name the folder that '.ci/gpu bench' wrote", file=sys.stderr)
        return 2
    if not document:
        print("\n\n".join("\n".join(lines) for lines in made))
        return 0
    missing = [line for lines_of_one in made for line in lines_of_one if line not in lines]
    for line in missing:
        print(f"{document} lacks what the records say: {line}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
