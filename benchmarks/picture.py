#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The README's picture, from the records: the time of a pass by budget, beside the bound and the peers.

    picture.py [--check FILE] [FOLDER]    prints the picture as SVG, or fails if FILE is another one
                                          FOLDER: of the records, by default results beside this program
"""

import json
import math
import os
import re
import sys

# (name of the record, label, class of the line)
LINES = (
    ("accelerate.time", "accelerate", "peer"),
    ("layers.time", "double buffer by layers", "peer"),
    ("zero_copy.time", "zero-copy reads", "peer"),
    ("tensors.time", "double buffer, tuned", "peer"),
    ("ours.time", "Residency", "ours"),
    ("packed.time", "Residency, packed", "packed"),
    ("bound", "exact bound", "bound"),
    ("resident.time", "everything resident", "resident"),
)
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 58, 548, 56, 346  # of the plot
LEAST_MS, MOST_MS = 4.0, 400.0
TICKS_MS = (5, 10, 20, 50, 100, 200)
LABEL_HEIGHT = 17

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px }
.note { fill: #59636e; font-size: 12px }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.lead { stroke: #818b98; stroke-width: 0.7; fill: none }
.line { fill: none; stroke-width: 1.8 }
.peer { stroke: #818b98 } .peer.dot { fill: #818b98 }
.ours { stroke: #0969da; stroke-width: 3 } .ours.dot { fill: #0969da } text.ours { fill: #0969da; stroke: none; font-weight: 600 }
.packed { stroke: #8250df; stroke-width: 3 } .packed.dot { fill: #8250df } text.packed { fill: #8250df; stroke: none; font-weight: 600 }
.bound { stroke: #bc4c00; stroke-dasharray: 6 4 } .bound.dot { fill: none; stroke: none } text.bound { fill: #bc4c00; stroke: none }
.resident { stroke: #1a7f37; stroke-dasharray: 2 4 } .resident.dot { fill: none; stroke: none } text.resident { fill: #1a7f37; stroke: none }
text.peer { stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d } .grid { stroke: #2a313c }
  .ours { stroke: #4493f8 } .ours.dot { fill: #4493f8 } text.ours { fill: #4493f8 }
  .packed { stroke: #ab7df8 } .packed.dot { fill: #ab7df8 } text.packed { fill: #ab7df8 }
  .bound { stroke: #f0883e } text.bound { fill: #f0883e }
  .resident { stroke: #3fb950 } text.resident { fill: #3fb950 }
}
"""


def height_of(ms):
    share = math.log(ms / LEAST_MS) / math.log(MOST_MS / LEAST_MS)
    return BOTTOM - share * (BOTTOM - TOP)


def spread(wanted):
    """Heights of labels in the order of `wanted`, at least LABEL_HEIGHT apart, as near to what is wanted as that allows."""
    groups = []  # of neighbours that touch: (sum of what each wants for the group's first label, how many)
    for at in wanted:
        groups.append([at, 1])
        while len(groups) > 1:
            (above, n), (below, m) = groups[-2:]
            if above / n + n * LABEL_HEIGHT <= below / m:
                break
            groups[-2:] = [[above + below - m * n * LABEL_HEIGHT, n + m]]
    return [total / n + i * LABEL_HEIGHT for total, n in groups for i in range(n)]


def picture(entries, packed):
    values = {entry["name"]: entry["value"] for entry in entries}
    card = entries[0]["gpu"]
    # Packed weights were measured in turns with raw ones in a run of their own: what is drawn is that ratio of the time with raw ones here.
    for entry in packed:
        if match := re.fullmatch(r"packed_decode\.([0-9.]+)%\.over_raw", entry["name"]):
            name = f"peers.{match.group(1)}%."
            if name + "ours.time" in values:
                values[name + "packed.time"] = values[name + "ours.time"] * entry["value"]
    budgets = sorted({m.group(1) for name in values if (m := re.match(r"peers\.([0-9.]+)%\.", name))}, key=float)
    across = {b: LEFT + 20 + i * (RIGHT - LEFT - 40) / (len(budgets) - 1) for i, b in enumerate(budgets)}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t d">',
        '<title id="t">Time of a pass by budget</title>',
        f'<desc id="d">Decoding Llama-3-8B\'s shapes on one {card}: milliseconds per pass at budgets of {", ".join(budgets)} % of the '
        "weights, for Residency with raw and with packed weights, its peers, the exact bound and everything resident. The table in docs/measured.md has the numbers.</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
        f'<text class="title" x="16" y="26">Milliseconds per pass (logarithmic), Llama-3-8B\'s shapes, bf16, one {card}</text>',
    ]
    for ms in TICKS_MS:
        y = height_of(ms)
        out += [f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>', f'<text class="note" text-anchor="end" x="{LEFT - 8}" y="{y + 4:.1f}">{ms}</text>']
    for budget in budgets:
        out.append(f'<text class="note" text-anchor="middle" x="{across[budget]:.1f}" y="{BOTTOM + 22}">{budget} %</text>')
    out.append(f'<text class="note" text-anchor="middle" x="{(LEFT + RIGHT) / 2:.0f}" y="{BOTTOM + 42}">budget: the share of the weights that fits on the GPU</text>')
    ends = []
    for name, label, kind in LINES:
        points = [(across[b], height_of(values[f"peers.{b}%.{name}"])) for b in budgets if f"peers.{b}%.{name}" in values]
        out.append(f'<path class="line {kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + '"/>')
        out += [f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{4 if kind in ("ours", "packed") else 2.5}"/>' for x, y in points]
        ends.append((points[-1][1], label, kind))
    # At the end of the lines those of Residency, the tuned double buffer and the bound all but touch.
    order = sorted(range(len(ends)), key=lambda i: ends[i][0])
    for at, i in zip(spread([ends[i][0] for i in order]), order):
        end, label, kind = ends[i]
        out.append(f'<path class="lead" d="M{RIGHT - 14} {end:.1f}L{RIGHT + 8} {at:.1f}"/>')
        out.append(f'<text class="{kind}" x="{RIGHT + 12}" y="{at + 4:.1f}">{label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main(arguments):
    other = None
    if arguments[:1] == ["--check"] and len(arguments) > 1:
        other, arguments = arguments[1], arguments[2:]
    if len(arguments) > 1 or arguments[:1] and arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
    try:
        with open(os.path.join(folder, "gpu-peers.json"), encoding="utf-8") as records:
            peers = json.load(records)
        with open(os.path.join(folder, "gpu-packed-decode.json"), encoding="utf-8") as records:
            made = picture(peers, json.load(records))
        there = made
        if other is not None:
            with open(other, encoding="utf-8") as file:
                there = file.read()
    except (OSError, ValueError, KeyError, IndexError) as error:
        print(f"cannot draw the records: {error!r}: name the folder that '.ci/gpu bench:peers' wrote", file=sys.stderr)
        return 2
    if other is None:
        sys.stdout.write(made)
        return 0
    if made != there:
        print(f"{other} is not what the records say: benchmarks/picture.py >{other} draws it anew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
