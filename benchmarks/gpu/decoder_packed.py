# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The example decoder with packed weights at the shapes of Llama-3-8B: a token's time against everything resident and raw, in the same run with
the same kernels and in another one with cuBLAS. Tokens and logits are those of raw weights, bit for bit, which the decoder checks.

    decoder_packed.py PROGRAM FOLDER    the model, 16 GB of random weights, is written into FOLDER where it is not there yet
"""

import sys

from decoder import Decoder, Records

BUDGETS = {"90%": "", "75%": "<= 1.05", "50%": ""}  # of the raw bytes, and the target for the time over that of resident
PASSES = ("--verify", "--new", 45, "--kept-logits", 8)


def main():
    decoder = Decoder.from_command_line(__doc__)
    figures = decoder.run(*PASSES, "--packed", "--also-eager", "--budget", *BUDGETS)
    records = Records("gpu-decoder-packed", figures["device"])
    packed = figures["packed"]
    records.add("packed.decoder.packed_over_raw", packed["packed_bytes"] / packed["raw_bytes"], "ratio", "<= 0.753")
    records.add("packed.decoder.pack_on_host", packed["seconds"], "s")
    runs = {run["budget"]: run["step"] for run in figures["runs"]}
    resident = runs["resident"]["seconds"]
    cublas = decoder.run(*PASSES, "--budget", "90%")["runs"][0]["step"]["seconds"]
    records.add("packed.decoder.resident.token", resident * 1e3, "ms")
    records.add("packed.decoder.resident_cublas.token", cublas * 1e3, "ms")
    for budget, target in BUDGETS.items():
        name, graph, eager = f"packed.decoder.{budget}", runs[budget], runs[f"{budget} eager"]
        records.add(f"{name}.token", graph["seconds"] * 1e3, "ms")
        records.add(f"{name}.eager.token", eager["seconds"] * 1e3, "ms")
        records.add(f"{name}.graph_over_eager", graph["seconds"] / eager["seconds"], "ratio", "<= 1.02")
        records.add(f"{name}.over_resident", graph["seconds"] / resident, "ratio", target)
        records.add(f"{name}.over_resident_cublas", graph["seconds"] / cublas, "ratio", target)
        records.add(f"{name}.measured", graph["passes"], "tokens", ">= 20")
    records.add("packed.decoder.runs_with_a_failed_check", decoder.failed, "runs", "<= 0")
    records.write()
    return 1 if decoder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
