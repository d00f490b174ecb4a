// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/timeline.hpp"
#include "residency/plan/token_ring.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE TokenRing::TokenRing(const Problem& problem, const Image& image, const std::vector<bool>& hold,
                                      std::uint64_t budget_chunks, Config config)
    : config_{config} {
    const std::uint32_t n = problem.steps();
    rate_ = problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes);  // chunks a second
    latency_ = config.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    compute_.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) { compute_[i] = problem.compute(i); }
    std::uint64_t total = 0, held = 0;
    const double last_chunk =
        static_cast<double>(image.bytes % image.chunk_bytes) / static_cast<double>(image.chunk_bytes);
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        const Cell& cell = image.cells[c];
        if (hold[c]) {
            held += cell.chunks();
            continue;
        }
        std::uint32_t end = cell.chunk_end;
        if (end == image.chunks() && last_chunk > 0) {  // the chunk that is cheapest to bring comes first
            --end;
            parts_.push_back({cell.first, cell.last, end, end + 1, 1 - last_chunk});
        }
        if (cell.chunk_begin < end) { parts_.push_back({cell.first, cell.last, cell.chunk_begin, end, 0}); }
        total += cell.chunks();
    }
    std::sort(parts_.begin(), parts_.end(), [](const RingPart& a, const RingPart& b) {
        if (a.first != b.first) { return a.first < b.first; }
        if (a.last != b.last) { return a.last < b.last; }
        return a.missing != b.missing ? a.missing > b.missing : a.chunk_begin < b.chunk_begin;
    });
    part_offsets_.assign(n + 1, 0);
    capacity_.assign(n, 0.0);
    for (const RingPart& part : parts_) {
        capacity_[part.first] += part.chunks();
        ++part_offsets_[part.first + 1];
        if (part.missing > 0) { short_step_ = part.first; }
    }
    for (std::uint32_t i = 0; i < n; ++i) { part_offsets_[i + 1] += part_offsets_[i]; }
    if (config_.present != nullptr) {
        leaving_before_.assign(image.chunks() + std::size_t{1}, 0);
        absent_before_ = leaving_before_;
        for (std::uint32_t c = 0; c < image.chunks(); ++c) {
            const Presence presence = (*config_.present)[c];
            leaving_before_[c + 1] = leaving_before_[c] + (presence == Presence::resident ? 0 : 1);
            absent_before_[c + 1] = absent_before_[c] + (presence == Presence::absent ? 1 : 0);
        }
        leaving_.assign(n, 0.0);
        for (const RingPart& part : parts_) { leaving_[part.first] += leaving(part.chunk_begin, part.chunk_end); }
    }
    streamable_ = total;
    budget_ = budget_chunks > held ? budget_chunks - held : 0;
    deficit_ = total > budget_ ? total - budget_ : 0;
}

RESIDENCY_INLINE RingAssignment TokenRing::assignment(const RingSolution& solution) {
    RingAssignment out;
    out.slots_used = solution.slots;
    take_ = solution.take;
    place();
    std::size_t part = 0, p = 0;
    std::uint32_t in_part = 0;
    for (std::uint32_t call = 0; call < solution.line.calls.size(); ++call) {
        const Timeline::Call& timing = solution.line.calls[call];
        for (std::uint32_t k = 0; k < solution.call_pieces[call]; ++k, ++p) {
            const RingSolution::Piece& piece = solution.pieces[p];
            std::uint32_t slot =
                static_cast<std::uint32_t>(static_cast<std::uint64_t>(piece.block) * solution.slots / solution.blocks);
            for (std::uint32_t left = piece.chunks; left > 0;) {
                const Placed& now = placed_[part];
                const std::uint32_t x = (std::min)(left, now.chunks - in_part);
                out.moves.push_back({now.chunk_begin + in_part,
                                     now.chunk_begin + in_part + x,
                                     now.first,
                                     {timing.wait_step, timing.wait_previous ? -1 : 0},
                                     call,
                                     out.slots.size()});
                for (std::uint32_t c = 0; c < x; ++c) { out.slots.push_back(slot++); }
                left -= x;
                in_part += x;
                if (in_part == now.chunks) {
                    ++part;
                    in_part = 0;
                }
            }
        }
    }
    return out;
}

