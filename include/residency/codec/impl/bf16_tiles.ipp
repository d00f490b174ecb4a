// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/packed_header.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

namespace bf16_tiles { namespace detail {

/// The tiles of a matrix.
struct Grid {
    std::uint32_t row_groups = 0, tiles_across = 0, tiles = 0;
    std::uint32_t escape_groups = 0;
};

/// None where the numbers do not fit 32 bits, or the matrix is empty.
[[nodiscard]] inline std::optional<Grid> grid_of(std::uint64_t rows, std::uint64_t columns) noexcept {
    constexpr std::uint64_t most = std::uint64_t{1} << 31;
    if (rows == 0 || columns == 0 || rows > most || columns > most) { return std::nullopt; }
    const std::uint64_t groups = (rows + tile_rows - 1) / tile_rows;
    constexpr std::uint64_t two_tiles = std::uint64_t{2} * tile_columns;
    const std::uint64_t across = (columns + two_tiles - 1) / two_tiles * 2;
    if (groups * across > most / 2) { return std::nullopt; }
    return Grid{static_cast<std::uint32_t>(groups), static_cast<std::uint32_t>(across),
                static_cast<std::uint32_t>(groups * across),
                static_cast<std::uint32_t>((groups * across + escape_tiles - 1) / escape_tiles)};
}

/// How the values of a matrix are coded.
struct Window {
    std::int32_t shift = 0;
    std::uint32_t constant = 0;  ///< of one half
};

[[nodiscard]] constexpr Window window_of(std::uint32_t upper_bits, std::int32_t shift) noexcept {
    return {shift, upper_bits << 11};
}

/// The window with the fewest escapes. `count`: by exponent, how many values have it. Ties go to the lowest window. A window that is
/// shifted is chosen only where every value keeps its meaning: `has_denormals` says that it does not.
[[nodiscard]] inline Window choose_window(const std::array<std::uint64_t, 256>& count, bool has_denormals) noexcept {
    const auto covered = [&](std::uint32_t top) {
        std::uint64_t sum = 0;
        for (std::uint32_t e = top - 14; e <= top; ++e) { sum += count[e]; }
        return sum;
    };
    std::uint32_t top = 15;
    for (std::uint32_t t = 16; t < 255; ++t) {
        if (covered(t) > covered(top)) { top = t; }
    }
    const std::uint32_t upper = (std::min)((top + 8) >> 4, 14U);
    const auto shift = static_cast<std::int32_t>(16 * upper + 15) - static_cast<std::int32_t>(top);
    bool is_possible = !has_denormals && count[255] == 0;
    for (std::int32_t e = 1; e < 255; ++e) {
        is_possible = is_possible && (count[static_cast<std::size_t>(e)] == 0 || (e + shift >= 1 && e + shift <= 254));
    }
    if (is_possible) { return window_of(upper, shift); }
    std::uint32_t best = 0;
    for (std::uint32_t k = 1; k < 16; ++k) {
        if (covered(16 * k + 15) > covered(16 * best + 15)) { best = k; }
    }
    return window_of(best, 0);
}

/// How many blocks hold `entries` entries of one group.
[[nodiscard]] constexpr std::uint32_t blocks_of(std::uint32_t entries) noexcept {
    return entries <= escape_entries ? 1 : 1 + (entries - escape_entries + escape_entries - 2) / (escape_entries - 1);
}

/// Reads the values of a matrix by tile.
class MatrixView {
public:
    MatrixView(std::uint64_t rows, std::uint64_t columns, const Grid& grid) noexcept
        : rows_{rows}, columns_{columns}, across_{grid.tiles_across} {}

