// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency::testing {

/// The same numbers from the same seed on every platform.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_{seed} {}
    [[nodiscard]] std::uint32_t operator()(std::uint32_t low, std::uint32_t high) {
        return low + static_cast<std::uint32_t>(engine_() % (std::uint64_t{high} - low + 1));
    }
    [[nodiscard]] double real() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

private:
    std::mt19937_64 engine_;
};

/// How storages and steps go together.
enum class Reads : std::uint32_t { one_each, several_each, neighbours, anything };

/// A small problem without a budget: up to 30 steps, storages of up to 25 chunks, sometimes shared by steps, unread or pinned.
inline plan::Problem random_problem(Dice& dice) {
    plan::Problem problem;
    problem.chunk_bytes = 4096u << dice(0, 2);
    problem.alignment_bytes = dice(0, 1) != 0 ? 256 : 1;
    const auto reads = static_cast<Reads>(dice(0, 3));
    const std::uint32_t steps = dice(1, 30), storages = reads == Reads::one_each ? steps : dice(1, 45);
    for (std::uint32_t s = 0; s < storages; ++s) {
        problem.storage_bytes.push_back(dice(0, 9) == 0 ? dice(0, 300) : dice(1, 100000));
    }
    for (std::uint32_t i = 0; i < steps; ++i) {
        std::vector<std::uint32_t> step;
        if (reads == Reads::one_each) { step = {i}; }
        if (reads == Reads::several_each) {
            for (std::uint32_t s = i; s < storages; s += steps) { step.push_back(s); }
        }
        for (std::uint32_t k = dice(0, 3); reads >= Reads::neighbours && k > 0; --k) {
            const std::uint32_t near = std::min(storages - 1, i * storages / steps + dice(0, 2));
            step.push_back(reads == Reads::neighbours ? near : dice(0, storages - 1));
        }
        problem.add_step(step);
    }
    double bytes = 0;
    for (const std::uint64_t b : problem.storage_bytes) { bytes += static_cast<double>(b); }
    if (dice(0, 4) != 0) {
        const double ratio = std::pow(10, -2 + 2.5 * dice.real());
        for (std::uint32_t i = 0; i < steps; ++i) {
            problem.compute_seconds.push_back(ratio * bytes / problem.link.bytes_per_second / steps * 2 * dice.real());
        }
    }
    problem.link.latency_seconds = dice(0, 1) != 0 ? 0 : 1e-7;
    problem.link.node_latency_seconds = 2e-7;
    if (dice(0, 3) == 0 && storages > 2) { problem.kept = {dice(0, storages - 1)}; }
    return problem;
}

/// `count` storages of one chunk of 4 KiB each, and a step for each. No compute times.
inline plan::Problem one_chunk_each(std::uint32_t count, std::uint64_t budget_bytes) {
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.storage_bytes.assign(count, problem.chunk_bytes);
    for (std::uint32_t s = 0; s < count; ++s) { problem.add_step({&s, 1}); }
    problem.budget_bytes = budget_bytes;
    return problem;
}

inline std::uint64_t total_bytes(const plan::Problem& problem) {
    std::uint64_t sum = 0;
    for (const std::uint64_t b : problem.storage_bytes) { sum += b; }
    return sum;
}

/// A small problem with a budget from the floor to everything.
inline plan::Problem random_problem_with_budget(Dice& dice) {
    plan::Problem problem = random_problem(dice);
    problem.budget_bytes = dice(0, 3) == 0 ? 0 : total_bytes(problem) * dice(20, 110) / 100;
    return problem;
}

/// What a pass copies of a storage.
inline std::uint64_t copied_of(const plan::Plan& plan, std::uint32_t storage) {
    std::uint64_t bytes = 0;
    for (const plan::Copy& copy : plan.copies()) {
        const std::uint64_t begin = std::max(copy.image_begin, plan.storage_offset(storage));
        const std::uint64_t end = std::min(copy.image_end, plan.storage_offset(storage) + plan.storage_bytes(storage));
        bytes += end > begin ? end - begin : 0;
    }
    return bytes;
}

