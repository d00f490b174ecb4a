// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "benchmarks/gpu/pinned_weights.hpp"
#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/schedule.hpp"
#include "tests/gpu/harness.hpp"

namespace bench {

/// Bytes a second of bare copies just now.
class BareCopies {
public:
    BareCopies(residency::CudaDevice& device, const PinnedWeights& weights, cudaStream_t stream)
        : device_{device}, weights_{weights}, timer_{stream}, stream_{stream} {
        at_ = BENCH_RESULT(device.allocate(piece));
    }
    BareCopies(const BareCopies&) = delete;
    BareCopies& operator=(const BareCopies&) = delete;
    ~BareCopies() { BENCH_RESULT(device_.deallocate(at_)); }

    [[nodiscard]] double rate() {
        constexpr std::uint64_t count = 8;
        const double seconds = timer_.median_seconds(3, [&] {
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::uint64_t from = next_++ % (weights_.bytes / piece) * piece;
                BENCH_CUDA(cudaMemcpyAsync(at_, weights_.host + from, piece, cudaMemcpyHostToDevice, stream_));
            }
        });
        return static_cast<double>(piece * count) / seconds;
    }

private:
    static constexpr std::uint64_t piece = 128ULL << 20;

    residency::CudaDevice& device_;
    const PinnedWeights& weights_;
    StreamTimer timer_;
    cudaStream_t stream_;
    void* at_ = nullptr;
    std::uint64_t next_ = 0;
};

/// Ways of running a pass, measured in turns with bare copies: on a machine that others use too, what one ratio compares was measured
/// within a second or so. Rounds come in pairs, there and back, and a ratio is of a pair: what goes first does not get its advantage.
class Turns {
public:
    /// At least `passes` of each way, over all rounds.
    Turns(BareCopies& bare, cudaStream_t stream, int passes)
        : bare_{bare}, stream_{stream}, each_{(passes + rounds - 1) / rounds} {}

    /// The host waits for the stream once a pass, or after all of them. `prepare`, before each round of it, is not measured, nor is the
    /// pass after it.
    std::size_t add(bool waits, std::function<void()> pass, std::function<void()> prepare = [] {}) {
        ways_.push_back({waits, std::move(pass), std::move(prepare), {}, {}});
        return ways_.size() - 1;
    }
    void run() {
        rates_ = {bare_.rate()};
        for (int round = 0; round < rounds; ++round) {
            for (std::size_t k = 0; k < ways_.size(); ++k) { run(ways_[round % 2 == 0 ? k : ways_.size() - 1 - k]); }
            rates_.push_back(bare_.rate());
        }
    }
    /// The median pass.
    [[nodiscard]] double seconds(std::size_t way) const { return median(ways_[way].passes); }
    [[nodiscard]] double rate() const { return median(rates_); }
    /// Medians of the pairs' ratios: of two ways; of a way and what takes `seconds` where bare copies have `rate`.
    [[nodiscard]] double ratio(std::size_t way, std::size_t other) const {
        return over([&](std::size_t round) { return ways_[other].rounds[round]; }, way);
    }
    [[nodiscard]] double ratio(std::size_t way, double seconds, double rate) const {
        return over([&](std::size_t round) { return seconds * rate / ((rates_[round] + rates_[round + 1]) / 2); }, way);
    }

private:
    static constexpr int rounds = 10;  // even

    struct Way {
        bool waits;
        std::function<void()> pass, prepare;
        std::vector<double> rounds, passes;  // seconds of a pass: the mean of each round, and each
    };

    void run(Way& way) {
        const auto wait = [&] { BENCH_CUDA(cudaStreamSynchronize(stream_)); };
        way.prepare();
        way.pass();
        wait();
        double sum = 0;
        if (way.waits) {
            for (int i = 0; i < each_; ++i) {
                way.passes.push_back(host_seconds([&] {
                    way.pass();
                    wait();
                }));
                sum += way.passes.back();
            }
        } else {
            sum = host_seconds([&] {
                for (int i = 0; i < each_; ++i) { way.pass(); }
                wait();
            });
            way.passes.push_back(sum / each_);
        }
        way.rounds.push_back(sum / each_);
    }
    template <class Seconds>
    [[nodiscard]] double over(const Seconds& seconds, std::size_t way) const {
        std::vector<double> ratios;
        const std::vector<double>& ours = ways_[way].rounds;
        for (std::size_t round = 0; round < ours.size(); round += 2) {
            ratios.push_back((ours[round] + ours[round + 1]) / (seconds(round) + seconds(round + 1)));
        }
        return median(ratios);
    }

    BareCopies& bare_;
    cudaStream_t stream_;
    int each_;
    std::vector<Way> ways_;
    std::vector<double> rates_;  // before the first round, and after each
};

/// The compute times of all steps.
[[nodiscard]] inline double seconds_of(const residency::Schedule& schedule) {
    std::chrono::nanoseconds sum{};
    for (const residency::Schedule::Step& step : schedule) { sum += step.compute.value_or(std::chrono::nanoseconds{}); }
    return std::chrono::duration<double>(sum).count();
}
/// The steps with their times, from passes of a composition that learns, and that streams, since steps are timed only then. Events between
/// kernels make them longer, and a bound must not be: together they take no more than `most_seconds`, the time of a resident pass.
template <class Weights, class Run>
[[nodiscard]] residency::Schedule timed_steps(Weights& weights, const Run& run, double most_seconds) {
    for (int i = 0; i < 16; ++i) {
        run();
        BENCH_RESULT(weights.try_drain());
    }
    const residency::Schedule& learned = weights.schedule();
    const double sum = seconds_of(learned);
    if (sum <= most_seconds) { return learned; }
    std::vector<std::optional<std::chrono::nanoseconds>> times;
    times.reserve(learned.size());
    for (const residency::Schedule::Step& step : learned) {
        times.emplace_back(std::llround(static_cast<double>(step.compute->count()) * most_seconds / sum));
    }
    return BENCH_RESULT(learned.try_with_compute(times));
}

}  // namespace bench