RESIDENCY_INLINE RingSolution TokenRing::search() {
    best_ = {};
    tried_.clear();
    done_.clear();
    const std::uint64_t n = compute_.size();
    const auto share_of = [&](std::uint64_t most) {
        return static_cast<std::uint64_t>(config_.share * static_cast<double>(most));
    };
    most_work_ = work() + share_of(config_.thorough ? (std::max<std::uint64_t>)(3000000, 6000 * n)
                                                    : (std::max<std::uint64_t>)(150000, 400 * n));
    const double piece = (std::max)(1.0, std::sqrt(latency_ * rate_ * static_cast<double>(deficit_) / 2));
    // A coarse grid over rings and pieces.
    std::vector<Choice> seeds;
    std::uint32_t last_slots = 0;
    for (double q = 2; q <= static_cast<double>(deficit_) + 1;
         q = (std::max)(q + 1, std::floor(q * (config_.thorough ? 1.25 : 1.5)))) {
        const std::uint32_t slots = slots_for(static_cast<std::uint32_t>(q));
        if (slots == last_slots || !fits(slots)) { continue; }
        last_slots = slots;
        for (const double size : {1.0, 4.0, piece, 2 * piece}) {
            attempt({slots, blocks_for(slots, size), 1, 2}, seeds);
        }
    }
    // From the best few, one change at a time for as long as it helps.
    const auto better = [](const Choice& a, const Choice& b) {
        return std::tie(a.seconds, a.slots, a.blocks, a.kind, a.phase) <
               std::tie(b.seconds, b.slots, b.blocks, b.kind, b.phase);
    };
    std::sort(seeds.begin(), seeds.end(), better);
    const std::size_t starts = (std::min<std::size_t>)(seeds.size(), config_.thorough ? 3 : 1);
    std::vector<Choice> found;
    for (std::size_t k = 0; k < starts; ++k) {
        Choice at = seeds[k];
        for (bool again = true; again;) {
            again = false;
            found.clear();
            const double p = static_cast<double>(at.slots) / at.blocks;
            for (std::uint8_t kind = 0; kind < 4; ++kind) { attempt({at.slots, at.blocks, kind, at.phase}, found); }
            for (const std::uint32_t b : {at.blocks - 1, at.blocks + 1, at.blocks / 2, at.blocks * 2, 1u, 2u, 3u}) {
                attempt({at.slots, b, at.kind, at.phase}, found);
            }
            for (const double f : {0.5, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.5}) {
                const auto slots = static_cast<std::uint32_t>((std::max)(1.0, std::round(at.slots * f)));
                attempt({slots, blocks_for(slots, p), at.kind, at.phase}, found);
                attempt({slots, at.blocks, at.kind, at.phase}, found);
            }
            for (const std::uint32_t s : {at.slots - 1, at.slots + 1}) {
                attempt({s, at.blocks, at.kind, at.phase}, found);
                attempt({s, blocks_for(s, p), at.kind, at.phase}, found);
            }
            for (std::uint8_t phase = 0; phase < 4; ++phase) { attempt({at.slots, at.blocks, at.kind, phase}, found); }
            const auto next = std::min_element(found.begin(), found.end(), better);
            if (next != found.end() && next->seconds < at.seconds * (1 - 1e-5)) {
                at = *next;
                again = true;
            }
        }
    }
    if (!best_.found) { return std::move(best_); }
    // Among those that are as fast, the one that moves the fewest bytes; then smaller rings for as long as they are as fast.
    const double limit = best_.seconds * (1 + 3e-4);
    Choice chosen{};
    for (const Choice& choice : done_) {
        if (choice.seconds <= limit && (chosen.slots == 0 || choice.slots < chosen.slots ||
                                        (choice.slots == chosen.slots && choice.seconds < chosen.seconds))) {
            chosen = choice;
        }
    }
    found.clear();
    for (double factor = 0.7; factor < 0.99; factor = (1 + factor) / 2) {
        for (bool again = true; again;) {
            again = false;
            const auto slots = static_cast<std::uint32_t>(chosen.slots * factor);
            const double size = static_cast<double>(chosen.slots) / chosen.blocks;
            found.clear();
            attempt({slots, blocks_for(slots, size), chosen.kind, chosen.phase}, found);
            for (const Choice& choice : found) {
                if (choice.seconds <= limit && choice.slots < chosen.slots) {
                    chosen = choice;
                    again = true;
                }
            }
        }
    }
    // Refine it and, where the link or the steps leave something to gain, some others that are nearly as fast.
    double compute = 0;
    for (const double c : compute_) { compute += c; }
    std::sort(done_.begin(), done_.end(), better);
    std::vector<Choice> starts_from{chosen};
    for (const Choice& choice : done_) {
        if (!config_.thorough || starts_from.size() > 2 || choice.seconds > best_.seconds * 1.02) { break; }
        const auto same = [&](const Choice& c) { return c.slots == choice.slots && c.blocks == choice.blocks; };
        if (std::none_of(starts_from.begin(), starts_from.end(), same)) { starts_from.push_back(choice); }
    }
    RingSolution answer;
    for (std::size_t k = 0; k < starts_from.size(); ++k) {
        if (k > 0 && answer.seconds <= (std::max)(compute, config_.target_seconds) * (1 + 3e-4)) { break; }
        best_.found = false;
        tried_.clear();
        attempt(starts_from[k], found);
        refine(share_of(!config_.thorough ? 100000 : k == 0 ? 2000000 : 500000));
        if (!answer.found || best_.seconds < answer.seconds * (1 - 3e-4)) { answer = best_; }
    }
    // A ring of one block, where a step that reads it is shorter than the call that the second block would cost.
    if (answer.seconds > config_.target_seconds * 1.01) {
        const double stop = latency_ + *std::min_element(compute_.begin(), compute_.end());
        const double middle = (std::max)(1.0, std::sqrt(stop * rate_ * static_cast<double>(deficit_)));
        for (const double slots :
             {std::floor(middle / 1.5), std::floor(middle), std::ceil(middle), std::ceil(middle * 1.5)}) {
            best_.found = false;
            alternate(static_cast<std::uint32_t>(slots));
            if (!best_.found || best_.seconds > answer.seconds * 1.02) { continue; }
            refine(config_.thorough ? 100000 : 10000);
            if (best_.seconds < answer.seconds * (1 - 3e-4)) { answer = best_; }
        }
    }
    return config_.present == nullptr ? answer : closest(std::move(answer));
}