    /// Calls visit(lane, pair, half, index) for each half of a tile in the order of its lanes and pairs. `index`: of the value, row
    /// by row; none where the matrix ends before it.
    template <class Visit>
    void visit_tile(std::uint32_t tile, Visit&& visit) const {
        const std::uint64_t first_row = std::uint64_t{tile / across_} * tile_rows;
        const std::uint64_t first_column = std::uint64_t{tile % across_} * tile_columns;
        for (std::uint32_t lane = 0; lane < 32; ++lane) {
            for (std::uint32_t pair = 0; pair < 16; ++pair) {
                const std::uint64_t row = first_row + lane / 4 + std::uint64_t{pair / 8} * 8;
                const std::uint64_t column =
                    first_column + std::uint64_t{16} * (lane % 4) + std::uint64_t{pair % 8} * 2;
                for (std::uint32_t half = 0; half < 2; ++half) {
                    visit(lane, pair, half,
                          row < rows_ && column + half < columns_ ? std::optional{row * columns_ + column + half}
                                                                  : std::nullopt);
                }
            }
        }
    }

private:
    std::uint64_t rows_, columns_;
    std::uint32_t across_;
};

[[nodiscard]] inline std::uint32_t value_at(const std::byte* raw, std::uint64_t index) noexcept {
    std::uint16_t value;
    std::memcpy(&value, raw + 2 * index, sizeof value);
    return value;
}
/// A word of an escape block.
[[nodiscard]] inline std::uint32_t entry_at(const std::byte* block, std::uint32_t index) noexcept {
    std::uint32_t entry;
    std::memcpy(&entry, block + std::size_t{4} * index, sizeof entry);
    return entry;
}
/// The offset in a tile of word `word` of a lane.
[[nodiscard]] constexpr std::size_t word_at(std::uint32_t lane, std::uint32_t word) noexcept {
    return std::size_t{word / 4 * 32 + lane} * 16 + std::size_t{word % 4} * 4;
}

/// The window for the values of a matrix.
[[nodiscard]] inline Window window_for(std::span<const std::byte> raw) noexcept {
    std::array<std::uint64_t, 256> count{};
    bool has_denormals = false;
    for (std::size_t i = 0; i < raw.size() / 2; ++i) {
        const std::uint32_t value = value_at(raw.data(), i);
        ++count[value >> 7 & 255];
        has_denormals = has_denormals || ((value >> 7 & 255) == 0 && (value & 127) != 0);
    }
    return choose_window(count, has_denormals);
}

/// Writes escapes into blocks: each group of tiles has one, and links lead to more where it needs them.
class EscapeWriter {
public:
    /// Precondition: `room` has the blocks of all groups.
    EscapeWriter(std::span<std::byte> room, std::uint32_t groups) noexcept : room_{room}, blocks_{groups} {}

    void begin_group(std::uint32_t group) noexcept {
        block_ = group;
        used_ = 0;
        std::memset(block_at(block_), 0, escape_block_bytes);
    }
    /// False: there is no room for it.
    [[nodiscard]] bool add(std::uint32_t entry) noexcept {
        if (used_ == escape_entries && !add_block()) { return false; }
        std::memcpy(block_at(block_) + std::size_t{4} * used_++, &entry, sizeof entry);
        return true;
    }
    [[nodiscard]] std::uint32_t blocks() const noexcept { return blocks_; }

private:
    /// The last entry of a full block moves to the next one, and a link takes its place.
    [[nodiscard]] bool add_block() noexcept {
        const std::uint32_t next = blocks_;
        if ((std::uint64_t{next} + 1) * escape_block_bytes > room_.size()) { return false; }
        ++blocks_;
        std::byte* const last = block_at(block_) + escape_block_bytes - 4;
        std::memset(block_at(next), 0, escape_block_bytes);
        std::memcpy(block_at(next), last, 4);
        std::memcpy(last, &next, sizeof next);
        block_ = next;
        used_ = 1;
        return true;
    }
    [[nodiscard]] std::byte* block_at(std::uint32_t block) const noexcept {
        return room_.data() + std::size_t{block} * escape_block_bytes;
    }

