# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# PROGRAM FOLDER: what residency-inspect prints of good files, and how it refuses bad ones.
set -eu
program=$1
folder=$2
fixtures=$(cd "$(dirname "$0")/../../../tests/fixtures" && pwd)
rm -rf "$folder"
mkdir -p "$folder"

fail() {
    echo "$1" >&2
    exit 1
}
# FILE TEXT...: its JSON, without blanks, has each text.
shows() {
    file=$1
    shift
    json=$("$program" "$file" --json | tr -d ' \n')
    for text in "$@"; do
        case $json in
            *"$text"*) ;;
            *) fail "$file: no $text in $json" ;;
        esac
    done
}
# FILE TEXT: refused with exit 2 and one line that has the text, and prints nothing else.
refuses() {
    code=0
    "$program" "$1" --json >"$folder/out" 2>"$folder/err" || code=$?
    [ "$code" = 2 ] || fail "$1: exit $code instead of 2"
    [ ! -s "$folder/out" ] || fail "$1: it printed something"
    [ "$(wc -l <"$folder/err")" = 1 ] || fail "$1: not one line"
    grep -qF -- "$2" "$folder/err" || fail "$1: no '$2' in $(cat "$folder/err")"
}

shows "$fixtures/safetensors/small.safetensors" '"format":"safetensors"' '"total_bytes":41' '"floor_bytes":24' \
    '{"name":"scalar","dtype":"F64","shape":[],' '"name":"empty","dtype":"F32","shape":[0,3]' '\n"'
shows "$fixtures/safetensors/sharded.safetensors.index.json" sharded-00003-of-00003.safetensors '"total_bytes":96'
shows "$fixtures/gguf/metadata.gguf" '"format":"gguf"' '{"name":"matrix","dtype":"F32","shape":[2,3],"storage":0,"offset_bytes":0,"bytes":24}'
shows "$fixtures/gguf/split-00002-of-00003.gguf" '"name":"layer.4.weight","dtype":"Q8_0"'
shows "$fixtures/aoti/exported.pt2" '"format":"aotinductor"' '"name":"embed.weight","dtype":"float32","shape":[7,6]'
shows "$fixtures/torch/state.bin" '"format":"torch"' '"name":"tied.weight","dtype":"float32","shape":[2,3]'
"$program" "$fixtures/safetensors/tied.safetensors" | grep -q 'head.weight .*shares with embed.weight' || fail "the tie is not shown"

# Parts and pieces of one model, a folder, a checkpoint of a training; what is left out is said.
shows "$fixtures/torch/nested.bin" '"name":"a"' '"passed_over":[{"name":"epoch"'
"$program" "$fixtures/torch/nested.bin" | grep -q '^left out  .* such as epoch: it is no tensor' || fail "what is left out is not shown"
"$program" --strict "$fixtures/torch/nested.bin" 2>"$folder/err" && fail "strict, and something is left out"
grep -q 'would be left out: it is no tensor' "$folder/err" || fail "strict: $(cat "$folder/err")"
"$program" --key weights "$fixtures/torch/nested.bin" 2>"$folder/err" && fail "a key that leads nowhere"
grep -q 'give one or more of the keys' "$folder/err" || fail "no candidates: $(cat "$folder/err")"
"$program" --key model "$fixtures/gguf/metadata.gguf" 2>"$folder/err" && fail "a key of a GGUF file"
grep -q 'metadata.gguf": the key "model" chooses a part of what PyTorch saved, and this is gguf' "$folder/err" || fail "key: $(cat "$folder/err")"
"$program" --key model "$fixtures/safetensors/small.safetensors" 2>"$folder/err" && fail "a key of a safetensors file"
grep -q 'small.safetensors": the key "model" chooses a part of what PyTorch saved, and this is safetensors' "$folder/err" || fail "key: $(cat "$folder/err")"
"$program" --key model "$fixtures/program/markers.residency" 2>"$folder/err" && fail "a key of a program"
grep -q 'markers.residency": --key chooses a part' "$folder/err" || fail "key: $(cat "$folder/err")"
shows "$fixtures/torch/legacy.bin" '"name":"a","dtype":"float32","shape":[2]'
shows "$fixtures/torch/module.bin" '"name":"weight","dtype":"float32","shape":[2,1]' '"name":"bias"'
"$program" --key '*' "$fixtures/torch/nested.bin" | grep -q '^model\.a .*float32' || fail "all keys"
mkdir "$folder/model"
for part in 1 2 3; do cp "$fixtures/gguf/split-0000$part-of-00003.gguf" "$folder/model/part$part.gguf"; done
shows "$folder/model" '"name":"layer.4.weight","dtype":"Q8_0"'
"$program" "$folder/model/part3.gguf" "$folder/model/part1.gguf" "$folder/model/part2.gguf" | grep -q 'weights   5 on' || fail "three parts"
"$program" "$folder/model/part1.gguf" "$folder/model/part2.gguf" 2>"$folder/err" && fail "two of three parts"
grep -q 'found 2 files, expected 3' "$folder/err" || fail "two of three parts: $(cat "$folder/err")"
(cd "$folder" && split -b 1000 "$fixtures/gguf/every_type.gguf" piece.)
"$program" "$folder"/piece.* --json >"$folder/pieces.json"
"$program" "$folder/pieces.json" | grep -q "piece   $folder/piece.ab" || fail "the pieces are not shown"
[ "$("$program" "$folder/pieces.json" --json)" = "$(cat "$folder/pieces.json")" ] || fail "the manifest of pieces does not read back"
"$program" --ggml-type 36:I2_S:4 "$folder/model" 2>"$folder/err" && fail "a type of three fields"
grep -q 'not four fields' "$folder/err" || fail "a type of three fields: $(cat "$folder/err")"
mkdir "$folder/two"
cp "$fixtures/gguf/metadata.gguf" "$fixtures/gguf/every_type.gguf" "$folder/two"
refuses "$folder/two" '"every_type.gguf", "metadata.gguf"'
printf 'version https://git-lfs.github.com/spec/v1\n' >"$folder/pointer.safetensors"
refuses "$folder/pointer.safetensors" 'git lfs pull'

