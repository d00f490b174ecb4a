// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/check.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

[[nodiscard]] inline Status wrong_plan(const std::string& what) { return Error{ErrorKind::mismatch, "plan: " + what}; }

/// Verifies that a plan is consistent in itself. run() calls the rules in order; what a rule has verified the later ones rely on.
class ShapeCheck {
public:
    explicit ShapeCheck(const Plan& plan) noexcept : plan_{plan}, d_{plan.data()} {}

    [[nodiscard]] Status run() const {
        if (Status good = check_sizes(); !good) { return good; }
        if (Status good = check_storages(); !good) { return good; }
        if (Status good = check_slots(); !good) { return good; }
        if (Status good = check_residents(); !good) { return good; }
        if (Status good = check_copies(); !good) { return good; }
        if (Status good = check_calls(); !good) { return good; }
        if (Status good = check_step_calls(); !good) { return good; }
        return check_cut();
    }

private:
    /// Lengths of arrays, bytes and times.
    [[nodiscard]] Status check_sizes() const {
        const std::uint64_t g = d_.chunk_bytes;
        if (d_.storage_offsets.size() != d_.storage_bytes.size()) { return wrong_plan("storages and offsets differ"); }
        if (d_.storage_bytes.size() >= none) { return wrong_plan("too many storages"); }
        if (d_.steps == none || d_.step_calls.size() != d_.steps) {
            return wrong_plan("step_calls has the wrong length");
        }
        if (d_.copies.size() >= none || d_.calls.size() >= none || d_.residents.size() >= none) {
            return wrong_plan("too many copies");
        }
        if (d_.held_bytes > d_.budget_bytes) {
            return wrong_plan("holds " + residency::detail::in_bytes(d_.held_bytes) + " of " +
                              residency::detail::in_bytes(d_.budget_bytes));
        }
        if (g == 0 || (g & (g - 1)) != 0 || d_.held_bytes % g != 0 || d_.image_bytes / g >= none - 1) {
            return wrong_plan("chunk size");
        }
        for (const double seconds : {d_.predicted_seconds, d_.compute_seconds, d_.bound_seconds, d_.usual_bound_seconds,
                                     d_.latency_floor_seconds}) {
            if (!residency::detail::is_not_negative(seconds)) {
                return wrong_plan("a time that is negative or no number");
            }
        }
        return {};
    }
    /// Storages lie inside the image and do not overlap.
    [[nodiscard]] Status check_storages() const {
        std::vector<std::uint32_t> order;
        for (std::uint32_t s = 0; s < d_.storage_bytes.size(); ++s) {
            if (d_.storage_bytes[s] == 0) { continue; }
            if (d_.storage_offsets[s] > d_.image_bytes ||
                d_.storage_bytes[s] > d_.image_bytes - d_.storage_offsets[s]) {
                return wrong_plan("storage " + std::to_string(s) + " lies outside the image");
            }
            order.push_back(s);
        }
        residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
            return d_.storage_offsets[a] != d_.storage_offsets[b] ? d_.storage_offsets[a] < d_.storage_offsets[b]
                                                                  : a < b;
        });
        for (std::size_t k = 1; k < order.size(); ++k) {
            if (d_.storage_offsets[order[k - 1]] + d_.storage_bytes[order[k - 1]] > d_.storage_offsets[order[k]]) {
                return wrong_plan("storages " + std::to_string(order[k - 1]) + " and " + std::to_string(order[k]) +
                                  " overlap");
            }
        }
        return {};
    }
    /// Every chunk of the image has an entry, and its slot is held.
    [[nodiscard]] Status check_slots() const {
        const std::uint64_t g = d_.chunk_bytes;
        const std::uint64_t count = d_.image_bytes / g + (d_.image_bytes % g != 0 ? 1 : 0);
        if (d_.chunk_slot.size() != count) { return wrong_plan("chunk_slot has the wrong length"); }
        for (const std::uint32_t slot : d_.chunk_slot) {
            if (slot != none && slot >= d_.held_bytes / g) {
                return wrong_plan("slot " + std::to_string(slot) + " is not held");
            }
        }
        return {};
    }
    /// What is wrong with the image bytes of a copy. Null: nothing.
    [[nodiscard]] const char* trouble_of(const Copy& copy) const {
        if (copy.image_begin >= copy.image_end || copy.image_end > d_.image_bytes) { return "leaves the image"; }
        for (const std::uint32_t c : plan_.chunks_of_copy(copy)) {
            if (d_.chunk_slot[c] == none) { return "brings a chunk that has no slot"; }
        }
        return nullptr;
    }
    [[nodiscard]] Status check_residents() const {
        for (std::size_t k = 0; k < d_.residents.size(); ++k) {
            const Copy& copy = d_.residents[k];
            const auto wrong = [&](const std::string& what) {
                return wrong_plan("resident " + std::to_string(k) + " " + what);
            };
            if (const char* trouble = trouble_of(copy)) { return wrong(trouble); }
            if (copy.needed_by != none && copy.needed_by >= d_.steps) { return wrong("is needed by no step"); }
            if (k > 0 && d_.residents[k - 1].needed_by > copy.needed_by) { return wrong("is out of order"); }
        }
        return {};
    }
    [[nodiscard]] Status check_copies() const {
        for (std::size_t k = 0; k < d_.copies.size(); ++k) {
            const auto wrong = [&](const std::string& what) {
                return wrong_plan("copy " + std::to_string(k) + " " + what);
            };
            if (const char* trouble = trouble_of(d_.copies[k])) { return wrong(trouble); }
            if (d_.copies[k].needed_by >= d_.steps) { return wrong("is needed by no step"); }
        }
        return {};
    }
    /// Calls have all copies in order, and each is needed by the first step that needs one of its copies.
    [[nodiscard]] Status check_calls() const {
        std::uint32_t covered = 0, needed = 0;
        for (std::uint32_t k = 0; k < d_.calls.size(); ++k) {
            const Call& call = d_.calls[k];
            const std::string name = "call " + std::to_string(k);
            if (call.copies_begin != covered || call.copies_end <= covered || call.copies_end > d_.copies.size()) {
                return wrong_plan(name + " does not continue the copies");
            }
            covered = call.copies_end;
            if (d_.captured && call.copies_end != call.copies_begin + 1) {
                return wrong_plan("captured " + name + " has several copies");
            }
            if (call.needed_by >= d_.steps || call.needed_by < needed) { return wrong_plan(name + " is out of order"); }
            needed = call.needed_by;
            std::uint32_t least = none;
            for (std::uint32_t c = call.copies_begin; c < call.copies_end; ++c) {
                least = (std::min)(least, d_.copies[c].needed_by);
            }
            if (least != call.needed_by) { return wrong_plan(name + " is needed by another step than its copies"); }
            if (Status good = check_wait(call, name); !good) { return good; }
        }
        if (covered != d_.copies.size()) { return wrong_plan("copies belong to no call"); }
        return {};
    }
    /// A call waits for nothing, or for a step before those that need it.
    [[nodiscard]] Status check_wait(const Call& call, const std::string& name) const {
        if (!call.wait.exists()) { return {}; }
        if (call.wait.step >= d_.steps || call.wait.pass < -1 || call.wait.pass > 0) {
            return wrong_plan(name + " waits for no step");
        }
        if (call.wait.pass == 0 && call.wait.step >= call.needed_by) {
            return wrong_plan(name + " waits for a step that needs it");
        }
        if (call.wait.pass < 0 && !d_.cyclic) {
            return wrong_plan(name + " of a one-shot plan waits for a pass before");
        }
        return {};
    }
    /// Each step waits for the calls that it or an earlier step needs, and for no other.
    [[nodiscard]] Status check_step_calls() const {
        const auto calls = static_cast<std::uint32_t>(d_.calls.size());
        for (std::uint32_t i = 0, k = 0; i < d_.steps; ++i) {
            while (k < calls && d_.calls[k].needed_by <= i) { ++k; }
            if (d_.step_calls[i] != k) {
                return wrong_plan("step " + std::to_string(i) + " waits for the wrong calls");
            }
        }
        return {};
    }
    /// What the graph of the pass before has does not wait for this pass.
    [[nodiscard]] Status check_cut() const {
        if (d_.cut > d_.calls.size() || (d_.cut != 0 && !d_.captured)) { return wrong_plan("a cut without calls"); }
        for (std::uint32_t k = 0; k < d_.cut; ++k) {
            if (d_.calls[k].wait.exists() && d_.calls[k].wait.pass == 0) {
                return wrong_plan("call " + std::to_string(k) + " is cut off from what it waits for");
            }
        }
        return {};
    }

    const Plan& plan_;
    const PlanData& d_;
};

/// Verifies a plan whose shape is consistent against its problem: run() follows what the plan brings, and then calls the rules in order.
class ProblemCheck {
public:
    ProblemCheck(const Plan& plan, const Problem& problem) noexcept
        : plan_{plan},
          d_{plan.data()},
          problem_{problem},
          calls_{static_cast<std::uint32_t>(plan.data().calls.size())} {}

    [[nodiscard]] Status run() {
        if (Status good = check_is_for_problem(); !good) { return good; }
        find_storages();
        find_readers();
        if (Status good = bring_calls(); !good) { return good; }
        if (Status good = bring_residents(); !good) { return good; }
        if (Status good = check_begun_with(); !good) { return good; }
        residency::detail::sort(brought_, by_place);
        find_kept();
        if (Status good = check_kept(); !good) { return good; }
        if (Status good = d_.cyclic ? check_covered_once() : check_read_in_time(); !good) { return good; }
        return check_overwritten();
    }

private:
    /// Every range of a storage that a resident or a copy brings.
    struct StorageRange {
        std::uint32_t storage, call;  // none: resident
        std::uint64_t begin, end;     // bytes of the storage
    };
    /// The device bytes of such a range, or of bytes between storages.
    struct DeviceRange {
        std::uint64_t begin, end;  // device bytes
        std::uint32_t call;        // none: resident
        std::uint32_t last;        // reader; none: none
        std::uint32_t storage;
        std::uint64_t offset;  // in the storage
    };
    /// The greatest step that has ended before a call starts, because it or a call before it waits.
    struct EndedSteps {
        std::vector<std::int64_t> own, before;  // by call: of its own pass, of the one before
    };
    using UsesByCall = std::map<std::uint32_t, std::uint32_t>;  // call + 1 (0: resident) → use

    [[nodiscard]] static bool by_place(const StorageRange& a, const StorageRange& b) {
        return a.storage != b.storage ? a.storage < b.storage : a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    }
    [[nodiscard]] Status comes_after_its_reader(std::uint32_t storage) const {
        return wrong_plan("storage " + std::to_string(storage) + " comes after step " +
                          std::to_string(first_[storage]) + " that reads it");
    }
    [[nodiscard]] static Status not_covered(std::uint32_t storage, const char* how, std::uint64_t at) {
        return wrong_plan("storage " + std::to_string(storage) + " is not covered " + how + "at byte " +
                          std::to_string(at));
    }

    [[nodiscard]] Status check_is_for_problem() const {
        const std::uint32_t n = problem_.steps();
        if (d_.steps != n) {
            return wrong_plan(std::to_string(d_.steps) + " steps, the schedule has " + std::to_string(n));
        }
        if (d_.storage_bytes != problem_.storage_bytes) { return wrong_plan("made for other storages"); }
        if (d_.cyclic != problem_.cyclic) { return wrong_plan("cyclic and one-shot differ"); }
        if (d_.chunk_bytes != problem_.chunk_bytes) { return wrong_plan("chunk size"); }
        return {};
    }

    // What the problem says.

    void find_storages() {
        for (std::uint32_t s = 0; s < problem_.storages(); ++s) {
            if (d_.storage_bytes[s] != 0) { by_offset_.emplace_back(d_.storage_offsets[s], s); }
        }
        residency::detail::sort(by_offset_);
    }
    void find_kept() {
        kept_.assign(problem_.storages(), false);
        for (const std::uint32_t s : problem_.kept) { kept_[s] = true; }
    }
    void find_readers() {
        first_.assign(problem_.storages(), none);
        last_.assign(problem_.storages(), none);
        readers_.resize(problem_.storages());
        for (std::uint32_t i = 0; i < d_.steps; ++i) {
            for (const std::uint32_t s : problem_.reads(i)) {
                if (first_[s] == none) { first_[s] = i; }
                last_[s] = i;
                readers_[s].push_back(i);
            }
        }
    }
    /// Cyclic: whether what is brought for step `needed_by` is read by earlier steps too: those of the next pass.
    [[nodiscard]] bool is_read_before(std::uint32_t s, std::uint32_t needed_by) const {
        return d_.cyclic && first_[s] != none && first_[s] < needed_by;
    }
    /// The last reader of what a call brings for step `needed_by`; steps of the next pass count from the number of steps on.
    [[nodiscard]] std::uint32_t last_after(std::uint32_t s, std::uint32_t needed_by) const {
        std::uint32_t result = last_[s];
        if (!is_read_before(s, needed_by)) { return result; }
        for (const std::uint32_t i : readers_[s]) {
            if (i < needed_by) { result = d_.steps + i; }
        }
        return result;
    }