// Chunks that are not there, of what stays and of the first round of what is placed: what a change brings.
RESIDENCY_INLINE std::uint64_t TokenRing::count_fresh(const std::vector<std::uint32_t>& sizes,
                                                      std::uint32_t blocks) const {
    std::uint64_t sum = 0;
    for (const RingPart& part : parts_) { sum += absent(part.chunk_begin, part.chunk_end); }
    std::uint32_t first_round = 0;
    for (std::uint32_t p = 0; p < blocks && p < sizes.size(); ++p) { first_round += sizes[p]; }
    for (const Placed& now : placed_) {
        const std::uint32_t skip = (std::min)(first_round, now.chunks);
        first_round -= skip;
        sum -= absent(now.chunk_begin + skip, now.chunk_begin + now.chunks);
    }
    return sum;
}

// Of rings about as large as this one that are nearly as fast (1e-3), the one found that costs least, what a change brings shared
// out among the passes that a plan may last.
RESIDENCY_INLINE RingSolution TokenRing::closest(RingSolution answer) {
    take_ = answer.take;
    place();
    answer.fresh = count_fresh(answer.sizes, answer.blocks);
    std::uint64_t there = 0, passing = 0;
    for (const RingPart& part : parts_) {
        const std::uint32_t not_there = absent(part.chunk_begin, part.chunk_end);
        there += part.chunks() - not_there;
        passing += leaving(part.chunk_begin, part.chunk_end) - not_there;
    }
    few_fresh_ = (budget_ > there ? budget_ - there : 0) + (deficit_ + answer.slots) / 128;
    if (answer.fresh <= few_fresh_) { return answer; }
    const std::uint64_t most = config_.thorough ? (std::max<std::uint64_t>)(100000, 200 * compute_.size())
                                                : (std::max<std::uint64_t>)(10000, 30 * compute_.size());
    most_work_ = work() + 2 * most;
    limit_ = answer.seconds * (1 + 1e-3);
    const double good_seconds = answer.seconds * (1 + 1e-4);
    const auto ends = [&] {
        return work() >= most_work_ || (best_.fresh <= few_fresh_ && best_.seconds <= good_seconds);
    };
    const auto rings = rings_near(answer.slots, answer.blocks, passing);
    best_ = std::move(answer);
    std::vector<RingSolution> slower;
    for (const auto& [slots, blocks] : rings) {
        const auto rounds = static_cast<std::uint32_t>((deficit_ + slots - 1) / slots + 1);
        for (int kind = 0; kind < 5; ++kind) {
            if (!wish_near(kind, slots, blocks)) { continue; }
            for (int phase = 0; phase < 4 && !ends(); ++phase) {
                RingSolution kept = std::exchange(best_, {});
                if (diffuse(slots, rounds, blocks, phase / 4.0)) {
                    static_cast<void>(try_take(slots, rounds, blocks, 1e300));
                }
                RingSolution now = std::exchange(best_, std::move(kept));
                if (!now.found) { continue; }
                if (is_closer(now, best_)) {
                    best_ = std::move(now);
                } else if (now.seconds > limit_ && now.fresh < best_.fresh) {
                    slower.push_back(std::move(now));
                }
            }
        }
    }
    // Small changes make some of those fast that are not, and the best one better.
    std::sort(slower.begin(), slower.end(),
              [](const RingSolution& a, const RingSolution& b) { return a.seconds < b.seconds; });
    slower.resize((std::min<std::size_t>)(slower.size(), 4));
    RingSolution found = std::move(best_);
    for (RingSolution& start : slower) {
        if (start.fresh >= found.fresh) { continue; }
        best_ = std::move(start);
        most_work_ = work() + most / 2;
        refine(most / 2);
        if (is_closer(best_, found)) { found = std::move(best_); }
    }
    best_ = std::move(found);
    most_work_ = work() + most;
    refine(most);
    limit_ = 0;
    return std::move(best_);
}

