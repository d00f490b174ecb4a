#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM FOLDER: the decoder on generated models against references, within every budget, and what it says to bad input.
set -uo pipefail
program=$1 folder=$2 source=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cache=$folder device=simulated failed=0
. "$source/../support/test.sh"

# The main job: every kind of checkpoint, resident and within 75, 50 and 25 % of the weights and the smallest budget, launched as
# graphs, the cache growing all the while.
for shape in tiny tiny-llama3 tiny-bias tiny-qwen2 tiny-qwen3; do
    expect 0 '✓ the logits after the prompt are' '✓ the 24 tokens equal' '✓ 75%: tokens and logits of all 90 passes equal' \
        '✓ 50%: tokens and logits of all 90 passes equal.*; 8[0-9] were launched as a graph' '✓ 25%: tokens and logits' \
        '✓ 0: tokens and logits' '✓ 0: the budget was kept' '✓ the simulated device saw no access out of order' \
        '^  25% .* [1-9][0-9]* × .* [1-9][0-9.]* (kB|MB) +[1-9][0-9]*$' \
        -- --generate-model "$shape" --expect "$source/reference/$shape.txt" --budget 75% 50% 25% 0 --new 90
    check_timeline "$folder/decoder-timeline.json" --copies model.layers --stalls
done
expect 0 '^report +.*run.html' -- --budget 25% --new 4 --report "$folder/run.html"
for part in '<title>decoder: ' 'What to change' 'model.layers' '</html>'; do
    grep -q "$part" "$folder/run.html" || { echo "FAILED: no $part in the report"; failed=1; }
done
expect 0 '^tokens +[0-9]+(,[0-9]+){15}$' '; 0 were launched as a graph' 'while it was loading' \
    '✓ the first token of all, and its logits, equal those of the run afterwards' -- --no-graph
expect 0 'when everything was loaded' '✓ the first token of all' '✓ 50%: tokens of all 12 passes and logits of the first 5 equal' \
    -- --load-first --repeat-prompt 8 --new 12 --kept-logits 5 --json "$folder/figures.json"
grep -q '"passes": 4,' "$folder/figures.json" || { echo 'FAILED: not four of eight prompts were undisturbed'; failed=1; }
expect 0 'is clamped to the [0-9,]+ bytes' -- --budget 300% --new 4 --logits "$folder/logits"
if [[ $(wc -c <"$folder/logits") -ne $((4 * 256 * 4)) ]]; then echo 'FAILED: the file of logits has another size'; failed=1; fi
expect 0 'prompt +300 tokens' '✓ 0: tokens and logits of all 20 passes' -- --prompt-length 300 --new 20 --budget 40% 0
expect 0 -- --generate-model tiny-qwen2 --tokens 5,6,7,8 --write-reference "$folder/own.txt"
expect 0 '0.00 % from those' '✓ the [0-9]+ tokens equal' -- --generate-model tiny-qwen2 --expect "$folder/own.txt" --budget 0
expect 1 '✗ FAILED: the logits' -- --generate-model tiny --expect "$source/reference/tiny-bias.txt"

# Packed weights: the same text as with raw ones. The prompts of references are unpacked, one of three tokens is not.
for shape in tiny tiny-llama3 tiny-bias tiny-qwen3; do
    expect 0 '^packed +1\.[58] MB in 1\.[14] MB, packed in' '✓ the 24 tokens equal' '✓ 100%: tokens and logits of all 40 passes equal' \
        '✓ 75%: tokens and logits' '✓ 50% eager: tokens and logits of all 40 passes equal.*; 0 were launched as a graph' \
        '✓ 50%: tokens and logits of all 40 passes equal.*; 3[0-9] were launched as a graph' '✓ 25%: tokens and logits' \
        '✓ 0: tokens and logits' '✓ 0: the budget was kept' '✓ the simulated device saw no access out of order' \
        -- --generate-model "$shape" --expect "$source/reference/$shape.txt" --packed --budget 100% 75% 50% 25% 0 --new 40 --also-eager
