// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/device/link.hpp"
#include "residency/model/ids.hpp"

namespace lab {

/// A GPU as far as a step's time depends on it, and its link.
struct Card {
    std::string name;
    double memory_bytes_per_second = 0;  ///< what a kernel that reads weights reaches
    double flops = 0;                    ///< what a large 16-bit matrix product reaches
    residency::LinkModel link;
};

/// Cards by the names of the link presets: rates that well-tuned kernels reach (about 85 % of a memory's rate, 65 % of the
/// peak of 16-bit products).
inline const std::vector<Card>& cards() {
    static const std::vector<Card> all{{"pcie3", 0.55e12, 70e12, residency::links::pcie3},
                                       {"pcie4", 1.3e12, 200e12, residency::links::pcie4},
                                       {"pcie5", 2.8e12, 600e12, residency::links::pcie5},
                                       {"gh200", 3.4e12, 600e12, residency::links::gh200},
                                       {"h200_measured", 4.1e12, 600e12, residency::links::h200_measured}};
    return all;
}

/// Where the next weight may begin after so many bytes of host memory.
[[nodiscard]] constexpr std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

/// A model and the steps of a run, before they have times.
struct Workload {
    struct Step {
        std::vector<residency::StorageId> storages;
        double flops = 0;        ///< of all tokens of the step
        bool is_routed = false;  ///< what it reads is known once the steps before it have run: the host waits for them
    };

    std::string name;
    std::vector<std::string> names;      ///< of each storage
    std::vector<std::uint64_t> bytes;    ///< of each storage
    std::vector<std::uint32_t> layers;   ///< of each storage
    std::vector<bool> resident;          ///< of each storage: never leaves
    std::vector<double> packed_shares;   ///< of each storage: packed bytes over raw ones, as measured; empty: not known
    std::vector<Step> steps;             ///< of one pass, or of all passes where the order is not known
    std::vector<std::size_t> pass_ends;  ///< steps up to the end of each pass; one pass where the order is known
    bool is_known = true;                ///< the order is the same in every pass
    std::string passes_end;              ///< of a trace: where a pass was taken to end, in words

    residency::StorageId add(std::string storage_name, std::uint64_t storage_bytes, std::uint32_t layer,
                             bool never_leaves = false) {
        names.push_back(std::move(storage_name));
        bytes.push_back(storage_bytes);
        layers.push_back(layer);
        resident.push_back(never_leaves);
        return residency::StorageId{static_cast<std::uint32_t>(bytes.size() - 1)};
    }
    [[nodiscard]] std::uint64_t total_bytes() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t each : bytes) { sum += each; }
        return sum;
    }
    /// What all weights take in host memory.
    [[nodiscard]] std::uint64_t host_bytes() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t each : bytes) { sum += aligned(each); }
        return sum;
    }
    [[nodiscard]] std::uint64_t resident_bytes() const {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < bytes.size(); ++i) { sum += resident[i] ? bytes[i] : 0; }
        return sum;
    }
    [[nodiscard]] std::uint64_t largest_step_bytes() const {
        std::uint64_t largest = 0;
        for (const Step& step : steps) {
            std::uint64_t sum = 0;
            for (const residency::StorageId id : step.storages) { sum += resident[index(id)] ? 0 : bytes[index(id)]; }
            largest = std::max(largest, sum);
        }
        return largest;
    }
    /// Reading the step's bytes or its arithmetic, whichever takes longer, and 2 µs.
    [[nodiscard]] std::chrono::nanoseconds compute(const Step& step, const Card& card) const {
        double read = 0;
        for (const residency::StorageId id : step.storages) { read += static_cast<double>(bytes[index(id)]); }
        const double seconds = std::max(read / card.memory_bytes_per_second, step.flops / card.flops) + 2e-6;
        return std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)};
    }
    /// As a trace, with the times of a card.
    [[nodiscard]] lab::trace::Trace trace(const Card& card) const {
        lab::trace::Trace out;
        out.name = name;
        out.bytes = bytes;
        out.groups = layers;
        for (const Step& step : steps) { out.add_step(step.storages, compute(step, card).count()); }
        return out;
    }
};

}  // namespace lab
