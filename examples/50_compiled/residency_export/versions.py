# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch that the export takes. Imports nothing of the compiler's insides, since those of another version may be gone."""

import torch

VERSIONS = ("2.11", "2.12", "2.13", "2.15")  # which were tried: docs/compiled.md says how, and what to do for a new one


def version_refused(versions=VERSIONS):
    """What is wrong with this PyTorch, or None."""
    if ".".join(torch.__version__.split("+")[0].split(".")[:2]) in versions:
        return None
    return (
        f"PyTorch {torch.__version__}: this export reads the compiler's insides, which differ between versions, and is "
        f"written for {', '.join(versions)}; install torch=={versions[0]}.*"
    )
