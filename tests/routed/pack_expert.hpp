// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "residency/codec/packed_part.hpp"
#include "residency/model/storage.hpp"

namespace routed_test {

/// Packs an expert into pinned memory, `offset` bytes behind its beginning: in parts that begin at multiples of 512. `has_noise`: parts are of many
/// sizes, and a third of them becomes noise first, which stays raw.
inline residency::PackedHostSource pack_expert(std::mt19937_64& random, std::span<std::byte> raw,
                                               residency::PackedForm form, bool has_noise,
                                               std::shared_ptr<const residency::HostBytes> memory, std::byte* begin,
                                               std::uint64_t offset) {
    residency::PackedHostSource source{std::move(memory), offset, 0, nullptr};
    std::vector<residency::PackedPart> parts;
    std::vector<std::byte> packed, scratch;
    while (!raw.empty()) {
        const std::size_t longest = has_noise ? 20'000 + random() % 8'000 * 16 : 120'000;
        const std::span part = raw.first((std::min)(raw.size(), longest));
        if (has_noise && random() % 3 == 0) {
            for (std::byte& byte : part) { byte = static_cast<std::byte>(random()); }
        }
        auto one = residency::codec::try_pack_part(form, {1, part.size()}, part, packed, scratch);
        if (!one) { throw std::runtime_error{one.error().message()}; }
        one->offset_bytes = (source.bytes + 511) / 512 * 512;
        source.bytes = one->offset_bytes + one->packed_bytes;
        std::memcpy(begin + offset + one->offset_bytes,
                    one->form == residency::PackedForm::raw ? part.data() : packed.data(),
                    static_cast<std::size_t>(one->packed_bytes));
        parts.push_back(*one);
        raw = raw.subspan(part.size());
    }
    source.parts = std::make_shared<const std::vector<residency::PackedPart>>(std::move(parts));
    return source;
}

}  // namespace routed_test
