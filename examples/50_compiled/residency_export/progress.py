# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What a long export is at."""

import sys
import threading
import time

EVERY_SECONDS = 10


class Progress:
    """While it is entered, prints a line to the standard error now and then, so that short exports print nothing."""

    def __init__(self, write=None, every_seconds=None):
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._every = EVERY_SECONDS if every_seconds is None else every_seconds
        self._text = ""
        self._began = self._phase_began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def at(self, text):
        """Another phase begins."""
        self._text, self._phase_began = text, time.monotonic()

    def line(self):
        now = time.monotonic()
        return f"residency_export: {self._text} for {now - self._phase_began:.0f} s, {now - self._began:.0f} s in all"

    def _watch(self):
        while not self._ended.wait(self._every):
            self._write(self.line())
