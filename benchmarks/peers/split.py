# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""What stays and what is streamed through a ring of buffers, for the arms that move whole units: every split worth trying, best
first by a simulated pass. The arms then measure the first few, as one would by hand."""

from dataclasses import dataclass
from itertools import product

ALIGNMENT = 256


def rounded(count):
    return -(-count // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Split:
    streamed: tuple  # units, in the order of use
    ring: int        # bytes of the ring
    offsets: tuple   # in the ring, of each streamed unit
    blockers: tuple  # how many streamed uses ago the bytes that a unit comes to lie on were last read


def lay_out(units, streamed, ring):
    """One after the other through the ring, beginning anew where a unit does not fit."""
    sizes = [rounded(units[unit].bytes) for unit in streamed]
    offsets, at = [], 0
    for size in sizes:
        if at + size > ring:
            at = 0
        offsets.append(at)
        at += size
    blockers = []
    for unit, (offset, size) in enumerate(zip(offsets, sizes)):
        ago = 1
        while ago < len(sizes):
            other = (unit - ago) % len(sizes)
            if offsets[other] < offset + size and offset < offsets[other] + sizes[other]:
                break
            ago += 1
        blockers.append(ago)
    return Split(tuple(streamed), ring, tuple(offsets), tuple(blockers))


def period(units, split, seconds, link, passes=3):
    """A steady pass: copies in order on one link, each after the last read of what it overwrites."""
    rate, latency = link
    copy = {unit: (latency + units[unit].bytes / rate, ago) for unit, ago in zip(split.streamed, split.blockers)}
    work = [sum(seconds[step] for step in unit.steps) for unit in units]
    now = link_free = begin = 0.0
    ends = []
    for _ in range(passes):
        begin = now
        for unit, takes in enumerate(work):
            if unit in copy:
                duration, ago = copy[unit]
                link_free = max(link_free, ends[-ago] if len(ends) >= ago else 0.0) + duration
                now = max(now, link_free) + takes
                ends.append(now)
            else:
                now += takes
    return now - begin


def best(units, candidates, seconds, link, count):
    """Of the candidates (streamed, ring), the fastest by the simulation for each ring; the `count` fastest of these."""
    found = {}
    for streamed, ring in set(candidates):
        split = lay_out(units, streamed, ring)
        takes = period(units, split, seconds, link)
        if ring not in found or takes < found[ring][0]:
            found[ring] = takes, split
    return [split for _, split in sorted(found.values(), key=lambda each: each[0])[:count]]


def by_layers(units, budget):
    """Layers after a resident prefix, the head resident or not; two or three buffers of the largest."""
    sizes = [rounded(unit.bytes) for unit in units]
    *layers, head = range(len(units))
    if sum(sizes) <= budget:
        return [((), 0)]
    found = []
    for keeps_head, buffers in product((True, False), (2, 3)):
        largest = max(sizes[unit] for unit in layers)
        ring = buffers * largest if keeps_head else max(buffers * largest, sizes[head])
        left = budget - ring - (sizes[head] if keeps_head else 0)
        if left < 0:
            continue
        first = 0
        while first < len(layers) and sizes[first] <= left:
            left -= sizes[first]
            first += 1
        streamed = (*layers[first:], *(() if keeps_head else (head,)))
        if streamed:
            found.append((streamed, ring + left // ALIGNMENT * ALIGNMENT))
    return found


def spread(members, count):
    """`count` of the members, evenly."""
    return [members[(2 * i + 1) * len(members) // (2 * count)] for i in range(count)]


def by_tensors(units, budget):
    """Any number of each size of tensor, spread over the pass, as few bytes as the budget allows beside the ring."""
    sizes = [rounded(unit.bytes) for unit in units]
    if sum(sizes) <= budget:
        return [((), 0)]
    together = []  # tensors of about the same size
    for unit in sorted(range(len(units)), key=lambda unit: -sizes[unit]):
        if not together or sizes[unit] < 0.9 * sizes[together[-1][0]]:
            together.append([])
        together[-1].append(unit)
    classes = [(sizes[members[0]], sizes[members[-1]], sorted(members)) for members in together]

    def counts(kinds, need):
        """How many of each kind, so that at least `need` bytes go; of all but the first, as many as needed."""
        if need <= 0 or not kinds:
            if need <= 0:
                yield (0,) * len(kinds)
            return
        _, size, members = kinds[0]
        fits = min(len(members), need // size)
        for count in {fits, min(len(members), fits + 1)}:
            for rest in counts(kinds[1:], need - count * size):
                yield (count, *rest)

    found = []
    for kind, (largest, smallest, members) in enumerate(classes):
        for factor in (1, 1.5, 2, 3, 4, 6):
            ring = rounded(int(largest * factor))
            need = sum(sizes) - budget + ring
            if ring > budget:
                continue
            for first in range(1, len(members) + 1):
                for rest in counts(classes[kind + 1:], need - first * smallest):
                    chosen = [unit for count, (_, _, some) in zip((first, *rest), classes[kind:]) if count
                              for unit in spread(some, count)]
                    found.append((tuple(sorted(chosen)), ring))
                if first * smallest >= need:
                    break
    return found
