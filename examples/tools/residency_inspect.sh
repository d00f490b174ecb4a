# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# PROGRAM FOLDER: what residency-inspect prints of good files, and how it refuses bad ones.
set -eu
program=$1
folder=$2
fixtures=$(cd "$(dirname "$0")/../../tests/fixtures" && pwd)
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
"$program" "$fixtures/safetensors/tied.safetensors" | grep -q 'head.weight .*shares with embed.weight' || fail "the tie is not shown"

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
refuses "$folder/cut.gguf" 'the file ends'
printf '\4\0\0\0\0\0\0\0{\377}\n' >"$folder/bad.safetensors"
refuses "$folder/bad.safetensors" 'not valid JSON'
printf '\17\0\0\0\0\0\0\0{"\\u001b[31m":1}' >"$folder/escape.safetensors"
refuses "$folder/escape.safetensors" '\x1b[31m'
refuses "$folder/nothing there" 'cannot be opened'
refuses "$folder" 'not a regular file'
echo "residency-inspect: fine"
