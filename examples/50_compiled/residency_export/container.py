# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the binary container of the library (include/residency/model/container.hpp describes its bytes)."""

import struct

MAGIC = bytes([0x89]) + b"RSDY\r\n\x1a"
CONTAINER_VERSION = 1
KIND_PROGRAM = 5


class StableHash:
    """FNV-1a of 64 bits, as StableHash of the library."""

    def __init__(self):
        self.value = 0xCBF29CE484222325

    def bytes(self, data):
        value = self.value
        for byte in data:
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        self.value = value

    def u8(self, value):
        self.bytes(struct.pack("<B", value))

    def u32(self, value):
        self.bytes(struct.pack("<I", value))

    def u64(self, value):
        self.bytes(struct.pack("<Q", value))

    def text(self, text):
        data = text.encode()
        self.u64(len(data))
        self.bytes(data)


class Section:
    """The bytes of one section, in the order of the calls."""

    def __init__(self, tag):
        assert len(tag) == 4
        self.tag = tag.encode("ascii")
        self.data = bytearray()

    def u8(self, value):
        self.data += struct.pack("<B", value)

    def u32(self, value):
        self.data += struct.pack("<I", value)

    def u64(self, value):
        self.data += struct.pack("<Q", value)

    def i64(self, value):
        self.data += struct.pack("<q", value)

    def text(self, text):
        data = text.encode()
        self.u64(len(data))
        self.data += data

    def array(self, code, values):
        """`code`: "I" (u32), "Q" (u64) or "q" (i64)."""
        values = list(values)
        self.u64(len(values))
        self.data += struct.pack(f"<{len(values)}{code}", *values)


def container(kind, kind_version, catalog_hash, sections):
    """The bytes of a container of these sections."""
    offset = 40 + 24 * len(sections)
    table, body = bytearray(), bytearray()
    for section in sections:
        table += section.tag + struct.pack("<IQQ", 0, offset, len(section.data))
        padded = bytes(section.data) + bytes(-len(section.data) % 8)
        body += padded
        offset += len(padded)
    header = MAGIC + struct.pack("<IIIIQQ", CONTAINER_VERSION, kind, kind_version, len(sections), offset + 8, catalog_hash)
    data = header + table + body
    checksum = StableHash()
    checksum.bytes(data)
    return bytes(data) + struct.pack("<Q", checksum.value)
