# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Records as benchmarks/record.hpp writes them."""

import json
import os
import sys
import time


class Records:
    def __init__(self, file, gpu):
        self.path = os.path.join(os.environ.get("RESIDENCY_RESULTS", "benchmarks/results"), file + ".json")
        self.common = {
            "command": os.environ.get("RESIDENCY_COMMAND", " ".join(sys.argv)),
            "commit": os.environ.get("RESIDENCY_COMMIT", "unknown"),
            "gpu": gpu,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        self.entries = []

    def add(self, name, value, unit, target="", note=""):
        """`target`: as ">= 1.1", or empty for a figure that nothing is asked of. `note`: where the figure comes from, in words."""
        verdict = ""
        if target:
            relation, wanted = target.split()
            met = value >= float(wanted) if relation == ">=" else value <= float(wanted)
            verdict = target + ("  met" if met else "  MISSED")
        print(f"{name:<56} {value:12.5g} {unit:<8} {verdict}", flush=True)
        self.entries.append({"name": name, "value": float(f"{value:.6g}"), "unit": unit, "target": target,
                             **({"note": note} if note else {}), **self.common})

    def write(self):
        lines = ",\n".join("  " + json.dumps(entry) for entry in self.entries)
        try:
            with open(self.path, "w") as out:
                out.write(f"[\n{lines}\n]\n")
        except OSError as error:
            print(f"cannot write {self.path} ({error}): make its folder, or name one in RESIDENCY_RESULTS",
                  file=sys.stderr)
