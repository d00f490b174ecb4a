// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/simulation/access.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// What a byte holds.
enum class Content : std::uint8_t { uninitialised, written, freed };

/// The access history of one piece of physical memory: for every byte, the operation that wrote it last and those that have read it
/// since. Its intervals are sorted, cover the memory and do not overlap. The method is FastTrack (Flanagan and Freund, 2009), on
/// ranges instead of variables.
///
/// A Sink takes findings: `conflict(access, wrote, begin, end)`, `uninitialised(access, begin, end)`, `dead(access, begin, end)`, where
/// `access` is the earlier operation and the offsets are bytes. Its `later(access)` says whether an access called earlier is known
/// to run after the present one.
class ShadowMemory {
public:
    /// Begins anew for `bytes` bytes, which `access` made.
    void reset(AccessLists& lists, std::uint64_t bytes, Content content, const Access& access) {
        clear(lists);
        intervals_.push_back({0, bytes, access, content, 0});
    }
    void clear(AccessLists& lists) noexcept {
        for (Interval& interval : intervals_) { lists.clear(interval.reads); }
        intervals_.clear();
        hint_ = 0;
    }

    /// Notes and checks a read of [begin, end) by `access` at `clock`. `exclusive`: the parts of the operation are not ordered among
    /// themselves.
    template <class Sink>
    void read(AccessLists& lists, std::uint64_t begin, std::uint64_t end, const Access& access,
              const VectorClock& clock, bool exclusive, Sink& sink) {
        const std::size_t first = split(lists, begin);
        std::size_t i = first;
        for (; i < intervals_.size() && intervals_[i].begin < end; ++i) {
            if (intervals_[i].end > end) { split_at(lists, i, end); }
            Interval& interval = intervals_[i];
            if (interval.content == Content::freed) {
                sink.dead(interval.last, interval.begin, interval.end);
            } else if (unordered(interval.last, access, clock, exclusive, sink)) {
                sink.conflict(interval.last, true, interval.begin, interval.end);
            } else if (interval.content == Content::uninitialised) {
                sink.uninitialised(interval.last, interval.begin, interval.end);
            }
            lists.add(interval.reads, access, clock);
        }
        merge(lists, first, i);
        hint_ = first;
    }

    /// Notes and checks a write, as read(). `content`: written, or freed by a deallocation. Freed bytes stay freed.
    template <class Sink>
    void write(AccessLists& lists, std::uint64_t begin, std::uint64_t end, const Access& access,
               const VectorClock& clock, bool exclusive, Content content, Sink& sink) {
        const std::size_t first = split(lists, begin);
        std::size_t i = first;
        bool kept = false;
        for (; i < intervals_.size() && intervals_[i].begin < end; ++i) {
            if (intervals_[i].end > end) { split_at(lists, i, end); }
            Interval& interval = intervals_[i];
            if (interval.content == Content::freed) {
                sink.dead(interval.last, interval.begin, interval.end);
                kept = true;
                continue;
            }
            if (unordered(interval.last, access, clock, exclusive, sink)) {
                sink.conflict(interval.last, true, interval.begin, interval.end);
            } else {
                lists.for_each(interval.reads, [&](const Access& read) {
                    if (unordered(read, access, clock, exclusive, sink)) {
                        sink.conflict(read, false, interval.begin, interval.end);
                    }
                });
            }
            lists.filter(interval.reads, [&](const Access& read) { return sink.later(read); });
            if (sink.later(interval.last)) {
                kept = true;
                continue;
            }
            kept = kept || interval.reads != 0;
            interval.last = access;
            interval.content = content;
        }
        if (!kept) { join(first, i); }
        hint_ = first;
    }

