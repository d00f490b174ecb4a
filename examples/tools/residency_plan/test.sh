# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# PROGRAM FOLDER: what residency-plan prints, checked by a program that knows nothing of the library.
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3" >&2
    exit 77
fi
exec python3 "$(dirname "$0")/test.py" "$1" "$2"