done
expect 0 '✓ 50%: tokens and logits of all 12 passes' -- --packed --tokens 5,6,7 --new 12 --json "$folder/packed.json"
grep -q '"packed_bytes": 1' "$folder/packed.json" || { echo 'FAILED: no bytes of packed weights'; failed=1; }
expect 0 '✓ 50%: tokens and logits of all 4 passes' -- --direct --new 4
expect 2 'below the smallest that works, [0-9,]+ bytes.*KV cache of 26 positions.*give [0-9]+ or more' -- --packed --budget 1
# Packed ahead of time: read as it lies there, or unpacked while it is loaded.
pack=$(dirname "$program")/residency-pack
for purpose in kernels link; do
    if [[ ! -x $pack ]]; then echo "SKIPPED: no residency-pack beside the program: no file is packed for $purpose"; continue; fi
    mkdir "$folder/$purpose"
    cp "$folder/tiny/config.json" "$folder/$purpose"
    "$pack" --for "$purpose" "$folder/tiny/model.safetensors" "$folder/$purpose/model.packed" >/dev/null || failed=1
    expect 0 '^packed +.*, loaded in' '✓ the 24 tokens equal' '✓ 75%: tokens and logits' '✓ 50%: tokens and logits of all 24 passes' \
        '✓ 25%: tokens and logits' '✓ 0: tokens and logits' '✓ the simulated device saw no access out of order' \
        -- --model "$folder/$purpose" --expect "$source/reference/tiny.txt" --packed --budget 75% 50% 25% 0 --new 24
    expect 0 '✓ the 24 tokens equal' '✓ 50%: tokens and logits of all 24 passes' \
        -- --model "$folder/$purpose" --expect "$source/reference/tiny.txt" --new 24
done

# Several GPUs, a part of the model each: the logits and tokens of one, which streams or not, and all bits of each other.
for run in '2 tiny' '2 tiny-llama3' '2 tiny-bias' '2 tiny-qwen2' '2 tiny-qwen3' '2 tiny-heads' '4 tiny-heads'; do
    read -r gpus shape <<<"$run"
    expect 0 "^split +[0-9.]+ kB of pinned memory for each of $gpus GPUs" "✓ resident of $gpus: the logits of all passes are" \
        "✓ 50% of $gpus: the logits of all passes are [01].* of 40 tokens are the same" "✓ 50% of $gpus: every GPU has the same tokens" \
        "✓ 50% of $gpus: tokens and logits of all 40 passes equal those of resident of $gpus bit for bit; 3[0-9] were launched as a graph" \
        "^  50% of $gpus .* [1-9][0-9.]* (kB|MB) +[1-9][0-9]*\$" "✓ 0 of $gpus: tokens and logits of all 40 passes equal" \
        "✓ 0 of $gpus: the budget was kept" '✓ the simulated device saw no access out of order' \
        -- --generate-model "$shape" --gpus "$gpus" --budget 50% 0 --new 40
done
expect 0 '✓ the 24 tokens equal' '✓ 0 of 2: the logits of all passes are .* 40 of 40 tokens are the same' \
    -- --generate-model tiny-qwen3 --expect "$source/reference/tiny-qwen3.txt" --gpus 2 --budget 0 --new 40
expect 0 'prompt +300 tokens' '✓ 40% of 2: tokens and logits of all 12 passes equal .*; 0 were launched as a graph' \
    '✓ 40% of 2, apart: the budget was kept' '✓ the simulated device saw no access out of order' \
    -- --gpus 2 --without-sums --prompt-length 300 --new 12 --budget 40% --no-graph --json "$folder/split.json"
