// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Plans for devices without virtual memory: whole storages at fixed offsets of one arena. Residents lie behind a contiguous ring,
/// which the streamed storages pass through in the order of use, from its beginning again where the next one does not fit.
class ArenaPlanner {
public:
    /// `image`: the layout on the host; its chunks do not matter. Keeps references.
    ArenaPlanner(const Problem& problem, const Image& image) : problem_{problem}, image_{image} {
        align_ = problem.alignment_bytes;
        std::vector<bool> pinned(problem.storages(), false);
        for (const std::uint32_t s : problem.pinned) { pinned[s] = true; }
        for (std::uint32_t s = 0; s < problem.storages(); ++s) {
            if (problem.storage_bytes[s] == 0) { continue; }
            if (pinned[s] || image.first_use[s] == none) {
                kept_.push_back(s);
                kept_bytes_ += room_of(s);
            } else {
                order_.push_back(s);
                total_ += room_of(s);
            }
        }
        std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
            if (image.first_use[a] != image.first_use[b]) { return image.first_use[a] < image.first_use[b]; }
            return image.last_use[a] != image.last_use[b] ? image.last_use[a] < image.last_use[b] : a < b;
        });
        everything_streams();
    }

    [[nodiscard]] std::uint64_t floor_bytes() const noexcept { return kept_bytes_ + floor_; }
    /// The step at which the floor is reached.
    [[nodiscard]] std::uint32_t floor_step() const noexcept { return floor_step_; }

    /// The best plan found. Precondition: budget_bytes >= floor_bytes().
    PlanData plan(std::uint64_t budget_bytes, bool captured, bool thorough) {
        const std::uint64_t room = budget_bytes - kept_bytes_;
        latency_ = captured ? problem_.link.node_latency_seconds : problem_.link.latency_seconds;
        best_seconds_ = 1e300;
        std::vector<std::uint8_t> streams(problem_.storages(), 0);
        if (total_ <= room) {
            best_ = streams;
            best_at_.assign(problem_.storages(), 0);
            best_ring_ = 0;
            return assemble(captured);
        }
        // Everything streams through what there is: by the offsets that the floor needs, and round and round.
        for (const std::uint32_t s : order_) { streams[s] = 1; }
        offsets_ = floor_offsets_;
        evaluate(streams, floor_);
        if (place(streams, room)) { evaluate(streams, room); }
        // A ring, and residents chosen by what the fluid relaxation streams of each step.
        std::vector<double> bytes(problem_.steps(), 0.0), compute(problem_.steps());
        std::uint64_t largest = 0;
        for (const std::uint32_t s : order_) {
            largest = (std::max)(largest, room_of(s));
            if (!apart(s)) { bytes[image_.first_use[s]] += static_cast<double>(room_of(s)); }
        }
        for (std::uint32_t i = 0; i < problem_.steps(); ++i) { compute[i] = problem_.compute(i); }
        Fluid fluid{bytes, compute, problem_.link.bytes_per_second};
        const double deficit = static_cast<double>(total_ - room);
        for (double ring = static_cast<double>(room);
             ring >= 1 && ring * 64 >= static_cast<double>((std::min)(largest, room)); ring *= thorough ? 0.9 : 0.75) {
            for (int kind = 0; kind < 2; ++kind) {
                if (kind == 0 && !fluid.solve(ring, deficit)) { continue; }
                choose(kind == 0 ? fluid.stream() : bytes, static_cast<std::uint64_t>(ring), room, streams);
            }
        }
        return assemble(captured);
    }

