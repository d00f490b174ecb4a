// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/attack/failed.hpp"
#include "tests/attack/model.hpp"
#include "tests/attack/run.hpp"
#include "tests/support/allocations.hpp"

namespace attack {

using namespace residency;

namespace {

/// What lives at the end of a pass, when nothing runs.
struct Living {
    std::uint64_t host_bytes = 0, host_allocations = 0, device_bytes = 0;

    static Living now(Device& device) {
        const auto memory = device.memory();
        if (!memory) { failed("what is used of the device", memory.error().message()); }
        return {test::live_bytes(), test::live_allocations(), memory->total_bytes - memory->free_bytes};
    }
    void join(const Living& other) {
        host_bytes = std::max(host_bytes, other.host_bytes);
        host_allocations = std::max(host_allocations, other.host_allocations);
        device_bytes = std::max(device_bytes, other.device_bytes);
    }
    /// Lists that are used again reach their longest a little later where threads take part; what leaks in passes comes to more.
    [[nodiscard]] bool is_within(const Living& other) const {
        constexpr std::uint64_t more_bytes = 8192, more_allocations = 64;
        return host_bytes <= other.host_bytes + more_bytes &&
               host_allocations <= other.host_allocations + more_allocations && device_bytes <= other.device_bytes;
    }
    [[nodiscard]] std::string text() const {
        return std::to_string(host_bytes) + " bytes of the host in " + std::to_string(host_allocations) +
               " allocations, " + std::to_string(device_bytes) + " bytes of the device";
    }
};

/// One Residency of a kind, with a budget between its floor and everything.
class Soak {
public:
    Soak(const Kind& kind, std::uint64_t seed) : kind_{kind}, random_{seed}, device_{config(seed)} {
        device_.on_report([](const Device::Report& report) { failed("the checker reports", report.text); });
        if (kind.has_links()) {
            neighbour_ = std::make_unique<Device>(config(seed), device_);
            neighbour_->on_report([](const Device::Report& report) { failed("the checker reports", report.text); });
        }
        stream_ = must("a stream", device_.create_stream());
        do { model_ = make_model(device_, random_, kind.source); } while (model_->schedules[0].size() < 4);
        choice_.schedule = model_->schedules[0];
        choice_.learn = true;
        choice_.time_stalls = true;
        choice_.leases_at_once = 2;
        choice_.chunk_bytes = kind.has_links() ? 65536 : 4096;
        choice_.unpacker = &unpacker_;
        choice_.before_read = [this](StorageId, std::uint64_t, std::uint64_t) -> Status {
            holds_reads_.wait(true);
            return {};
        };
        if (neighbour_) { choice_.neighbours.push_back(neighbour_.get()); }
        choice_.budget = Budget::bytes(0);
        const auto sizes = must("the sizes of a budget", kind.resolve(device_, model_->catalog, choice_));
        choice_.budget = Budget::bytes(sizes.floor_bytes + (sizes.total_bytes - sizes.floor_bytes) / 2);
        subject_ = must("a construction", kind.make(device_, model_->catalog, choice_));
    }

    /// The first half may still learn, and its reads are held until all that can be is queued, which depends on threads otherwise; in
    /// the second nothing may be more than it was until there.
    void run(std::uint64_t passes) {
        Living usual, most;
        for (std::uint64_t number = 0; number < passes; ++number) {
            now_at(number);
            hold_reads(number < passes / 2);
            pass(number);
            if (number % 4 == 3) {  // as where a token is waited for
                hold_reads(false);
                must("drain", subject_->drain());
            }
            if (number % period != period - 1) { continue; }
            if (found_ != 0) { failed("a kernel read wrong bytes", kind_.name); }
            (number < passes / 2 ? usual : most).join(Living::now(device_));
            if (!most.is_within(usual)) {
                failed("memory grows with the passes", most.text() + "; before, at most " + usual.text());
            }
        }
        hold_reads(false);
        if (kernels_ == 0) { failed("no kernel checked anything: take more passes"); }
        if (usual.host_bytes == 0) { failed("allocations are not counted: build without ThreadSanitizer"); }
        tally().kernels += kernels_;
        std::printf("%s: %llu passes, %llu kernels checked; at most %s in the first half, %s in the second\n",
                    kind_.name, static_cast<unsigned long long>(passes), static_cast<unsigned long long>(kernels_),
                    usual.text().c_str(), most.text().c_str());
        std::fflush(stdout);
    }
    ~Soak() {
        subject_.reset();
        model_.reset();
        static_cast<void>(device_.destroy_stream(stream_).has_value());
        for (const auto& leak : device_.leaks()) { failed("left behind", leak.what); }
    }
    Soak(const Soak&) = delete;
    Soak& operator=(const Soak&) = delete;

private:
    static constexpr std::uint64_t period = 60;  // of what passes do