    // What the plan brings.

    [[nodiscard]] Status bring_calls() {
        is_for_next_.assign(plan_.chunks(), false);
        for (std::uint32_t k = 0; k < calls_; ++k) {
            for (std::uint32_t c = d_.calls[k].copies_begin; c < d_.calls[k].copies_end; ++c) {
                if (Status good = bring(d_.copies[c], k); !good) { return good; }
            }
        }
        return {};
    }
    [[nodiscard]] Status bring_residents() {
        for (const Copy& copy : d_.residents) {
            if (Status good = bring_resident(copy); !good) { return good; }
        }
        return {};
    }
    /// What the first pass begins with leaves as what a call brought in the pass before would. Of several troubles the last is told.
    [[nodiscard]] Status bring_resident(const Copy& copy) {
        const std::uint64_t g = d_.chunk_bytes;
        Status all_good;
        std::uint64_t begin = copy.image_begin;
        while (begin < copy.image_end) {
            const bool is_begun_with = is_for_next_[begin / g];
            std::uint64_t end = begin;
            while (end < copy.image_end && is_for_next_[end / g] == is_begun_with) {
                end = (std::min)(copy.image_end, (end / g + 1) * g);
            }
            const std::size_t brought_before = brought_.size(), used_before = uses_.size();
            if (Status good = bring({begin, end, copy.needed_by}, none); !good) { all_good = std::move(good); }
            if (is_begun_with) {
                begun_with_.insert(begun_with_.end(), brought_.begin() + static_cast<std::ptrdiff_t>(brought_before),
                                   brought_.end());
                brought_.resize(brought_before);
                uses_.resize(used_before);
            }
            begin = end;
        }
        return all_good;
    }
    /// Notes the ranges of storages that a copy brings, and their device bytes. `call`: none for a resident.
    [[nodiscard]] Status bring(const Copy& copy, std::uint32_t call) {
        auto at = std::upper_bound(by_offset_.begin(), by_offset_.end(), copy.image_begin,
                                   [](std::uint64_t x, const auto& entry) { return x < entry.first; });
        if (at != by_offset_.begin()) { --at; }
        std::uint64_t written = copy.image_begin;
        for (; at != by_offset_.end() && at->first < copy.image_end; ++at) {
            const std::uint32_t s = at->second;
            const std::uint64_t begin = (std::max)(copy.image_begin, at->first);
            const std::uint64_t end = (std::min)(copy.image_end, at->first + d_.storage_bytes[s]);
            if (begin >= end) { continue; }
            if (begin > written) { use_device(written, begin, {0, 0, call, none, none, 0}); }  // bytes between storages
            written = end;
            const StorageRange range{s, call, begin - at->first, end - at->first};
            brought_.push_back(range);
            const std::uint32_t last = call == none ? last_[s] : last_after(s, copy.needed_by);
            use_device(begin, end, {0, 0, call, last, s, range.begin});
            if (!is_read_before(s, copy.needed_by)) { continue; }
            if (call == none) { return comes_after_its_reader(s); }
            for_next_.push_back(range);
            for (const std::uint32_t c : chunks_of(begin, end, d_.chunk_bytes)) { is_for_next_[c] = true; }
        }
        if (written < copy.image_end) { use_device(written, copy.image_end, {0, 0, call, none, none, 0}); }
        return {};
    }
    /// Notes the device bytes of image bytes [begin, end), chunk by chunk.
    void use_device(std::uint64_t begin, std::uint64_t end, DeviceRange use) {
        const std::uint64_t g = d_.chunk_bytes;
        const std::uint64_t origin = begin - use.offset;
        while (begin < end) {
            const std::uint64_t c = begin / g;
            const std::uint64_t stop = (std::min)(end, (c + 1) * g);
            const std::uint64_t slot = d_.chunk_slot[c];
            use.begin = slot * g + begin % g;
            use.end = use.begin + (stop - begin);
            use.offset = begin - origin;
            uses_.push_back(use);
            begin = stop;
        }
    }

    // The rules.

