#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the decoder with transformers on the same checkpoints, and writes the references of the test.

    reference.py PROGRAM [--work FOLDER] [--write] [--shapes a,b] [--new 24] [-- ARGUMENT...]

needs torch, transformers, safetensors and numpy (pip install torch transformers safetensors). PROGRAM is the built decoder; it
generates the checkpoints, whose tensors are made a second time here by the formula of generate.hpp and have to be equal; those named
saved-… are written by transformers. What follows -- goes to PROGRAM. With --write, transformers' numbers become reference/SHAPE.txt for
the tiny shapes.

The logits of every pass are compared: those of PROGRAM and those of transformers in bf16, each with transformers in float32 on the same
tokens. PROGRAM may be off by what bf16 costs transformers itself, and a half more.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"reference.py: {missing}: pip install torch transformers safetensors", file=sys.stderr)
    sys.exit(77)

# After these, the best token is ahead of the next one by more than bf16 can blur, for 24 tokens.
PROMPTS = {
    "tiny": [204, 32, 32, 162, 233, 57, 128, 110, 240, 182],
    "tiny-llama3": [105, 221, 99, 252, 53, 199, 151, 255, 8, 166],
    "tiny-bias": [86, 85, 109, 137, 170, 130, 188, 173, 174, 58],
    "tiny-qwen2": [136, 49, 194, 176, 248, 120, 33, 20, 43, 68],
    "tiny-qwen3": [37, 137, 36, 38, 11, 5, 148, 183, 252, 240],
    "small": [2951, 11345, 20566, 3183, 24144, 18639, 22080, 5898, 17055, 18733],
    "saved-llama": [7, 14, 21, 28, 35, 42],
    "saved-qwen2": [8, 61, 201, 19, 150, 77],
    "saved-qwen3": [7, 14, 21, 28, 35, 42],
}


def splitmix(counter):
    z = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def expected_tensor(number, name, shape):
    """The tensor as generate.hpp says."""
    base, scale = np.float32(name.endswith("norm.weight")), np.float32(0.2)
    if name == "model.embed_tokens.weight":
        scale = np.float32(0.25)
    elif len(shape) == 2:
        scale = np.float32(np.sqrt(3.0 / shape[1])) * np.float32(2 if name == "lm_head.weight" else 1)
    count = int(np.prod(shape))
    random = splitmix(np.arange(count, dtype=np.uint64) + np.uint64(number << 40)) >> np.uint64(40)
    unit = random.astype(np.float32) / np.float32(2**24)
    values = base + scale * (np.float32(2) * unit - np.float32(1))
    return torch.from_numpy(values.reshape(shape)).to(torch.bfloat16)


def check_tensors(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    names = sorted((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"])
    for number, name in enumerate(names):
        if not torch.equal(tensors[name], expected_tensor(number, name, tensors[name].shape)):
            sys.exit(f"{path}: {name} is not what generate.hpp says")


def logits_of(model, prompt, tokens):
    """Of the last position of the prompt, and of every one after it."""
    with torch.no_grad():
        return model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :].float()


def save(family, folder):
    """A checkpoint as transformers itself writes it, one of them in shards."""
    shape = dict(vocab_size=300, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.15)
    torch.manual_seed(3)
    if family == "llama":
        scaling = dict(rope_type="llama3", rope_theta=50000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                       original_max_position_embeddings=32)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, rope_parameters=scaling))
    elif family == "qwen2":
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**shape, tie_word_embeddings=True))
    else:
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**shape, head_dim=32))
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="100KB" if family == "llama" else "1GB")


def compare(shape, arguments, folder, program):
    model, prompt = folder / shape, PROMPTS.get(shape, PROMPTS["tiny"])
    run = [program, "--model", str(model), "--cache", str(folder), "--new", str(arguments.new)]
    run += ["--tokens", ",".join(map(str, prompt)), "--logits", str(folder / "logits"), *arguments.rest]
    is_saved = shape.startswith("saved-")
    if is_saved:
        save(shape.removeprefix("saved-"), model)
    else:
        run += ["--generate-model", shape]
    output = subprocess.run(run, capture_output=True, text=True)
    if output.returncode != 0:
        sys.exit(f"{' '.join(run)}: exit {output.returncode}\n{output.stdout}{output.stderr}")
    if not (model / "model.safetensors").exists() and not is_saved:
        sys.exit(f"{program} wrote no {model}/model.safetensors: name the built decoder")
    if not is_saved:
        check_tensors(model)
    line = next(line for line in output.stdout.splitlines() if line.startswith("tokens "))
    tokens = [int(token) for token in line.split()[1].split(",")]
    ours = torch.from_numpy(np.fromfile(folder / "logits", dtype=np.float32).reshape(len(tokens), -1))

    exact = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    rounded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="eager")
    ids = torch.tensor([prompt])
    greedy = rounded.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=arguments.new,
                              do_sample=False, pad_token_id=0)[0, len(prompt) :].tolist()
    truth, theirs = (logits_of(each, prompt, tokens[:-1]) for each in (exact, rounded))
    norm = truth.norm(dim=1)
    off_ours, off_theirs = (ours - truth).norm(dim=1) / norm, (theirs - truth).norm(dim=1) / norm
    good = bool((off_ours.max() <= 1.5 * off_theirs.max()) and (off_ours.mean() <= 1.5 * off_theirs.mean()))
    same = tokens == greedy
    print(f"{shape:12} off float32: ours {100 * off_ours.mean():.2f} % (at most {100 * off_ours.max():.2f} %), "
          f"transformers in bf16 {100 * off_theirs.mean():.2f} % (at most {100 * off_theirs.max():.2f} %); "
          f"{len(tokens)} tokens {'equal' if same else 'DIFFER'}{'' if good else '; TOO FAR OFF'}")
    if not same:
        at = next(i for i in range(len(tokens)) if tokens[i] != greedy[i])
        best = truth[at].topk(2)
        print(f"             at {at}: {tokens[at]} for {greedy[at]}; float32 has {best.indices.tolist()} with {best.values.tolist()}")
    if arguments.write and shape.startswith("tiny"):
        path = pathlib.Path(__file__).parent / "reference" / f"{shape}.txt"
        with open(path, "w") as file:
            file.write(f"# {shape}, by reference.py: a prompt, its greedy tokens (transformers in bf16), and the logits after the\n")
            file.write("# prompt (transformers in float32).\n")
            file.write(" ".join(map(str, prompt)) + "\n")
            file.write(" ".join(map(str, greedy)) + "\n")
            file.writelines(f"{value:.4f}\n" for value in truth[0].tolist())
    return good and same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--work", help="where the checkpoints are kept; a temporary folder otherwise")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--shapes", default=",".join(PROMPTS))
    parser.add_argument("--new", type=int, default=24)
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser.error = lambda message: parser.exit(2, f"{parser.prog}: {message}\n")
    arguments = parser.parse_args(sys.argv[1:cut])
    if not shutil.which(arguments.program):
        parser.error(f"{arguments.program}: there is no such program: name the built decoder")
    arguments.rest = sys.argv[cut + 1 :]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.work or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        program = str(pathlib.Path(arguments.program).resolve())
        results = [compare(shape, arguments, folder, program) for shape in arguments.shapes.split(",")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
