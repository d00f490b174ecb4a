// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/tiers.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

namespace tiers { namespace detail {

/// Appends entries to a plane of 32-bit words, the first in the lowest bits.
class BitWriter {
public:
    explicit BitWriter(std::byte* to) noexcept : to_{to} {}
    /// Appends up to 48 bits.
    void put(std::uint64_t entries, std::uint32_t bits) noexcept {
        put_some(entries & 0xffffffU, bits < 24 ? bits : 24);
        if (bits > 24) { put_some(entries >> 24, bits - 24); }
    }
    void flush() noexcept {
        const auto word = static_cast<std::uint32_t>(held_);
        std::memcpy(to_, &word, sizeof word);
        to_ += sizeof word;
    }

private:
    void put_some(std::uint64_t entries, std::uint32_t bits) noexcept {
        held_ |= entries << count_;
        count_ += bits;
        if (count_ >= 32) {
            flush();
            held_ >>= 32;
            count_ -= 32;
        }
    }

    std::byte* to_;
    std::uint64_t held_ = 0;
    std::uint32_t count_ = 0;
};

/// The exponents by how often they occur, ties by the exponent.
template <std::size_t exponents>
struct Ranking {
    std::array<std::uint8_t, exponents> exponent{};  ///< by rank
    std::array<std::uint8_t, exponents> rank{};      ///< by exponent
    std::uint32_t t1_values = 0, t2_values = 0, t3_values = 0;
};

/// `count`: by exponent, how many values have it.
template <std::size_t exponents>
[[nodiscard]] Ranking<exponents> rank(const std::array<std::uint32_t, exponents>& count) noexcept {
    Ranking<exponents> ranking;
    for (std::uint32_t e = 0; e < exponents; ++e) {
        std::uint32_t above = 0;
        for (std::uint32_t other = 0; other < exponents; ++other) {
            above += count[other] > count[e] || (count[other] == count[e] && other < e) ? 1U : 0U;
        }
        ranking.rank[e] = static_cast<std::uint8_t>(above);
        ranking.exponent[above] = static_cast<std::uint8_t>(e);
        ranking.t1_values += above >= 3 ? count[e] : 0;
        ranking.t2_values += above >= 6 ? count[e] : 0;
        ranking.t3_values += above >= 13 ? count[e] : 0;
    }
    return ranking;
}

/// What an exponent is in each tier. No bits where it is not in that tier.
struct Codes {
    std::uint8_t t0 = 0, t1 = 0, t2 = 0;
    std::uint8_t t1_bits = 0, t2_bits = 0;
    bool is_in_t3 = false;
};

template <std::size_t exponents>
[[nodiscard]] std::array<Codes, exponents> codes_of(const Ranking<exponents>& ranking) noexcept {
    std::array<Codes, exponents> codes{};
    for (std::size_t e = 0; e < exponents; ++e) {
        const std::uint32_t r = ranking.rank[e];
        Codes& code = codes[e];
        code.t0 = static_cast<std::uint8_t>((std::min)(r, 3U));
        if (r < 3) { continue; }
        code.t1 = static_cast<std::uint8_t>((std::min)(r - 3, 3U));
        code.t1_bits = 2;
        if (r < 6) { continue; }
        code.t2 = static_cast<std::uint8_t>((std::min)(r - 6, 7U));
        code.t2_bits = 3;
        code.is_in_t3 = r >= 13;
    }
    return codes;
}

/// A value from wherever it lies.
template <class T>
[[nodiscard]] T load(const std::byte* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// 32 bits of a plane, from any bit on. Reads two of its words.
[[nodiscard]] inline std::uint32_t load_bits(const std::byte* plane, std::uint64_t bit) noexcept {
    const std::byte* const word = plane + bit / 32 * 4;
    return static_cast<std::uint32_t>(
        (std::uint64_t{load<std::uint32_t>(word + 4)} << 32 | load<std::uint32_t>(word)) >> bit % 32);
}

/// The values of a lane; zeros behind the end.
template <class F>
void load_lane(const std::byte* raw, std::uint32_t lane, std::uint32_t values,
               std::uint32_t (&words)[F::lane_words]) noexcept {
    constexpr std::uint32_t run = run_values<F>;
    constexpr std::size_t bytes = sizeof(typename F::Value);
    for (std::uint32_t i = 0; i < lane_values; i += run) {
        const std::uint32_t place = place_of<F>(lane, i);
        std::uint32_t* const to = words + i * bytes / 4;
        if (place + run <= values) {
            std::memcpy(to, raw + place * bytes, run * bytes);
        } else {
            std::memset(to, 0, run * bytes);
            if (place < values) { std::memcpy(to, raw + place * bytes, (values - place) * bytes); }
        }
    }
}
template <class F>
void store_lane(const std::uint32_t (&words)[F::lane_words], std::uint32_t lane, std::uint32_t values,
                std::byte* raw) noexcept {
    constexpr std::uint32_t run = run_values<F>, bytes = sizeof(typename F::Value);
    for (std::uint32_t i = 0; i < lane_values; i += run) {
        const std::uint32_t place = place_of<F>(lane, i);
        if (place >= values) { continue; }
        std::byte* const to = raw + std::size_t{place} * bytes;
        if (place + run <= values) {
            std::memcpy(to, words + i * bytes / 4, run * bytes);
        } else {
            std::memcpy(to, words + i * bytes / 4, (values - place) * bytes);
        }
    }
}
/// Calls use(offset, first, count) for each range of a lane's rest: `count` of its words, from `first` on, lie at byte `offset` of the
/// plane S, which has `lanes` lanes.
template <class F, class Use>
void for_each_rest(std::uint32_t lane, std::uint32_t lanes, Use&& use) noexcept {
    use(std::size_t{lane} * F::front_words * 4, 0U, F::front_words);
    if constexpr (F::rest_words > F::front_words) {
        for (std::uint32_t i = 0; i < lane_values; i += run_values<F>) {
            use(std::size_t{lanes} * F::front_words * 4 + std::size_t{2} * place_of<F>(lane, i), F::front_words + i / 2,
                run_values<F> / 2);
        }
    }
}

/// The exponents by their codes: four of T0, four of T1, eight of T2.
[[nodiscard]] inline std::array<std::uint8_t, 16> exponents_by_code(const std::uint32_t (&ranks)[4]) noexcept {
    std::array<std::uint8_t, 16> exponents{};
    for (std::size_t i = 0; i < 16; ++i) { exponents[i] = static_cast<std::uint8_t>(ranks[i / 4] >> 8 * (i % 4)); }
    return exponents;
}

/// The exponents of a lane, as exponents_of_lane says, in the order of the values: for a processor that has no permutation of bytes.
inline void read_lane(std::uint32_t t0, std::uint32_t t1, std::uint64_t t2, const std::array<std::uint8_t, 16>& by_code,
                      std::uint8_t (&exponents)[lane_values]) noexcept {
    for (std::uint32_t i = 0; i < lane_values; ++i) {
        const std::uint32_t code0 = t0 >> (4 * (i % 8) + 2 * (i / 8)) & 3, code1 = t1 & 3;
        const std::uint32_t in_t1 = code0 == 3 ? 1 : 0, in_t2 = in_t1 & (code1 == 3 ? 1U : 0U);
        const std::size_t at = in_t2 != 0 ? 8 + (t2 & 7) : in_t1 != 0 ? 4 + code1 : code0;
        exponents[i] = by_code[at];
        t1 >>= 2 * in_t1;
        t2 >>= 3 * in_t2;
    }
}

}}  // namespace tiers::detail

template <class F>
std::size_t Tiers<F>::pack(const Extents&, std::span<const std::byte> raw, std::span<std::byte> packed) const noexcept {
    using namespace tiers;
    using Value = typename F::Value;
    if (raw.size() > most_raw_bytes) { return 0; }
    const auto values = static_cast<std::uint32_t>(raw.size() / sizeof(Value));
    std::array<std::uint32_t, F::exponent_count> count{};
    {
        std::array<std::array<std::uint32_t, F::exponent_count>, 4>
            counts{};  // in turns, since equal exponents follow each other
        for (std::uint32_t i = 0; i < values; ++i) {
            const std::uint32_t value = tiers::detail::load<Value>(raw.data() + sizeof(Value) * i);
            ++counts[i % 4][value >> F::exponent_bit & (F::exponent_count - 1)];
        }
        for (std::size_t e = 0; e < F::exponent_count; ++e) {
            count[e] = counts[0][e] + counts[1][e] + counts[2][e] + counts[3][e];
        }
    }
    const auto ranking = tiers::detail::rank(count);
    const Layout layout = layout_of<F>(values, ranking.t1_values, ranking.t2_values, ranking.t3_values);
    if (layout.bytes > packed.size()) { return 0; }

    std::byte* const out = packed.data();
    std::memset(out, 0, layout.bytes);
    Header header;
    header.packed = {static_cast<std::uint32_t>(form), version, raw.size(), layout.bytes};
    header.values = values;
    header.index_at = layout.index_at;
    header.t1_at = layout.t1_at;
    header.t2_at = layout.t2_at;
    header.t3_at = layout.t3_at;
    header.t1_values = ranking.t1_values;
    header.t2_values = ranking.t2_values;
    header.t3_values = ranking.t3_values;
    constexpr std::uint32_t first_rank[5] = {0, 3, 6, 10, 13};
    for (std::uint32_t word = 0; word < 4; ++word) {
        for (std::uint32_t r = first_rank[word]; r < first_rank[word + 1]; ++r) {
            header.ranks[word] |= std::uint32_t{ranking.exponent[r]} << 8 * (r - first_rank[word]);
        }
    }
    if (const std::size_t tail = raw.size() % sizeof(Value); tail != 0) {
        std::memcpy(&header.tail, raw.data() + raw.size() - tail, tail);
    }
    std::memcpy(out, &header, sizeof header);

    std::uint32_t begin[3] = {0, 0, 0};  // the next entry of T1, T2, T3
    std::byte* index = out + layout.index_at;
    const auto put_index = [&] {
        std::memcpy(index, begin, sizeof begin);
        index += sizeof begin;
    };
    tiers::detail::BitWriter t1{out + layout.t1_at}, t2{out + layout.t2_at};
    std::byte* t3 = out + layout.t3_at;
    const auto codes = tiers::detail::codes_of(ranking);
    for (std::uint32_t lane = 0; lane < lanes_of<F>(values); ++lane) {
        if (lane % group_lanes == 0) { put_index(); }
        std::uint32_t t0 = 0, bits1 = 0, bits2 = 0, words[F::lane_words], rest[F::rest_words];
        std::uint64_t entries1 = 0, entries2 = 0;
        tiers::detail::load_lane<F>(raw.data(), lane, values, words);
        F::split(words, rest);
        tiers::detail::for_each_rest<F>(lane, layout.groups * group_lanes,
                                        [&](std::size_t at, std::uint32_t first, std::uint32_t some) {
                                            std::memcpy(out + packed_header_bytes + at, rest + first, some * 4);
                                        });
        bool has_t3 = false;
        // Without a branch on the tier: which comes next cannot be predicted.
        for (std::uint32_t i = 0; i < lane_values; ++i) {
            if (place_of<F>(lane, i) >= values) { continue; }
            const tiers::detail::Codes code = codes[exponent_of<F>(words, i)];
            t0 |= std::uint32_t{code.t0} << (4 * (i % 8) + 2 * (i / 8));
            entries1 |= std::uint64_t{code.t1} << bits1;
            entries2 |= std::uint64_t{code.t2} << bits2;
            bits1 += code.t1_bits;
            bits2 += code.t2_bits;
            has_t3 = has_t3 || code.is_in_t3;
        }
        std::memcpy(out + layout.t0_at + std::size_t{4} * lane, &t0, sizeof t0);
        t1.put(entries1, bits1);
        t2.put(entries2, bits2);
        begin[0] += bits1 / 2;
        begin[1] += bits2 / 3;
        for (std::uint32_t i = 0; has_t3 && i < lane_values; ++i) {
            const std::uint32_t exponent = exponent_of<F>(words, i);
            if (place_of<F>(lane, i) >= values || !codes[exponent].is_in_t3) { continue; }
            const auto entry = static_cast<std::uint16_t>(exponent | i << 8);
            std::memcpy(t3 + std::size_t{2} * begin[2]++, &entry, sizeof entry);
        }
    }
    put_index();
    t1.flush();
    t2.flush();
    return layout.bytes;
}

template <class F>
Status Tiers<F>::check(const Extents&, std::span<const std::byte> packed, std::uint64_t raw_bytes) const {
    using namespace tiers;
    Header header;
    if (Status front = codec::detail::check_header(packed, raw_bytes, form, version); !front) { return front; }
    std::memcpy(&header, packed.data(), sizeof header);
    const auto refused = [](std::uint64_t at, const char* what) {
        return Error{ErrorKind::malformed,
                     form_name(static_cast<std::uint32_t>(form)) + ": byte " + std::to_string(at) + ": " + what};
    };
    const std::uint32_t values = header.values;
    if (raw_bytes > most_raw_bytes || values != raw_bytes / sizeof(typename F::Value)) {
        return refused(offsetof(Header, values), "the number of values is not that of the raw bytes");
    }
    for (const std::uint32_t ranks : header.ranks) {
        if ((ranks & ~((F::exponent_count - 1) * 0x01010101U)) != 0) {
            return refused(offsetof(Header, ranks), "an exponent that no value has");
        }
    }
    if (header.t1_values > values || header.t2_values > header.t1_values || header.t3_values > header.t2_values) {
        return refused(offsetof(Header, t1_values), "a tier has more values than the one before it");
    }
    const Layout layout = layout_of<F>(values, header.t1_values, header.t2_values, header.t3_values);
    if (layout.bytes != packed.size() || header.index_at != layout.index_at || header.t1_at != layout.t1_at ||
        header.t2_at != layout.t2_at || header.t3_at != layout.t3_at) {
        return refused(offsetof(Header, index_at), "the planes do not lie where their sizes put them");
    }
    // How many values of a group each tier sends on is where the next group begins: so no lane reads behind a plane.
    const std::byte* const in = packed.data();
    std::uint32_t begin[3] = {0, 0, 0};
    for (std::uint32_t group = 0; group <= layout.groups; ++group) {
        const std::uint32_t at = layout.index_at + 12 * group;
        if (std::memcmp(in + at, begin, sizeof begin) != 0) { return refused(at, "the index does not fit the planes"); }
        if (group == layout.groups) { break; }
        const std::uint32_t t0_at = layout.t0_at + 4 * group * group_lanes;
        std::uint32_t n1 = 0, n2 = 0, n3 = 0;
        for (std::uint32_t lane = 0; lane < group_lanes; ++lane) {
            n1 += entries_in_t1(tiers::detail::load<std::uint32_t>(in + t0_at + std::size_t{4} * lane));
        }
        if (n1 > header.t1_values - begin[0]) {
            return refused(t0_at, "T1 ends before the values that T0 sends there");
        }
        for (std::uint32_t i = 0; i < n1; i += 16) {
            const std::uint32_t entries =
                tiers::detail::load_bits(in + layout.t1_at, std::uint64_t{2} * (begin[0] + i));
            n2 += entries_in_t2(entries, (std::min)(16U, n1 - i));
        }
        if (n2 > header.t2_values - begin[1]) {
            return refused(t0_at, "T2 ends before the values that T1 sends there");
        }
        for (std::uint32_t i = 0; i < n2; i += 10) {
            const std::uint32_t entries =
                tiers::detail::load_bits(in + layout.t2_at, std::uint64_t{3} * (begin[1] + i));
            n3 += static_cast<std::uint32_t>(std::popcount(sent_to_t3(entries, (std::min)(10U, n2 - i))));
        }
        if (n3 > header.t3_values - begin[2]) {
            return refused(t0_at, "T3 ends before the values that T2 sends there");
        }
        for (std::uint32_t i = 0; i < n3; ++i) {
            const std::uint32_t at3 = layout.t3_at + 2 * (begin[2] + i);
            const std::uint32_t entry = tiers::detail::load<std::uint16_t>(in + at3);
            if (entry >> 8 >= lane_values) { return refused(at3, "a place outside its lane"); }
            if ((entry & 255U & ~(F::exponent_count - 1)) != 0) {
                return refused(at3, "an exponent that no value has");
            }
        }
        begin[0] += n1;
        begin[1] += n2;
        begin[2] += n3;
    }
    return {};
}

template <class F>
Status Tiers<F>::unpack(const Extents& extents, std::span<const std::byte> packed, std::span<std::byte> raw) const {
    using namespace tiers;
    if (Status checked = check(extents, packed, raw.size()); !checked) { return checked; }
    Header header;
    std::memcpy(&header, packed.data(), sizeof header);
    const std::uint32_t values = header.values;
    const Layout layout = layout_of<F>(values, header.t1_values, header.t2_values, header.t3_values);
    const std::byte* const in = packed.data();
    const auto by_code = tiers::detail::exponents_by_code(header.ranks);
    std::uint32_t begin[3] = {0, 0, 0};
    for (std::uint32_t lane = 0; lane < lanes_of<F>(values); ++lane) {
        const auto t0 = tiers::detail::load<std::uint32_t>(in + layout.t0_at + std::size_t{4} * lane);
        const std::uint32_t n1 = entries_in_t1(t0);
        const std::uint32_t t1 = tiers::detail::load_bits(in + layout.t1_at, std::uint64_t{2} * begin[0]);
        const std::uint32_t n2 = entries_in_t2(t1, n1);
        const std::uint64_t bit2 = std::uint64_t{3} * begin[1];
        const std::uint32_t high2 = n2 > 10 ? tiers::detail::load_bits(in + layout.t2_at, bit2 + 32) : 0U;
        const std::uint64_t t2 = std::uint64_t{high2} << 32 | tiers::detail::load_bits(in + layout.t2_at, bit2);
        std::uint8_t exponents[lane_values];
        tiers::detail::read_lane(t0, t1, t2, by_code, exponents);
        for (std::uint64_t sent = sent_to_t3(t2, n2); sent != 0; sent &= sent - 1) {
            const std::uint32_t entry =
                tiers::detail::load<std::uint16_t>(in + layout.t3_at + std::size_t{2} * begin[2]++);
            exponents[entry >> 8] = static_cast<std::uint8_t>(entry);
        }
        begin[0] += n1;
        begin[1] += n2;
        std::uint32_t rest[F::rest_words], fours[4], words[F::lane_words];
        tiers::detail::for_each_rest<F>(lane, layout.groups * group_lanes,
                                        [&](std::size_t at, std::uint32_t first, std::uint32_t some) {
                                            std::memcpy(rest + first, in + packed_header_bytes + at, some * 4);
                                        });
        std::memcpy(fours, exponents, sizeof fours);
        F::join(rest, fours, words);
        tiers::detail::store_lane<F>(words, lane, values, raw.data());
    }
    if (const std::size_t tail = raw.size() % sizeof(typename F::Value); tail != 0) {
        std::memcpy(raw.data() + raw.size() - tail, &header.tail, tail);
    }
    return {};
}

#if !RESIDENCY_HEADER_ONLY
template class Tiers<tiers::Bf16>;
template class Tiers<tiers::F8E4m3>;
template class Tiers<tiers::F32>;
#endif

}}}  // namespace residency::RESIDENCY_ABI::codec