    /// The first pass begins with all that later passes find there from the pass before.
    [[nodiscard]] Status check_begun_with() {
        residency::detail::sort(for_next_, by_place);
        residency::detail::sort(begun_with_, by_place);
        std::size_t begun = 0;
        for (const StorageRange& range : for_next_) {
            std::uint64_t at = range.begin;
            while (begun < begun_with_.size() && begun_with_[begun].storage < range.storage) { ++begun; }
            for (; begun < begun_with_.size() && begun_with_[begun].storage == range.storage &&
                   begun_with_[begun].begin <= at;
                 ++begun) {
                at = (std::max)(at, begun_with_[begun].end);
                if (at >= range.end) { break; }
            }
            if (at < range.end) { return comes_after_its_reader(range.storage); }
        }
        return {};
    }
    [[nodiscard]] Status check_kept() const {
        for (const StorageRange& range : brought_) {
            if (range.call != none && kept_[range.storage]) {
                return wrong_plan("kept storage " + std::to_string(range.storage) + " streams");
            }
        }
        return {};
    }
    /// Cyclic: residents and copies cover every storage that is read or kept exactly once.
    [[nodiscard]] Status check_covered_once() const {
        std::size_t p = 0;
        for (std::uint32_t s = 0; s < problem_.storages(); ++s) {
            std::uint64_t at = 0;
            const bool is_unread = first_[s] == none && !kept_[s];
            for (; p < brought_.size() && brought_[p].storage == s; ++p) {
                if (is_unread) { continue; }
                if (brought_[p].begin != at) { return not_covered(s, "once ", at); }
                at = brought_[p].end;
            }
            if (!is_unread && at != d_.storage_bytes[s]) { return not_covered(s, "", at); }
        }
        return {};
    }
    /// One-shot: each reader reads what the last call that it waits for has brought. Notes who reads what last.
    [[nodiscard]] Status check_read_in_time() {
        const std::vector<std::uint32_t> order = uses_by_storage();
        std::size_t o = 0;
        for (std::uint32_t s = 0; s < problem_.storages(); ++s) {
            std::uint64_t at = 0;
            while (at < d_.storage_bytes[s] && o < order.size() && uses_[order[o]].storage == s) {
                std::size_t stop = o;
                const std::uint64_t bytes = uses_[order[o]].end - uses_[order[o]].begin;
                while (stop < order.size() && uses_[order[stop]].storage == s && uses_[order[stop]].offset == at) {
                    DeviceRange& use = uses_[order[stop]];
                    if (use.end - use.begin != bytes) {
                        return wrong_plan("storage " + std::to_string(s) + " is cut at different places");
                    }
                    use.last = none;
                    ++stop;
                }
                if (stop == o) { break; }
                if (Status good = give_to_readers(s, std::span{order}.subspan(o, stop - o)); !good) { return good; }
                at += bytes;
                o = stop;
            }
            if (at != d_.storage_bytes[s] && !readers_[s].empty()) { return not_covered(s, "", at); }
            while (o < order.size() && uses_[order[o]].storage == s) { ++o; }
        }
        return {};
    }
    /// The uses by storage, place in it, and call.
    [[nodiscard]] std::vector<std::uint32_t> uses_by_storage() const {
        std::vector<std::uint32_t> order(uses_.size());
        for (std::uint32_t u = 0; u < uses_.size(); ++u) { order[u] = u; }
        residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
            const DeviceRange &x = uses_[a], &y = uses_[b];
            if (x.storage != y.storage) { return x.storage < y.storage; }
            if (x.offset != y.offset) { return x.offset < y.offset; }
            return x.call != y.call ? x.call + 1 < y.call + 1 : a < b;
        });
        return order;
    }
    /// `same`: the uses of the same bytes of a storage, in the order of their calls. Notes the last reader of each.
    [[nodiscard]] Status give_to_readers(std::uint32_t s, std::span<const std::uint32_t> same) {
        for (const std::uint32_t i : readers_[s]) {
            std::size_t k = same.size();
            while (k > 0 && uses_[same[k - 1]].call + 1 > d_.step_calls[i]) { --k; }
            if (k == 0) {
                return wrong_plan("step " + std::to_string(i) + " reads storage " + std::to_string(s) +
                                  " before it comes");
            }
            uses_[same[k - 1]].last = i;
        }
        return {};
    }
    /// Device bytes, swept by address: at each byte its users in the order of the calls, cyclically. A call that replaces them must
    /// wait for the end of the last reader of what was there.
    [[nodiscard]] Status check_overwritten() const {
        const std::vector<std::uint64_t> edges = device_edges();
        std::vector<std::vector<std::uint32_t>> starts(edges.size()), ends(edges.size());
        const auto edge_of = [&](std::uint64_t byte) {
            return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), byte) - edges.begin());
        };
        for (std::uint32_t u = 0; u < uses_.size(); ++u) {
            starts[edge_of(uses_[u].begin)].push_back(u);
            ends[edge_of(uses_[u].end)].push_back(u);
        }
        const EndedSteps ended = find_ended_steps();
        UsesByCall here;
        for (std::size_t e = 0; e < edges.size(); ++e) {
            for (const std::uint32_t u : ends[e]) { here.erase(uses_[u].call + 1); }
            for (const std::uint32_t u : starts[e]) {
                if (!here.emplace(uses_[u].call + 1, u).second) {
                    return wrong_plan("device byte " + std::to_string(edges[e]) + " is brought twice at once");
                }
            }
            if (here.empty()) { continue; }
            if (Status good = check_device_byte(edges[e], here, ended); !good) { return good; }
        }
        return {};
    }
    /// Where a use begins or ends, ascending.
    [[nodiscard]] std::vector<std::uint64_t> device_edges() const {
        std::vector<std::uint64_t> edges;
        for (const DeviceRange& use : uses_) {
            edges.push_back(use.begin);
            edges.push_back(use.end);
        }
        residency::detail::sort(edges);
        edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
        return edges;
    }
    [[nodiscard]] EndedSteps find_ended_steps() const {
        EndedSteps ended{std::vector<std::int64_t>(calls_, -1), std::vector<std::int64_t>(calls_, -1)};
        std::int64_t now = -1, then = -1;
        for (const Call& call : d_.calls) {
            then =
                (std::max<std::int64_t>)(then,
                                         call.wait.exists() && call.wait.pass == 0 ? std::int64_t{call.wait.step} : -1);
        }
        for (std::uint32_t k = 0; k < calls_; ++k) {
            const Wait wait = d_.calls[k].wait;
            if (wait.exists()) {
                (wait.pass == 0 ? now : then) = (std::max<std::int64_t>)(wait.pass == 0 ? now : then, wait.step);
            }
            ended.own[k] = now;
            ended.before[k] = now >= 0 ? d_.steps : then;
        }
        return ended;
    }
    /// `here`: the users of that device byte; not none.
    [[nodiscard]] Status check_device_byte(std::uint64_t byte, const UsesByCall& here, const EndedSteps& ended) const {
        const auto overwrites = [&](const DeviceRange& next) {
            return wrong_plan("call " + std::to_string(next.call) + " overwrites device byte " + std::to_string(byte) +
                              " before its last reader has ended");
        };
        const DeviceRange* before = nullptr;
        for (const auto& [key, u] : here) {
            const DeviceRange& next = uses_[u];
            if (before != nullptr) {
                if (before->call == none && d_.cyclic) { return overwrites(next); }
                if (before->last != none && ended.own[next.call] < static_cast<std::int64_t>(before->last)) {
                    return overwrites(next);
                }
            }
            before = &next;
        }
        const DeviceRange& head = uses_[here.begin()->second];
        if (d_.cyclic && head.call != none && before->last != none) {
            const bool is_for_this = before->last >= d_.steps;  // counted in the pass of the head
            const auto reader = static_cast<std::int64_t>(is_for_this ? before->last - d_.steps : before->last);
            if ((is_for_this ? ended.own : ended.before)[head.call] < reader) { return overwrites(head); }
        }
        return {};
    }

    const Plan& plan_;
    const PlanData& d_;
    const Problem& problem_;
    std::uint32_t calls_;

    std::vector<std::pair<std::uint64_t, std::uint32_t>> by_offset_;  // of storages with bytes
    std::vector<bool> kept_;                                          // by storage
    std::vector<std::uint32_t> first_, last_;                         // readers, by storage
    std::vector<std::vector<std::uint32_t>> readers_;                 // by storage; ascending

    std::vector<StorageRange> brought_;
    std::vector<DeviceRange> uses_;
    // Cyclic: what a call brings for a step is read by earlier steps too: those of the next pass. By chunk: the first pass begins with it.
    std::vector<bool> is_for_next_;
    std::vector<StorageRange> for_next_, begun_with_;  // by calls; by residents
};

}  // namespace detail

RESIDENCY_INLINE Status check_shape(const Plan& plan) { return detail::ShapeCheck{plan}.run(); }

RESIDENCY_INLINE Status check(const Plan& plan, const Problem& problem) {
    if (Status shape = check_shape(plan); !shape) { return shape; }
    return detail::ProblemCheck{plan, problem}.run();
}

}}}  // namespace residency::RESIDENCY_ABI::plan
