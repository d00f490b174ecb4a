# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# PROGRAM FOLDER: what residency-pack writes and says, and that it leaves nothing behind when it fails.
set -eu
program=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder"

fail() {
    echo "$1" >&2
    exit 1
}
# TEXT ARGUMENT...: refused with exit 2 and one line that has the text; no file is left.
refuses() {
    text=$1
    shift
    code=0
    "$program" "$@" >"$folder/stdout" 2>"$folder/err" || code=$?
    [ "$code" = 2 ] || fail "$*: exit $code instead of 2: $(cat "$folder/err")"
    [ "$(wc -l <"$folder/err")" = 1 ] || fail "$*: not one line: $(cat "$folder/err")"
    grep -qF -- "$text" "$folder/err" || fail "$*: no '$text' in $(cat "$folder/err")"
    [ ! -e "$folder/none" ] && [ ! -e "$folder/none.partial" ] || fail "$*: a file is left"
}

# A matrix of 64 × 128 whose values have 16 exponents, and a vector of f32.
header='{"layer.weight":{"dtype":"BF16","shape":[64,128],"data_offsets":[0,16384]},"norm":{"dtype":"F32","shape":[4],"data_offsets":[16384,16400]}}'
{
    printf "\\x$(printf %02x "${#header}")\0\0\0\0\0\0\0%s" "$header"
    i=0
    while [ $i -lt 1024 ]; do
        printf '\1\74\42\274\103\75\144\76\5\73\46\274\107\74\150\74'
        i=$((i + 1))
    done
    printf '0123456789abcdef'
} >"$folder/model.safetensors"

"$program" "$folder/model.safetensors" "$folder/link.packed" >"$folder/stdout"
grep -q 'bf16_tiers *1 ' "$folder/stdout" || fail "the matrix is not in tiers: $(cat "$folder/stdout")"
grep -q 'raw *1 ' "$folder/stdout" || fail "the vector is not raw: $(cat "$folder/stdout")"
[ "$(wc -c <"$folder/link.packed")" -lt 30000 ] || fail "it is not small"
"$program" "$folder/model.safetensors" "$folder/kernels.packed" --for kernels | grep -q bf16_tiles || fail "not in tiles"
"$program" "$folder/model.safetensors" "$folder/raw.packed" --weight 'layer.*=raw' | grep -q 'raw *2 ' || fail "not raw"
"$program" "$folder/model.safetensors" "$folder/last.packed" --weight '*=raw' --weight 'l*t=bf16_tiers' | grep -q 'bf16_tiers *1 ' ||
    fail "the last rule does not count"
"$program" "$folder/model.safetensors" "$folder/again.packed" --threads 3 >/dev/null
cmp "$folder/link.packed" "$folder/again.packed" || fail "the same model gives another file"

refuses 'cannot be opened' "$folder/no such model" "$folder/none"
refuses 'is not PATTERN=FORM' "$folder/model.safetensors" "$folder/none" --weight 'a=b'
refuses "is named like 'x*'" "$folder/model.safetensors" "$folder/none" --weight 'x*=raw'
refuses 'weight "norm" cannot be packed as bf16_tiers' "$folder/model.safetensors" "$folder/none" --weight '*=bf16_tiers'
refuses 'which the form does not take' "$folder/model.safetensors" "$folder/none" --weight 'layer.*=f32_tiers'
refuses 'packed already' "$folder/link.packed" "$folder/none"
refuses 'is the model that is read' "$folder/model.safetensors" "$folder/model.safetensors"
refuses 'no regular file' "$folder/model.safetensors" /dev/null
head -c 5000 "$folder/link.packed" >"$folder/cut.packed"
refuses 'the file is cut' "$folder/cut.packed" "$folder/none"

# Interrupted, and on a full disk: nothing is left, and what was there stays.
header='{"big":{"dtype":"BF16","shape":[1000,40000],"data_offsets":[0,80000000]}}'
{
    printf "\\x$(printf %02x "${#header}")\0\0\0\0\0\0\0%s" "$header"
    head -c 80000000 /dev/zero
} >"$folder/big.safetensors"
echo old >"$folder/big.packed"
"$program" "$folder/big.safetensors" "$folder/big.packed" --threads 1 >"$folder/stdout" 2>"$folder/err" &
pid=$!
until [ -e "$folder/big.packed.partial" ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -TERM $pid 2>/dev/null || true
code=0
wait $pid || code=$?
if [ "$code" = 0 ]; then
    echo "residency-pack: it was done before the signal came" >&2
else
    [ "$code" = 130 ] || fail "interrupted: exit $code instead of 130: $(cat "$folder/err")"
    grep -q 'cancelled' "$folder/err" || fail "interrupted: $(cat "$folder/err")"
    [ "$(cat "$folder/big.packed")" = old ] || fail "interrupted: the old file is gone"
fi
[ ! -e "$folder/big.packed.partial" ] || fail "interrupted: a part is left"
( # A limit on the size of files stands for a full disk.
    ulimit -f 8
    trap '' XFSZ
    code=0
    "$program" "$folder/big.safetensors" "$folder/full.packed" --weight '*=raw' >/dev/null 2>"$folder/err" || code=$?
    [ "$code" = 2 ] || fail "a full disk: exit $code"
) || fail "a full disk: $(cat "$folder/err")"
grep -q 'cannot be written' "$folder/err" || fail "a full disk: $(cat "$folder/err")"
[ ! -e "$folder/full.packed" ] && [ ! -e "$folder/full.packed.partial" ] || fail "a full disk: a file is left"
echo "residency-pack: fine"