/// Memory as a pass of a cyclic plan begins: residents, and what the first calls bring to each slot.
inline std::vector<plan::Presence> presence_of(const plan::Plan& plan) {
    std::vector<plan::Presence> presence(plan.chunks(), plan::Presence::absent);
    std::vector<bool> taken(plan.slots_held(), false);
    const auto hold = [&](std::span<const plan::Copy> copies, plan::Presence as) {
        for (const plan::Copy& copy : copies) {
            for (const std::uint32_t c : plan.chunks_of_copy(copy)) {
                const std::uint32_t slot = plan.slot_of_chunk(c);
                if (taken[slot]) { continue; }
                presence[c] = as;
                taken[slot] = true;
            }
        }
    };
    hold(plan.residents(), plan::Presence::resident);
    hold(plan.copies(), plan::Presence::streamed);
    return presence;
}

/// Replays a plan with durations of its own, as plan.hpp says, and looks at every device byte: what a step reads must be there, whole,
/// from its start to its end. Shares nothing with the planner and the checker. Returns what went wrong, or nothing.
class Replay {
public:
    Replay(const plan::Plan& plan, const plan::Problem& problem) : plan_{plan}, problem_{problem} {}

    /// Copies and steps take up to `factor` times more or less than planned.
    [[nodiscard]] std::string run(Dice& dice, double factor, int passes) {
        const plan::PlanData& d = plan_.data();
        const auto stretch = [&] { return std::pow(factor, 2 * dice.real() - 1); };
        const double step_scale = 1e-6 + plan_.compute_seconds() / std::max(1u, plan_.steps());
        writes_.clear();
        for (const plan::Copy& copy : plan_.residents()) { write(copy, -1, -1); }
        std::vector<std::vector<double>> step_end(static_cast<std::size_t>(passes));
        std::vector<Read> reads;
        double link = 0, compute = 0;
        for (int pass = 0; pass < (plan_.is_cyclic() ? passes : 1); ++pass) {
            auto& ends = step_end[static_cast<std::size_t>(pass)];
            std::uint32_t call = 0, i = 0;
            double arrived = 0;  // of all calls so far
            while (i < plan_.steps()) {
                if (call < plan_.step_calls(i)) {
                    const plan::Call& now = plan_.calls()[call++];
                    double begin = link;
                    if (now.wait.exists() && pass + now.wait.pass >= 0) {
                        const auto& from = step_end[static_cast<std::size_t>(pass + now.wait.pass)];
                        if (now.wait.step >= from.size()) { return "a call waits for what comes later"; }
                        begin = std::max(begin, from[now.wait.step]);
                    }
                    std::uint64_t bytes = 0;
                    for (const plan::Copy& copy : plan_.copies(now)) { bytes += copy.bytes(); }
                    link = begin + stretch() * (problem_.link.latency_seconds +
                                                static_cast<double>(bytes) / problem_.link.bytes_per_second);
                    arrived = link;
                    for (const plan::Copy& copy : plan_.copies(now)) { write(copy, begin, link); }
                    continue;
                }
                const double begin = std::max(compute, plan_.step_calls(i) > 0 ? arrived : 0.0);
                compute = begin + stretch() * (problem_.compute(i) > 0 ? problem_.compute(i) : step_scale);
                ends.push_back(compute);
                for (const std::uint32_t s : problem_.reads(i)) {
                    reads.push_back({s, i, pass, plan_.step_calls(i), begin, compute});
                }
                ++i;
            }
        }
        for (const Read& read : reads) {
            if (std::string trouble = look(read, d); !trouble.empty()) { return trouble; }
        }
        return {};
    }

private:
    struct Write {
        double begin, end;
        std::uint64_t image;
    };  // image byte that lands on the first device byte
    struct Read {
        std::uint32_t storage, step;
        int pass;
        std::uint32_t calls;
        double begin, end;
    };

