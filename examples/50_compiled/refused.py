# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of both exports share."""

from residency_export import ExportError


def check_refused(export, text, **arguments):
    """An export that has to fail with a message that holds `text`."""
    try:
        export(**arguments)
    except ExportError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"not refused: {text}")
