# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The example decoder at the shapes of Llama-3-8B: tokens and prompts against the bound, streamed runs bit-identical to the resident one.

    decoder.py PROGRAM FOLDER    the model, 16 GB of random weights, is written into FOLDER where it is not there yet

Where the link binds, a ratio is of the bytes that bare copies move in the time of a pass, measured before and after every four passes, to
those that they move in the bound: the median of these groups. The embedding table stays on the host;
there, the bound of a prompt counts the rows that it reads: they cross the link like every copy, whatever the plan. `over_bound_of_copies`
is without them.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from records import Records  # noqa: E402

SHAPE = "llama-3-8b"
LAYERS, HEADS, CACHE_HEADS, WIDTH, WORDS, HIDDEN = 32, 32, 8, 128, 128256, 4096
# How many, and in groups of how many. The first four measure the steps, the first after the link was measured is not counted either.
PROMPTS = {512: (30, 4), 2048: (30, 4), 8192: (24, 1000), 16384: (24, 1000)}


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
        """Everything that the decoder measured; its output goes on. Exits with 77 where there is no GPU, or too few."""
        with tempfile.TemporaryDirectory() as scratch:
            command = [self.program, "--model", self.folder, "--generate-model", SHAPE, "--device", "cuda",
                       "--timeline", f"{scratch}/timeline.json", "--json", f"{scratch}/figures.json", *map(str, arguments)]
            print("$ decoder", *map(str, arguments), flush=True)
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if done.returncode == 2:
                print(done.stderr.strip())
                lacking = ("driver", "no GPU", "this process sees", "built without NCCL")
                sys.exit(77 if any(what in done.stderr for what in lacking) else 1)
            if done.returncode not in (0, 1):
                print(f"{self.program} ended with {done.returncode}: {done.stderr.strip()}")
                sys.exit(1)
            self.failed += done.returncode != 0
            with open(f"{scratch}/figures.json") as figures:
                return json.load(figures)


def over(run, passes, seconds):
    """How much longer passes take than what takes so many seconds on the link that the plan was made with."""
    if passes["link_bytes"] == 0:
        sys.exit(f"{run['budget']}: the link was not measured beside any pass that counts")
    return passes["link_bytes"] / (seconds * run["link_bytes_per_second"][0])


def tokens(decoder):
    """The records, with these in them; what it measured last."""
    records = None
    # Reading the logits back disturbs the times: those of the first passes are compared, the later ones measured.
    for way, arguments in {
            "graph": ["--new", 45, "--kept-logits", 16, "--budget", "90%", "75%", "50%", "25%", "10%"],
            "eager": ["--new", 38, "--kept-logits", 8, "--no-graph", "--budget", "90%", "75%", "50%"]}.items():
        figures = decoder.run("--verify", "--link-every", 4, *arguments)
        records = records or Records("gpu-decoder", figures["device"])
        for run in figures["runs"]:
            name, step = f"decoder.{run['budget']}.{way}", run["step"]
            records.add(f"{name}.token", step["seconds"] * 1e3, "ms")
            if run["budget"] == "resident":
                continue
            over_bound = over(run, step, step["bound_seconds"])  # the link binds at all of these
            records.add(f"{name}.bound", step["seconds"] / over_bound * 1e3, "ms")
            records.add(f"{name}.over_bound", over_bound, "ratio")
            records.add(f"{name}.over_bound_or_latency_floor",
                        over(run, step, max(step["bound_seconds"], step["latency_floor_seconds"])), "ratio", "<= 1.01")
            records.add(f"{name}.over_predicted", over(run, step, step["predicted_seconds"]), "ratio")
            records.add(f"{name}.link.rate", statistics.median(run["link_bytes_per_second"]) / 1e9, "GB/s")
            records.add(f"{name}.measured", step["passes"], "tokens", ">= 20")
    return records, figures


def prompts(decoder, records, streamed_bytes):
    parameters = streamed_bytes / 2 - WORDS * HIDDEN  # the last matrix sees one token only
    for length, (count, link_every) in PROMPTS.items():
        # Budgets of the weights alone: the cache comes on top, in blocks of 16 positions.
        cache = (length + 16) // 16 * 16 * 2 * 2 * LAYERS * CACHE_HEADS * WIDTH
        budgets = {str(int(share * streamed_bytes) + cache): f"{share:.0%}" for share in (0.5, 0.25)}
        figures = decoder.run("--verify", "--prompt-length", length, "--repeat-prompt", count, "--new", 1,
                              "--link-every", link_every, "--budget", *budgets)
        resident = figures["runs"][0]["prompt"]["seconds"]
        # Attention: two products of half of a square for each head.
        operations = 2 * length * parameters + 2 * length * length * HEADS * WIDTH * LAYERS
        name = f"decoder.prompt_{length}"
        records.add(f"{name}.resident", resident * 1e3, "ms")
        records.add(f"{name}.resident.rate", operations / resident / 1e12, "TFLOP/s")
        for (_, share), run in zip(budgets.items(), figures["runs"][1:]):
            prompt = run["prompt"]
            over_copies = over_bound = prompt["seconds"] / prompt["bound_seconds"]
            over_predicted = prompt["seconds"] / prompt["predicted_seconds"]
            if prompt["bound_seconds"] > 1.1 * resident:  # the link binds
                over_copies = over(run, prompt, prompt["bound_seconds"])
                over_bound = over_copies / (1 + length * HIDDEN * 2 / run["copied_bytes"])
                over_predicted = over(run, prompt, prompt["predicted_seconds"])
            records.add(f"{name}.{share}.over_bound_of_copies", over_copies, "ratio")
            records.add(f"{name}.{share}.link.rate", statistics.median(run["link_bytes_per_second"]) / 1e9, "GB/s")
            records.add(f"{name}.{share}.time", prompt["seconds"] * 1e3, "ms")
            records.add(f"{name}.{share}.over_resident", prompt["seconds"] / resident, "ratio")
            records.add(f"{name}.{share}.over_bound", over_bound, "ratio", "<= 1.01")
            records.add(f"{name}.{share}.over_predicted", over_predicted, "ratio")
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