// Slots and blocks like those of a solution, or as many slots as passing chunks are there.
RESIDENCY_INLINE std::vector<std::pair<std::uint32_t, std::uint32_t>> TokenRing::rings_near(
    std::uint32_t slots, std::uint32_t blocks, std::uint64_t passing) const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> rings;
    const double size = static_cast<double>(slots) / blocks;
    for (const std::uint64_t wanted : {std::uint64_t{slots}, passing}) {
        if (wanted == 0 || wanted > slots + deficit_ / 50) { continue; }
        const std::uint32_t s = slots_for(static_cast<std::uint32_t>((deficit_ + wanted - 1) / wanted + 1));
        if (!fits(s)) { continue; }
        for (const std::uint32_t b : {blocks, blocks_for(s, size), blocks + 1, blocks - 1, blocks * 2, blocks / 2}) {
            const std::pair ring{s, b};
            if (b == 0 || b > s || std::find(rings.begin(), rings.end(), ring) != rings.end()) { continue; }
            rings.push_back(ring);
        }
    }
    return rings;
}

// want_: that steps stream what is no resident before, more or less of it where the fluid relaxation says so (kinds 0 to 2), evenly
// (3) or in proportion (4). False where that streams nothing.
RESIDENCY_INLINE bool TokenRing::wish_near(int kind, std::uint32_t slots, std::uint32_t blocks) {
    want_ = leaving_;
    double could_stream = 0;
    for (const double chunks : leaving_) { could_stream += chunks; }
    const double target = static_cast<double>(deficit_ + slots);
    double sum = could_stream;
    if (kind < 4) {
        std::vector<double> even = capacity_;
        if (kind < 3) {
            const double piece = static_cast<double>(slots) / blocks;
            const double less = piece * kind / 2;
            Fluid fluid{capacity_, compute_, rate_ / (1 + latency_ * rate_ / piece)};
            if (less >= slots || !fluid.solve(slots - less, static_cast<double>(deficit_) + less)) { return false; }
            even = fluid.stream();
        }
        const auto wish = [&](double factor) {
            sum = 0;
            for (std::size_t i = 0; i < even.size(); ++i) {
                const double x = factor * even[i];
                want_[i] = could_stream > target ? (std::min)(leaving_[i], x)
                                                 : (std::min)((std::max)(leaving_[i], x), capacity_[i]);
                sum += want_[i];
            }
            return sum < target;
        };
        double low = 0, high = 1;
        while (high < 1e6 && wish(high)) { high *= 2; }
        for (int k = 0; k < 20; ++k) {
            const double middle = (low + high) / 2;
            (wish(middle) ? low : high) = middle;
        }
        static_cast<void>(wish(high));
    }
    if (short_step_ != none) { want_[short_step_] = (std::max)(want_[short_step_], 1.0); }
    return sum > 0;
}

