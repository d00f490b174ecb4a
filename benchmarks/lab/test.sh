#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# test.sh PROGRAM FOLDER: which budgets residency-lab takes, and that what it does not understand ends it: one line, and 2.
set -uo pipefail
program=$1
folder=$2
mkdir -p "$folder"
trace="$folder/small.csv"
for i in $(seq 0 199); do printf '%d,%d\n' $((i * i % 17)) 1000; done > "$trace"

fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
cache() { "$program" cache --trace "$trace" --format csv --object-column 1 --bytes-column 2 --policy lru --csv "$@"; }

# A table of a trace says how it was cut into passes, and what cannot know its order.
sed 's/^/0,/' "$trace" > "$folder/timed.csv"
table=$("$program" run --trace "$folder/timed.csv" --format csv --policy scheduled --budget 50% 2> "$folder/errors") || fail "run --trace: $(cat "$folder/errors")"
[[ $table == *"4 passes: one ends after 64 steps, as the trace names no layers"* ]] || fail "passes of a trace: $table"
[[ $table == *"scheduled, staticsplit: there is no schedule"* && $table != *"scheduled *"* ]] || fail "scheduled on a trace: $table"

# The same budget in other words gives the same rows but for those words; several at once; more than everything is everything.
rows() { cache "--budget=$1" 2> "$folder/errors" || fail "$1: $(cat "$folder/errors")"; }
[[ $(rows 4000) == "$(rows 4kB)" ]] || fail "4kB is not 4000"
[[ $(rows 4096) == "$(rows 4K)" && $(rows 4096) == "$(rows '4 kib')" ]] || fail "4K is not 4096"
[[ $(rows 25.5%) != "$(rows 25%)" ]] || fail "25.5% is 25%"
[[ $(rows 100%) == "$(rows 18446744073709551615%)" ]] || fail "more than all weights is not all"
[[ $(rows 4000,50% | wc -l) -eq $(($(rows 4000 | wc -l) + 1)) ]] || fail "two budgets are not two rows"
[[ $(rows 2000) != "$(rows 8000)" ]] || fail "the budget makes no difference"

refuses() {  # text pattern
    local command
    for command in cache run; do
        if [[ $command == cache ]]; then
            output=$(cache "--budget=$1" 2>&1 >"$folder/output")
        else
            output=$("$program" run --workload draft-and-target --passes 1 "--budget=$1" 2>&1 >"$folder/output")
        fi
        status=$?
        [[ $status -eq 2 ]] || fail "$command --budget=$1: exit $status, expected 2: $output"
        [[ ! -s "$folder/output" ]] || fail "$command --budget=$1 prints something"
        [[ $output == residency-lab:* && $output != *$'\n'* ]] || fail "$command --budget=$1: not one line: $output"
        [[ $output == *"$2"* ]] || fail "$command --budget=$1: no $2 in: $output"
    done
}
refuses '' '--budget: 1 required TEXT missing'
refuses ' ' 'found " "'
refuses ' 8' 'found " 8"'
refuses '8  GiB' 'found "  GiB"'
refuses '-1' 'no budget is negative'
refuses '+8' 'found "+8"'
refuses '8B' 'found "B"'
refuses '8GiB;' 'found "GiB;"'
refuses '0x10' 'found "x10"'
refuses '2.GiB' 'found "GiB", expected a digit'
refuses '2.5' 'expected a unit'
refuses '60%%' 'found "%%"'
refuses '60%freeze' 'found "%freeze"'
refuses '101%free' 'at most 100%free'
refuses 'Auto' 'expected digits'
refuses '18446744073709551616' 'beyond 64 bits'
refuses '16777216TiB' 'beyond 64 bits'
refuses '25%,8 GiBs' 'found " GiBs"'
# Without a GPU: what needs one says so.
if ! nvidia-smi -L > /dev/null 2>&1; then
    for option in '--link measured' '--device cuda'; do
        # shellcheck disable=SC2086
        output=$("$program" run --workload draft-and-target --passes 1 $option 2>&1 >"$folder/output")
        status=$?
        [[ $status -eq 2 ]] || fail "$option: exit $status, expected 2: $output"
        [[ $output == "residency-lab: $option needs a GPU: "* && $output != *$'\n'* ]] || fail "$option: $output"
    done
