// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "benchmarks/lab/packing.hpp"
#include "benchmarks/lab/workload.hpp"
#include "residency/codec/codec.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/error.hpp"
#include "residency/model/storage.hpp"

namespace lab {

/// Bytes of bf16 weights as training leaves them: the exponents of most are near each other.
inline std::vector<std::byte> trained_weights(std::size_t bytes) {
    std::vector<std::byte> result(bytes);
    std::mt19937 random{1};
    std::normal_distribution<float> weight{0, 0.02F};
    for (std::size_t at = 0; at + 2 <= bytes; at += 2) {
        const float value = weight(random);
        std::memcpy(result.data() + at, reinterpret_cast<const std::byte*>(&value) + 2, 2);  // its upper half
    }
    return result;
}

/// Storages in host memory, packed by the codec of the library.
struct PackedBytes {
    std::vector<std::byte> bytes;
    std::vector<StoredBytes> stored;  ///< by storage; those of one size lie at one place: their contents do not matter
};

/// The storages of a workload, of generated weights. What is resident, or does not get smaller in its file, stays raw. Errors: the codec's.
inline residency::Result<PackedBytes> packed_bytes_of(const Workload& work) {
    PackedBytes result;
    const std::vector<std::byte> raw = trained_weights(residency::codec::part_bytes);
    // A part of so many raw bytes, packed; most storages are made of the same ones.
    struct Packed {
        residency::PackedPart part;
        std::vector<std::byte> bytes;
    };
    std::map<std::uint64_t, Packed> parts;
    std::vector<std::byte> scratch;
    const auto part_of = [&](std::uint64_t bytes) -> residency::Result<const Packed*> {
        const auto known = parts.find(bytes);
        if (known != parts.end()) { return &known->second; }
        Packed made;
        const std::span own = std::span{raw}.first(static_cast<std::size_t>(bytes));
        auto part = residency::codec::try_pack_part(residency::PackedForm::bf16_tiers, {}, own, made.bytes, scratch);
        if (!part) { return part.error(); }
        made.part = *part;
        return &parts.emplace(bytes, std::move(made)).first->second;
    };
    std::map<std::pair<std::uint64_t, bool>, StoredBytes> by_size;  // and whether they are packed
    for (std::size_t i = 0; i < work.bytes.size(); ++i) {
        const std::uint64_t bytes = work.bytes[i];
        const bool is_smaller = work.packed_shares.empty() || work.packed_shares[i] < 1;
        const bool packs = !work.resident[i] && is_smaller && bytes > 0 && bytes % 2 == 0;
        const auto known = by_size.find({bytes, packs});
        if (known != by_size.end()) {
            result.stored.push_back(known->second);
            continue;
        }
        StoredBytes one{result.bytes.size(), bytes, nullptr};
        if (packs) {
            std::vector<residency::PackedPart> own;
            bool is_packed = false;
            std::uint64_t packed = 0;
            for (std::uint64_t at = 0; at < bytes; at += residency::codec::part_bytes) {
                const auto made = part_of(std::min(residency::codec::part_bytes, bytes - at));
                if (!made) { return made.error(); }
                own.push_back((*made)->part);
                own.back().offset_bytes = packed;
                result.bytes.resize(static_cast<std::size_t>(one.offset_bytes + packed));
                result.bytes.insert(result.bytes.end(), (*made)->bytes.begin(), (*made)->bytes.end());
                is_packed = is_packed || own.back().form != residency::PackedForm::raw;
                one.bytes = packed + own.back().packed_bytes;
                packed = aligned_packed(one.bytes);
            }
            if (is_packed) {
                one.parts = std::make_shared<const std::vector<residency::PackedPart>>(std::move(own));
            } else {
                one.bytes = bytes;
            }
        }
        result.bytes.resize(static_cast<std::size_t>(aligned_packed(one.offset_bytes + one.bytes)));
        by_size.emplace(std::pair{bytes, packs}, one);
        result.stored.push_back(std::move(one));
    }
    return result;
}

}  // namespace lab
