// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace decoder {

/// Times of passes of one kind, in groups between two measurements of the link: on a machine that others use too, a time is worth as much
/// as what bare copies did just then.
class PassTimes {
public:
    /// `bytes_per_second`: of bare copies just now, or 0.
    explicit PassTimes(double bytes_per_second) : rate_{bytes_per_second} {}

    /// `counts`: nothing else was done meanwhile, or just before. Where no pass counts, all do.
    void add(std::chrono::nanoseconds time, bool counts) {
        all_.push_back(time);
        if (!counts) { return; }
        counted_.push_back(time);
        group_.push_back(time);
    }
    /// Ends a group.
    void add_link(double bytes_per_second) {
        if (!group_.empty()) {
            const double seconds = std::chrono::duration<double>{median(group_)}.count();
            bytes_.push_back(seconds * (rate_ + bytes_per_second) / 2);
        }
        group_.clear();
        rate_ = bytes_per_second;
    }

    [[nodiscard]] std::size_t passes() const { return counted_.empty() ? all_.size() : counted_.size(); }
    [[nodiscard]] std::chrono::nanoseconds median_time() const { return median(counted_.empty() ? all_ : counted_); }
    /// What bare copies move in the time of a pass: the median of the groups, or 0 without any.
    [[nodiscard]] double median_link_bytes() const { return median(bytes_); }
    [[nodiscard]] double rate() const { return rate_; }

private:
    template <class T>
    [[nodiscard]] static T median(std::vector<T> values) {
        if (values.empty()) { return {}; }
        std::sort(values.begin(), values.end());
        return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
    }

    double rate_;
    std::vector<std::chrono::nanoseconds> all_, counted_, group_;
    std::vector<double> bytes_;
};

}  // namespace decoder