    /// An allocator has handed the bytes out again: what was known of them is forgotten, unchecked.
    void assign(AccessLists& lists, std::uint64_t begin, std::uint64_t end, const Access& access, Content content) {
        const std::size_t first = split(lists, begin);
        std::size_t i = first;
        for (; i < intervals_.size() && intervals_[i].begin < end; ++i) {
            if (intervals_[i].end > end) { split_at(lists, i, end); }
            lists.clear(intervals_[i].reads);
        }
        intervals_[first].last = access;
        intervals_[first].content = content;
        join(first, i);
    }

    /// Calls f(access, wrote, begin, end) for every known access of bytes in [begin, end).
    template <class F>
    void for_each(const AccessLists& lists, std::uint64_t begin, std::uint64_t end, F&& f) const {
        for (const Interval& interval : intervals_) {
            if (interval.end <= begin || interval.begin >= end) { continue; }
            f(interval.last, true, interval.begin, interval.end);
            lists.for_each(interval.reads, [&](const Access& read) { f(read, false, interval.begin, interval.end); });
        }
    }

    /// The number of intervals.
    [[nodiscard]] std::size_t size() const noexcept { return intervals_.size(); }

private:
    struct Interval {
        std::uint64_t begin = 0, end = 0;
        Access last;  ///< the write, allocation or deallocation that made the content
        Content content = Content::uninitialised;
        AccessLists::List reads = 0;  ///< since `last`
    };

    /// Whether nothing orders `earlier` and `access`.
    template <class Sink>
    static bool unordered(const Access& earlier, const Access& access, const VectorClock& clock, bool exclusive,
                          Sink& sink) {
        if (earlier.sequence == access.sequence) { return exclusive; }
        return !earlier.before(clock) && !sink.later(earlier);
    }

    /// The index of the interval that begins at `at`; the interval around it is split if there is none.
    std::size_t split(AccessLists& lists, std::uint64_t at) {
        for (std::size_t guess = hint_; guess < hint_ + 2 && guess < intervals_.size(); ++guess) {
            if (intervals_[guess].begin == at) { return guess; }
        }
        const auto after =
            std::upper_bound(intervals_.begin(), intervals_.end(), at,
                             [](std::uint64_t value, const Interval& interval) { return value < interval.begin; });
        const auto index = static_cast<std::size_t>(after - intervals_.begin()) - 1;
        if (intervals_[index].begin == at) { return index; }
        split_at(lists, index, at);
        return index + 1;
    }
    /// Splits one interval in two.
    void split_at(AccessLists& lists, std::size_t index, std::uint64_t at) {
        Interval right = intervals_[index];
        right.begin = at;
        right.reads = lists.copy(right.reads);
        intervals_[index].end = at;
        intervals_.insert(intervals_.begin() + static_cast<std::ptrdiff_t>(index) + 1, right);
    }
    /// Replaces the intervals [first, last) by one with the state of the first.
    void join(std::size_t first, std::size_t last) {
        if (last == first + 1) { return; }
        intervals_[first].end = intervals_[last - 1].end;
        intervals_.erase(intervals_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                         intervals_.begin() + static_cast<std::ptrdiff_t>(last));
    }
    /// Joins neighbours of equal state in [first - 1, last + 1).
    void merge(AccessLists& lists, std::size_t first, std::size_t last) {
        std::size_t i = first == 0 ? 0 : first - 1;
        std::size_t to = i;
        const std::size_t stop = (std::min)(last + 1, intervals_.size());
        for (++i; i < stop; ++i) {
            Interval& left = intervals_[to];
            Interval& right = intervals_[i];
            if (left.last.sequence == right.last.sequence && left.content == right.content &&
                lists.same(left.reads, right.reads)) {
                left.end = right.end;
                lists.clear(right.reads);
            } else if (++to != i) {
                intervals_[to] = right;
            }
        }
        if (to + 1 == stop) { return; }
        intervals_.erase(intervals_.begin() + static_cast<std::ptrdiff_t>(to) + 1,
                         intervals_.begin() + static_cast<std::ptrdiff_t>(stop));
    }

    std::vector<Interval> intervals_;
    std::size_t hint_ = 0;  // index of the interval where the last access began
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