// Changes the best solution in small ways for as long as one helps: pieces and single chunks move to the next steps before and
// after, neighbouring pieces travel in one call or in two. `most`: of work().
RESIDENCY_INLINE void TokenRing::refine(std::uint64_t most) {
    std::vector<std::uint32_t> able;
    for (std::uint32_t i = 0; i < capacity_.size(); ++i) {
        if (capacity_[i] > 0) { able.push_back(i); }
    }
    sizes_ = best_.sizes;
    joins_ = best_.joins;
    joins_.resize(best_.pieces.size(), 0);
    std::vector<std::uint32_t> take = best_.take;
    const std::uint64_t stop = (std::min)(most_work_, work() + most);
    const auto ends = [&] {
        return work() >= stop || (limit_ > 0 ? best_.seconds <= limit_ && best_.fresh <= few_fresh_
                                             : best_.seconds <= config_.target_seconds * (1 + 2e-4));
    };
    const auto helps = [&] {
        const double before = best_.seconds;
        const std::uint64_t fresh = best_.fresh;
        const double now = try_take(best_.slots, best_.rounds, best_.blocks, (std::max)(before, limit_));
        return now < before * (1 - 1e-7) || (limit_ > 0 && best_.fresh < fresh);
    };
    // Calls that begin with each piece, of the best solution.
    std::vector<std::uint8_t> begins;
    const auto find_begins = [&] {
        begins.assign(joins_.size(), 0);
        std::size_t p = 0;
        for (const std::uint32_t count : best_.call_pieces) {
            begins[p] = 1;
            p += count;
        }
    };
    find_begins();
    const auto join = [&](std::size_t p) {
        if (begins[p] == 0 && joins_[p] == 0) { return false; }
        joins_[p] ^= 1;
        take_ = take;
        if (helps()) {
            find_begins();
            return true;
        }
        joins_[p] ^= 1;
        return false;
    };
    const auto move = [&](std::size_t k) {
        const std::uint32_t a = able[k];
        const std::uint32_t piece = (best_.slots + best_.blocks - 1) / best_.blocks;
        const std::size_t reach = (std::min<std::size_t>)(limit_ > 0 ? 12 : 2, able.size());
        for (std::size_t distance = 2; distance < 2 * reach + 2; ++distance) {
            const std::size_t away = distance / 2;
            const std::uint32_t b = able[(k + (distance % 2 == 0 ? away : able.size() - away)) % able.size()];
            // Far away only for the sake of what need not be brought.
            if (away > 2 && (take[a] <= leaving_[a] || take[b] >= leaving_[b])) { continue; }
            for (std::uint32_t x = piece; x != 0; x = x > 1 ? 1 : 0) {
                if (a == b || take[a] < x || take[b] + x > capacity_[b]) { continue; }
                take_ = take;
                take_[a] -= x;
                take_[b] += x;
                if (helps()) {
                    take = best_.take;
                    find_begins();
                    return true;
                }
                if (ends()) { return false; }
            }
        }
        return false;
    };
    const std::size_t joints = config_.captured ? 0 : joins_.size(), count = able.size() + joints;
    std::size_t idle = 0;
    for (std::size_t k = 0; !ends() && idle <= count; k = (k + 1) % count) {
        const bool helped = k < able.size() ? move(k) : k > able.size() && join(k - able.size());
        idle = helped ? 0 : idle + 1;
    }
    joins_.clear();
}