fi
# A router's choices: the first round is not counted, the oracle misses least, and everything fits into all.
choices="$folder/choices.route.csv"
awk 'BEGIN {
    for (layer = 0; layer < 3; ++layer) { printf "# layer=%d expert_bytes=%d\n", layer, 1000 + layer }
    print "turn,phase,step,layer,expert"
    for (token = 0; token < 40; ++token) for (layer = 0; layer < 3; ++layer) for (i = 0; i < 2; ++i) {
        seed = (seed * 1103 + 12345) % 65521
        printf "0,%d,%d,%d,%d\n", (token > 0), token, layer, 4 * i + int(seed / 16381)
    }
}' > "$choices"
router() { "$program" router --trace "$choices" --csv "$@" 2> "$folder/errors" || fail "router: $(cat "$folder/errors")"; }
router --share 50 | awk -F, 'NR == 1 { next } { misses[$1] = $4; if ($3 != 39 * 3 * 2) { exit 1 } }
    END { for (each in misses) if (misses[each] < misses["belady"]) { exit 1 } exit NR != 8 || misses["lru"] == 0 }' ||
    fail "router: $(router --share 50)"
[[ $(router --share 100 --policy lru) == *,100.00,234,* ]] || fail "router: $(router --share 100 --policy lru)"
[[ $(router --share 100 --policy lru | tail -1 | cut -d, -f4) -eq \
    $(router --share 100 --policy lru/layer | tail -1 | cut -d, -f4) ]] || fail "router: shares of layers are not the whole"

# On a GPU: what is decided as accesses come is decided as on the simulated device, and everything resident moves nothing. How long it
# takes is measured by benchmarks/gpu/lab: this machine may be busy with other work.
rows_of() {  # FILE AWK-PROGRAM: over the rows of a comparison by their columns' names, each of which is here and not refused
    awk -F, 'function bad(what) { printf "%s %s: %s\n", $3, $4, what; failed = 1 }
        NR == 1 { next }
        $5 == "" || NF < 12 { bad("refused"); next }
        { at = $3 "," $4; pass = $5; bound = $6; hits = $9; ahead = $10; fetched = $11; compute = $12; ++rows }
        '"$2"' END { if (rows == 0) { print "no rows"; failed = 1 } exit failed }' "$1"
}
if nvidia-smi -L > /dev/null 2>&1; then
    route="$folder/small.route.csv"
    awk 'BEGIN {
        for (layer = 0; layer < 8; ++layer) { printf "# layer=%d expert_bytes=1048576\n", layer }
        print "turn,phase,step,layer,expert"
        for (token = 0; token < 60; ++token) for (layer = 0; layer < 8; ++layer) for (i = 0; i < 4; ++i) {
            seed = (seed * 1103 + 12345) % 65521
            printf "0,1,%d,%d,%d\n", token, layer, i * 8 + int(seed / 65521 * (seed % 3 == 0 ? 8 : 3))
        }
    }' > "$route"
    # shellcheck disable=SC2034
    known=(--workload unet-like --policy "planned,packed,scheduled+scheduled,lru" --passes 3 --budget "25%,50%" --csv)
    # shellcheck disable=SC2034
    routed=(--trace "$route" --format route --policy "lru+none,expecteduse,unhinted,hinted-80%" --budget "50%" --csv)
    for name in known routed; do
        declare -n arguments=$name
        "$program" run "${arguments[@]}" --device cuda > "$folder/$name.cuda" 2> "$folder/errors" ||
            fail "$name on the GPU: $(cat "$folder/errors")"
        grep -qE '^measured link: [0-9.]+ GB/s, [0-9.]+ us a call$' "$folder/errors" || fail "no measured link: $(cat "$folder/errors")"
        "$program" run "${arguments[@]}" --link measured > "$folder/$name.simulated" 2> "$folder/errors" ||
            fail "$name with the measured link: $(cat "$folder/errors")"
        [[ $(cut -d, -f1-4 "$folder/$name.cuda") == "$(cut -d, -f1-4 "$folder/$name.simulated")" ]] ||
            fail "$name: other rows than on the simulated device"
        rows_of "$folder/$name.cuda" '
            !(hits >= 0 && ahead >= 0 && hits + ahead <= 1.000001) { bad("hits are no shares") }
            $3 == "everything resident" && fetched > 0 { bad("moves bytes") }' || fail "$name on the GPU"
        # The same moves on both; guesses and plans depend on times, and so, a little, does what has left when a prefetch asks.
        paste -d, "$folder/$name.cuda" "$folder/$name.simulated" > "$folder/$name.both"
        rows_of "$folder/$name.both" '
            function differ(a, b, by) { return a > b * (1 + by) || b > a * (1 + by) }
            { ahead_too = $3 ~ /scheduled|belady/ }
            $3 !~ /planned|packed|hinted/ && (differ(fetched, $33, ahead_too ? 0.2 : 0.1) || hits > $31 + (ahead_too ? 0.1 : 0.05) ||
                                              hits < $31 - (ahead_too ? 0.1 : 0.05)) {
                bad("moves " fetched " bytes, hits " hits ", and on the simulated device " $33 " and " $31) }' ||
            fail "$name: other decisions than on the simulated device"
    done
    for name in known routed; do column -s, -t "$folder/$name.cuda" 2> /dev/null || cat "$folder/$name.cuda"; done