    static Device::Config config(std::uint64_t seed) {
        Device::Config config;
        config.memory_bytes = std::uint64_t{64} << 20U;
        config.allocation_granularity = 256;
        config.pool_granularity = 4096;
        config.chunk_granularity = 4096;
        config.seed = seed;
        return config;
    }
    void hold_reads(bool held) {
        holds_reads_ = held;
        holds_reads_.notify_all();
    }
    static void must(const char* what, const Status& status) {
        if (!status) { failed(what, status.error().message()); }
    }
    template <class T>
    static T must(const char* what, Result<T> result) {
        if (!result) { failed(what, result.error().message()); }
        return std::move(*result);
    }

    /// Most run the whole schedule; some end early, or read what the schedule does not say; where there are graphs, some are launches.
    void pass(std::uint64_t number) {
        const auto steps = static_cast<std::uint32_t>(subject_->schedule().size());
        if (kind_.has_graphs() && number % 10 == 9) { return launch(number); }
        must("begin", subject_->begin(stream_));
        const std::uint32_t until = number % 12 == 5 ? steps / 2 : steps;
        for (std::uint32_t step = 0; step < until; ++step) {
            if (number % 15 == 7 && step == steps / 3) { continue; }
            const std::size_t lease = must("acquire", subject_->acquire_step(step, std::nullopt));
            for (const WeightId weight : subject_->schedule()[step].weights) {
                verify(subject_->bytes(lease, weight), weight);
            }
            subject_->end_lease(lease);
        }
        must("end", subject_->end());
        subject_->forget_leases();
        ++tally().acquired;
    }
    void launch(std::uint64_t number) {
        if (number % 30 == 9) {
            while (subject_->graphs() > 0) { subject_->drop_graph(0); }
            must("drain", subject_->drain());
        }
        if (subject_->graphs() == 0 || subject_->is_stale(0)) {
            while (subject_->graphs() > 0) { subject_->drop_graph(0); }
            must("a capture", subject_->capture(stream_, [&](const CapturedSteps& pass) -> Status {
                for (std::uint32_t step = 0; step < subject_->schedule().size(); ++step) {
                    if (auto acquired = pass.acquire(step); !acquired) { return acquired; }
                    for (const WeightId weight : subject_->schedule()[step].weights) {
                        verify(pass.bytes(weight), weight);
                    }
                }
                pass.release();
                return {};
            }));
        }
        must("a launch of a graph", subject_->launch(0, stream_));
    }
    void verify(std::span<const std::byte> bytes, WeightId weight) {
        const std::vector<std::byte>& expected = model_->content[index(weight)];
        if (bytes.empty()) { return; }
        Device::Kernel kernel;
        kernel.name = "verify";
        kernel.duration = std::chrono::nanoseconds{500};
        kernel.reads = {{bytes.data(), bytes.size()}};
        kernel.body = [at = bytes.data(), &expected, this] {
            ++kernels_;
            found_ += std::memcmp(at, expected.data(), expected.size()) == 0 ? 0U : 1U;
        };
        must("a launch of a kernel", device_.launch(stream_, std::move(kernel)));
    }

    Kind kind_;
    Random random_;
    Device device_;
    std::unique_ptr<Device> neighbour_;
    Unpacker unpacker_;
    Stream stream_{};
    std::unique_ptr<Model> model_;
    Choice choice_;
    std::unique_ptr<Subject> subject_;
    std::uint64_t kernels_ = 0, found_ = 0;
    std::atomic<bool> holds_reads_ = false;
};

}  // namespace

void run_soak(const Kind& kind, std::uint64_t seed, std::uint64_t passes) {
    now_at(seed, Mode::calm);
    now_at("passes", kind.name);
    Soak{kind, seed}.run(passes);
}

}  // namespace attack
