// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/transport_interface.hpp"
#include "residency/core/planned/chunk_miss_handler.hpp"
#include "residency/core/planned/chunk_store.hpp"
#include "residency/core/planned/plan_factory.hpp"
#include "residency/core/planned/plan_player.hpp"
#include "residency/core/planned/unrecorded_uses.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/transport/pinned.hpp"
#include "tests/support/streaming.hpp"

namespace planned_parts {

using namespace streaming;
using residency::AccessPoint;
using residency::StorageId;
using residency::core::ChunkStore;
using residency::core::CurrentPlan;
using residency::core::LeaseToken;
using residency::core::PlanMode;
using residency::core::PlanPlayer;
using residency::transport::Fetch;
namespace plan = residency::plan;

using Pool = residency::pool::Virtual<Device>;

inline constexpr std::uint64_t chunk = 4096;

/// Pinned copies; notes what is enqueued and what is announced.
class WatchedTransport final : public residency::core::TransportInterface<Device> {
public:
    struct Log {
        std::vector<std::vector<Fetch>> enqueued;
        std::vector<std::vector<Fetch>> announced;  // and neither enqueued nor forgotten since
        std::uint64_t announcements = 0;
        std::uint64_t forgotten = 0;  // calls of forget_ahead
        bool is_wrong = false;        // something came that was not announced as the next
        bool takes_announcements = false;
    };
    explicit WatchedTransport(std::shared_ptr<Log> log) : log_{std::move(log)}, pinned_{{}} {}

    residency::Status open(Device& device, const residency::Catalog& catalog) override {
        return pinned_.open(device, catalog);
    }
    residency::Status enqueue(std::span<const Fetch> fetches, Stream stream) override {
        const std::vector<Fetch> pieces{fetches.begin(), fetches.end()};
        const auto announced = std::ranges::find(log_->announced, pieces);
        log_->is_wrong = log_->is_wrong || announced != log_->announced.begin();
        if (announced != log_->announced.end()) { log_->announced.erase(log_->announced.begin(), announced + 1); }
        auto sent = pinned_.enqueue(fetches, stream);
        if (sent) { log_->enqueued.push_back(pieces); }
        return sent;
    }
    [[nodiscard]] residency::Status status() const override { return {}; }
    void take_failure(std::vector<residency::StorageId>&) override {}
    [[nodiscard]] bool is_capturable() const noexcept override { return true; }
    bool read_ahead(std::span<const Fetch> fetches) override {
        if (!log_->takes_announcements || log_->announced.size() >= 3) { return false; }
        log_->announced.emplace_back(fetches.begin(), fetches.end());
        ++log_->announcements;
        return true;
    }
    void forget_ahead() override {
        log_->announced.clear();
        ++log_->forgotten;
    }
    residency::Status pause(std::span<const residency::StorageId>) override { return {}; }
    residency::Status sources_changed(std::span<const residency::StorageId>) override { return {}; }
    residency::Result<std::optional<residency::plan::Link>> measure_links(Device&, std::uint64_t,
                                                                          residency::core::MemorySource&) override {
        return std::optional<residency::plan::Link>{};
    }
    [[nodiscard]] std::vector<residency::LinkUse> links() const override { return {}; }
    [[nodiscard]] double links_rate() const noexcept override { return 0; }
    residency::Status check_links() override { return {}; }
    void close() noexcept override { pinned_.close(); }
    void abandon() noexcept override {}

private:
    std::shared_ptr<Log> log_;
    residency::transport::Pinned<Device> pinned_;
};

/// A player whose plans the test makes.
class Player final : public PlanPlayer<Device> {
public:
    using PlanPlayer::context_;
    using PlanPlayer::misses_;
    using PlanPlayer::store_;
    using PlanPlayer::uses_;
    explicit Player(Pool::Config config) : PlanPlayer{config} {}

    residency::Status prepare(const Device&, const residency::Catalog&, const residency::Schedule&,
                              const residency::pool::Requirements&) override {
        return {};
    }
    [[nodiscard]] residency::core::BudgetLimits limits() const noexcept override { return {}; }
    [[nodiscard]] bool holds_residents() const noexcept override { return true; }
    residency::Status open(const residency::core::DeciderContext<Device>&, const residency::pool::Requirements&,
                           std::uint64_t) override {
        return {};
    }
    residency::Status set_order(const residency::UseOrder*, std::span<const std::uint32_t>, residency::StepIndex,
                                std::uint64_t) override {
        return {};
    }
    residency::Status set_cap(std::uint64_t, residency::StepIndex) override { return {}; }
    residency::Status suspend() override { return {}; }
    residency::Status resume(std::uint64_t, residency::StepIndex) override { return {}; }
    void close() noexcept override { store_.close(); }
    void abandon() noexcept override { store_.abandon(); }
    residency::Status append_present(StorageId, std::vector<Fetch>&) override { return {}; }
    [[nodiscard]] residency::core::MemoryUse memory_use() const override { return {}; }
    residency::Status begin_capture() override { return {}; }
    [[nodiscard]] std::uint64_t mapping_generation() const noexcept override { return store_.mapping_generation(); }
};

/// The parts of a planned decider without the decider, and a stream that reads. Step i of the schedule reads weight i unless another
/// schedule is given. Leases are counted by hand.
class Parts {
public:
    explicit Parts(std::vector<Spec> specs, residency::Cycle cycle = residency::Cycle::cyclic,
                   plan::Options plan_options = {.effort = plan::Effort::quick})
        : model_{make_model(device, specs)},
          schedule{in_order(model_, cycle)},
          factory{std::move(plan_options), 1, plan::Link{}, plan::default_memory_bytes_per_second, std::nullopt} {
        states.resize(specs.size());
        for (std::size_t i = 0; i < specs.size(); ++i) { states[i].placement = specs[i].placement; }
        must(scheduler.open(device, model_.catalog, std::make_unique<WatchedTransport>(log), 64, states, counters,
                            marks));
        context.catalog = model_.catalog;
        context.states = states;
        context.counters = &counters;
        context.device = &device;
        context.copy_scheduler = &scheduler;
        stream = must(device.create_stream());
        must(scheduler.begin_pass());
        reader = must(scheduler.consumer(stream));
        must(factory.prepare(model_.catalog, schedule, chunk, nullptr));
    }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    ~Parts() {
        device.clear_failures();
        CHECK(scheduler.drain_device());
        CHECK(*model_.wrong == 0);
        store.close();
        scheduler.close();
        CHECK(device.destroy_stream(stream));
    }