// Evaluates a choice that was not evaluated before.
RESIDENCY_INLINE void TokenRing::attempt(Choice choice, std::vector<Choice>& found) {
    if (choice.slots == 0 || choice.blocks == 0 || choice.blocks > choice.slots || !fits(choice.slots)) { return; }
    const auto rounds = static_cast<std::uint32_t>((deficit_ + choice.slots - 1) / choice.slots + 1);
    choice.slots = slots_for(rounds);
    if (choice.blocks > choice.slots || !fits(choice.slots)) { return; }
    // More than a few pieces a step cost time and gain little.
    const double most = config_.thorough ? (std::max)(3000.0, 6.0 * static_cast<double>(capacity_.size()))
                                         : 3.0 * static_cast<double>(capacity_.size()) + 64;
    if (static_cast<double>(rounds) * choice.blocks > most) {
        choice.blocks = (std::min)(choice.blocks, (std::max)(2u, static_cast<std::uint32_t>(most / rounds)));
    }
    const std::uint64_t key = (static_cast<std::uint64_t>(choice.slots) << 34) ^
                              (static_cast<std::uint64_t>(choice.blocks) << 4) ^
                              static_cast<std::uint64_t>(choice.kind * 4 + choice.phase);
    if (!tried_.insert(key).second || (best_.found && work() > most_work_)) { return; }
    const double d = static_cast<double>(deficit_);
    if (best_.found && (d + choice.slots) / rate_ > best_.seconds * 1.01) { return; }
    if (choice.kind == 3) {
        want_ = capacity_;
    } else {
        const double piece = static_cast<double>(choice.slots) / choice.blocks;
        const double less = piece * choice.kind / 2;
        Fluid fluid{capacity_, compute_, rate_ / (1 + latency_ * rate_ / piece)};
        if (less >= choice.slots || !fluid.solve(choice.slots - less, d + less)) { return; }
        want_ = fluid.stream();
    }
    if (short_step_ != none) { want_[short_step_] = (std::max)(want_[short_step_], 1.0); }
    choice.seconds = consider(choice.slots, rounds, choice.blocks, choice.phase / 4.0);
    if (choice.seconds < 1e299) {
        found.push_back(choice);
        done_.push_back(choice);
    }
}

// sizes_: as even as whole chunks are, deficit + slots in total.
RESIDENCY_INLINE void TokenRing::cut_pieces(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks) {
    const std::uint64_t count = static_cast<std::uint64_t>(rounds) * blocks;
    const std::uint64_t excess = static_cast<std::uint64_t>(rounds) * slots - (deficit_ + slots);
    sizes_.clear();
    for (std::uint64_t p = 0; p < count; ++p) {
        const std::uint64_t b = p % blocks;
        const auto size = static_cast<std::uint32_t>((b + 1) * slots / blocks - b * slots / blocks);
        const auto less = static_cast<std::uint32_t>((p + 1) * excess / count - p * excess / count);
        sizes_.push_back(size > less ? size - less : 0);
    }
}

// Everything goes through one block, a piece a step: the steps for which that is fastest, by dynamic programming from the
// shortest one. Kept if it is the best.
RESIDENCY_INLINE void TokenRing::alternate(std::uint32_t slots) {
    if (slots == 0 || !fits(slots)) { return; }
    const auto rounds = static_cast<std::uint32_t>((deficit_ + slots - 1) / slots + 1);
    slots = slots_for(rounds);
    if (!fits(slots)) { return; }
    cut_pieces(slots, rounds, 1);
    std::size_t pieces = 0;
    for (const std::uint32_t size : sizes_) { pieces += size != 0; }
    std::vector<std::uint32_t> able;
    std::vector<double> ended(1, 0.0);  // compute before each step
    std::size_t start = 0;
    for (std::uint32_t i = 0; i < compute_.size(); ++i) {
        ended.push_back(ended.back() + compute_[i]);
        if (capacity_[i] < slots) { continue; }
        if (able.empty() || compute_[i] < compute_[able[start]]) { start = able.size(); }
        able.push_back(i);
    }
    const std::size_t count = able.size();
    if (pieces == 0 || count < pieces || count * count * pieces > (config_.thorough ? 1500000U : 150000U)) { return; }
    std::rotate(able.begin(), able.begin() + static_cast<std::ptrdiff_t>(start), able.end());
    const double call = latency_ + slots / rate_;
    const auto cost = [&](std::size_t from, std::size_t to) {  // from the end of one reader to the end of the next
        const std::uint32_t a = able[from], b = able[to];
        const double between = b > a ? ended[b] - ended[a + 1] : ended.back() - ended[a + 1] + ended[b];
        return (std::max)(call, between) + compute_[b];
    };
    std::vector<double> now(count, 1e300), next(count);
    std::vector<std::vector<std::uint32_t>> from(pieces, std::vector<std::uint32_t>(count, 0));
    now[0] = 0;
    for (std::size_t p = 1; p < pieces; ++p) {
        std::fill(next.begin(), next.end(), 1e300);
        for (std::size_t b = p; b + (pieces - p) <= count; ++b) {
            for (std::size_t a = p - 1; a < b; ++a) {
                if (now[a] > 1e299) { continue; }
                const double seconds = now[a] + cost(a, b);
                if (seconds < next[b]) {
                    next[b] = seconds;
                    from[p][b] = static_cast<std::uint32_t>(a);
                }
            }
        }
        std::swap(now, next);
    }
    std::size_t last = pieces - 1;
    for (std::size_t a = pieces - 1; a < count; ++a) {
        if (now[a] + cost(a, 0) < now[last] + cost(last, 0)) { last = a; }
    }
    std::vector<std::uint32_t> steps;
    for (std::size_t p = pieces; p-- > 0; last = from[p][last]) { steps.push_back(able[last]); }
    std::sort(steps.begin(), steps.end());
    take_.assign(compute_.size(), 0);
    std::size_t at = 0;
    for (const std::uint32_t size : sizes_) {
        if (size != 0) { take_[steps[at++]] = size; }
    }
    joins_.clear();
    static_cast<void>(try_take(slots, rounds, 1, 1e300));
}

