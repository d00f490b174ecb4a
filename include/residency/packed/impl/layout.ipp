// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/sort.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/rounding.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

namespace detail {

/// How often each storage is read; 0: it is not unpacked, or no step reads it.
inline std::vector<std::uint32_t> unpackings(const UnpackProblem& problem) {
    std::vector<std::uint32_t> reads(problem.unpacked_bytes.size(), 0);
    for (const std::uint32_t s : problem.step_storages) {
        if (problem.unpacked_bytes[s] > 0) { ++reads[s]; }
    }
    return reads;
}

/// What may stay, in the order in which it is tried: a few steps with much to unpack, whose weights set how much memory the others share,
/// and then a share of the rest that is the same everywhere in the pass.
class StayFamilies {
public:
    explicit StayFamilies(const UnpackProblem& problem) : problem_{problem}, reads_{unpackings(problem)} {
        std::vector<std::uint64_t> bytes(problem.steps(), 0);
        for (std::uint32_t i = 0; i < problem.steps(); ++i) {
            for (const std::uint32_t s : problem.reads(i)) { bytes[i] += problem.unpacked_bytes[s]; }
        }
        wide_.resize(problem.steps());
        std::iota(wide_.begin(), wide_.end(), 0U);
        residency::detail::sort(wide_, [&](std::uint32_t a, std::uint32_t b) {
            return bytes[a] != bytes[b] ? bytes[a] > bytes[b] : a < b;
        });
        std::vector<bool> seen(problem.unpacked_bytes.size(), false);
        for (const std::uint32_t s : problem.step_storages) {
            if (reads_[s] > 0 && !seen[s]) {
                seen[s] = true;
                order_.push_back(s);
            }
        }
    }
    [[nodiscard]] std::uint32_t steps() const noexcept { return problem_.steps(); }
    /// The storages of the `wide` widest steps, and `share` of the bytes of the others.
    [[nodiscard]] std::vector<bool> stays(std::uint32_t wide, double share) const {
        std::vector<bool> result = problem_.must_stay;
        result.resize(problem_.unpacked_bytes.size(), false);
        for (std::size_t s = 0; s < result.size(); ++s) { result[s] = result[s] && problem_.unpacked_bytes[s] > 0; }
        for (std::uint32_t i = 0; i < wide && i < wide_.size(); ++i) {
            for (const std::uint32_t s : problem_.reads(wide_[i])) {
                if (reads_[s] > 0) { result[s] = true; }
            }
        }
        double due = 0;
        for (const std::uint32_t s : order_) {
            if (result[s]) { continue; }
            const auto bytes = static_cast<double>(problem_.unpacked_bytes[s]);
            due += share * bytes;
            if (due >= bytes * 0.5 && share > 0) {
                result[s] = true;
                due -= bytes;
            }
        }
        return result;
    }

private:
    const UnpackProblem& problem_;
    std::vector<std::uint32_t> reads_;
    std::vector<std::uint32_t> wide_;   // steps, those with the most bytes first
    std::vector<std::uint32_t> order_;  // storages, by first use
};

/// What is left to plan beside a layout, without a budget.
inline plan::Problem rest_of(const UnpackProblem& problem, const UnpackLayout& layout) {
    plan::Problem rest = problem.travels;
    for (std::size_t s = 0; s < layout.stays.size(); ++s) {
        if (layout.stays[s]) { rest.storage_bytes[s] = 0; }
    }
    if (problem.keeps_image && rest.image_offsets.empty()) {
        const plan::Image aligned = plan::lay_out(rest, plan::ImageOrder::aligned);
        const plan::Image grouped = plan::lay_out(rest, plan::ImageOrder::grouped);
        const auto floor = [&](const plan::Image& image) { return plan::floor_chunks(image, rest.steps()).chunks; };
        rest.image_offsets = floor(aligned) < floor(grouped) ? aligned.offsets : grouped.offsets;
    }
    // The first step of a pass that reads a storage unpacks it: those that others read too have places of their own.
    std::vector<bool> is_unpacked = layout.stays;
    rest.compute_seconds.resize(problem.steps(), 0.0);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t s : problem.reads(i)) {
            if (!is_unpacked[s]) { bytes += problem.unpacked_bytes[s]; }
            is_unpacked[s] = true;
        }
        if (bytes > 0) {
            rest.compute_seconds[i] +=
                problem.launch_seconds + static_cast<double>(bytes) / problem.unpacked_bytes_per_second;
        }
    }
    return rest;
}