    std::span<std::byte> room_;
    std::uint32_t blocks_;                // in all
    std::uint32_t block_ = 0, used_ = 0;  // the block at hand, and its entries so far
};

/// Writes the words of one tile to `to`, and its escapes. False: there is no room for these.
[[nodiscard]] inline bool pack_tile(const MatrixView& matrix, std::uint32_t tile, const std::byte* raw,
                                    const Window& window, std::byte* to, EscapeWriter& escapes) noexcept {
    bool fits = true;
    std::uint32_t pairs[16] = {};
    matrix.visit_tile(
        tile, [&](std::uint32_t lane, std::uint32_t pair, std::uint32_t half, std::optional<std::uint64_t> index) {
            if (!fits) { return; }
            std::uint32_t coded = 1U << 7;  // where the matrix ends
            if (index) {
                const std::uint32_t stored = shifted(value_at(raw, *index), window.shift);
                coded = stored & (half_mask & 0xffffU);
                if (!has_code(stored, window.constant)) {
                    coded = 0;
                    fits = escapes.add(entry_of(tile, place_of(lane, pair, half), stored));
                    if (!fits) { return; }
                }
            }
            pairs[pair] = half == 0 ? coded : pairs[pair] | coded << 16;
            if (pair == 15 && half == 1) {
                std::uint32_t words[packed_words];
                words_of_lane(pairs, words);
                for (std::uint32_t i = 0; i < packed_words; ++i) {
                    std::memcpy(to + word_at(lane, i), &words[i], sizeof words[i]);
                }
            }
        });
    return fits;
}

/// Writes the tiles with codes, and the escapes behind them. The bytes of it all, which the header says then; 0 where `out` is too small.
[[nodiscard]] inline std::uint64_t pack_coded(const MatrixView& matrix, const Grid& grid,
                                              std::span<const std::byte> raw, std::span<std::byte> out,
                                              Header& header) noexcept {
    const Window window = window_for(raw);
    header.words = packed_words;
    header.shift = window.shift;
    header.constant = window.constant << 16 | window.constant;
    header.escapes_at = packed_header_bytes + std::uint64_t{grid.tiles} * tile_bytes(packed_words);
    if (header.escapes_at + std::uint64_t{grid.escape_groups} * escape_block_bytes > out.size()) { return 0; }
    EscapeWriter escapes{out.subspan(static_cast<std::size_t>(header.escapes_at)), grid.escape_groups};
    for (std::uint32_t tile = 0; tile < grid.tiles; ++tile) {
        if (tile % escape_tiles == 0) { escapes.begin_group(tile / escape_tiles); }
        std::byte* const to = out.data() + packed_header_bytes + std::uint64_t{tile} * tile_bytes(packed_words);
        if (!pack_tile(matrix, tile, raw.data(), window, to, escapes)) { return 0; }
    }
    header.escape_blocks = escapes.blocks();
    return header.escapes_at + std::uint64_t{header.escape_blocks} * escape_block_bytes;
}

/// Writes the tiles with the values as they are. The bytes of it all, which the header says then. Precondition: `out` has room for them.
[[nodiscard]] inline std::uint64_t pack_plain(const MatrixView& matrix, const Grid& grid,
                                              std::span<const std::byte> raw, std::span<std::byte> out,
                                              Header& header) noexcept {
    header.words = plain_words;
    header.shift = 0;
    header.constant = 0;
    header.escape_blocks = 0;
    header.escapes_at = packed_header_bytes + std::uint64_t{grid.tiles} * tile_bytes(plain_words);
    for (std::uint32_t tile = 0; tile < grid.tiles; ++tile) {
        std::byte* const to = out.data() + packed_header_bytes + std::uint64_t{tile} * tile_bytes(plain_words);
        matrix.visit_tile(
            tile, [&](std::uint32_t lane, std::uint32_t pair, std::uint32_t half, std::optional<std::uint64_t> index) {
                const auto value = static_cast<std::uint16_t>(index ? value_at(raw.data(), *index) : 0);
                std::memcpy(to + std::size_t{2} * place_of(lane, pair, half), &value, sizeof value);
            });
    }
    return header.escapes_at;
}

}}  // namespace bf16_tiles::detail

