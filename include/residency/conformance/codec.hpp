// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "residency/codec/codec.hpp"
#include "residency/error.hpp"

namespace residency::conformance {

/// How check_codec runs.
struct CodecSuite {
    std::uint32_t seed = 1;          ///< of the random bytes
    std::uint32_t runs = 60;         ///< with other bytes and another size each
    std::uint32_t mutations = 2000;  ///< of packed bytes, in all
    /// Returns how many allocations there were. Empty: the second half of K4 is not checked.
    std::function<std::uint64_t()> allocations = nullptr;
};

namespace detail {

using PackedBytes = std::vector<std::byte>;

/// The bytes of bf16 values of a normal distribution, as weights have them.
inline PackedBytes normal_weights(std::mt19937& random, std::size_t bytes, float scale) {
    std::normal_distribution<float> normal{0, scale};
    PackedBytes raw(bytes);
    for (std::size_t i = 0; i + 1 < bytes; i += 2) {
        const auto value = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(normal(random)) + 0x8000U) >> 16);
        std::memcpy(raw.data() + i, &value, sizeof value);
    }
    if (bytes % 2 != 0) { raw.back() = static_cast<std::byte>(random()); }
    return raw;
}

/// Bytes of one of several kinds: like weights, with some of them replaced, random, equal, every value of 16 bits.
inline PackedBytes codec_input(std::mt19937& random, std::uint32_t kind, std::size_t bytes) {
    constexpr float scales[] = {0.02F, 1.0F, 1e-20F, 3e30F};
    PackedBytes raw = normal_weights(random, bytes, scales[kind / 8 % 4]);
    const std::uint32_t one_in[] = {0, 1, 5, 200, 5000};
    if (kind % 8 < 5) {
        const std::uint32_t rate = one_in[kind % 8];
        for (std::byte& byte : raw) {
            if (rate != 0 && random() % rate == 0) { byte = static_cast<std::byte>(random()); }
        }
    } else if (kind % 8 == 5) {
        std::fill(raw.begin(), raw.end(), static_cast<std::byte>(random() % 2 == 0 ? 0 : random()));
    } else if (kind % 8 == 6) {
        for (std::size_t i = 0; i + 1 < bytes; i += 2) {
            const auto value = static_cast<std::uint16_t>(i / 2 * 40503U);  // each of 65,536 once, in no order
            std::memcpy(raw.data() + i, &value, sizeof value);
        }
    } else {
        for (std::size_t i = 0; i + 1 < bytes;
             i += 2) {  // zeros, infinities, NaNs with payloads, denormals among weights
            if (random() % 16 != 0) { continue; }
            const std::uint32_t payload = random() % 128;
            const std::uint32_t specials[] = {0, 0x8000, 0x7f80, 0xff80, 0x7f80U | payload, 0xff80U | payload, payload};
            const auto value = static_cast<std::uint16_t>(specials[random() % 7]);
            std::memcpy(raw.data() + i, &value, sizeof value);
        }
    }
    return raw;
}

/// Bytes between two guards, which have to stay as they are.
class GuardedBytes {
public:
    GuardedBytes(std::size_t bytes, std::uint8_t fill) : bytes_(bytes + 2 * guard, std::byte{fill}) {
        std::fill_n(bytes_.begin(), guard, std::byte{0xA5});
        std::fill_n(bytes_.end() - guard, guard, std::byte{0xA5});
    }
    [[nodiscard]] std::span<std::byte> inside() { return std::span{bytes_}.subspan(guard, bytes_.size() - 2 * guard); }
    [[nodiscard]] bool is_intact() const {
        const auto is_guard = [](std::byte byte) { return byte == std::byte{0xA5}; };
        return std::all_of(bytes_.begin(), bytes_.begin() + guard, is_guard) &&
               std::all_of(bytes_.end() - guard, bytes_.end(), is_guard);
    }

private:
    static constexpr std::ptrdiff_t guard = 64;
    PackedBytes bytes_;
};

}  // namespace detail

