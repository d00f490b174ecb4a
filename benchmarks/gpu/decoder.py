# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The example decoder at the shapes of Llama-3-8B: tokens and prompts against the bound, streamed runs bit-identical to the resident one.

    decoder.py PROGRAM FOLDER    the model, 16 GB of random weights, is written into FOLDER where it is not there yet

Where the link binds, bounds are at the mean of the rates of bare copies before and after the run. The embedding table stays on the host;
there, the bound of a prompt counts the rows that it reads: they cross the link like every copy, whatever the plan. `over_bound_of_copies`
is without them.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from records import Records  # noqa: E402

SHAPE = "llama-3-8b"
LAYERS, HEADS, CACHE_HEADS, WIDTH, WORDS, HIDDEN = 32, 32, 8, 128, 128256, 4096
PROMPTS = 24  # the first four measure the steps, and are not counted


class Decoder:
    def __init__(self, program, folder):
        if not os.access(program, os.X_OK):
            print(f"no {program}: '.ci/gpu build' makes it, where CLI11 and nlohmann-json are found")
            sys.exit(77)
        self.program, self.folder = program, os.path.join(folder, SHAPE)
        self.failed = 0

    @classmethod
    def from_command_line(cls, usage):
        if len(sys.argv) != 3:
            print(usage.strip(), file=sys.stderr)
            sys.exit(2)
        return cls(*sys.argv[1:])

    def run(self, *arguments):
        """Everything that the decoder measured; its output goes on. Exits with 77 where there is no GPU."""
        with tempfile.TemporaryDirectory() as scratch:
            command = [self.program, "--model", self.folder, "--generate-model", SHAPE, "--device", "cuda",
                       "--timeline", f"{scratch}/timeline.json", "--json", f"{scratch}/figures.json", *map(str, arguments)]
            print("$ decoder", *map(str, arguments), flush=True)
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if done.returncode == 2:
                print(done.stderr.strip())
                sys.exit(77 if "driver" in done.stderr or "no GPU" in done.stderr else 1)
            if done.returncode not in (0, 1):
                print(f"{self.program} ended with {done.returncode}: {done.stderr.strip()}")
                sys.exit(1)
            self.failed += done.returncode != 0
            with open(f"{scratch}/figures.json") as figures:
                return json.load(figures)


def slower(run):
    """The rate that a plan was made with, over that of bare copies around the run."""
    planned, after = run["link_bytes_per_second"]
    return planned / ((planned + after) / 2)


def tokens(decoder):
    """The records, with these in them; what it measured last."""
    records = None
    # Reading the logits back disturbs the times: those of the first passes are compared, the later ones measured.
    for way, arguments in {
            "graph": ["--new", 38, "--kept-logits", 16, "--budget", "90%", "75%", "50%", "25%", "10%"],
            "eager": ["--new", 30, "--kept-logits", 8, "--no-graph", "--budget", "90%", "75%", "50%"]}.items():
        figures = decoder.run("--verify", *arguments)
        records = records or Records("gpu-decoder", figures["device"])
        for run in figures["runs"]:
            name, step = f"decoder.{run['budget']}.{way}", run["step"]
            records.add(f"{name}.token", step["seconds"] * 1e3, "ms")
            if run["budget"] == "resident":
                continue
            bound = step["bound_seconds"] * slower(run)  # the link binds at all of these
            floor = max(bound, step["latency_floor_seconds"] * slower(run))
            records.add(f"{name}.bound", bound * 1e3, "ms")
            records.add(f"{name}.over_bound", step["seconds"] / bound, "ratio")
            records.add(f"{name}.over_bound_or_latency_floor", step["seconds"] / floor, "ratio", "<= 1.01")
            records.add(f"{name}.over_predicted", step["seconds"] / step["predicted_seconds"], "ratio")
            records.add(f"{name}.measured", step["passes"], "tokens", ">= 20")
    return records, figures


def prompts(decoder, records, streamed_bytes):
    parameters = streamed_bytes / 2 - WORDS * HIDDEN  # the last matrix sees one token only
    for length in (512, 2048, 8192, 16384):
        # Budgets of the weights alone: the cache comes on top, in blocks of 16 positions.
        cache = (length + 16) // 16 * 16 * 2 * 2 * LAYERS * CACHE_HEADS * WIDTH
        budgets = {str(int(share * streamed_bytes) + cache): f"{share:.0%}" for share in (0.5, 0.25)}
        figures = decoder.run("--verify", "--prompt-length", length, "--repeat-prompt", PROMPTS, "--new", 1,
                              "--budget", *budgets)
        resident = figures["runs"][0]["prompt"]["seconds"]
        # Attention: two products of half of a square for each head.
        operations = 2 * length * parameters + 2 * length * length * HEADS * WIDTH * LAYERS
        name = f"decoder.prompt_{length}"
        records.add(f"{name}.resident", resident * 1e3, "ms")
        records.add(f"{name}.resident.rate", operations / resident / 1e12, "TFLOP/s")
        for (_, share), run in zip(budgets.items(), figures["runs"][1:]):
            prompt = run["prompt"]
            bound = prompt["bound_seconds"]
            is_link_bound = bound > 1.1 * resident
            if is_link_bound:
                bound *= slower(run)
            records.add(f"{name}.{share}.over_bound_of_copies", prompt["seconds"] / bound, "ratio")
            if is_link_bound:
                bound += length * HIDDEN * 2 / (run["copied_bytes"] / bound)  # a little less than they take
            records.add(f"{name}.{share}.link.rate", sum(run["link_bytes_per_second"]) / 2e9, "GB/s")
            records.add(f"{name}.{share}.time", prompt["seconds"] * 1e3, "ms")
            records.add(f"{name}.{share}.over_resident", prompt["seconds"] / resident, "ratio")
            records.add(f"{name}.{share}.over_bound", prompt["seconds"] / bound, "ratio", "<= 1.01")
            records.add(f"{name}.{share}.over_predicted", prompt["seconds"] / prompt["predicted_seconds"], "ratio")
            records.add(f"{name}.{share}.measured", prompt["passes"], "prompts", ">= 20")


def main():
    decoder = Decoder.from_command_line(__doc__)
    records, figures = tokens(decoder)
    records.write()
    prompts(decoder, records, figures["streamed_bytes"])
    records.add("decoder.runs_with_a_failed_check", decoder.failed, "runs", "<= 0")
    records.write()
    return 1 if decoder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