# The program of a compiled model: what the export wrote, by itself or in its folder.
for text in 'compiler  torch 2.11.0' 'device    cpu' 'budget    50%' 'catalog   [0-9a-f]{16}$' 'alias     .* of ' \
    '^method    prefill, in prefill.pt2' '^method    decode, in decode.pt2' '  input   i64 \[8\]' 'parameter +pinned' 'buffer +kernels write it' \
    'of b\.0 b\.0\.down' 'by .*aoti_torch_cpu_'; do
    "$program" "$fixtures/program/markers.residency" | grep -qE -e "$text" || fail "markers.residency: no '$text'"
done
"$program" "$fixtures/program/probes.residency" | grep -qE '^ +step  live until +reads' || fail "probes.residency: no live ranges"
shows "$fixtures/program/probes.residency" '"format":"program"' '"pins":["b.0.n.weight"]' '"live_until":' '"budget":"50%"'
shows "$fixtures/program/markers.residency" '"mutable":true' '"kind":"buffer"' '"aliases":[{"name":' '"module":"b.0b.0.down"'
mkdir "$folder/compiled"
cp "$fixtures/program/markers.residency" "$folder/compiled/program.residency"
shows "$folder/compiled" '"format":"program"'
head -c 3000 "$fixtures/program/markers.residency" >"$folder/cut.residency"
refuses "$folder/cut.residency" 'cut.residency'

# What it prints can be read again.
"$program" "$fixtures/aoti/exported.pt2" --json >"$folder/manifest.json"
[ "$("$program" "$folder/manifest.json" --json)" = "$(cat "$folder/manifest.json")" ] || fail "the manifest does not read back"

