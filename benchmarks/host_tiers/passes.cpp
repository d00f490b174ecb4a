// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/host_tiers/passes.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "benchmarks/record.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/host/loading.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/staged.hpp"

namespace host_tiers {

namespace {

using residency::Catalog;
using residency::Schedule;
using residency::SimulatedDevice;
using residency::Status;
using residency::WeightId;
using Staged = residency::transport::Staged<SimulatedDevice>;

/// The same transport, which may be told to take nothing that is announced: then nothing is read ahead.
class Transport {
public:
    struct Config : Staged::Config {
        bool reads_ahead = true;
    };
    static constexpr bool capturable = false;

    Transport() = default;
    explicit Transport(Config config) : reads_ahead_{config.reads_ahead}, staged_{std::move(config)} {}
    [[nodiscard]] Status open(SimulatedDevice& device, const Catalog& catalog) { return staged_.open(device, catalog); }
    [[nodiscard]] Status enqueue(std::span<const residency::transport::Fetch> fetches, SimulatedDevice::Stream stream) {
        return staged_.enqueue(fetches, stream);
    }
    [[nodiscard]] bool read_ahead(std::span<const residency::transport::Fetch> fetches) {
        return reads_ahead_ && staged_.read_ahead(fetches);
    }
    void forget_ahead() { staged_.forget_ahead(); }
    [[nodiscard]] Status status() const { return staged_.status(); }
    void close() noexcept { staged_.close(); }

private:
    bool reads_ahead_ = true;
    Staged staged_;
};

using Planned = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                     residency::pool::Virtual<SimulatedDevice>, Transport>;

Schedule in_order(const Catalog& catalog) {
    residency::ScheduleBuilder builder{catalog};
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) { builder.step({WeightId{i}}); }
    return BENCH_RESULT(builder.try_build());
}

/// What a step does with its bytes once they are on the device: reads them on a core of the host, waits, or nothing.
struct Work {
    bool reads = false;
    std::chrono::duration<double> waits{};
};

/// The work is the host's, outside of the simulated device, which lets one thread in at a time.
void run_pass(Planned& weights, SimulatedDevice::Stream stream, Work work, std::uint64_t& sum) {
    auto pass = BENCH_RESULT(weights.try_begin(stream));
    for (const Schedule::Step& step : weights.schedule()) {
        auto lease = BENCH_RESULT(pass.try_acquire(step));
        if (!work.reads && work.waits.count() == 0) { continue; }
        BENCH_RESULT(weights.device().synchronize(stream));
        for (const WeightId id : step.weights) {
            const std::span<const std::byte> bytes = lease.bytes(id);
            const auto* const words = reinterpret_cast<const std::uint64_t*>(bytes.data());
            for (std::size_t i = 0; work.reads && i < bytes.size() / 8; ++i) { sum += words[i]; }
        }
        std::this_thread::sleep_for(work.waits);
    }
    BENCH_RESULT(pass.try_end());
}

Planned::Options options(const Catalog& catalog, std::uint64_t budget, std::uint64_t ring) {
    Planned::Options options;
    options.budget = residency::Budget::bytes(budget);
    options.schedule = in_order(catalog);
    options.policies.link = residency::plan::Link{};
    options.transport.slot_bytes = slot_bytes;
    options.transport.ring_bytes = ring;
    options.transport.threads = threads;
    options.transport.file_access = residency::host::FileAccess::direct;
    return options;
}

}  // namespace

double paused_pass_seconds(const Catalog& catalog, bool reads_ahead, double pause_seconds, int passes) {
    SimulatedDevice device{plain_device()};
    const auto stream = BENCH_RESULT(device.create_stream());
    std::uint64_t sum = 0;
    double seconds = 0;
    {
        auto settings = options(catalog, 4 * tensor_bytes, ahead_ring_bytes);
        settings.transport.reads_ahead = reads_ahead;
        auto weights = BENCH_RESULT(Planned::try_create(device, catalog, std::move(settings)));
        for (int pass = 0; pass <= passes; ++pass) {
            const double taken = bench::host_seconds([&] {
                run_pass(weights, stream, {}, sum);
                BENCH_RESULT(device.synchronize(stream));
            });
            if (pass > 0) { seconds += taken; }
            std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
        }
        BENCH_RESULT(weights.try_drain());
    }
    BENCH_RESULT(device.destroy_stream(stream));
    return seconds / passes;
}

double first_pass_seconds(const Catalog& catalog, bool overlapped, std::chrono::duration<double> pace) {
    SimulatedDevice device{plain_device()};
    const auto stream = BENCH_RESULT(device.create_stream());
    std::uint64_t sum = 0;
    residency::host::LoadOptions load;
    load.schedule = in_order(catalog);
    const auto begin = std::chrono::steady_clock::now();
    if (pace.count() > 0) {
        load.threads = 1;
        load.progress = [&](const residency::host::LoadProgress& progress) {
            const auto due = pace * (static_cast<double>(progress.loaded_bytes) / static_cast<double>(tensor_bytes));
            std::this_thread::sleep_until(begin + std::chrono::duration_cast<std::chrono::nanoseconds>(due));
            return true;
        };
    }
    if (overlapped) { load.pinning = residency::host::Pinning::after_loading; }
    auto settings = options(catalog, 4 * tensor_bytes, ring_bytes);
    settings.transport.threads = 0;
    double seconds = 0;
    {
        std::optional<Planned> weights;
        std::shared_ptr<residency::host::Loading> loading;
        seconds = bench::host_seconds([&] {
            loading = BENCH_RESULT(residency::host::Loading::try_start(device, catalog, load));
            if (overlapped) {
                settings.transport.loading = loading;
            } else {
                BENCH_RESULT(loading->wait());
            }
            weights.emplace(BENCH_RESULT(Planned::try_create(device, loading->catalog(), std::move(settings))));
            run_pass(*weights, stream, {pace.count() == 0, pace}, sum);
            BENCH_RESULT(device.synchronize(stream));
        });
        BENCH_RESULT(loading->wait());
        BENCH_RESULT(weights->try_drain());
    }
    BENCH_RESULT(device.destroy_stream(stream));
    return seconds;
}

}  // namespace host_tiers
