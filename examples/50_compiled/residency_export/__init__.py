# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The export half: compiles a PyTorch model so that its weights can be streamed inside a budget."""

from .executorch import export_executorch
from .export import ExportError, Report, export

__all__ = ["ExportError", "Report", "export", "export_executorch"]