private:
    [[nodiscard]] std::uint64_t room_of(std::uint32_t s) const {
        return (problem_.storage_bytes[s] + align_ - 1) / align_ * align_;
    }
    [[nodiscard]] bool apart(std::uint32_t s) const { return image_.last_use[s] - image_.first_use[s] > 2; }

    // The lowest offsets at which every storage lies from its first to its last reader: what no plan of this kind goes below.
    void everything_streams() {
        floor_offsets_.assign(problem_.storages(), 0);
        std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> live;  // begin → end, last reader
        for (const std::uint32_t s : order_) {
            std::uint64_t at = 0;
            for (auto it = live.begin(); it != live.end();) {
                if (it->second.second < image_.first_use[s]) {
                    it = live.erase(it);
                    continue;
                }
                if (it->first >= at + room_of(s)) { break; }
                at = it->second.first;
                ++it;
            }
            floor_offsets_[s] = at;
            live[at] = {at + room_of(s), image_.last_use[s]};
            if (at + room_of(s) > floor_) {
                floor_ = at + room_of(s);
                floor_step_ = image_.first_use[s];
            }
        }
    }

    // Whole storages by error diffusion, as many as leave room for a ring of this size.
    void choose(const std::vector<double>& want, std::uint64_t ring, std::uint64_t room,
                std::vector<std::uint8_t>& streams) {
        const std::uint64_t target = total_ - room + ring;
        const auto run = [&](double scale) {
            double credit = 0;
            std::uint64_t sum = 0;
            std::uint32_t step = 0;
            for (const std::uint32_t s : order_) {
                for (; step <= image_.first_use[s]; ++step) { credit += want[step] * scale; }
                const auto bytes = static_cast<double>(room_of(s));
                streams[s] = !apart(s) && room_of(s) <= ring && credit >= bytes / 2 ? 1 : 0;
                if (streams[s] != 0) {
                    credit -= bytes;
                    sum += room_of(s);
                }
            }
            return sum;
        };
        double low = 0, high = 4;
        if (run(high) < target) { return; }
        for (int k = 0; k < 16; ++k) {
            const double middle = (low + high) / 2;
            (run(middle) < target ? low : high) = middle;
        }
        if (run(high) >= target && place(streams, ring)) { evaluate(streams, ring); }
    }

    // Offsets in a ring, in the order of use. False where a storage is larger than the ring.
    bool place(const std::vector<std::uint8_t>& streams, std::uint64_t ring) {
        offsets_.assign(problem_.storages(), 0);
        std::uint64_t at = 0;
        for (const std::uint32_t s : order_) {
            if (streams[s] == 0) { continue; }
            if (room_of(s) > ring) { return false; }
            if (at + room_of(s) > ring) { at = 0; }
            offsets_[s] = at;
            at += room_of(s);
        }
        return true;
    }

    // The waits that the offsets imply, and the time. Keeps the best.
    void evaluate(const std::vector<std::uint8_t>& streams, std::uint64_t ring) {
        if (!wait_for(streams, offsets_)) { return; }
        const double seconds = problem_.cyclic ? solver_.period(line_, 1e-6, best_seconds_) : solver_.once(line_);
        if (seconds < best_seconds_) {
            best_seconds_ = seconds;
            best_ = streams;
            best_at_ = offsets_;
            best_ring_ = ring;
        }
    }

    // One call a storage, or several storages that one step reads first and that follow the same reader. False where a reader is
    // not over when the next storage of its bytes is needed.
    bool wait_for(const std::vector<std::uint8_t>& streams, const std::vector<std::uint64_t>& offsets) {
        line_.calls.clear();
        line_.compute.resize(problem_.steps());
        for (std::uint32_t i = 0; i < problem_.steps(); ++i) { line_.compute[i] = problem_.compute(i); }
        members_.clear();
        struct Held {
            std::uint64_t end;
            std::uint32_t last;
            bool previous;
        };
        std::map<std::uint64_t, Held> held;  // by first byte, disjoint
        for (int pass = 0; pass < 2; ++pass) {
            for (auto& [begin, h] : held) { h.previous = true; }
            for (const std::uint32_t s : order_) {
                if (streams[s] == 0) { continue; }
                const std::uint64_t begin = offsets[s], end = begin + room_of(s);
                auto it = held.upper_bound(begin);
                if (it != held.begin() && std::prev(it)->second.end > begin) { --it; }
                std::int64_t now = -1, then = -1;
                while (it != held.end() && it->first < end) {
                    const Held h = it->second;
                    (h.previous ? then : now) = (std::max<std::int64_t>)(h.previous ? then : now, h.last);
                    const std::uint64_t h_begin = it->first;
                    it = held.erase(it);
                    if (h_begin < begin) { held[h_begin] = {begin, h.last, h.previous}; }
                    if (h.end > end) { it = held.insert_or_assign(end, h).first; }
                }
                held[begin] = {end, image_.last_use[s], false};
                if (now >= static_cast<std::int64_t>(image_.first_use[s])) { return false; }
                if (pass == 0) { continue; }
                Timeline::Call call{
                    latency_ + static_cast<double>(problem_.storage_bytes[s]) / problem_.link.bytes_per_second,
                    image_.first_use[s], none, false};
                if (now >= 0) {
                    call.wait_step = static_cast<std::uint32_t>(now);
                } else if (problem_.cyclic && then >= 0) {
                    call.wait_step = static_cast<std::uint32_t>(then);
                    call.wait_previous = true;
                }
                if (!line_.calls.empty()) {
                    Timeline::Call& back = line_.calls.back();
                    if (back.needed_by == call.needed_by && back.wait_step == call.wait_step &&
                        back.wait_previous == call.wait_previous) {
                        back.seconds += call.seconds - latency_;
                        members_.back().push_back(s);
                        continue;
                    }
                }
                line_.calls.push_back(call);
                members_.push_back({s});
            }
        }
        return true;
    }

    PlanData assemble(bool captured) {
        PlanData data;
        data.layout = Layout::arena;
        data.cyclic = problem_.cyclic;
        data.captured = captured;
        data.chunk_bytes = problem_.chunk_bytes;
        data.image_bytes = image_.bytes;
        data.steps = problem_.steps();
        data.storage_offsets = image_.offsets;
        data.storage_bytes = problem_.storage_bytes;
        static_cast<void>(wait_for(best_, best_at_));
        const auto copy_of = [&](std::uint32_t s, std::uint64_t to) {
            return Copy{image_.offsets[s], image_.offsets[s] + problem_.storage_bytes[s], to, image_.first_use[s]};
        };
        for (std::size_t k = 0; k < line_.calls.size(); ++k) {
            const Timeline::Call& timing = line_.calls[k];
            const Wait wait{timing.wait_step, timing.wait_previous ? -1 : 0};
            auto begin = static_cast<std::uint32_t>(data.copies.size());
            for (const std::uint32_t s : members_[k]) {
                data.copies.push_back(copy_of(s, best_at_[s]));
                const auto end = static_cast<std::uint32_t>(data.copies.size());
                if (captured) {
                    data.calls.push_back({begin, end, wait, timing.needed_by});
                    begin = end;
                }
            }
            if (!captured) {
                data.calls.push_back({begin, static_cast<std::uint32_t>(data.copies.size()), wait, timing.needed_by});
            }
        }
        std::uint64_t at = best_ring_;
        std::vector<std::uint32_t> residents = kept_;
        for (const std::uint32_t s : order_) {
            if (best_[s] == 0) { residents.push_back(s); }
        }
        std::sort(residents.begin(), residents.end(), [&](std::uint32_t a, std::uint32_t b) {
            return image_.first_use[a] != image_.first_use[b] ? image_.first_use[a] < image_.first_use[b] : a < b;
        });
        for (const std::uint32_t s : residents) {
            data.residents.push_back(copy_of(s, at));
            at += room_of(s);
        }
        data.held_bytes = at;
        data.step_calls.assign(data.steps, 0);
        for (const Call& call : data.calls) { ++data.step_calls[call.needed_by]; }
        for (std::uint32_t i = 1; i < data.steps; ++i) { data.step_calls[i] += data.step_calls[i - 1]; }
        for (const Copy& copy : data.copies) { data.bytes_per_pass += copy.bytes(); }
        return data;
    }

    const Problem& problem_;
    const Image& image_;
    std::uint64_t align_ = 1, kept_bytes_ = 0, total_ = 0, floor_ = 0, best_ring_ = 0;
    std::uint32_t floor_step_ = none;
    double latency_ = 0, best_seconds_ = 0;
    std::vector<std::uint32_t> kept_, order_;
    std::vector<std::uint64_t> floor_offsets_, offsets_, best_at_;
    std::vector<std::uint8_t> best_;
    std::vector<std::vector<std::uint32_t>> members_;  // storages of each call
    Timeline line_;
    TimelineSolver solver_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan
