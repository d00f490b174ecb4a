// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "residency/error.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace support {

/// The check of check_choice(), in parts.
class ChoiceCheck {
    using Status = residency::Status;
    using UnpackProblem = residency::packed::UnpackProblem;
    using UnpackChoice = residency::packed::UnpackChoice;
    using UnpackLayout = residency::packed::UnpackLayout;

public:
    ChoiceCheck(const UnpackProblem& problem, const UnpackChoice& choice) : problem_{problem}, choice_{choice} {}

    /// Places lie inside the memory, and what stays has bytes of its own.
    [[nodiscard]] Status places() {
        const UnpackLayout& layout = choice_.layout;
        const std::size_t storages = problem_.unpacked_bytes.size();
        if (layout.stays.size() != storages || layout.offset.size() != storages) {
            return wrong("the layout is of another number of storages");
        }
        const bool has_table = layout.bytes > 0 && problem_.table_bytes > 0;
        if (layout.table_at > layout.bytes || (has_table && problem_.table_bytes > layout.bytes - layout.table_at)) {
            return wrong("the table does not fit into the memory");
        }
        for (std::uint32_t s = 0; s < storages; ++s) {
            const std::uint64_t bytes = problem_.unpacked_bytes[s];
            if (bytes > 0 && problem_.must_stay[s] && !layout.stays[s]) { return wrong(name(s) + " has to stay"); }
            if (layout.stays[s] && bytes == 0) { return wrong(name(s) + " stays, and is never unpacked"); }
            if (layout.offset[s] == UnpackLayout::none) {
                if (layout.stays[s]) { return wrong(name(s) + " stays, and has no place"); }
                continue;
            }
            if (layout.offset[s] > layout.table_at || bytes > layout.table_at - layout.offset[s]) {
                return wrong(name(s) + " lies outside the memory");
            }
            if (layout.stays[s]) {
                if (const std::uint32_t other = find(s); other != residency::plan::none) {
                    return over(s, other, "stays");
                }
                there_[layout.offset[s]] = s;
            }
        }
        return {};
    }

    /// Checks that the problem that is left to plan brings all that steps read and that does not stay.
    [[nodiscard]] Status rest() const {
        const residency::plan::Problem &rest = choice_.rest, &travels = problem_.travels;
        if (rest.storages() != travels.storages() || rest.steps() != travels.steps()) {
            return wrong("what is left to plan has another number of storages or steps");
        }
        for (std::size_t k = 0; k < choice_.unpackings.size(); ++k) {
            const residency::packed::Unpacking& each = choice_.unpackings[k];
            if (each.step >= rest.steps() || each.storage >= rest.storages()) {
                return wrong("an unpacking of a storage or in a step that there is not");
            }
            if (k > 0 && each.step < choice_.unpackings[k - 1].step) {
                return wrong("the unpackings are not in the order of the steps");
            }
        }
        for (std::uint32_t i = 0; i < rest.steps(); ++i) {
            const auto brought = rest.reads(i);
            for (const std::uint32_t s : travels.reads(i)) {
                if (choice_.layout.stays[s]) {
                    if (rest.storage_bytes[s] != 0) { return wrong(name(s) + " stays, and travels"); }
                } else if (rest.storage_bytes[s] != travels.storage_bytes[s] ||
                           std::find(brought.begin(), brought.end(), s) == brought.end()) {
                    return wrong("the packed bytes of " + name(s) + " are not brought for " + step(i));
                }
            }
        }
        return {};
    }

