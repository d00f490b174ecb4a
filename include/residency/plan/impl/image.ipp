// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "residency/model/sort.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

inline std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

// Of storages in an image that the planner lays out.
inline std::uint64_t alignment_of(const Problem& problem) {
    return (std::max<std::uint64_t>)(1, (std::min)(problem.alignment_bytes, problem.chunk_bytes));
}

// Readers of each storage, and how many bytes of the image are filled.
inline void find_uses(const Problem& problem, Image& image) {
    image.first_use.assign(problem.storages(), none);
    image.last_use.assign(problem.storages(), none);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (image.first_use[s] == none) { image.first_use[s] = i; }
            image.last_use[s] = i;
        }
    }
}

// By storage, in the order of the image.
enum class Group : std::uint8_t { unread, small_or_kept, read_by_several, others };

// Gives each storage its offset, in the order of `sequence`. `group`: by storage.
inline void place_storages(const Problem& problem, ImageOrder order, const std::vector<std::uint32_t>& sequence,
                           const std::vector<Group>& group, Image& image) {
    const std::uint64_t g = problem.chunk_bytes;
    const std::uint64_t alignment = alignment_of(problem);
    image.offsets.assign(problem.storages(), 0);
    const auto are_of_one_step = [&](std::size_t j, std::size_t k) {
        return image.first_use[sequence[j]] == image.first_use[sequence[k]] && group[sequence[j]] == group[sequence[k]];
    };
    // Of what the step reads first that reads storage k of the sequence first.
    const auto bytes_of_step = [&](std::size_t k) {
        std::uint64_t bytes = 0;
        for (std::size_t j = k; j < sequence.size() && are_of_one_step(j, k); ++j) {
            bytes = round_up(bytes, alignment) + problem.storage_bytes[sequence[j]];
        }
        return bytes;
    };
    const auto begins_step = [&](std::size_t k) { return k == 0 || !are_of_one_step(k, k - 1); };
    std::uint64_t most_chunks = 0;  // that a step needs
    for (std::size_t k = 0; k < sequence.size() && order == ImageOrder::fitted; ++k) {
        if (begins_step(k) && group[sequence[k]] == Group::others) {
            most_chunks = (std::max)(most_chunks, (bytes_of_step(k) + g - 1) / g);
        }
    }
    std::uint64_t at = 0;
    Group group_before = Group::unread;
    for (std::size_t k = 0; k < sequence.size(); ++k) {
        const std::uint32_t s = sequence[k];
        at = round_up(at, group[s] != Group::unread && group_before == Group::unread ? g : alignment);
        if (order == ImageOrder::grouped) {
            if (group[s] == Group::read_by_several || group_before == Group::read_by_several) { at = round_up(at, g); }
        } else if ((order == ImageOrder::aligned || order == ImageOrder::fitted) && group[s] == Group::others &&
                   begins_step(k)) {
            const std::uint64_t bytes = bytes_of_step(k);
            const std::uint64_t least = order == ImageOrder::fitted ? most_chunks : (bytes + g - 1) / g;
            if (bytes != 0 && (at % g + bytes + g - 1) / g > least) { at = round_up(at, g); }
        }
        group_before = group[s];
        image.offsets[s] = at;
        at += problem.storage_bytes[s];
        image.bytes = (std::max)(image.bytes, at);
    }
}

// Appends the chunks of a storage. It may share its first chunk with the storage before.
inline void append_cell(std::vector<Cell>& cells, Cell cell) {
    if (!cells.empty() && cells.back().chunk_end > cell.chunk_begin) {
        if (cells.back().chunks() > 1) {
            Cell last = cells.back();
            last.chunk_begin = last.chunk_end - 1;
            --cells.back().chunk_end;
            cells.push_back(last);
        }
        Cell& shared = cells.back();
        if (cell.first != none) {
            shared.first = (std::min)(shared.first, cell.first);
            shared.last = shared.last == none ? cell.last : (std::max)(shared.last, cell.last);
        }
        shared.keep = shared.keep || cell.keep;
        ++cell.chunk_begin;
    }
    if (cell.chunk_begin < cell.chunk_end) { cells.push_back(cell); }
}

}  // namespace detail