// Rounds want_ to whole pieces, deficit + slots chunks in total, in take_.
RESIDENCY_INLINE bool TokenRing::diffuse(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks,
                                         double phase) {
    const std::size_t n = want_.size();
    const std::uint64_t target = deficit_ + slots;
    cut_pieces(slots, rounds, blocks);
    take_.resize(n);
    // Chunks placed when the wish is scaled; stops once all pieces are placed.
    const auto run = [&](double scale) {
        built_ += (n + sizes_.size()) / 4;
        std::size_t p = 0;
        while (p < sizes_.size() && sizes_[p] == 0) { ++p; }
        double credit = p < sizes_.size() ? phase * sizes_[p] : 0;
        std::uint32_t left = 0;
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
            credit += want_[i] * scale;
            auto room = static_cast<std::uint32_t>((std::min)(capacity_[i], static_cast<double>(slots)));
            const std::uint32_t all = room;
            while (room > 0 && p < sizes_.size()) {
                if (left == 0) {
                    if (credit < sizes_[p] || (room < sizes_[p] && room < all)) { break; }
                    left = sizes_[p];
                }
                const std::uint32_t x = (std::min)(left, room);
                room -= x;
                left -= x;
                credit -= x;
                sum += x;
                if (left == 0) {
                    do { ++p; } while (p < sizes_.size() && sizes_[p] == 0);
                }
            }
            take_[i] = all - room;
        }
        return sum;
    };
    double sum = 0;
    for (const double w : want_) { sum += w; }
    const double unit = static_cast<double>(target) / sum;
    if (run(unit) >= target) { return true; }
    double low = unit, high = unit, factor = 1.002;
    do {
        low = high;
        high *= factor;
        factor = 1 + (factor - 1) * 2;
        if (high > 50 * unit) { return false; }
    } while (run(high) < target);
    for (int k = 0; k < 3; ++k) {
        const double middle = (low + high) / 2;
        (run(middle) < target ? low : high) = middle;
    }
    return run(high) >= target;
}

// Seconds of take_ and sizes_.
RESIDENCY_INLINE double TokenRing::try_take(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks,
                                            double give_up) {
    if (!build(blocks)) { return 1e300; }
    double busy = 0;
    for (const Timeline::Call& call : line_.calls) { busy += call.seconds; }
    if (busy > give_up) { return busy; }
    ++evaluations_;
    std::size_t cut = 0;
    RingSolution now;
    now.seconds = measure(give_up, cut);
    if (limit_ > 0) { now.fresh = count_fresh(sizes_, blocks); }
    const double seconds = now.seconds;
    if (!best_.found || (limit_ > 0 ? is_closer(now, best_) : seconds < best_.seconds)) {
        best_.found = true;
        best_.seconds = seconds;
        best_.fresh = now.fresh;
        best_.slots = slots;
        best_.rounds = rounds;
        best_.blocks = blocks;
        best_.streamed = deficit_ + slots;
        best_.take = take_;
        best_.sizes = sizes_;
        best_.pieces = pieces_;
        best_.joins = joins_;
        best_.call_pieces = call_pieces_;
        best_.line = line_;
        best_.cut = cut;
    }
    return seconds;
}