/// What a layout leaves to plan, and about how long a pass takes. Errors: of a malformed problem. None: the budget is too small.
inline Result<std::optional<UnpackChoice>> sketch(const UnpackProblem& problem, std::vector<bool> stays,
                                                  std::uint64_t budget_bytes) {
    UnpackChoice result;
    result.layout = lay_out(problem, std::move(stays));
    result.rest = rest_of(problem, result.layout);
    const auto floor = plan::chunk_floor(result.rest, problem.storages_at_once);
    if (!floor) { return floor.error(); }
    result.floor_bytes = floor->floor_bytes;
    if (result.layout.bytes > budget_bytes || floor->floor_bytes > budget_bytes - result.layout.bytes) {
        return std::optional<UnpackChoice>{};
    }
    plan::Problem& rest = result.rest;
    rest.budget_bytes = budget_bytes - result.layout.bytes;
    // The time of the link or of the kernels, whichever is longer: a ring takes about the floor of the budget.
    const std::uint64_t resident =
        rest.budget_bytes >= floor->everything_bytes ? floor->everything_bytes : rest.budget_bytes - floor->floor_bytes;
    const double link = floor->everything_bytes > resident
                            ? static_cast<double>(floor->everything_bytes - resident) / rest.link.bytes_per_second
                            : 0.0;
    const double kernels = std::accumulate(rest.compute_seconds.begin(), rest.compute_seconds.end(), 0.0);
    result.seconds = (std::max)(link, kernels) + 1e-3 * (std::min)(link, kernels);
    return std::optional{std::move(result)};
}

/// A layout of a family, with what is known of it.
struct Sketch {
    std::uint32_t wide = 0;
    double share = 0;
    UnpackChoice choice;
};

/// What else may stay is tried in so few storages one by one.
inline constexpr std::size_t few_storages = 256;

/// The same, where of the storages that may stay each that still fits stays too, in the order of their first use.
inline Result<UnpackChoice> fill_up(const UnpackProblem& problem, UnpackChoice choice, std::uint64_t budget_bytes) {
    std::vector<bool> stays = choice.layout.stays;
    for (const std::uint32_t s : problem.step_storages) {
        if (stays[s] || problem.unpacked_bytes[s] == 0) { continue; }
        stays[s] = true;
        auto one = sketch(problem, stays, budget_bytes);
        if (!one) { return one.error(); }
        if (*one) {
            choice = std::move(**one);
        } else {
            stays[s] = false;
        }
    }
    return choice;
}

inline Error no_layout(std::uint64_t budget_bytes) {
    return {ErrorKind::budget, "no layout of packed weights fits into " + std::to_string(budget_bytes) + " bytes"};
}

inline constexpr std::uint32_t wide_steps[] = {0, 1, 2, 4, 8};

}  // namespace detail

RESIDENCY_INLINE UnpackLayout lay_out(const UnpackProblem& problem, std::vector<bool> stays) {
    const std::size_t storages = problem.unpacked_bytes.size();
    UnpackLayout layout;
    layout.offset.assign(storages, UnpackLayout::none);
    layout.stays = std::move(stays);
    layout.stays.resize(storages, false);
    const std::vector<std::uint32_t> reads = detail::unpackings(problem);
    const auto size = [&](std::uint32_t s) { return UnpackLayout::place_bytes(problem.unpacked_bytes[s]); };
    std::uint64_t end = 0;
    const auto place = [&](std::uint32_t s) {
        layout.offset[s] = end;
        end += size(s);
    };
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (layout.stays[s]) { place(s); }
    }
    // What several steps read has a place that nothing shares: it may be there with any other.
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (!layout.stays[s] && reads[s] > 1) { place(s); }
    }
    layout.shared_at = end;
    // Steps that follow one another take turns in leases_at_once lanes.
    const std::uint32_t lanes = (std::max)(1U, (std::min)(problem.leases_at_once, problem.steps()));
    std::vector<std::uint64_t> width(lanes, 0);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t s : problem.reads(i)) {
            if (!layout.stays[s] && reads[s] == 1) { bytes += size(s); }
        }
        width[i % lanes] = (std::max)(width[i % lanes], bytes);
    }
    std::vector<std::uint64_t> begin(lanes, 0);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        begin[lane] = end;
        end += width[lane];
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::uint64_t at = begin[i % lanes];
        for (const std::uint32_t s : problem.reads(i)) {
            if (layout.stays[s] || reads[s] != 1) { continue; }
            layout.offset[s] = at;
            at += size(s);
        }
    }
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (layout.stays[s] || reads[s] > 0 || problem.unpacked_bytes[s] == 0) { continue; }
        if (size(s) <= end - layout.shared_at) { layout.offset[s] = layout.shared_at; }
    }
    layout.table_at = end;
    if (end > 0) { layout.bytes = pool::round_up(end + problem.table_bytes, problem.granule_bytes); }
    return layout;
}