RESIDENCY_INLINE std::optional<std::uint64_t> Bf16Tiles::plain_bytes(const Extents& extents) noexcept {
    const auto grid = bf16_tiles::detail::grid_of(extents.rows, extents.columns);
    if (!grid) { return std::nullopt; }
    return packed_header_bytes + std::uint64_t{grid->tiles} * bf16_tiles::tile_bytes(bf16_tiles::plain_words);
}

RESIDENCY_INLINE std::size_t Bf16Tiles::pack(const Extents& extents, std::span<const std::byte> raw,
                                             std::span<std::byte> packed) const noexcept {
    using namespace bf16_tiles;
    const auto grid = bf16_tiles::detail::grid_of(extents.rows, extents.columns);
    if (!grid || raw.size() != extents.rows * extents.columns * 2) { return 0; }
    const bf16_tiles::detail::MatrixView matrix{extents.rows, extents.columns, *grid};
    Header header;
    header.rows = static_cast<std::uint32_t>(extents.rows);
    header.columns = static_cast<std::uint32_t>(extents.columns);
    header.row_groups = grid->row_groups;
    header.tiles_across = grid->tiles_across;
    const std::uint64_t plain = *plain_bytes(extents);
    // Where packing does not gain, plain tiles are better: their kernel does not look for escapes.
    const std::span out = packed.first(static_cast<std::size_t>((std::min<std::uint64_t>)(packed.size(), plain)));
    std::uint64_t bytes = bf16_tiles::detail::pack_coded(matrix, *grid, raw, out, header);
    if (bytes == 0) {
        if (plain > packed.size()) { return 0; }
        bytes = bf16_tiles::detail::pack_plain(matrix, *grid, raw, out, header);
    }
    header.packed = {static_cast<std::uint32_t>(form), version, raw.size(), bytes};
    std::memset(out.data(), 0, packed_header_bytes);
    std::memcpy(out.data(), &header, sizeof header);
    return static_cast<std::size_t>(bytes);
}

RESIDENCY_INLINE Status Bf16Tiles::check(const Extents& extents, std::span<const std::byte> packed,
                                         std::uint64_t raw_bytes) const {
    using namespace bf16_tiles;
    if (Status front = codec::detail::check_header(packed, raw_bytes, form, version); !front) { return front; }
    Header header;
    std::memcpy(&header, packed.data(), sizeof header);
    const auto refused = [](std::uint64_t at, const char* what) {
        return Error{ErrorKind::malformed, "bf16_tiles: byte " + std::to_string(at) + ": " + what};
    };
    if (header.rows != extents.rows || header.columns != extents.columns) {
        return Error{ErrorKind::mismatch, "bf16_tiles: a matrix of " + std::to_string(header.rows) + " × " +
                                              std::to_string(header.columns) + " was packed, one of " +
                                              std::to_string(extents.rows) + " × " + std::to_string(extents.columns) +
                                              " is asked for"};
    }
    const auto grid = bf16_tiles::detail::grid_of(extents.rows, extents.columns);
    if (!grid || raw_bytes != extents.rows * extents.columns * 2 || header.row_groups != grid->row_groups ||
        header.tiles_across != grid->tiles_across) {
        return refused(offsetof(Header, rows), "the number of tiles is not that of the matrix");
    }
    const bool is_plain = header.words == plain_words;
    if (!is_plain && header.words != packed_words) {
        return refused(offsetof(Header, words), "a lane has 12 or 16 words");
    }
    const std::uint64_t blocks_bytes = std::uint64_t{header.escape_blocks} * escape_block_bytes;
    if (header.escapes_at != packed_header_bytes + std::uint64_t{grid->tiles} * tile_bytes(header.words) ||
        header.escapes_at + blocks_bytes != packed.size() ||
        (is_plain ? header.escape_blocks != 0 || header.shift != 0
                  : header.escape_blocks < grid->escape_groups || header.shift < -255 || header.shift > 255)) {
        return refused(offsetof(Header, shift), "shift, escapes and sizes do not fit together");
    }
    if (is_plain) { return {}; }
    // Each escape block but the first ones is linked to once, in their order: so no reader goes in circles.
    std::uint32_t next_link = grid->escape_groups;
    for (std::uint32_t group = 0; group < grid->escape_groups; ++group) {
        std::uint32_t block = group;
        for (bool goes_on = true; goes_on;) {
            goes_on = false;
            const std::uint64_t at = header.escapes_at + std::uint64_t{block} * escape_block_bytes;
            for (std::uint32_t i = 0; i < escape_entries; ++i) {
                const std::uint32_t entry = bf16_tiles::detail::entry_at(packed.data() + at, i);
                if (!is_link(entry)) { continue; }
                if (i + 1 != escape_entries || entry != next_link || entry >= header.escape_blocks) {
                    return refused(at + std::uint64_t{4} * i, "a link that does not lead to the next block");
                }
                block = next_link++;
                goes_on = true;
            }
        }
    }
    if (next_link != header.escape_blocks) {
        return refused(offsetof(Header, escape_blocks), "escape blocks that nothing leads to");
    }
    return {};
}