fi
# Columns of a comparison's rows by name.
columns() {  # POLICY BUDGET NAME…: of the row of a policy with a budget in words, from standard input
    awk -F, -v policy="$1" -v budget="$2" -v names="${*:3}" 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
        $at["policy"] == policy && $at["asked_budget"] == budget {
            count = split(names, name, " ")
            for (i = 1; i <= count; ++i) printf "%s%s", $at[name[i]], i < count ? " " : "\n"
        }'
}
both() { "$program" run --workload draft-and-target --policy planned,lru --passes 1 "$@" 2> "$folder/errors" || fail "run $*: $(cat "$folder/errors")"; }
pcie() { both --budget 25% --csv "$@" | columns planned 25% pass_seconds; }
awk -v slow="$(pcie --link pcie3)" -v fast="$(pcie)" 'BEGIN { exit !(slow > 1.5 * fast && fast > 0) }' || fail "a slower link is not slower"

# Zero is the floor of the composition, and the bound is that of the floor; more than everything is everything; each is said.
both --budget 0,10TiB,90%,1 --csv > "$folder/ends.csv"
for policy in planned lru; do
    columns $policy 0 budget_bytes held_bytes regret total_bytes < "$folder/ends.csv" |
        awk '{ exit !(NF == 4 && $1 > 2^20 && $2 <= $1 && $1 < $4 / 2 && $3 >= 0 && $3 < 2) }' || fail "$policy at its floor"
    columns $policy 10TiB budget_bytes total_bytes fetched_bytes < "$folder/ends.csv" |
        awk '{ exit !(NF == 3 && $1 >= $2 && $1 < 1.2 * $2 && $3 == 0) }' || fail "$policy with more than everything"
done
[[ $(both --budget 0,10TiB) == *'(floor) '*'(all) '*'(floor): '*'(all): '* ]] || fail "changed budgets are not said: $(both --budget 0,10TiB)"
# A budget just above the bytes of all storages holds less than a pool takes for them.
"$program" run --workload draft-and-target --policy lru --passes 2 --budget 101% --csv 2> "$folder/errors" > "$folder/above.csv" || fail "$(cat "$folder/errors")"
columns lru 101% fetched_bytes < "$folder/above.csv" | awk '{ exit !($1 > 0) }' || fail "nothing streams just above everything: $(cat "$folder/above.csv")"
[[ $("$program" run --workload draft-and-target --policy lru --passes 2 --budget 101% 2> /dev/null) != *'(all)'* ]] || fail "what streams is said to hold everything"
# A plan's hits are the bytes that it does not move.
columns planned 90% hit_share_of_bytes ahead_share_of_bytes fetched_bytes requested_bytes < "$folder/ends.csv" |
    awk '{ moved = $3 / $4; exit !(moved > 0.01 && $1 > 0.85 && $1 + moved > 0.999999 && $1 + moved < 1.000001 && $1 + $2 > 0.999999) }' ||
    fail "hits of a plan: $(cat "$folder/ends.csv")"
# The lines and the JSON say the same.
both --budget 0,90%,1 --csv > "$folder/ends.csv"
both --budget 0,90%,1 --json > "$folder/ends.json"
if command -v python3 > /dev/null; then
    python3 - "$folder/ends.csv" "$folder/ends.json" <<'END' || fail "the lines and the JSON differ"