    // Device bytes of image bytes [begin, end), in runs.
    template <class Each>
    void runs(std::uint64_t begin, std::uint64_t end, Each&& each) const {
        const std::uint64_t g = plan_.chunk_bytes();
        while (begin < end) {
            const std::uint64_t stop = std::min(end, (begin / g + 1) * g);
            const std::uint64_t slot = plan_.slot_of_chunk(static_cast<std::uint32_t>(begin / g));
            each(slot * g + begin % g, begin, stop - begin);
            begin = stop;
        }
    }

    // Device bytes in cells of `grain`, so that any two runs that overlap share one.
    void write(const plan::Copy& copy, double begin, double end) {
        runs(copy.image_begin, copy.image_end, [&](std::uint64_t device, std::uint64_t image, std::uint64_t bytes) {
            for (std::uint64_t cell = device / grain; cell * grain < device + bytes; ++cell) {
                const std::uint64_t low = std::max(device, cell * grain),
                                    high = std::min(device + bytes, (cell + 1) * grain);
                writes_[cell].push_back({low, high, image + (low - device), begin, end});
            }
        });
        for (std::size_t k = 0; k < plan_.storages(); ++k) {
            const std::uint64_t from = plan_.storage_offset(static_cast<std::uint32_t>(k));
            if (from >= copy.image_end ||
                from + plan_.storage_bytes(static_cast<std::uint32_t>(k)) <= copy.image_begin) {
                continue;
            }
            brought_[static_cast<std::uint32_t>(k)].push_back({&copy, begin, end});
        }
    }

    // Every byte of the storage, at the place of its last copy that had arrived.
    [[nodiscard]] std::string look(const Read& read, const plan::PlanData&) const {
        const std::uint64_t first = plan_.storage_offset(read.storage),
                            last = first + plan_.storage_bytes(read.storage);
        if (first == last) { return {}; }
        const std::string name = "step " + std::to_string(read.step) + " of pass " + std::to_string(read.pass) +
                                 ", storage " + std::to_string(read.storage);
        std::uint64_t covered = first;
        while (covered < last) {
            const Brought* best = nullptr;
            const auto found = brought_.find(read.storage);
            if (found != brought_.end()) {
                for (const Brought& b : found->second) {
                    if (b.copy->image_begin > covered || b.copy->image_end <= covered || b.end > read.begin) {
                        continue;
                    }
                    if (best == nullptr || b.end >= best->end) { best = &b; }
                }
            }
            if (best == nullptr) { return name + ": byte " + std::to_string(covered - first) + " has not come"; }
            // As far as no other copy begins.
            std::uint64_t stop = std::min(last, best->copy->image_end);
            for (const Brought& b : found->second) {
                if (b.copy->image_begin > covered) { stop = std::min(stop, b.copy->image_begin); }
            }
            std::string trouble;
            runs(covered, stop, [&](std::uint64_t device, std::uint64_t image, std::uint64_t bytes) {
                for (std::uint64_t cell = device / grain; cell * grain < device + bytes; ++cell) {
                    const auto here = writes_.find(cell);
                    if (here == writes_.end()) { continue; }
                    for (const CellWrite& w : here->second) {
                        const std::uint64_t low = std::max(device, w.low), high = std::min(device + bytes, w.high);
                        if (low >= high || w.begin >= read.end || w.end <= best->end) { continue; }
                        if (w.begin < best->end && w.end <= read.begin &&
                            w.image + (low - w.low) == image + (low - device)) {
                            continue;
                        }
                        trouble = name + ": device byte " + std::to_string(low) + " is overwritten";
                    }
                }
            });
            if (!trouble.empty()) { return trouble; }
            covered = stop;
        }
        return {};
    }

    static constexpr std::uint64_t grain = 4096;
    struct CellWrite {
        std::uint64_t low, high, image;
        double begin, end;
    };
    struct Brought {
        const plan::Copy* copy;
        double begin, end;
    };
    const plan::Plan& plan_;
    const plan::Problem& problem_;
    std::map<std::uint64_t, std::vector<CellWrite>> writes_;
    std::map<std::uint32_t, std::vector<Brought>> brought_;
};

}  // namespace residency::testing