RESIDENCY_INLINE Result<std::uint64_t> unpack_floor(const UnpackProblem& problem) {
    const detail::StayFamilies families{problem};
    std::uint64_t least = UINT64_MAX;
    for (const std::uint32_t wide : detail::wide_steps) {
        if (wide > problem.steps()) { break; }
        for (const double share : {0.0, 1.0}) {
            const UnpackLayout layout = lay_out(problem, families.stays(wide, share));
            const auto floor = plan::chunk_floor(detail::rest_of(problem, layout), problem.storages_at_once);
            if (!floor) { return floor.error(); }
            least = (std::min)(least, layout.bytes + floor->floor_bytes);
        }
    }
    return least;
}

RESIDENCY_INLINE Result<std::uint64_t> unpack_everything(const UnpackProblem& problem) {
    const UnpackLayout layout = lay_out(problem, detail::StayFamilies{problem}.stays(0, 1));
    const auto floor = plan::chunk_floor(detail::rest_of(problem, layout), problem.storages_at_once);
    if (!floor) { return floor.error(); }
    return layout.bytes + (std::max)(floor->floor_bytes, floor->everything_bytes);
}

RESIDENCY_INLINE Result<UnpackChoice> choose_unpacked(const UnpackProblem& problem, std::uint64_t budget_bytes,
                                                      const plan::Options& options) {
    const detail::StayFamilies families{problem};
    const int levels = problem.steps() > 2000 ? 8 : 32;
    std::vector<detail::Sketch> sketches;
    for (const std::uint32_t wide : detail::wide_steps) {
        if (wide > families.steps()) { break; }
        for (int level = 0; level <= levels; ++level) {
            const double share = static_cast<double>(level) / levels;
            auto one = detail::sketch(problem, families.stays(wide, share), budget_bytes);
            if (!one) { return one.error(); }
            if (!*one) { continue; }
            sketches.push_back({wide, share, std::move(**one)});
        }
    }
    if (sketches.empty()) { return detail::no_layout(budget_bytes); }
    plan::Options quick = options;
    quick.effort = plan::Effort::quick;
    const auto foretell = [&](UnpackChoice& choice) {
        const auto made = plan::make_plan(choice.rest, quick);
        choice.seconds = made ? made->predicted_seconds() : 1e30;
    };
    // The sketches rank by an estimate: plans decide among the best of them, and between the best one and its neighbours.
    residency::detail::sort(sketches, [](const detail::Sketch& a, const detail::Sketch& b) {
        if (a.choice.seconds != b.choice.seconds) { return a.choice.seconds < b.choice.seconds; }
        return a.wide != b.wide ? a.wide < b.wide : a.share < b.share;
    });
    const std::size_t plans = problem.steps() > 2000 ? 4 : 12;
    const std::size_t stride = (std::max<std::size_t>)(1, sketches.size() / plans);
    for (std::size_t k = 0; k < sketches.size(); ++k) {
        if (k < plans / 2 || k % stride == 0) {
            foretell(sketches[k].choice);
        } else {
            sketches[k].choice.seconds = 1e30;
        }
    }
    auto best = std::min_element(sketches.begin(), sketches.end(),
                                 [](const auto& a, const auto& b) { return a.choice.seconds < b.choice.seconds; });
    detail::Sketch chosen = std::move(*best);
    for (double step = 0.5 / levels; step > 0.1 / levels; step /= 2) {
        for (const double share : {chosen.share - step, chosen.share + step}) {
            if (share < 0 || share > 1) { continue; }
            auto one = detail::sketch(problem, families.stays(chosen.wide, share), budget_bytes);
            if (!one) { return one.error(); }
            if (!*one) { continue; }
            foretell(**one);
            if ((*one)->seconds < chosen.choice.seconds) { chosen = {chosen.wide, share, std::move(**one)}; }
        }
    }
    if (problem.step_storages.size() > detail::few_storages) { return std::move(chosen.choice); }
    // Where a share of the bytes is coarse: as much as fits, beside what was chosen and beside what has to stay.
    for (const bool is_beside : {true, false}) {
        auto from =
            detail::sketch(problem, is_beside ? chosen.choice.layout.stays : families.stays(0, 0), budget_bytes);
        if (!from) { return from.error(); }
        if (!*from) { continue; }
        auto filled = detail::fill_up(problem, std::move(**from), budget_bytes);
        if (!filled) { return filled.error(); }
        if (filled->layout == chosen.choice.layout) { continue; }  // of which the time is known
        foretell(*filled);
        if (filled->seconds < chosen.choice.seconds) { chosen.choice = std::move(*filled); }
    }
    return std::move(chosen.choice);
}

RESIDENCY_INLINE Result<UnpackChoice> keep_unpacked(const UnpackProblem& problem, std::vector<bool> stays,
                                                    std::uint64_t budget_bytes) {
    auto one = detail::sketch(problem, std::move(stays), budget_bytes);
    if (!one) { return one.error(); }
    if (!*one) { return detail::no_layout(budget_bytes); }
    return std::move(**one);
}

}}}  // namespace residency::RESIDENCY_ABI::packed
