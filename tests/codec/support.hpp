// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/codec/codec.hpp"
#include "residency/error.hpp"
#include "residency/model/stable_hash.hpp"

namespace test {

using Bytes = std::vector<std::byte>;
namespace codec = residency::codec;

/// Packs into so much room; empty: it does not fit.
template <class C>
Bytes pack(const codec::Extents& extents, const Bytes& raw, std::size_t room) {
    Bytes packed(room);
    packed.resize(C{}.pack(extents, raw, packed));
    return packed;
}

/// Whether packed bytes are unpacked to the raw ones.
template <class C>
bool comes_back(const codec::Extents& extents, const Bytes& raw, const Bytes& packed) {
    Bytes back(raw.size(), std::byte{0x5A});
    const residency::Status unpacked = C{}.unpack(extents, packed, back);
    return unpacked && back == raw;
}

inline std::uint64_t hash(const Bytes& bytes) {
    residency::StableHash hash;
    hash.bytes(bytes);
    return hash.value();
}

}  // namespace test
