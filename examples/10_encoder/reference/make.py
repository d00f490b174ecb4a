# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Reference embeddings of the encoder's sentences, independent of it: the tokenizers package cuts the text, numpy computes in
double precision. Needs numpy, safetensors and tokenizers.

    python3 make.py MODEL_FOLDER > published.txt           all-MiniLM-L6-v2
    python3 make.py GENERATED_FOLDER > generated.txt       what encoder --offline writes
    python3 make.py --tokens GENERATED_FOLDER > tokens.txt token ids, a tab, and a text that is hard to cut
"""

import json
import math
import pathlib
import re
import sys

try:
    import numpy as np
    from safetensors.numpy import load_file
    from tokenizers import BertWordPieceTokenizer
except ImportError as missing:
    sys.exit(f"make.py: {missing}: pip install numpy safetensors tokenizers")

HARD = [
    "Hello, World! (don't panic)",
    "naïve café — “quotes” … Ångström ÉCOLE",
    "日本語 and 中文 mixed",
    "tabs\tand\u00a0spaces\u200b here",
    "unbelievably supercalifragilistic 12345 3.14 $5 a+b=c",
    "emoji 🙂 x" + "y" * 120 + " end",
    "İstanbul ΣΊΣΥΦΟΣ Straße",
    "e\u0301te\u0301 \u1e69",
]


def sentences():
    source = (pathlib.Path(__file__).parent.parent / "main.cpp").read_text(encoding="utf-8")
    block = source.split("known_sentences{", 1)[1].split("};", 1)[0]
    return re.findall(r'^    "(.*)",$', block, re.MULTILINE)


def normalise(x, weights, name, epsilon):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    return x * weights[name + ".weight"] + weights[name + ".bias"]


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def embed(ids, weights, config):
    epsilon, heads = config["layer_norm_eps"], config["num_attention_heads"]
    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = normalise(x + weights["embeddings.token_type_embeddings.weight"][0], weights, "embeddings.LayerNorm", epsilon)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (
            linear(x, weights, prefix + "attention.self." + name).reshape(len(ids), heads, -1).transpose(1, 0, 2)
            for name in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        context = (scores / scores.sum(-1, keepdims=True)) @ v
        context = context.transpose(1, 0, 2).reshape(len(ids), -1)
        x = normalise(x + linear(context, weights, prefix + "attention.output.dense"), weights,
                      prefix + "attention.output.LayerNorm", epsilon)
        inner = linear(x, weights, prefix + "intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = normalise(x + linear(inner, weights, prefix + "output.dense"), weights, prefix + "output.LayerNorm", epsilon)
    x = x.mean(0)
    return x / np.linalg.norm(x)


def main():
    arguments = sys.argv[1:]
    only_tokens = arguments[:1] == ["--tokens"]
    if len(arguments) != 1 + only_tokens:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    folder = pathlib.Path(arguments[-1])
    for name in ("vocab.txt",) if only_tokens else ("vocab.txt", "config.json", "model.safetensors"):
        if not (folder / name).is_file():
            print(f"make.py: there is no {folder / name}: name a folder that holds the model", file=sys.stderr)
            sys.exit(2)
    cut = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
    if only_tokens:
        for text in HARD:
            print(" ".join(map(str, cut.encode(text).ids)), text, sep="\t")
        return
    config = json.loads((folder / "config.json").read_text())
    weights = {name: tensor.astype(np.float64) for name, tensor in load_file(folder / "model.safetensors").items()}
    for text in sentences():
        values = embed(cut.encode(text).ids, weights, config)
        for start in range(0, len(values), 12):
            print(", ".join(f"{value:.7f}F" for value in values[start : start + 12]) + ",")


main()