# With --content, two tensors of the same bytes are one storage.
header='{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}'
printf "\\x$(printf %02x "${#header}")\0\0\0\0\0\0\0%sabcdabcd" "$header" >"$folder/twice.safetensors"
"$program" "$folder/twice.safetensors" | grep -q 'on 2 storages' || fail "two storages"
"$program" --content "$folder/twice.safetensors" | grep -q 'on 1 storages, 1 of them shared' || fail "not one storage"

head -c 300 "$fixtures/safetensors/small.safetensors" >"$folder/cut.safetensors"
refuses "$folder/cut.safetensors" cut.safetensors
head -c 300 "$fixtures/gguf/metadata.gguf" >"$folder/cut.gguf"
refuses "$folder/cut.gguf" 'the file is cut off'
printf '\4\0\0\0\0\0\0\0{\377}\n' >"$folder/bad.safetensors"
refuses "$folder/bad.safetensors" 'not valid JSON'
printf '\17\0\0\0\0\0\0\0{"\\u001b[31m":1}' >"$folder/escape.safetensors"
refuses "$folder/escape.safetensors" '\x1b[31m'
# A name that is not UTF-8, in either format.
named() { # NAME: a header with a tensor of that name
    header="{\"$1\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
    printf "\\x$(printf %02x "${#header}")\0\0\0\0\0\0\0%sx" "$header" >"$folder/named.safetensors"
}
LC_ALL=C named "$(printf 'w\377')"
refuses "$folder/named.safetensors" 'named.safetensors'
printf 'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0w\377' >"$folder/named.gguf"
head -c 100 /dev/zero >>"$folder/named.gguf"
refuses "$folder/named.gguf" 'byte 32: a tensor'"'"'s name is not UTF-8'
# In a table nothing is left that a terminal would obey: the escape, a C1 control, a right-to-left override.
named 'w\u001b[31m\u009b\u202e'
shows "$folder/named.safetensors" '"name":"w\u001b[31m'
"$program" "$folder/named.safetensors" | grep -qF 'w\x1b[31m\xc2\x9b\xe2\x80\xae ' || fail "the name is not escaped"

# One very long name among many does not pad the others, and is not said again by each that shares with it.
{
    printf '{"format":"safetensors","storages":[{"file":"exact.safetensors","offset":0,"bytes":1}],"weights":[{"name":"'
    head -c 1000000 /dev/zero | tr '\0' n
    printf '","dtype":"U8","shape":[1],"storage":0,"offset_bytes":0,"bytes":1}'
    i=0
    while [ $i -lt 800 ]; do
        printf ',{"name":"w%d","dtype":"U8","shape":[1],"storage":0,"offset_bytes":0,"bytes":1}' $i
        i=$((i + 1))
    done
    printf ']}'
} >"$folder/long.json"
printf x >"$folder/exact.safetensors"
size=$("$program" "$folder/long.json" | wc -c)
[ "$size" -gt 80000 ] && [ "$size" -lt 400000 ] || fail "a long name makes a table of $size bytes"

# Exactly the JSON that is promised.
header='{"t":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}'
printf "\\x$(printf %02x "${#header}")\0\0\0\0\0\0\0%sabcd" "$header" >"$folder/exact.safetensors"
[ "$("$program" "$folder/exact.safetensors" --json | tr -d ' \n')" = "{\"format\":\"safetensors\",\"total_bytes\":4,\"floor_bytes\":4,\"storages\":[{\"bytes\":4,\"offset\":$((8 + ${#header})),\"file\":\"$(printf %s "$folder/exact.safetensors" | tr -d ' ')\"}],\"weights\":[{\"name\":\"t\",\"dtype\":\"F32\",\"shape\":[1,1],\"storage\":0,\"offset_bytes\":0,\"bytes\":4}]}" ] ||
    fail "not the JSON that is promised: $("$program" "$folder/exact.safetensors" --json)"

# One line that names the file, the place and the reason.
header='{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U9"}}'
printf "\\x$(printf %02x "${#header}")\0\0\0\0\0\0\0%sabcd" "$header" >"$folder/place.safetensors"
refuses "$folder/place.safetensors" 'place.safetensors": byte '
refuses "$folder/place.safetensors" ': tensor "b": an unknown type'
refuses "$folder/nothing there" 'cannot be opened'
refuses "$folder" 'a folder with several models'

# Results that cannot be written.
if [ -e /dev/full ]; then
    code=0
    "$program" "$fixtures/safetensors/small.safetensors" >/dev/full 2>"$folder/err" || code=$?
    [ "$code" = 1 ] || fail "a full disk: exit $code instead of 1"
    grep -q 'standard output: not all of it could be written' "$folder/err" || fail "a full disk goes unnoticed"
fi

# Against the packages that write these formats, where they are there.
python=${RESIDENCY_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "residency-inspect: fine; skipped: there is no $python, which compares with the packages that write these formats"
    exit 0
fi
code=0
"$python" "$(dirname "$0")/test.py" "$program" "$folder/reference" >"$folder/reference.txt" 2>&1 || code=$?
case $code in
    0 | 77) cat "$folder/reference.txt" ;;
    *) fail "$(cat "$folder/reference.txt")" ;;
esac
echo "residency-inspect: fine"
