// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <utility>

#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

RESIDENCY_INLINE Status check_plausible(const std::string& name, const double& value, double least, double most,
                                        const char* range) {
    if (residency::detail::is_finite(value) && value >= least && value <= most) { return {}; }
    char shown[32];
    std::snprintf(shown, sizeof shown, "%.6g", value);
    return Error{ErrorKind::invalid_argument,
                 name + " is " + shown + ", and only " + range + " are plausible: give it in this unit"};
}

}  // namespace detail

RESIDENCY_INLINE Status check_given(const Link& link, const std::string& name) {
    if (Status rate = detail::check_plausible(name + ".bytes_per_second", link.bytes_per_second, 1e6, 1e13,
                                              "1e6 to 1e13 bytes per second (PCIe 4.0 x16: 25e9)");
        !rate) {
        return rate;
    }
    for (const auto& [member, latency] : {std::pair{".latency_seconds", &link.latency_seconds},
                                          {".node_latency_seconds", &link.node_latency_seconds}}) {
        if (Status time = detail::check_plausible(name + member, *latency, 0, 1, "0 to 1 seconds (PCIe: 2.4e-6)");
            !time) {
            return time;
        }
    }
    return {};
}

RESIDENCY_INLINE Status check_given_memory_rate(const double& bytes_per_second, const std::string& name) {
    return detail::check_plausible(name, bytes_per_second, 1e8, 1e15, "1e8 to 1e15 bytes per second (H200: 4.2e12)");
}

RESIDENCY_INLINE Status validate(const Problem& problem) {
    const auto bad = [](std::string what) { return Status{Error{ErrorKind::invalid_argument, std::move(what)}}; };
    const auto number = [](auto x) { return std::to_string(x); };
    if (!residency::detail::is_positive(problem.link.bytes_per_second)) {
        return bad("link: bytes_per_second must be positive");
    }
    for (const auto& [name, latency] : {std::pair{"latency_seconds", problem.link.latency_seconds},
                                        {"node_latency_seconds", problem.link.node_latency_seconds}}) {
        if (!residency::detail::is_not_negative(latency)) {
            return bad(std::string{"link: "} + name + " must not be negative");
        }
    }
    if (problem.chunk_bytes == 0 || (problem.chunk_bytes & (problem.chunk_bytes - 1)) != 0) {
        return bad(
            "chunk_bytes is " + number(problem.chunk_bytes) +
            ", after rounding by the pool, if there is one; it must be a power of two, such as 2097152 on a GPU");
    }
    if (problem.alignment_bytes == 0 || (problem.alignment_bytes & (problem.alignment_bytes - 1)) != 0) {
        return bad("alignment_bytes is " + number(problem.alignment_bytes) + ", it must be a power of two");
    }
    if (problem.storage_bytes.size() >= none) { return bad("too many storages"); }
    if (problem.steps() == 0) { return bad("the schedule has no steps"); }
    std::uint64_t total = 0;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        const std::uint64_t b = problem.storage_bytes[s];
        if (b > (1ULL << 56) || total > (1ULL << 56)) {
            return bad("storage " + number(s) + ": more than 2^56 bytes in all");
        }
        total += b + problem.alignment_bytes + problem.chunk_bytes;
    }
    if (total / problem.chunk_bytes >= (1ULL << 31)) { return bad("more than 2^31 chunks"); }
    if (problem.step_offsets.front() != 0 || problem.step_offsets.back() != problem.step_storages.size()) {
        return bad("step_offsets do not cover step_storages");
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (problem.step_offsets[i] > problem.step_offsets[i + 1]) {
            return bad("step " + number(i) + ": step_offsets decrease");
        }
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (s >= problem.storages()) {
                return bad("step " + number(i) + " reads storage " + number(s) + " of " + number(problem.storages()));
            }
        }
    }
    if (!problem.compute_seconds.empty() && problem.compute_seconds.size() != problem.steps()) {
        return bad(number(problem.compute_seconds.size()) + " step times for " + number(problem.steps()) + " steps");
    }
    for (std::size_t i = 0; i < problem.compute_seconds.size(); ++i) {
        if (!residency::detail::is_not_negative(problem.compute_seconds[i])) {
            return bad("step " + number(i) + ": compute_seconds is " + std::to_string(problem.compute_seconds[i]) +
                       "; give 0 or more");
        }
    }
    for (const std::uint32_t s : problem.kept) {
        if (s >= problem.storages()) { return bad("kept storage " + number(s) + " does not exist"); }
    }
    if (!problem.image_offsets.empty()) {
        if (problem.image_offsets.size() != problem.storages()) { return bad("image_offsets: one a storage"); }
        std::vector<std::uint32_t> order;
        for (std::uint32_t s = 0; s < problem.storages(); ++s) {
            if (problem.image_offsets[s] > (1ULL << 56) ||
                (problem.image_offsets[s] + problem.storage_bytes[s]) / problem.chunk_bytes >= (1ULL << 31)) {
                return bad("storage " + number(s) + ": image offset too large");
            }
            if (problem.storage_bytes[s] != 0) { order.push_back(s); }
        }
        residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
            return problem.image_offsets[a] != problem.image_offsets[b]
                       ? problem.image_offsets[a] < problem.image_offsets[b]
                       : a < b;
        });
        for (std::size_t k = 1; k < order.size(); ++k) {
            if (problem.image_offsets[order[k - 1]] + problem.storage_bytes[order[k - 1]] >
                problem.image_offsets[order[k]]) {
                return bad("storages " + number(order[k - 1]) + " and " + number(order[k]) + " overlap in the image");
            }
        }
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::plan