RESIDENCY_INLINE Image lay_out(const Problem& problem, ImageOrder order) {
    Image image;
    image.order = order;
    image.chunk_bytes = problem.chunk_bytes;
    detail::find_uses(problem, image);
    const std::uint32_t count = problem.storages();
    const std::uint64_t g = problem.chunk_bytes;
    std::vector<bool> kept(count, false);
    for (const std::uint32_t s : problem.kept) { kept[s] = true; }
    if (order == ImageOrder::given) { image.offsets = problem.image_offsets; }

    const auto is_unread = [&](std::uint32_t s) { return image.first_use[s] == none && !kept[s]; };
    // By group, then by offset where that is given, else by first use.
    std::vector<detail::Group> group(count, detail::Group::others);
    for (std::uint32_t s = 0; s < count && order != ImageOrder::given; ++s) {
        const bool is_small = problem.storage_bytes[s] * tuning::small_storages_per_chunk < g;
        const bool is_in_order_of_use = order == ImageOrder::sequence || order == ImageOrder::fitted;
        if (is_unread(s)) {
            group[s] = detail::Group::unread;
        } else if (order == ImageOrder::aligned) {
            continue;
        } else if (kept[s] || (is_small && !is_in_order_of_use)) {
            group[s] = detail::Group::small_or_kept;
        } else if (image.last_use[s] != image.first_use[s] && !is_in_order_of_use) {
            group[s] = detail::Group::read_by_several;
        }
    }
    std::vector<std::uint32_t> sequence(count);
    for (std::uint32_t s = 0; s < count; ++s) { sequence[s] = s; }
    residency::detail::sort(sequence, [&](std::uint32_t a, std::uint32_t b) {
        if (group[a] != group[b]) { return group[a] < group[b]; }
        if (order == ImageOrder::given) {
            return image.offsets[a] != image.offsets[b] ? image.offsets[a] < image.offsets[b] : a < b;
        }
        return image.first_use[a] != image.first_use[b] ? image.first_use[a] < image.first_use[b] : a < b;
    });
    if (order == ImageOrder::given) {
        for (std::uint32_t s = 0; s < count; ++s) {
            image.bytes = (std::max)(image.bytes, image.offsets[s] + problem.storage_bytes[s]);
        }
    } else {
        detail::place_storages(problem, order, sequence, group, image);
    }

    std::uint64_t chunks_with_bytes = 0;
    std::uint32_t end = 0;
    for (const std::uint32_t s : sequence) {
        if (problem.storage_bytes[s] == 0) { continue; }
        const Chunks range = chunks_of(image.offsets[s], image.offsets[s] + problem.storage_bytes[s], g);
        chunks_with_bytes += range.last - (std::min)(range.last, (std::max)(range.first, end));
        end = range.last;
        if (is_unread(s)) { continue; }
        detail::append_cell(image.cells, {range.first, range.last, image.first_use[s], image.last_use[s], kept[s]});
    }
    image.unread_chunks = chunks_with_bytes - image.filled_chunks();
    return image;
}

RESIDENCY_INLINE std::vector<Image> candidate_images(const Problem& problem) {
    if (!problem.image_offsets.empty()) { return {lay_out(problem, ImageOrder::given)}; }
    std::vector<Image> images{lay_out(problem, ImageOrder::grouped), lay_out(problem, ImageOrder::aligned)};
    Image packed = lay_out(problem, ImageOrder::packed);
    if (packed.bytes != images[0].bytes) { images.push_back(std::move(packed)); }
    if (images[0].filled_chunks() <= tuning::slots_most_chunks) {
        for (const ImageOrder order : {ImageOrder::sequence, ImageOrder::fitted}) {
            Image image = lay_out(problem, order);
            const auto same = std::find_if(images.begin(), images.end(),
                                           [&](const Image& other) { return other.offsets == image.offsets; });
            if (same == images.end()) {
                images.push_back(std::move(image));
            } else if (same != images.begin() && order == ImageOrder::sequence) {
                same->order = order;  // considered as what it is as well
            }
        }
    }
    return images;
}

RESIDENCY_INLINE Image lay_out_as_sources(const Problem& problem, std::span<const std::uint64_t> source_offsets) {
    std::vector<std::uint32_t> order(problem.storages());
    for (std::uint32_t s = 0; s < problem.storages(); ++s) { order[s] = s; }
    residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        return source_offsets[a] != source_offsets[b] ? source_offsets[a] < source_offsets[b] : a < b;
    });
    Problem given = problem;
    given.image_offsets.assign(problem.storages(), 0);
    std::uint64_t at = 0;
    for (const std::uint32_t s : order) {
        at = detail::round_up(at, detail::alignment_of(problem));
        given.image_offsets[s] = at;
        at += problem.storage_bytes[s];
    }
    return lay_out(given, ImageOrder::given);
}

RESIDENCY_INLINE FloorChunks floor_chunks(const Image& image, std::uint32_t steps) {
    std::vector<std::int64_t> change(steps + std::size_t{1}, 0);
    std::int64_t kept = 0;
    for (const Cell& cell : image.cells) {
        if (cell.keep) {
            kept += cell.chunks();
        } else {
            change[cell.first] += cell.chunks();
            change[cell.last + 1] -= cell.chunks();
        }
    }
    FloorChunks floor{static_cast<std::uint64_t>(kept), none, static_cast<std::uint64_t>(kept)};
    std::int64_t live = kept;
    for (std::uint32_t i = 0; i < steps; ++i) {
        live += change[i];
        if (static_cast<std::uint64_t>(live) <= floor.chunks) { continue; }
        floor.chunks = static_cast<std::uint64_t>(live);
        floor.step = i;
    }
    return floor;
}

RESIDENCY_INLINE std::uint64_t chunks_at_once(const Problem& problem, const Image& image, std::uint32_t count) {
    std::uint64_t sum = image.kept_chunks();
    std::vector<bool> kept(problem.storages(), false);
    for (const std::uint32_t s : problem.kept) { kept[s] = true; }
    std::vector<std::uint32_t> chunks;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (kept[s] || problem.storage_bytes[s] == 0) { continue; }
        const Chunks range =
            chunks_of(image.offsets[s], image.offsets[s] + problem.storage_bytes[s], image.chunk_bytes);
        chunks.push_back(range.last - range.first);
    }
    residency::detail::sort(chunks, std::greater<>{});
    for (std::size_t k = 0; k < chunks.size() && k < count; ++k) { sum += chunks[k]; }
    return sum;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
