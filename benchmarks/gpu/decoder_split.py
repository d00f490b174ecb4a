# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The example decoder at the shapes of Llama-3-8B on two GPUs, a part of the model and a link each, in turns with one GPU that has the
same share of all of it. Logits and tokens are compared with those of one GPU, which the decoder checks. What the GPUs tell each other is
left out in turns, too: what it takes is the time with it over that without it, for each policy of NCCL.

    decoder_split.py PROGRAM FOLDER    the model, 16 GB of random weights, is written into FOLDER where it is not there yet
"""

import os
import statistics
import sys

from decoder import Decoder, Records

GPUS = 2
BUDGETS = {"resident": {}, "50%": {"token": "<= 0.55", "sums": "<= 1.02"}, "25%": {}, "10%": {}}
PROMPT = 2048
# NCCL_CTA_POLICY: as many multiprocessors as it likes, few, or none for what its copy engines can do; these do not add.
POLICIES = {"default": "0", "efficiency": "1", "copy_engines": "2"}


def add(records, name, figures, step, targets):
    """One GPU, several, and several without sums, at each budget."""
    runs = {run["budget"]: run for run in figures["runs"]}
    for budget, target in targets.items():
        several, apart = runs[f"{budget} of {GPUS}"], runs[f"{budget} of {GPUS}, apart"]
        seconds = several[step]["seconds"]
        records.add(f"{name}.{budget}.time", seconds * 1e3, "ms")
        records.add(f"{name}.{budget}.link.rate", statistics.median(several["link_bytes_per_second"]) / 1e9, "GB/s")
        records.add(f"{name}.{budget}.over_without_sums", seconds / apart[step]["seconds"], "ratio", target.get("sums", ""))
        if budget in runs:
            records.add(f"{name}.{budget}.over_one_gpu", seconds / runs[budget][step]["seconds"], "ratio",
                        target.get("token", ""))
        records.add(f"{name}.{budget}.measured", several[step]["passes"], "passes", ">= 20")


def main():
    decoder = Decoder.from_command_line(__doc__)
    arguments = ["--gpus", GPUS, "--without-sums", "--budget"]
    tokens = ["--new", 45, "--kept-logits", 16]
    figures = decoder.run("--verify", *arguments, *(budget for budget in BUDGETS if budget != "resident"), *tokens)
    records = Records("gpu-decoder-split", figures["device"])
    add(records, "split.token", figures, "step", BUDGETS)
    records.write()
    figures = decoder.run("--verify", *arguments, "50%", "--prompt-length", PROMPT, "--repeat-prompt", 30, "--new", 1)
    add(records, f"split.prompt_{PROMPT}", figures, "prompt", {"resident": {}, "50%": {}})
    for name, policy in POLICIES.items():
        os.environ["NCCL_CTA_POLICY"] = policy
        figures = decoder.run(*arguments, "50%", *tokens)
        add(records, f"split.{name}.token", figures, "step", {"50%": {}})
    records.add("split.runs_with_a_failed_check", decoder.failed, "runs", "<= 0")
    records.write()
    return 1 if decoder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
