# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The export half: compiles a PyTorch model so that its weights can be streamed inside a budget."""

from .versions import version_refused

try:
    from .executorch import export_executorch
    from .export import ExportError, Report, export
except ImportError as error:  # a name of the compiler that this PyTorch has not
    raise ImportError(version_refused() or str(error)) from error

__all__ = ["ExportError", "Report", "export", "export_executorch"]
