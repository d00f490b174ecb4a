// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

[[nodiscard]] inline Status wrong_plan(const std::string& what) { return Error{ErrorKind::mismatch, "plan: " + what}; }

}  // namespace detail

RESIDENCY_INLINE Status check_shape(const Plan& plan) {
    const PlanData& d = plan.data();
    const auto wrong = [](const std::string& what) { return detail::wrong_plan(what); };
    const auto number = [](auto x) { return std::to_string(x); };
    const std::uint64_t g = d.chunk_bytes;
    const std::uint32_t n = d.steps;
    if (d.storage_offsets.size() != d.storage_bytes.size()) { return wrong("storages and offsets differ"); }
    if (d.storage_bytes.size() >= none) { return wrong("too many storages"); }
    if (n == none || d.step_calls.size() != n) { return wrong("step_calls has the wrong length"); }
    if (d.copies.size() >= none || d.calls.size() >= none || d.residents.size() >= none) {
        return wrong("too many copies");
    }
    if (d.held_bytes > d.budget_bytes) {
        return wrong("holds " + number(d.held_bytes) + " bytes of " + number(d.budget_bytes));
    }
    if (g == 0 || (g & (g - 1)) != 0 || d.held_bytes % g != 0 || d.image_bytes / g >= none - 1) {
        return wrong("chunk size");
    }
    for (const double seconds :
         {d.predicted_seconds, d.compute_seconds, d.bound_seconds, d.usual_bound_seconds, d.latency_floor_seconds}) {
        if (!residency::detail::is_not_negative(seconds)) { return wrong("a time that is negative or no number"); }
    }

    std::vector<std::uint32_t> order;
    for (std::uint32_t s = 0; s < d.storage_bytes.size(); ++s) {
        if (d.storage_bytes[s] == 0) { continue; }
        if (d.storage_offsets[s] > d.image_bytes || d.storage_bytes[s] > d.image_bytes - d.storage_offsets[s]) {
            return wrong("storage " + number(s) + " lies outside the image");
        }
        order.push_back(s);
    }
    residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        return d.storage_offsets[a] != d.storage_offsets[b] ? d.storage_offsets[a] < d.storage_offsets[b] : a < b;
    });
    for (std::size_t k = 1; k < order.size(); ++k) {
        if (d.storage_offsets[order[k - 1]] + d.storage_bytes[order[k - 1]] > d.storage_offsets[order[k]]) {
            return wrong("storages " + number(order[k - 1]) + " and " + number(order[k]) + " overlap");
        }
    }

    const std::uint64_t count = d.image_bytes / g + (d.image_bytes % g != 0 ? 1 : 0);
    if (d.chunk_slot.size() != count) { return wrong("chunk_slot has the wrong length"); }
    for (const std::uint32_t slot : d.chunk_slot) {
        if (slot != none && slot >= d.held_bytes / g) { return wrong("slot " + number(slot) + " is not held"); }
    }
    const auto trouble_of = [&](const Copy& copy) -> const char* {
        if (copy.image_begin >= copy.image_end || copy.image_end > d.image_bytes) { return "leaves the image"; }
        for (const std::uint32_t c : plan.chunks_of_copy(copy)) {
            if (d.chunk_slot[c] == none) { return "brings a chunk that has no slot"; }
        }
        return nullptr;
    };
    for (std::size_t k = 0; k < d.residents.size(); ++k) {
        const Copy& copy = d.residents[k];
        if (const char* trouble = trouble_of(copy)) { return wrong("resident " + number(k) + " " + trouble); }
        if (copy.needed_by != none && copy.needed_by >= n) {
            return wrong("resident " + number(k) + " is needed by no step");
        }
        if (k > 0 && d.residents[k - 1].needed_by > copy.needed_by) {
            return wrong("resident " + number(k) + " is out of order");
        }
    }
    for (std::size_t k = 0; k < d.copies.size(); ++k) {
        if (const char* trouble = trouble_of(d.copies[k])) { return wrong("copy " + number(k) + " " + trouble); }
        if (d.copies[k].needed_by >= n) { return wrong("copy " + number(k) + " is needed by no step"); }
    }

    const auto calls = static_cast<std::uint32_t>(d.calls.size());
    std::uint32_t covered = 0, needed = 0;
    for (std::uint32_t k = 0; k < calls; ++k) {
        const Call& call = d.calls[k];
        const std::string name = "call " + number(k);
        if (call.copies_begin != covered || call.copies_end <= covered || call.copies_end > d.copies.size()) {
            return wrong(name + " does not continue the copies");
        }
        covered = call.copies_end;
        if (d.captured && call.copies_end != call.copies_begin + 1) {
            return wrong("captured " + name + " has several copies");
        }
        if (call.needed_by >= n || call.needed_by < needed) { return wrong(name + " is out of order"); }
        needed = call.needed_by;
        std::uint32_t least = none;
        for (std::uint32_t c = call.copies_begin; c < call.copies_end; ++c) {
            least = (std::min)(least, d.copies[c].needed_by);
        }
        if (least != call.needed_by) { return wrong(name + " is needed by another step than its copies"); }
        if (!call.wait.exists()) { continue; }
        if (call.wait.step >= n || call.wait.pass < -1 || call.wait.pass > 0) {
            return wrong(name + " waits for no step");
        }
        if (call.wait.pass == 0 && call.wait.step >= call.needed_by) {
            return wrong(name + " waits for a step that needs it");
        }
        if (call.wait.pass < 0 && !d.cyclic) { return wrong(name + " of a one-shot plan waits for a pass before"); }
    }
    if (covered != d.copies.size()) { return wrong("copies belong to no call"); }
    for (std::uint32_t i = 0, k = 0; i < n; ++i) {
        while (k < calls && d.calls[k].needed_by <= i) { ++k; }
        if (d.step_calls[i] != k) { return wrong("step " + number(i) + " waits for the wrong calls"); }
    }
    if (d.cut > calls || (d.cut != 0 && !d.captured)) { return wrong("a cut without calls"); }
    for (std::uint32_t k = 0; k < d.cut; ++k) {
        if (d.calls[k].wait.exists() && d.calls[k].wait.pass == 0) {
            return wrong("call " + number(k) + " is cut off from what it waits for");
        }
    }
    return {};
}