    /// Step by step: what is unpacked, what is lost by that, and what kernels find.
    [[nodiscard]] Status unpackings() {
        const std::vector<residency::packed::Unpacking>& all = choice_.unpackings;
        const std::uint32_t lanes = (std::max)(1U, problem_.leases_at_once);
        std::vector<std::size_t> current(problem_.unpacked_bytes.size(), all.size());
        std::vector<std::uint32_t> read_by(problem_.unpacked_bytes.size(), residency::plan::none);
        std::size_t next = 0;
        for (std::uint32_t i = 0; i < problem_.steps(); ++i) {
            const auto reads = problem_.reads(i);
            for (; next < all.size() && all[next].step == i; ++next) {
                const std::uint32_t s = all[next].storage;
                if (choice_.layout.stays[s] || problem_.unpacked_bytes[s] == 0) {
                    return wrong(name(s) + " is unpacked in " + step(i) + ", and stays or is not packed");
                }
                if (choice_.layout.offset[s] == UnpackLayout::none) {
                    return wrong(name(s) + " is unpacked in " + step(i) + ", and has no place");
                }
                // Where a step does not read it, its packed bytes need not be there.
                if (std::find(reads.begin(), reads.end(), s) == reads.end()) {
                    return wrong(name(s) + " is unpacked in " + step(i) +
                                 ", which does not read it: its packed bytes need not have come");
                }
                for (std::uint32_t other = find(s); other != residency::plan::none; other = find(s)) {
                    if (choice_.layout.stays[other]) { return over(s, other, "stays"); }
                    const std::uint32_t last = read_by[other];
                    const bool is_leased = last == residency::plan::none || last + lanes > i;
                    if (other != s && is_leased) {
                        return over(s, other, "is read by " + step(i) + " or a lease before");
                    }
                    if (all[current[other]].live_until >= i) {
                        return over(s, other, "is to stay until " + step(all[current[other]].live_until));
                    }
                    there_.erase(choice_.layout.offset[other]);
                    current[other] = all.size();
                }
                there_[choice_.layout.offset[s]] = s;
                current[s] = next;
                read_by[s] = residency::plan::none;
            }
            for (const std::uint32_t s : reads) {
                if (problem_.unpacked_bytes[s] == 0 || choice_.layout.stays[s]) { continue; }
                if (current[s] == all.size()) {
                    return wrong(step(i) + " reads " + name(s) + " before it is unpacked");
                }
                if (all[current[s]].live_until < i) {
                    return wrong(step(i) + " reads " + name(s) + ", which is to stay until " +
                                 step(all[current[s]].live_until) + " alone");
                }
                read_by[s] = i;
            }
        }
        return {};
    }

    /// Steps take the time of unpacking too.
    [[nodiscard]] Status times() const {
        std::vector<double> due(problem_.steps(), 0.0);
        for (const residency::packed::Unpacking& each : choice_.unpackings) {
            if (due[each.step] <= 0) { due[each.step] = problem_.launch_seconds; }
            due[each.step] +=
                static_cast<double>(problem_.unpacked_bytes[each.storage]) / problem_.unpacked_bytes_per_second;
        }
        for (std::uint32_t i = 0; i < problem_.steps(); ++i) {
            if (choice_.rest.compute(i) < (problem_.travels.compute(i) + due[i]) * (1 - 1e-9)) {
                return wrong(step(i) + " has no time to unpack");
            }
        }
        return {};
    }

    [[nodiscard]] Status budget(const residency::plan::Plan& plan) const {
        if (plan.data().held_bytes <= choice_.rest.budget_bytes) { return {}; }
        return wrong("the plan holds more than the layout leaves");
    }

private:
    [[nodiscard]] static Status wrong(const std::string& what) {
        return residency::Error{residency::ErrorKind::mismatch, "packed plan: " + what};
    }
    [[nodiscard]] static std::string name(std::uint32_t s) { return "storage " + std::to_string(s); }
    [[nodiscard]] static std::string step(std::uint32_t i) { return "step " + std::to_string(i); }
    [[nodiscard]] static Status over(std::uint32_t s, std::uint32_t other, const std::string& why) {
        return wrong(name(s) + " is unpacked over " + name(other) + ", which " + why);
    }
    [[nodiscard]] std::uint64_t end(std::uint32_t s) const {
        return choice_.layout.offset[s] + problem_.unpacked_bytes[s];
    }
    /// A storage that is there and whose place overlaps the one of `s`; none: residency::plan::none.
    [[nodiscard]] std::uint32_t find(std::uint32_t s) const {
        auto after = there_.lower_bound(end(s));
        if (after == there_.begin()) { return residency::plan::none; }
        const std::uint32_t other = std::prev(after)->second;
        return end(other) > choice_.layout.offset[s] ? other : residency::plan::none;
    }

    const UnpackProblem& problem_;
    const UnpackChoice& choice_;
    std::map<std::uint64_t, std::uint32_t> there_;  // by place: what is unpacked; no two overlap
};

/// Verifies a choice, and the plan of what it leaves, from their bytes alone and whatever made them. The plan passes plan::check(), and holds
/// no more than the layout leaves it. What has to stay does, has bytes that nothing else is unpacked to, and does not travel. A step
/// unpacks nothing whose packed bytes the plan does not bring for it, and nothing over bytes that stay, that an open lease covers, or that a
/// later step finds there by the list. No kernel reads what is not unpacked. The error, of kind mismatch, names the storage and the step.
[[nodiscard]] inline residency::Status check_choice(const residency::packed::UnpackProblem& problem,
                                                    const residency::packed::UnpackChoice& choice,
                                                    const residency::plan::Plan& plan) {
    ChoiceCheck one{problem, choice};
    if (auto right = one.places(); !right) { return right; }
    if (auto right = one.rest(); !right) { return right; }
    if (auto right = one.unpackings(); !right) { return right; }
    if (auto right = one.times(); !right) { return right; }
    if (auto right = one.budget(plan); !right) { return right; }
    return residency::plan::check(plan, choice.rest);
}

}  // namespace support