grep -q '"budget": "40% of 2, apart"' "$folder/split.json" || { echo 'FAILED: no figures of GPUs apart'; failed=1; }
expect 2 'gpus 4: 2 heads of keys and values .* are not divided by it: give' -- --gpus 4
expect 2 'gpus 3: 8 heads .* are not divided by it: give' -- --gpus 3
expect 2 'below the smallest that works, [0-9,]+ bytes.*give [0-9]+ or more.*: on GPU 0 of 2$' -- --gpus 2 --budget 1
expect 2 'packed excludes --gpus' -- --gpus 2 --packed
expect 2 'without-sums requires --gpus' -- --without-sums
if [[ -d $folder/kernels ]]; then
    expect 2 'is packed, and several GPUs take raw weights only: give' -- --gpus 2 --model "$folder/kernels"
fi

# The same model in shards, and one with an end of the text.
if command -v python3 >/dev/null; then
    mkdir "$folder/shards"
    python3 - "$folder/tiny" "$folder/shards" <<'PYTHON' || failed=1
import json, struct, sys
data = open(sys.argv[1] + "/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
names, index = sorted(header), {}
for shard in range(2):
    part, bytes_ = {}, b""
    for name in names[shard::2]:
        begin, end = header[name]["data_offsets"]
        part[name] = {**header[name], "data_offsets": [len(bytes_), len(bytes_) + end - begin]}
        bytes_ += body[begin:end]
        index[name] = f"model-{shard}.safetensors"
    text = json.dumps(part).encode()
    open(f"{sys.argv[2]}/model-{shard}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes_)
json.dump({"weight_map": index}, open(sys.argv[2] + "/model.safetensors.index.json", "w"))
PYTHON
    cp "$folder/tiny/config.json" "$folder/shards"
    expect 0 '✓ the 24 tokens equal' '✓ 50%: tokens and logits' -- --model "$folder/shards" --expect "$source/reference/tiny.txt" --new 24
    rm "$folder/shards/model-1.safetensors"
    expect 2 'model-1.safetensors.*: give all files of the checkpoint, whole' -- --model "$folder/shards"
fi
mkdir "$folder/ending"
second=$(sed -n 4p "$source/reference/tiny.txt" | cut -d' ' -f2)
ln -s "$folder/tiny/model.safetensors" "$folder/ending"
sed "s/\"eos_token_id\": null/\"eos_token_id\": [7, $second]/" "$folder/tiny/config.json" >"$folder/ending/config.json"
expect 0 "^tokens +[0-9]+,$second\$" '✓ 50%: tokens and logits of all 2 passes' -- --model "$folder/ending" --expect "$source/reference/tiny.txt"

# Bad input.
model=$folder/tiny
edited "$model" config.json 's/"num_hidden_layers": 4/"num_hidden_layers": 5/'
expect 2 'model.layers.4.input_layernorm.weight" is missing: give all files' -- --model "$bad"
edited "$model" config.json 's/"num_hidden_layers": 4/"num_hidden_layers": 3/'
expect 2 'model.layers.3.* is not one of a llama decoder with this config.json: ' -- --model "$bad"
edited "$model" config.json 's/"intermediate_size": 352/"intermediate_size": 360/'
expect 2 'mlp.gate_proj.weight" has the shape \[352, 128\], and config.json asks for \[360, 128\]: give' -- --model "$bad"
edited "$model" config.json 's/"model_type": "llama"/"model_type": "gpt2"/'
expect 2 '"model_type" is "gpt2", and this engine knows "llama", "qwen2" and "qwen3" only: give' -- --model "$bad"
edited "$model" config.json 's/"silu"/"gelu"/'
expect 2 '"hidden_act" is "gelu", and this engine knows "silu" only' -- --model "$bad"
edited "$folder/tiny-llama3" config.json 's/"llama3"/"yarn"/'
expect 2 'rope_scaling: "rope_type" is "yarn", and this engine knows "default" and "llama3" only' -- --model "$bad"
edited "$folder/tiny-llama3" config.json 's/"factor": 8.0/"factor": -8.0/'
expect 2 'rope_scaling: "factor" is not a positive number' -- --model "$bad"
edited "$model" config.json 's/"rope_scaling": null/"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}/'
expect 2 'rope_parameters: "partial_rotary_factor" is 0.5, and this engine knows 1.0 only' -- --model "$bad"
edited "$model" config.json 's/"rope_scaling": null/"rope_scaling": {"factor": 2.0}/'
expect 2 'rope_scaling: "factor" is there without a "rope_type": give' -- --model "$bad"
edited "$model" config.json 's/"rope_scaling": null/"rope_parameters": {"rope_theta": 10000.0, "rope_type": null}/'
expect 0 -- --model "$bad" --expect "$source/reference/tiny.txt" --new 2
edited "$model" config.json 's/"head_dim": 16/"head_dim": 24/'
expect 2 '"head_dim" is 24, and this engine knows 16, 32, .* only' -- --model "$bad"
edited "$model" config.json 's/"num_key_value_heads": 2/"num_key_value_heads": 3/'
expect 2 'is not a multiple of "num_key_value_heads"' -- --model "$bad"
edited "$model" config.json 's/"attention_bias"/"use_sliding_window": true, "attention_bias"/'
expect 2 '"use_sliding_window" is true, and this engine knows false only' -- --model "$bad"
edited "$model" config.json 's/"hidden_size": 128/"hidden_size": "wide"/'
expect 2 '"hidden_size" is not a number.*: give the config.json that was published' -- --model "$bad"
edited "$model" config.json 's/{/[/'
expect 2 'config.json: not JSON: .*parse error.*: give' -- --model "$bad"
edited "$model" config.json '1s/.*/[{/; $s/.*/}]/'
expect 2 'config.json: it is not a JSON object' -- --model "$bad"
# A value that is nested deeply where it would be printed, a pipe that nobody writes to, a device without an end.
deep=$(head -c 400000 /dev/zero | tr '\0' '[')$(head -c 400000 /dev/zero | tr '\0' ']')
printf '{"model_type": "llama", "hidden_act": %s}' "$deep" >"$bad/config.json"
expect 2 'config.json: .*nested more than 64 levels deep.*: give' -- --model "$bad"
for other in mkfifo 'ln -s /dev/zero'; do
    rm "$bad/config.json"
    $other "$bad/config.json"
    expect 2 'config.json": it is not a regular file: give' -- --model "$bad"
done
edited "$model" config.json ''
rm "$bad/model.safetensors"
expect 2 'neither model.safetensors nor model.safetensors.index.json is there: give' -- --model "$bad"
sed 's/"BF16"/"FP16"/; s/"FP16"/"F16" /' "$model/model.safetensors" >"$bad/model.safetensors"
expect 2 'embed_tokens.weight" is F16, and this engine reads BF16 only: convert' -- --model "$bad"
head -c 1000000 "$model/model.safetensors" >"$bad/model.safetensors"
expect 2 'beyond the end of the file.*: give all files of the checkpoint, whole' -- --model "$bad"
expect 2 'config.json": cannot be opened.*: give a folder as Hugging Face publishes it' -- --model "$folder/none"
expect 2 'holds another model than --generate-model asks for' -- --model "$model" --generate-model tiny-qwen2
expect 2 '--layers requires --generate-model' -- --model "$model" --layers 2
expect 2 'no shape "huge" is known: give one of' -- --generate-model huge
expect 2 'below the smallest that works, [0-9,]+ bytes.*KV cache of 26 positions.*give [0-9]+ or more' -- --budget 1
expect 2 'budget "12XB"' -- --budget 12XB
expect 2 '"256" is no token of this model: give numbers below its vocab_size, 256' -- --tokens 1,256
expect 2 '"x" is no token' -- --tokens x
expect 2 'there is no token: give one' -- --tokens ''
expect 2 'more than the model.s max_position_embeddings, 512' -- --prompt-length 500 --new 13
expect 2 'it holds no reference' -- --expect "$model/config.json"
expect 2 '--expect .*none.txt": cannot be opened: No such file or directory: give a file' -- --expect "$folder/none.txt"
expect 2 'more than the model.s max_position_embeddings, 512: give less' -- --prompt-length 4000000000
expect 2 'there is no folder .*none: make it' -- --json "$folder/none/figures.json"
expect 2 'there is no folder .*none: make it' -- --logits "$folder/none/logits"
expect 2 'this is no file: name another one' -- --json "$folder"
expect 2 'this is no file: name another one' -- --logits /dev/full
sed '2s/^[0-9]*/256/' "$source/reference/tiny.txt" >"$folder/other.txt"
expect 2 'its prompt has the token 256, and the model.s vocab_size is 256: give' -- --expect "$folder/other.txt"
expect 2 'timeline' -- --new 2 --timeline "$folder/none/timeline.json/x/" --budget 50%

# A disk that is full: for what it prints, and while it writes a model.
expect_full_disk --device simulated --model "$model" --new 2 --timeline "$folder/timeline.json"
expect_full_disk --help
cache=$folder/full
mkdir -p "$cache/tiny"
ln -s /dev/full "$cache/tiny/model.safetensors.part"
expect 2 'No space left on device.*make room, or name another folder with --model' --

# A generated model that was not written to its end: in the cache it is written again, elsewhere it is refused.
cache=$folder/damaged
expect 0 -- --new 2
for part in model.safetensors config.json; do
    truncate -s 20 "$cache/tiny/$part"
    expect 2 "remove $cache/tiny, and it is generated again" -- --generate-model tiny --model "$cache/tiny"
    expect 0 '^damaged .*; it is written again' '^written ' '✓ the first token' -- --new 2
    expect 0 '✓ the first token' -- --new 2 --generate-model tiny --model "$cache/tiny"
done

# The same on a GPU, where there is one: against transformers, and where heads are wide, against the simulated device.
cache=$folder device=cuda
if "$program" --device cuda --cache "$folder" --new 1 --budget 0 --generate-model tiny >"$folder/stdout" 2>"$folder/stderr"; then
    for shape in tiny tiny-llama3 tiny-bias tiny-qwen2 tiny-qwen3; do
        expect 0 '✓ the logits after the prompt are' '✓ the 24 tokens equal' '✓ 0: tokens and logits of all 24 passes' \
            -- --generate-model "$shape" --expect "$source/reference/$shape.txt" --budget 0 --new 24
        expect 0 '✓ the logits after the prompt are' '✓ the 24 tokens equal' '✓ 0: tokens and logits of all 24 passes' \
            -- --generate-model "$shape" --expect "$source/reference/$shape.txt" --budget 0 --new 24 --packed
    done
    "$program" --device simulated --cache "$folder" --generate-model small --prompt-length 150 --new 12 --budget 50% \
        --write-reference "$folder/small.txt" >/dev/null || failed=1
    expect 0 '✓ the logits after the prompt are' '✓ the [0-9]+ tokens equal' '✓ 30%: tokens and logits of all 300 passes' \
        -- --generate-model small --expect "$folder/small.txt" --budget 90% 75% 50% 30% 0 --new 300
    # Packed weights, those of the prompt unpacked, and of few tokens that are read packed.
    expect 0 '✓ the logits after the prompt are' '✓ the [0-9]+ tokens equal' '✓ 75% eager: tokens and logits' \
        '✓ 75%: tokens and logits of all 60 passes' '✓ 50%: tokens and logits' '✓ 0: tokens and logits' \
        -- --generate-model small --expect "$folder/small.txt" --packed --also-eager --budget 75% 50% 0 --new 60
    for tokens in 7 7,8 7,8,9,10,11 1,2,3,4,5,6,7,8; do
        expect 0 '✓ the first token of all' '✓ 50%: tokens and logits of all 12 passes' \
            -- --generate-model small --packed --tokens "$tokens" --new 12 --budget 50%
    done
else
    printf 'skipped on a GPU: %s\n' "$(cat "$folder/stderr")"
fi
exit $failed