RESIDENCY_INLINE Status check(const Plan& plan, const Problem& problem) {
    if (Status shape = check_shape(plan); !shape) { return shape; }
    const PlanData& d = plan.data();
    const auto wrong = [](const std::string& what) { return detail::wrong_plan(what); };
    const auto number = [](auto x) { return std::to_string(x); };
    const std::uint32_t n = problem.steps(), calls = static_cast<std::uint32_t>(d.calls.size());
    const std::uint64_t g = d.chunk_bytes;
    if (d.steps != n) { return wrong(number(d.steps) + " steps, the schedule has " + number(n)); }
    if (d.storage_bytes != problem.storage_bytes) { return wrong("made for other storages"); }
    if (d.cyclic != problem.cyclic) { return wrong("cyclic and one-shot differ"); }
    if (g != problem.chunk_bytes) { return wrong("chunk size"); }
    std::vector<std::pair<std::uint64_t, std::uint32_t>> by_offset;  // of storages with bytes
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (d.storage_bytes[s] != 0) { by_offset.emplace_back(d.storage_offsets[s], s); }
    }
    residency::detail::sort(by_offset);
    std::vector<std::uint32_t> first(problem.storages(), none), last(problem.storages(), none);
    std::vector<std::vector<std::uint32_t>> readers(problem.storages());  // ascending
    for (std::uint32_t i = 0; i < n; ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (first[s] == none) { first[s] = i; }
            last[s] = i;
            readers[s].push_back(i);
        }
    }

    // Every range of a storage that a resident or a copy brings, with its device bytes.
    struct StorageRange {
        std::uint32_t storage, call;  // none: resident
        std::uint64_t begin, end;     // bytes of the storage
    };
    struct DeviceRange {
        std::uint64_t begin, end;  // device bytes
        std::uint32_t call;        // none: resident
        std::uint32_t last;        // reader; none: none
        std::uint32_t storage;
        std::uint64_t offset;  // in the storage
    };
    std::vector<StorageRange> brought;
    std::vector<DeviceRange> uses;
    std::string trouble;
    // Cyclic: what a call brings for a step is read by earlier steps too: those of the next pass. By chunk: the first pass begins with it.
    std::vector<bool> is_for_next(plan.chunks(), false);
    std::vector<StorageRange> for_next, begun_with;  // by calls; by residents
    // The last reader of what a call brings for step `needed_by`; steps of the next pass count from n on.
    const auto last_after = [&](std::uint32_t s, std::uint32_t needed_by) {
        std::uint32_t result = last[s];
        if (!d.cyclic || first[s] == none || first[s] >= needed_by) { return result; }
        for (const std::uint32_t i : readers[s]) {
            if (i < needed_by) { result = n + i; }
        }
        return result;
    };
    const auto bring = [&](const Copy& copy, std::uint32_t call) {
        const auto device = [&](std::uint64_t begin, std::uint64_t end,
                                DeviceRange use) {  // image bytes → device bytes
            const std::uint64_t origin = begin - use.offset;
            while (begin < end) {
                const std::uint64_t c = begin / g;
                const std::uint64_t stop = (std::min)(end, (c + 1) * g);
                const std::uint64_t slot = d.chunk_slot[c];
                use.begin = slot * g + begin % g;
                use.end = use.begin + (stop - begin);
                use.offset = begin - origin;
                uses.push_back(use);
                begin = stop;
            }
        };
        auto at = std::upper_bound(by_offset.begin(), by_offset.end(), copy.image_begin,
                                   [](std::uint64_t x, const auto& entry) { return x < entry.first; });
        if (at != by_offset.begin()) { --at; }
        std::uint64_t written = copy.image_begin;
        for (; at != by_offset.end() && at->first < copy.image_end; ++at) {
            const std::uint32_t s = at->second;
            const std::uint64_t begin = (std::max)(copy.image_begin, at->first);
            const std::uint64_t end = (std::min)(copy.image_end, at->first + d.storage_bytes[s]);
            if (begin >= end) { continue; }
            if (begin > written) { device(written, begin, {0, 0, call, none, none, 0}); }  // bytes between storages
            written = end;
            const StorageRange range{s, call, begin - at->first, end - at->first};
            brought.push_back(range);
            device(begin, end, {0, 0, call, call == none ? last[s] : last_after(s, copy.needed_by), s, range.begin});
            if (!d.cyclic || first[s] == none || first[s] >= copy.needed_by) { continue; }
            if (call == none) {
                trouble = "storage " + number(s) + " comes after step " + number(first[s]) + " that reads it";
                return;
            }
            for_next.push_back(range);
            for (const std::uint32_t c : chunks_of(begin, end, g)) { is_for_next[c] = true; }
        }
        if (written < copy.image_end) { device(written, copy.image_end, {0, 0, call, none, none, 0}); }
    };
    for (std::uint32_t k = 0; k < calls; ++k) {
        for (std::uint32_t c = d.calls[k].copies_begin; c < d.calls[k].copies_end && trouble.empty(); ++c) {
            bring(d.copies[c], k);
        }
    }
    // What the first pass begins with leaves as what a call brought in the pass before would.
    for (const Copy& copy : d.residents) {
        if (!trouble.empty()) { break; }
        std::uint64_t begin = copy.image_begin;
        while (begin < copy.image_end) {
            const bool is_begun_with = is_for_next[begin / g];
            std::uint64_t end = begin;
            while (end < copy.image_end && is_for_next[end / g] == is_begun_with) {
                end = (std::min)(copy.image_end, (end / g + 1) * g);
            }
            const std::size_t brought_before = brought.size(), used_before = uses.size();
            bring({begin, end, copy.needed_by}, none);
            if (is_begun_with) {
                begun_with.insert(begun_with.end(), brought.begin() + static_cast<std::ptrdiff_t>(brought_before),
                                  brought.end());
                brought.resize(brought_before);
                uses.resize(used_before);
            }
            begin = end;
        }
    }
    if (!trouble.empty()) { return wrong(trouble); }
    const auto by_place = [](const StorageRange& a, const StorageRange& b) {
        return a.storage != b.storage ? a.storage < b.storage : a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    };
    residency::detail::sort(for_next, by_place);
    residency::detail::sort(begun_with, by_place);
    std::size_t begun = 0;
    for (const StorageRange& range : for_next) {
        std::uint64_t at = range.begin;
        while (begun < begun_with.size() && begun_with[begun].storage < range.storage) { ++begun; }
        for (; begun < begun_with.size() && begun_with[begun].storage == range.storage && begun_with[begun].begin <= at;
             ++begun) {
            at = (std::max)(at, begun_with[begun].end);
            if (at >= range.end) { break; }
        }
        if (at < range.end) {
            return wrong("storage " + number(range.storage) + " comes after step " + number(first[range.storage]) +
                         " that reads it");
        }
    }

    residency::detail::sort(brought, by_place);
    std::vector<bool> pinned(problem.storages(), false);
    for (const std::uint32_t s : problem.pinned) { pinned[s] = true; }
    for (const StorageRange& range : brought) {
        if (range.call != none && pinned[range.storage]) {
            return wrong("pinned storage " + number(range.storage) + " streams");
        }
    }
    if (d.cyclic) {
        std::size_t p = 0;
        for (std::uint32_t s = 0; s < problem.storages(); ++s) {
            std::uint64_t at = 0;
            const bool is_unread = first[s] == none && !pinned[s];
            for (; p < brought.size() && brought[p].storage == s; ++p) {
                if (is_unread) { continue; }
                if (brought[p].begin != at) {
                    return wrong("storage " + number(s) + " is not covered once at byte " + number(at));
                }
                at = brought[p].end;
            }
            if (!is_unread && at != d.storage_bytes[s]) {
                return wrong("storage " + number(s) + " is not covered at byte " + number(at));
            }
        }
    }

    // One-shot: each reader reads what the last call that it waits for has brought.
    if (!d.cyclic) {
        std::vector<std::uint32_t> order(uses.size());
        for (std::uint32_t u = 0; u < uses.size(); ++u) { order[u] = u; }
        residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
            const DeviceRange &x = uses[a], &y = uses[b];
            if (x.storage != y.storage) { return x.storage < y.storage; }
            if (x.offset != y.offset) { return x.offset < y.offset; }
            return x.call != y.call ? x.call + 1 < y.call + 1 : a < b;
        });
        std::size_t o = 0;
        for (std::uint32_t s = 0; s < problem.storages(); ++s) {
            std::uint64_t at = 0;
            while (at < d.storage_bytes[s] && o < order.size() && uses[order[o]].storage == s) {
                std::size_t stop = o;
                const std::uint64_t bytes = uses[order[o]].end - uses[order[o]].begin;
                while (stop < order.size() && uses[order[stop]].storage == s && uses[order[stop]].offset == at) {
                    DeviceRange& use = uses[order[stop]];
                    if (use.end - use.begin != bytes) {
                        return wrong("storage " + number(s) + " is cut at different places");
                    }
                    use.last = none;
                    ++stop;
                }
                if (stop == o) { break; }
                for (const std::uint32_t i : readers[s]) {
                    std::size_t k = stop;
                    while (k > o && uses[order[k - 1]].call + 1 > d.step_calls[i]) { --k; }
                    if (k == o) {
                        return wrong("step " + number(i) + " reads storage " + number(s) + " before it comes");
                    }
                    uses[order[k - 1]].last = i;
                }
                at += bytes;
                o = stop;
            }
            if (at != d.storage_bytes[s] && !readers[s].empty()) {
                return wrong("storage " + number(s) + " is not covered at byte " + number(at));
            }
            while (o < order.size() && uses[order[o]].storage == s) { ++o; }
        }
    }

    // Device bytes, swept by address: at each byte its users in the order of the calls, cyclically. A call that replaces them must
    // wait for the end of the last reader of what was there.
    std::vector<std::uint64_t> edges;
    for (const DeviceRange& use : uses) {
        edges.push_back(use.begin);
        edges.push_back(use.end);
    }
    residency::detail::sort(edges);
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::vector<std::vector<std::uint32_t>> starts(edges.size()), ends(edges.size());
    for (std::uint32_t u = 0; u < uses.size(); ++u) {
        starts[static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), uses[u].begin) - edges.begin())]
            .push_back(u);
        ends[static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), uses[u].end) - edges.begin())]
            .push_back(u);
    }
    // The greatest step that has ended before call k starts, because it or a call before it waits: of its own pass, of the one before.
    std::vector<std::int64_t> ended(calls, -1), ended_before(calls, -1);
    std::int64_t now = -1, then = -1;
    for (const Call& call : d.calls) {
        then = (std::max<std::int64_t>)(then,
                                        call.wait.exists() && call.wait.pass == 0 ? std::int64_t{call.wait.step} : -1);
    }
    for (std::uint32_t k = 0; k < calls; ++k) {
        const Wait wait = d.calls[k].wait;
        if (wait.exists()) {
            (wait.pass == 0 ? now : then) = (std::max<std::int64_t>)(wait.pass == 0 ? now : then, wait.step);
        }
        ended[k] = now;
        ended_before[k] = now >= 0 ? n : then;
    }
    std::map<std::uint32_t, std::uint32_t> here;  // call + 1 (0: resident) → use
    for (std::size_t e = 0; e < edges.size(); ++e) {
        for (const std::uint32_t u : ends[e]) { here.erase(uses[u].call + 1); }
        for (const std::uint32_t u : starts[e]) {
            if (!here.emplace(uses[u].call + 1, u).second) {
                return wrong("device byte " + number(edges[e]) + " is brought twice at once");
            }
        }
        if (here.empty()) { continue; }
        const auto overwrites = [&](const DeviceRange& next) {
            return wrong("call " + number(next.call) + " overwrites device byte " + number(edges[e]) +
                         " before its last reader has ended");
        };
        const DeviceRange* before = nullptr;
        for (const auto& [key, u] : here) {
            const DeviceRange& next = uses[u];
            if (before != nullptr) {
                if (before->call == none && d.cyclic) { return overwrites(next); }
                if (before->last != none && ended[next.call] < static_cast<std::int64_t>(before->last)) {
                    return overwrites(next);
                }
            }
            before = &next;
        }
        const DeviceRange& head = uses[here.begin()->second];
        if (d.cyclic && head.call != none && before->last != none) {
            const bool is_for_this = before->last >= n;  // counted in the pass of the head
            const auto reader = static_cast<std::int64_t>(is_for_this ? before->last - n : before->last);
            if ((is_for_this ? ended : ended_before)[head.call] < reader) { return overwrites(head); }
        }
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::plan