RESIDENCY_INLINE double TokenRing::measure(double give_up, std::size_t& cut) {
    if (!config_.captured) { return solver_.period(line_, 1e-5, give_up); }
    std::size_t most = 0;
    while (most < line_.calls.size() && (line_.calls[most].wait_step == none || line_.calls[most].wait_previous)) {
        ++most;
    }
    double best = 1e300;
    for (std::size_t c = 0; c <= (std::min<std::size_t>)(most, 4); ++c) {
        const double t = solver_.captured(line_, c);
        if (t < best) {
            best = t;
            cut = c;
        }
    }
    return best;
}

// Which chunks of each part stream: the last ones, or the first ones where that continues the part before; rather those that are
// no residents before.
RESIDENCY_INLINE void TokenRing::place() {
    placed_.clear();
    for (std::uint32_t i = 0; i < take_.size(); ++i) {
        std::uint32_t left = take_[i];
        for (std::uint32_t k = part_offsets_[i]; left > 0; ++k) {
            const RingPart& part = parts_[k];
            const std::uint32_t x = (std::min)(left, part.chunks());
            const bool joins =
                !placed_.empty() && placed_.back().chunk_begin + placed_.back().chunks == part.chunk_begin;
            bool at_begin = joins;
            if (config_.present != nullptr && x < part.chunks()) {
                const std::uint32_t head = leaving(part.chunk_begin, part.chunk_begin + x);
                const std::uint32_t tail = leaving(part.chunk_end - x, part.chunk_end);
                at_begin = head != tail ? head > tail : joins;
            }
            placed_.push_back(
                {part.first, part.last, at_begin ? part.chunk_begin : part.chunk_end - x, x, part.missing});
            left -= x;
        }
    }
}

// Pieces, and calls: pieces of a step that follow the same release. False where a block's reader is not over in time.
RESIDENCY_INLINE bool TokenRing::build(std::uint32_t blocks) {
    place();
    built_ += compute_.size() + sizes_.size();
    pieces_.clear();
    uses_.clear();
    std::size_t at = 0;
    std::uint32_t in_part = 0;
    for (std::size_t p = 0; p < sizes_.size(); ++p) {
        if (sizes_[p] == 0) { continue; }
        Use use{placed_[at].first, 0, 1, 0};
        for (std::uint32_t left = sizes_[p]; left > 0;) {
            const Placed& now = placed_[at];
            const std::uint32_t x = (std::min)(left, now.chunks - in_part);
            use.last = (std::max)(use.last, now.last);
            use.missing += now.missing;
            left -= x;
            in_part += x;
            if (in_part == now.chunks) {
                ++at;
                in_part = 0;
                if (left > 0 && placed_[at].chunk_begin != now.chunk_begin + now.chunks) { ++use.runs; }
            }
        }
        pieces_.push_back({sizes_[p], static_cast<std::uint32_t>(p % blocks)});
        uses_.push_back(use);
    }
    // The last reader of each block, at first that of the pass before.
    block_last_.assign(blocks, none);
    block_pass_.assign(blocks, 1);
    for (std::size_t p = 0; p < pieces_.size(); ++p) { block_last_[pieces_[p].block] = uses_[p].last; }
    line_.calls.clear();
    line_.compute = compute_;
    call_pieces_.clear();
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
        const std::uint32_t b = pieces_[p].block;
        const Use& use = uses_[p];
        const std::uint32_t wait = block_last_[b];
        const bool previous = block_pass_[b] != 0;
        if (!previous && wait >= use.first) { return false; }
        block_last_[b] = use.last;
        block_pass_[b] = 0;
        const double transfer = (pieces_[p].chunks - use.missing) / rate_;
        if (!line_.calls.empty()) {
            Timeline::Call& back = line_.calls.back();
            const bool joins = p < joins_.size() && joins_[p] != 0;
            if (joins && (back.wait_step == none || (back.wait_previous && !previous) ||
                          (back.wait_previous == previous && back.wait_step < wait))) {
                if (!previous && wait >= back.needed_by) { return false; }
                back.wait_step = wait;
                back.wait_previous = previous;
            }
            if (joins || (back.wait_step == wait && back.wait_previous == previous && back.needed_by == use.first)) {
                back.seconds += transfer;
                ++call_pieces_.back();
                continue;
            }
        }
        line_.calls.push_back({latency_ * (config_.captured ? use.runs : 1) + transfer, use.first, wait, previous});
        call_pieces_.push_back(1);
    }
    return true;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