import csv, json, sys
lines = list(csv.DictReader(open(sys.argv[1])))
rows = json.load(open(sys.argv[2]))
assert len(lines) == len(rows) == 10, (len(lines), len(rows))
assert sum("refused" in row for row in rows) == 3
for line, row in zip(lines, rows):
    assert set(row) <= set(line), set(row) - set(line)
    for name, text in line.items():
        value = row.get(name, "")
        assert text == (value if isinstance(value, str) else json.dumps(value)) or float(text) == value, (name, text, value)
END
fi

# Packed weights: their own bound, fewer bytes, less time than raw ones; and what is said of them.
"$program" run --workload llama3-8b-decode --policy planned,packed --passes 2 --budget 75%,95%,1 --csv > "$folder/packed.csv" 2> "$folder/errors" ||
    fail "packed: $(cat "$folder/errors")"
for budget in 75% 95%; do
    columns packed $budget pass_seconds bound_seconds fetched_bytes held_bytes budget_bytes over_planned regret < "$folder/packed.csv" > "$folder/packed.row"
    columns planned $budget pass_seconds bound_seconds fetched_bytes over_planned < "$folder/packed.csv" | paste -d ' ' "$folder/packed.row" - |
        awk '{ exit !(NF == 11 && $2 <= $1 && $1 <= 1.1 * $2 && $2 < $9 && $3 < 0.8 * $10 && $4 <= $5 && $6 < 1.000001 * $1 / $8 && $6 > 0.999999 * $1 / $8 && $6 < 0.9 && $11 == 1 && $7 >= 0) }' ||
        fail "packed at $budget: $(cat "$folder/packed.csv")"
done
[[ $(columns packed 1 refused < "$folder/packed.csv") == *'below its floor'* ]] || fail "packed with a byte: $(cat "$folder/packed.csv")"
packed() { "$program" run --workload draft-and-target --policy packed --passes 1 --budget 75% "$@" 2> "$folder/errors" || fail "packed $*: $(cat "$folder/errors")"; }
seconds() { packed --csv "$@" | columns packed 75% pass_seconds; }
awk -v usual="$(seconds)" -v small="$(seconds --packed-share 0.5)" -v slow="$(seconds --unpack-gbps 50)" \
    'BEGIN { exit !(small < usual && usual < slow && small > 0) }' || fail "shares and rates make no difference"
[[ $(packed) == *'packed: the bound is of packed weights'* ]] || fail "what packed means is not said: $(packed)"