    [[nodiscard]] plan::Plan make_plan(std::uint64_t budget) {
        return must(factory.make(model_.catalog, budget, CurrentPlan{}));
    }
    /// As the decider does. The streams are drained.
    residency::Status adopt(plan::Plan plan) {
        player.forget_ahead();
        if (auto adopted = store.adopt(std::move(plan)); !adopted) { return adopted; }
        player.start(factory.problem(), store.plan().budget_bytes());
        return {};
    }

    void hold(std::uint32_t storage) { ++states[storage].leases; }
    /// The end of a lease, recorded on the stream.
    void let_go(std::uint32_t storage) {
        const StorageId id{storage};
        CHECK(scheduler.record_use(reader, {&id, 1}));
        --states[storage].leases;
    }
    /// A kernel that compares a storage with the host's bytes, after its arrival.
    void read(std::uint32_t storage, std::chrono::nanoseconds duration = std::chrono::microseconds{1}) {
        must(scheduler.stream_wait_arrival(reader, states[storage].arrival));
        const std::string name = "read " + std::to_string(storage);
        Device::Kernel kernel;
        kernel.name = name;
        kernel.duration = duration;
        const std::uint64_t bytes = model_.catalog.storages()[storage].bytes;
        kernel.reads = {{states[storage].address, bytes}};
        kernel.body = [at = states[storage].address, bytes, host = model_.catalog.host_bytes(StorageId{storage}),
                       wrong = model_.wrong.get()] { *wrong += std::memcmp(at, host, bytes) == 0 ? 0U : 1U; };
        must(device.launch(stream, std::move(kernel)));
    }
    /// A lease of a storage that is there, and a kernel that reads it.
    void use(std::uint32_t storage) {
        hold(storage);
        read(storage);
        let_go(storage);
    }
    /// The chunk of a storage that has one, and the storage of such a chunk.
    [[nodiscard]] std::uint32_t chunk_of(std::uint32_t storage) const {
        return *store.contents().chunks(StorageId{storage}).begin();
    }
    [[nodiscard]] std::uint32_t storage_of(std::uint32_t c) const { return store.contents().storages(c).front(); }
    /// Whether the plan overwrites nothing of a storage, as the decider asks.
    [[nodiscard]] bool covers_residents(StorageId id) const {
        return store.table().never_leaves(id) && !uses.records_residents();
    }
    [[nodiscard]] LeaseToken open_lease(std::span<const StorageId> wanted, const AccessPoint& access, bool in_order,
                                        bool is_of_residents) {
        LeaseToken token;
        player.open_lease(wanted, access, in_order, is_of_residents, token);
        return token;
    }
    /// A step as the decider takes it: reached, else brought on demand; leased, read, let go. True: the plan had it there.
    bool step(std::uint32_t i) { return step(i, i); }
    /// The same of a step that reads another storage than that of its number.
    bool step(std::uint32_t i, std::uint32_t storage) {
        const StorageId id{storage};
        const AccessPoint access{0, i, true, true, 1, true};
        states[storage].demand_missed = false;
        const auto reached = must(player.reach({&id, 1}, access));
        if (!reached.is_there || player.mode() == PlanMode::verifying) {
            must(demand.bring({&id, 1}, reached.is_there));
        }
        const LeaseToken token = open_lease({&id, 1}, access, reached.in_order, covers_residents(id));
        use(storage);
        player.released(token, true);
        return reached.is_there && !states[storage].demand_missed;
    }
    /// A pass of the plan. The number of steps that the plan had there.
    std::uint32_t pass() {
        std::uint32_t there = 0;
        player.pass_began(0);
        for (std::uint32_t i = 0; i < schedule.size(); ++i) { there += step(i) ? 1U : 0U; }
        player.pass_ended();
        return there;
    }
    [[nodiscard]] std::uint64_t used_bytes() {
        const auto memory = must(device.memory());
        return memory.total_bytes - memory.free_bytes;
    }

    std::shared_ptr<WatchedTransport::Log> log = std::make_shared<WatchedTransport::Log>();
    CheckedDevice device;

private:
    Model model_;

public:
    residency::Schedule schedule;
    residency::core::PlanFactory factory;
    std::vector<residency::core::StorageState> states;
    residency::Counters counters;
    residency::core::MarkLog<Device> marks;
    residency::core::CopyScheduler<Device> scheduler;
    Player player{Pool::Config{chunk}};
    residency::core::DeciderContext<Device>& context = player.context_;
    residency::core::UnrecordedUses<Device>& uses = player.uses_;
    ChunkStore<Device>& store = player.store_;
    residency::core::ChunkMissHandler<Device>& demand = player.misses_;
    Stream stream{};
    residency::core::ConsumerId reader = 0;
};

/// `count` storages of one chunk each.
inline std::vector<Spec> chunks(std::size_t count) { return std::vector<Spec>(count, Spec{chunk}); }

}  // namespace planned_parts
