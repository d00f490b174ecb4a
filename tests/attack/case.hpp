// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "tests/attack/experts.hpp"
#include "tests/attack/model.hpp"
#include "tests/attack/run.hpp"

namespace attack {

/// What kernels found.
struct Found {
    std::atomic<std::uint64_t> wrong = 0;  ///< kernels that read what nobody announced
    std::atomic<std::uint64_t> lost =
        0;  ///< kernels that read ones where a staged transport could not read, or what a neighbour lost
    std::atomic<std::uint64_t> ran = 0;
};

struct Held {
    std::size_t lease;
    std::vector<WeightId> weights;
    Stream stream;
};

/// A Residency under attack, and what it must do.
struct Target {
    Kind kind;
    std::unique_ptr<Model> model;
    std::unique_ptr<Subject> subject;  // null: not constructed
    Found found;
    std::optional<residency::broker::ModelClient> client;
    bool is_in_group = false;
    std::vector<Held> leases;
    std::vector<std::vector<WeightId>> tickets;
    Stream pass_stream{};
    std::uint32_t next_step = 0;
    std::uint64_t cap_bytes = 0;  // its budget and what is pending
    bool is_strict = false;
    bool is_doubtful = false;            // a transport may have failed meanwhile, which a later call says
    bool was_told = false;               // a call said that something failed, since collect()
    bool is_source_gone = false;         // for good
    std::atomic<int> read_error_in = 0;  // reads until one fails; 0: none does

    [[nodiscard]] bool is_idle() const { return !subject->is_open() && leases.empty() && tickets.empty(); }
};

/// A random program. Each operation draws from numbers of its own, so that one that is left out changes no other.
class Case {
    using CallKind = residency::simulation::CallKind;

public:
    Case(std::span<const Kind> kinds, std::uint64_t seed, Mode mode)
        : kinds_{kinds}, seed_{seed}, random_{number(0)}, device_{config(random_)}, mode_{mode} {
        device_.on_report([this](const Device::Report& report) { reported(report); });
        device_.observe([this](const auto& operation) { now_ns_ = operation.end_ns; });
    }
    void run(const Skipped& skipped);

private:
    [[nodiscard]] static Device::Config config(Random& random) {
        Device::Config config;
        config.memory_bytes = std::uint64_t{64} << 20U;
        const std::uint64_t granularity = std::uint64_t{1024} << (random() % 3);
        config.allocation_granularity = random() % 2 != 0 ? 256 : granularity;
        config.pool_granularity = granularity * 2;
        config.chunk_granularity = 4096;
        config.jitter = random() % 2 != 0 ? 1 : 12;
        config.seed = random();
        config.concurrent_kernels = random() % 4 != 0;
        return config;
    }
    /// The number that the draws of a part of the program begin with.
    [[nodiscard]] std::uint64_t number(std::uint64_t part) const {
        return (seed_ * 0x9E3779B97F4A7C15U + 77) ^ (part * 0xD1B54A32D192ED03U);
    }
    [[nodiscard]] std::uint64_t below(std::uint64_t n) { return random_() % n; }
    [[nodiscard]] bool one_in(std::uint64_t n) { return random_() % n == 0; }
    [[nodiscard]] Stream any_stream() { return streams_[below(streams_.size())]; }
    [[nodiscard]] std::optional<Stream> maybe_stream() {
        return one_in(3) ? std::optional<Stream>{any_stream()} : std::nullopt;
    }
    [[nodiscard]] bool may_fail() const { return is_lost_ || armed_ > 0 || mode_ == Mode::lies; }

    void reported(const Device::Report& report) const;
    void arm();
    void disarm();
    /// Ends the case unless the error has a reason.
    void refused(const residency::Error& error, Target& target, const char* what);
    void check_failed(const Status& status, Target& target, const char* what) {
        if (!status) { refused(status.error(), target, what); }
    }
    /// What may be used on the device from now on, beside what may be used already.
    void allow(std::uint64_t more_bytes);
    void check();
    void check_used(std::uint64_t group_bytes);
    void verify(Target& target, std::size_t lease, WeightId weight, Stream stream, std::uint64_t nanoseconds);
    void verify_captured(Target& target, std::span<const std::byte> bytes, WeightId weight, Stream stream,
                         std::uint64_t nanoseconds);
    /// All kernels have run: what did they find?
    void collect(Target& target) const;

    /// Any composition; more often than others one that plans, since it alone has graphs.
    [[nodiscard]] Kind pick();
    [[nodiscard]] Choice choose(Target& target);
    void make_around();
    void make_targets();
    void construct(Target& target);
    /// The budget that it is to have; none: it cannot be made now.
    [[nodiscard]] std::optional<std::uint64_t> grant(Target& target, std::uint64_t floor, std::uint64_t total);
    void end_all();
    void destroy(Target& target);
    void operate(Target& target);
    void operate_asleep(Target& target);
    void go_on(Target& target);
    void acquire(Target& target);
    [[nodiscard]] Result<std::size_t> acquire_range(Target& target, std::vector<WeightId>& weights);
    void request(Target& target);
    void use_ticket(Target& target);
    void set_budget(Target& target);
    void hint(Target& target);
    void capture(Target& target);
    void launch(Target& target);
    void pass_end(Target& target);
    void refresh(Target& target);
    void write(Target& target);
    void operate_experts();
    void change_schedule(Target& target);
    void use_memory();
    void spoil(Target& target);
    void recover(Target& target);
    void release(Target& target);

    std::span<const Kind> kinds_;
    std::uint64_t seed_;
    Random random_;
    Device device_;
    Mode mode_;
    Unpacker unpacker_;
    std::vector<std::unique_ptr<Device>> neighbours_;
    std::vector<Stream> streams_;
    std::vector<std::unique_ptr<Target>> targets_;
    std::optional<residency::BudgetBroker> broker_;
    std::uint64_t most_total_ = 0;  // that the broker ever had
    std::optional<Group> group_;
    std::optional<residency::broker::MemoryClient> memory_;
    std::unique_ptr<Experts> experts_;
    std::uint64_t experts_bytes_ = 0;                      // that they may hold
    std::vector<std::pair<void*, std::uint64_t>> blocks_;  // of the caller's own memory
    std::uint64_t own_bytes_ = 0, allowed_peak_ = 0;
    std::int64_t now_ns_ = 0;  // on the clock of the device
    int armed_ = 0;            // calls that are to fail
    bool is_lost_ = false;
    bool is_neighbour_lost_ = false;
    bool is_leaky_ = false;  // something could not be given back
};

}  // namespace attack