# What cannot be written is said before anything runs; a timeline is of the first row that ran.
said() {  # pattern arguments: one line, exit 2, nothing printed
    local pattern=$1
    shift
    output=$("$program" "$@" 2>&1 >"$folder/output" < /dev/null)
    status=$?
    [[ $status -eq 2 ]] || fail "$*: exit $status, expected 2: $output"
    [[ ! -s "$folder/output" ]] || fail "$* prints something"
    [[ $output == residency-lab:* && $output != *$'\n'* ]] || fail "$*: not one line: $output"
    [[ $output == *"$pattern"* && ${#output} -lt 300 ]] || fail "$*: no $pattern in: $output"
}
small=(run --workload draft-and-target --policy planned --passes 1 --budget 25%)
said "$trace: cannot be made" "${small[@]}" --pictures "$trace"
said '/nonexistent/x: cannot be opened' "${small[@]}" --timeline /nonexistent/x
said 'simulated device' "${small[@]}" --timeline "$folder/t.json" --device cuda
said 'simulated device' "${small[@]}" --packed-share 0.6 --device cuda
for number in 0 -1 x 1.5 ''; do said '--packed-share' "${small[@]}" "--packed-share=$number"; done
rm -rf "$folder/pictures"
both --budget 1,50% --timeline "$folder/t.json" --device simulated --pictures "$folder/pictures/more" > /dev/null
[[ $(grep -c '"ph":"X"' "$folder/t.json") -gt 100 ]] || fail "no timeline"
if command -v python3 > /dev/null; then
    python3 "$(dirname "$0")/../../examples/support/check_timeline.py" "$folder/t.json" --copies . --stalls || fail "the timeline"
else
    echo "SKIPPED: no python3: the timeline is not checked"
fi
[[ $(cat "$folder/errors") == 'timeline: of planned with '* ]] || fail "which row is drawn is not said: $(cat "$folder/errors")"
svg=$(cat "$folder"/pictures/more/*.svg)
for part in '</svg>' '(logarithmic scale)' '>bound</text>' '>everything resident</text>' '>planned</text>' '<circle '; do
    [[ $svg == *"$part"* ]] || fail "no $part in the picture"
done
[[ $(both --budget 1,50%) == *'planned with 1 B did not run, below its floor: '* ]] || fail "why a row did not run is not said"

# Advice: the floor is the budget that 0 gives, the budget for a wanted time gives it, and what nothing reaches is said.
floor=$(both --budget 0 --csv | columns planned 0 budget_bytes)
advice=$(both --budget 1,200% --advise)
[[ $advice == *"floor: the smallest budget that works with a plan is "*"($floor bytes)"* ]] || fail "no floor of $floor bytes: $advice"
[[ $advice == *"at 1: "*"are too few"*"at 200%: offloading will not help here: everything fits"* ]] || fail "advice: $advice"
advice=$(both --budget 25% --advise --wanted-ms 30)
[[ $advice == *'within 2.00 x everything resident: none of these budgets'*'at 25%: '*'for 30.000 ms a pass: a budget of '* ]] || fail "advice: $advice"
# The table and the sentence say one number, and nothing is faster than everything resident.
table=$(sed -n '/^budget /{n;p}' <<< "$advice" | awk '{ print $(NF - 2), $(NF - 1) }')
told=$(sed -n 's/^at 25%: [a-z]* takes \([0-9.]*\) ms a pass, \([0-9.]*\) x everything resident; .*/\1 \2/p' <<< "$advice")
[[ -n $told && $told == "$table" ]] || fail "the table says $table, and the sentence $told: $advice"
near=$(both --budget 90%,99%,100% --advise)
resident=$(sed -n 's/^advice for .*, \([0-9.]*\) ms a pass)$/\1/p' <<< "$near")
grep -oE '[0-9]+\.[0-9]{3} ms' <<< "$near" | awk -v resident="$resident" '{ if ($1 < resident) exit 1 } END { exit NR < 4 || resident <= 0 }' ||
    fail "a time below everything resident: $near"
awk -v resident="$resident" '/^budget / { rows = 1; next } rows && $NF ~ /^-?[0-9.]+$/ { if ($(NF - 2) < resident || $NF < 0) exit 1; ++n } END { exit n < 2 }' <<< "$near" ||
    fail "a row below everything resident: $near"
enough=$(sed -n 's/^for 30.000 ms a pass: a budget of .* (\([0-9]*\) bytes) is enough.*/\1/p' <<< "$advice")
[[ -n $enough ]] || fail "no budget for 30 ms: $advice"
both --budget "$enough,50%" --csv | columns planned "$enough" pass_seconds budget_bytes total_bytes |
    awk '{ exit !($1 < 0.0305 && $1 > 0.02 && $2 < $3) }' || fail "$enough bytes do not give 30 ms"
advice=$(both --budget 1 --advise --wanted-ms 3)
[[ $advice == *'nothing runs with any of these budgets: '*' below its floor: '*$'\n''for 3.000 ms a pass: offloading will not help here: '* ]] ||
    fail "advice: $advice"
advice=$("$program" run --trace "$choices" --format route --budget 50% --advise --wanted-ms 0.000001) || fail "advice for a trace"
[[ $advice == *'nothing works with less than '*'offloading will not help here: '* ]] || fail "advice for a trace: $advice"
# What packing brings: assumed of a generated model, measured of a file's weights; nothing, of bytes that do not get smaller.
advice=$(both --budget 75% --advise)
times=$(sed -n 's/^packed, at 75%: a plan takes \([0-9.]*\) ms a pass, that of raw weights \([0-9.]*\) ms, .*; no plan takes less than \([0-9.]*\) ms (0.67 of the bytes, assumed.*/\1 \2 \3/p' <<< "$advice")
awk '{ exit !($3 <= $1 && $1 < 0.9 * $2 && $3 > 0) }' <<< "$times" || fail "packing brings '$times': $advice"
if command -v python3 > /dev/null; then
    python3 - "$folder" <<'END'
import json, random, struct, sys
def write(name, value):
    random.seed(1)
    weights = [b"".join(value() for _ in range(1 << 14)) * 128 for _ in range(6)]
    sizes = len(weights[0])
    header = {"w%d" % i: {"dtype": "BF16", "shape": [len(w) // 2], "data_offsets": [i * sizes, i * sizes + sizes]} for i, w in enumerate(weights)}
    text = json.dumps(header).encode()
    with open(sys.argv[1] + "/" + name, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(weights))
write("trained.safetensors", lambda: struct.pack("<f", random.gauss(0, 0.02))[2:])
write("noise.safetensors", lambda: struct.pack("<H", random.getrandbits(16)))
END
    model() { "$program" run --model "$folder/$1.safetensors" --policy planned --passes 1 --budget 99% --advise || fail "advice for $1"; }
    advice=$(model trained)
    share=$(sed -n 's/^packed, at .* (\([0-9.]*\) of the bytes, measured in the file; .*/\1/p' <<< "$advice")
    awk '{ exit !($1 > 0.6 && $1 < 0.72) }' <<< "$share" || fail "trained weights get as small as '$share': $advice"
    advice=$(model noise)
    [[ $advice == *$'\npacked, at 99%: nothing of this model gets smaller'* ]] || fail "noise gets smaller: $advice"
fi
said 'requires --advise' "${small[@]}" --wanted-ms 3
for number in 0 -1 x 1e9 ''; do said '--wanted-ms' "${small[@]}" --advise "--wanted-ms=$number"; done

# Lists have no empty entries; numbers are numbers in their range.
of_csv=(cache --trace "$trace" --format csv --object-column 1 --bytes-column 2)
for list in 5,,6 ,5 5,; do
    said 'an empty entry' "${of_csv[@]}" --budget "$list"
    said 'an empty entry' router --trace "$choices" --share "$list"
    said 'an empty entry' "${small[@]}" --budget "$list"
done
said 'an empty entry' "${of_csv[@]}" --policy lru,
said 'nothing not in' "${of_csv[@]}" --policy lru,nothing
for share in nan inf -1 100.1 .; do said 'from 0 to 100' router --trace "$choices" "--share=$share"; done
for number in 0 -1 x; do
    said 'a whole number' cache --trace "$trace" --format csv "--object-column=$number"
    said 'a whole number' "${of_csv[@]}" "--threads=$number"
    said 'a whole number' "${small[@]}" "--passes=$number"
done

# Traces with nothing in them have nothing that misses, and cannot run; what is damaged is refused by one line.
: > "$folder/empty.csv"
printf '# layer=0 expert_bytes=10\nturn,phase,step,layer,expert\n' > "$folder/empty.route"
for of in "$folder/empty.csv csv" "$folder/empty.csv oracle" "$folder/empty.route route"; do
    read -r file format <<< "$of"
    "$program" cache --trace "$file" --format "$format" --budget 50%,5 --csv > "$folder/output" 2> "$folder/errors" ||
        fail "$of: $(cat "$folder/errors")"
    awk -F, 'NR > 1 { if ($3 + $4 + $5 + $6 != 0) exit 1; names[$1] } END { exit !(NR > 10 && "belady" in names) }' "$folder/output" ||
        fail "$of: $(cat "$folder/output")"
    said 'no accesses' run --trace "$file" --format "$format" --pictures "$folder/pictures"
done
said 'the end of the file' cache --trace "$folder/empty.csv" --format residency
printf 'nothing,that,is,a,request\n' > "$folder/unreadable.csv"
said 'line 1: found "that"' cache --trace "$folder/unreadable.csv" --format csv --bytes-column 2
printf '1,\033[31m,x\n2,a,10\n3,a,\033[31m\n' > "$folder/escape.csv"
said 'line 3: found "\x1b[31m"' cache --trace "$folder/escape.csv" --format csv
for command in cache router run; do
    described=$("$program" $command --help)
    for format in route oracle csv residency; do
        [[ $described == *$'\n'"  $format "* ]] || fail "$command --help does not describe $format"
    done
done
printf '1,5,10\n2,6,18446744073709551615\n' > "$folder/wide.csv"
said '2^64 bytes or more' cache --trace "$folder/wide.csv" --format csv
head -c 40 <(gzip -c "$choices") > "$folder/cut.gz"
said 'gzip could not' cache --trace "$folder/cut.gz" --format route
plain=$("$program" cache --trace "$choices" --format route --csv)
for compress in gzip zstd xz bzip2; do
    command -v $compress > /dev/null || { echo "SKIPPED: no $compress: traces that it compressed are not read"; continue; }
    $compress -c < "$choices" > "$folder/choices.packed"
    [[ $("$program" cache --trace "$folder/choices.packed" --format route --csv) == "$plain" ]] || fail "a trace compressed by $compress is another"
done
# Compressed bytes, an archive and a web page are never read as records.
printf '\x28\xb5\x2f\xfd%020d' 0 > "$folder/damaged"
said zstd cache --trace "$folder/damaged" --format oracle
printf '<!DOCTYPE html><html>..' > "$folder/page"
printf 'PK\3\4\x14\0%018d' 0 > "$folder/archive"
for command in cache router run; do
    for format in route residency; do
        said 'a web page' $command --trace "$folder/page" --format $format
        said 'an archive' $command --trace "$folder/archive" --format $format
    done
done
# Columns by any separator.
separated() { "$program" cache --trace "$folder/columns" --format csv --policy lru --budget 100% --csv "$@" 2>&1; }
awk '{ print NR " GET " $0 }' "$trace" | tr , ' ' > "$folder/columns"
by_blanks=$(separated --object-column 3 --bytes-column 4)
[[ $by_blanks == *lru,* ]] || fail "columns with blanks: $by_blanks"
[[ $(separated --object-column 3 --bytes-column 4 --separator blank) == "$by_blanks" ]] || fail "--separator blank"
said --separator cache --trace "$folder/columns" --format csv --separator none
said 'found 1 columns' cache --trace "$folder/columns" --format csv --separator comma
tr ' ' '\t' < "$folder/columns" > "$folder/tabs"
tr ' ' ';' < "$folder/columns" > "$folder/semicolons"
for name in tabs semicolons; do
    cp "$folder/$name" "$folder/columns"
    [[ $(separated --object-column 3 --bytes-column 4) == "$by_blanks" ]] || fail "columns with $name: $(separated)"
done
printf 'a b\na c\na b\n' > "$folder/columns"
[[ $(separated --object-column 1 --bytes-column 0 | tail -1) == lru,2,3,3,2,2 ]] || fail "objects with blanks are cut"
[[ $(separated --object-column 1 --bytes-column 0 --separator blank | tail -1) == lru,1,3,3,1,1 ]] || fail "columns with blanks are whole"
# An array of NumPy: two tokens, two layers, two chosen. The first token, as a prompt, fills the cache and is not counted.
header="{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2), }"
printf '\x93NUMPY\1\0'"\\x$(printf %x ${#header})"'\0%s\0\1\2\3\1\0\3\2' "$header" > "$folder/routed.npy"
[[ $("$program" router --trace "$folder/routed.npy" --format npy --share 100 --policy lru --csv | tail -1) == lru,100.00,4,0,* ]] ||
    fail "routed experts of an array"
said 'give --format npy' cache --trace "$folder/routed.npy" --format csv
gzip -c "$folder/empty.csv" > "$folder/empty.gz"
said 'the end of the file' cache --trace "$folder/empty.gz" --format residency
printf 'time,object\n1,5\n2,5' > "$folder/heading.csv"
[[ $("$program" cache --trace "$folder/heading.csv" --format csv --bytes-column 0 --policy lru --budget 1 --csv | tail -1) == lru,1,2,2,1,1 ]] ||
    fail "a heading counts as a request"
# Shares are exact where a double is not.
printf '1,5,9007199254740993\n' > "$folder/exact.csv"
[[ $("$program" cache --trace "$folder/exact.csv" --format csv --policy lru --budget 100% --csv | tail -1) == lru,9007199254740993,* ]] ||
    fail "100 % is not all"

# Lines that are lost are no result.
if [[ -w /dev/full ]]; then
    status=0
    "$program" cache --trace "$choices" --format route --csv > /dev/full 2> "$folder/errors" || status=$?
    [[ $status == 1 && $(< "$folder/errors") == *'standard output'* ]] || fail "a full disk: exit $status, $(cat "$folder/errors")"
fi

refuses 'auto' 'there is no device'
refuses '60%free' 'there is no device'
echo "residency-lab: fine"
