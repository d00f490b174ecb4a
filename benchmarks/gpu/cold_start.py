# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""From opening a file to the first token, at the shapes of Llama-3-8B within half of the weights: while the weights load, and after they
are loaded, from a file in the page cache and from one that is not, against the time of plainly reading as many bytes.

    cold_start.py PROGRAM FOLDER    the program is the example decoder; the model is written into FOLDER where it is not there yet
"""

import ctypes
import mmap
import os
import statistics
import sys
import threading
import time

from decoder import Decoder, Records

THREADS, BLOCK = 8, 4 << 20


def read_plainly(path, flags=0):
    """Bytes a second, over the whole file: each thread reads the next block into its own memory, one read at a time."""
    file = os.open(path, os.O_RDONLY | flags)
    size = os.path.getsize(path)
    lock, blocks = threading.Lock(), iter(range(0, size, BLOCK))

    def work():
        memory = mmap.mmap(-1, BLOCK)
        memory.write(bytes(BLOCK))
        while True:
            with lock:
                block = next(blocks, None)
            if block is None:
                return
            if os.preadv(file, [memory], block) != min(BLOCK, size - block):
                raise OSError(f"{path}: a read came back short")

    begin = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(file)
    return size / (time.perf_counter() - begin)


def cached_share(path):
    """Of the file, what is in the page cache, as mincore tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = os.path.getsize(path)
    file = os.open(path, os.O_RDONLY)
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    os.close(file)
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    seen = (ctypes.c_ubyte * pages)()
    failed = libc.mincore(at, size, seen)
    libc.munmap(at, size)
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(byte & 1 for byte in bytes(seen)) / pages


def drop(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def measure(decoder, records, name, needed, rate, rounds, prepare):
    """Which goes first changes from round to round: what is below a virtual disk has caches of its own."""
    ways = {"while_loading": [], "after_loading": ["--load-first"]}
    seconds = {way: [] for way in ways}
    for number in range(rounds):
        for way in sorted(ways, reverse=number % 2 == 0):
            prepare()
            figures = decoder.run("--new", 1, "--budget", "50%", *ways[way])
            seconds[way].append(figures["first_token_seconds"])
            print(f"{way}: {figures['first_token_seconds']:.3f} s, all loaded at {figures['load_seconds']:.3f} s", flush=True)
    plainly = needed / rate
    records.add(f"{name}.plain_read_rate", rate / 1e9, "GB/s")
    records.add(f"{name}.plain_read", plainly, "s")
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    for way, median in medians.items():
        records.add(f"{name}.first_token.{way}", median, "s")
        records.add(f"{name}.first_token.{way}.over_plain_read", median / plainly, "ratio")
    records.add(f"{name}.after_over_while_loading", medians["after_loading"] / medians["while_loading"], "times", ">= 1")
    records.write()


def main():
    limit = os.environ.get("RESIDENCY_SECONDS", "300")
    try:
        end = time.monotonic() + 0.85 * float(limit)
    except ValueError:
        print(f'RESIDENCY_SECONDS is "{limit}": give seconds, such as 300', file=sys.stderr)
        return 2
    decoder = Decoder.from_command_line(__doc__)
    begin = time.monotonic()
    first = decoder.run("--new", 1)
    print(f"the first run, with the writing of the model where it was not there, took {time.monotonic() - begin:.1f} s")
    records = Records("gpu-cold-start", first["device"])
    path = os.path.join(decoder.folder, "model.safetensors")
    needed = first["streamed_bytes"]
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    read_plainly(path)
    records.add("cold_start.cached.share_in_the_page_cache", cached_share(path), "of the file", ">= 0.99")
    rate = max(read_plainly(path) for _ in range(2))
    measure(decoder, records, "cold_start.cached", needed, rate, 3, lambda: None)

    drop(path)
    left = cached_share(path)
    records.add("cold_start.uncached.share_in_the_page_cache", left, "of the file", "<= 0.01")
    if left > 0.01:
        print("this file system keeps the file in the page cache: nothing is measured from the disk")
        return 1 if decoder.failed else 0
    begin = time.monotonic()
    rate = read_plainly(path, os.O_DIRECT)
    a_round = 2 * (time.monotonic() - begin) + 10
    rounds = max(1, min(3, int((end - time.monotonic() - a_round) / a_round)))
    measure(decoder, records, "cold_start.uncached", needed, rate, rounds, lambda: drop(path))
    return 1 if decoder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