/// Checks the rules K1–K7 of codec::Codec, and reports through doctest with the seed of the run. `make` returns a codec as a user
/// would configure it.
template <codec::Codec C>
void check_codec(const CodecSuite& suite = {}, const std::function<C()>& make = [] { return C{}; }) {
    static_assert(std::is_nothrow_move_constructible_v<C>, "K6: codecs are nothrow movable");
    const C codec = make();
    std::uint32_t packed_runs = 0;
    const std::uint32_t mutations_each = suite.runs == 0 ? 0 : (suite.mutations + suite.runs - 1) / suite.runs;
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run;
        CAPTURE(seed);
        std::mt19937 random{seed};
        codec::Extents extents;
        constexpr std::uint64_t lengths[] = {0, 1, 2, 15, 16, 17, 4095, 4096, 4097, 65536};
        extents.columns = run < 10 ? lengths[run] : 1 + random() % 700;
        extents.rows = run < 10 ? 1 : 1 + random() % 150;
        const bool is_odd = C::unit == codec::PackingUnit::chunk && random() % 4 == 0;
        const auto bytes = static_cast<std::size_t>(extents.rows * extents.columns * 2 + (is_odd ? 1 : 0));
        const auto raw = detail::codec_input(random, run < 10 ? (run == 9 ? 6 : 0) : random() % 32, bytes);

        detail::GuardedBytes room{bytes * 2 + (std::size_t{1} << 16), 0x00},
            other{bytes * 2 + (std::size_t{1} << 16), 0xCD};
        const std::size_t size = codec.pack(extents, raw, room.inside());
        REQUIRE_MESSAGE(size <= room.inside().size(), "K2: pack() returns no more than there is room for");
        CHECK_MESSAGE(make().pack(extents, raw, other.inside()) == size,
                      "K3: the same bytes have the same packed size");
        CHECK_MESSAGE(room.is_intact(), "K2: pack() writes inside its room");
        if (size == 0) { continue; }
        ++packed_runs;
        CHECK_MESSAGE(std::equal(room.inside().begin(), room.inside().begin() + static_cast<std::ptrdiff_t>(size),
                                 other.inside().begin()),
                      "K3: the same bytes give the same packed form, whatever lay in the room before");
        const auto past = other.inside().subspan(size);
        CHECK_MESSAGE(std::all_of(past.begin(), past.end(), [](std::byte byte) { return byte == std::byte{0xCD}; }),
                      "K2: pack() writes nothing behind the bytes that it returned");
        {
            detail::GuardedBytes exact{size, 0x11}, little{size - 1, 0x11};
            CHECK_MESSAGE(codec.pack(extents, raw, exact.inside()) == size, "K2: the bytes that it returns suffice");
            CHECK_MESSAGE(codec.pack(extents, raw, little.inside()) == 0, "K2: fewer bytes do not suffice");
            CHECK_MESSAGE((exact.is_intact() && little.is_intact()), "K2: pack() writes inside its room");
        }

        const detail::PackedBytes packed(room.inside().begin(),
                                         room.inside().begin() + static_cast<std::ptrdiff_t>(size));
        detail::GuardedBytes back{bytes, 0x77};
        const std::uint64_t before = suite.allocations ? suite.allocations() : 0;
        const Status unpacked = codec.unpack(extents, packed, back.inside());
        const std::uint64_t after = suite.allocations ? suite.allocations() : 0;
        REQUIRE_MESSAGE(unpacked,
                        "K1: what was packed can be unpacked: ", unpacked ? std::string{} : unpacked.error().message());
        CHECK_MESSAGE(before == after, "K4: unpack() allocates only for an error");
        const Status checked = codec.check(extents, packed, bytes);
        CHECK_MESSAGE(checked, "K7: check() accepts what was packed");
        CHECK_MESSAGE(!codec.check({1, extents.rows * extents.columns + 1}, packed, bytes + 2),
                      "K7: check() refuses another number of raw bytes");
        CHECK_MESSAGE(std::equal(raw.begin(), raw.end(), back.inside().begin(), back.inside().end()),
                      "K1: the bytes are the same bit for bit");
        CHECK_MESSAGE(back.is_intact(), "K2: unpack() writes inside the raw bytes");

        detail::GuardedBytes longer{bytes + 2, 0x77};
        CHECK_MESSAGE(!codec.unpack({1, extents.rows * extents.columns + 1}, packed, longer.inside()),
                      "K5: another number of raw bytes is refused");
        if (C::unit == codec::PackingUnit::weight && extents.rows != extents.columns) {
            CHECK_MESSAGE(!codec.unpack({extents.columns, extents.rows}, packed, back.inside()),
                          "K5: other extents are refused");
        }
        if (C::form != PackedForm::raw) {
            for (const std::size_t field : {std::size_t{0}, std::size_t{4}}) {
                detail::PackedBytes another = packed;
                another[field] ^= std::byte{0x40};
                const Status refused = codec.unpack(extents, another, back.inside());
                CHECK_MESSAGE((!refused && refused.error().kind() == ErrorKind::unsupported),
                              "K5: another form and another version are refused as such");
            }
        }
        for (std::uint32_t i = 0; i < mutations_each; ++i) {
            detail::PackedBytes damaged = packed;
            const std::uint32_t what = random() % 8;
            if (what == 0) {
                damaged.resize(random() % (damaged.size() + 1));
            } else if (what == 1) {
                damaged.resize(damaged.size() + 1 + random() % 64);
            }
            for (std::uint32_t flips = what < 2 ? 0 : 1 + random() % 4; flips > 0 && !damaged.empty(); --flips) {
                const std::size_t at = random() % 3 == 0 ? random() % (std::min)(damaged.size(), std::size_t{128})
                                                         : random() % damaged.size();
                damaged[at] = random() % 2 == 0 ? static_cast<std::byte>(random())
                                                : damaged[at] ^ static_cast<std::byte>(1U << random() % 8);
            }
            damaged.shrink_to_fit();  // so that a sanitizer sees a read behind the end
            const Status result = codec.unpack(extents, damaged, back.inside());
            if (damaged.size() != packed.size()) {
                CHECK_MESSAGE(!result, "K4, K5: bytes that are cut or longer are refused");
            }
            if (!result) { CHECK_MESSAGE(!result.error().message().empty(), "K4: an error says what it is"); }
            const Status verdict = codec.check(extents, damaged, bytes);
            CHECK_MESSAGE(
                (verdict ? std::string{} : verdict.error().message()) == (result ? "" : result.error().message()),
                "K7: check() gives the error that unpack() gives, or none");
        }
        CHECK_MESSAGE(back.is_intact(), "K4: whatever it is given, unpack() writes inside the raw bytes");
    }
    CHECK_MESSAGE(packed_runs > suite.runs / 4, "the codec packs some of what it is given");
}

}  // namespace residency::conformance