RESIDENCY_INLINE Status Bf16Tiles::unpack(const Extents& extents, std::span<const std::byte> packed,
                                          std::span<std::byte> raw) const {
    using namespace bf16_tiles;
    if (Status checked = check(extents, packed, raw.size()); !checked) { return checked; }
    Header header;
    std::memcpy(&header, packed.data(), sizeof header);
    const bf16_tiles::detail::Grid grid = *bf16_tiles::detail::grid_of(extents.rows, extents.columns);
    const bool is_plain = header.words == plain_words;
    const bf16_tiles::detail::MatrixView matrix{extents.rows, extents.columns, grid};
    std::uint32_t patch[32][16];
    for (std::uint32_t tile = 0; tile < grid.tiles; ++tile) {
        const std::byte* const from =
            packed.data() + packed_header_bytes + std::uint64_t{tile} * tile_bytes(header.words);
        std::uint32_t pairs[32][16];
        if (!is_plain) {
            for (auto& lane : patch) { std::fill(std::begin(lane), std::end(lane), header.constant); }
            for (std::uint32_t block = tile / escape_tiles;;) {
                const std::byte* const entries =
                    packed.data() + header.escapes_at + std::uint64_t{block} * escape_block_bytes;
                for (std::uint32_t i = 0; i < escape_entries; ++i) {
                    const std::uint32_t entry = bf16_tiles::detail::entry_at(entries, i);
                    if (!is_entry(entry) || (entry >> 26 & 31) != tile % escape_tiles) { continue; }
                    const std::uint32_t place = entry >> 16 & 1023, at_pair = place / 2;
                    std::uint32_t& word = patch[at_pair / 4 % 32][at_pair / 128 * 4 + at_pair % 4];
                    word = place % 2 == 0 ? (word & 0xffff0000U) | (entry & 0xffffU) : (word & 0xffffU) | entry << 16;
                }
                const std::uint32_t link = bf16_tiles::detail::entry_at(entries, escape_entries - 1);
                if (!is_link(link)) { break; }
                block = link;
            }
        }
        for (std::uint32_t lane = 0; lane < 32; ++lane) {
            if (is_plain) {
                for (std::uint32_t i = 0; i < plain_words; ++i) {
                    std::memcpy(&pairs[lane][i], from + bf16_tiles::detail::word_at(lane, i), 4);
                }
            } else {
                std::uint32_t words[packed_words];
                for (std::uint32_t i = 0; i < packed_words; ++i) {
                    std::memcpy(&words[i], from + bf16_tiles::detail::word_at(lane, i), 4);
                }
                pairs_of_lane(words, patch[lane], pairs[lane]);
            }
        }
        matrix.visit_tile(
            tile, [&](std::uint32_t lane, std::uint32_t pair, std::uint32_t half, std::optional<std::uint64_t> index) {
                if (!index) { return; }
                const auto value =
                    static_cast<std::uint16_t>(shifted_back(pairs[lane][pair] >> 16 * half & 0xffffU, header.shift));
                std::memcpy(raw.data() + 2 * *index, &value, sizeof value);
            });
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::codec
