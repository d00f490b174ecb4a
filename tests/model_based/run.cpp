// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/model_based/run.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/use_order.hpp"

namespace model_based {
namespace {

class Runner {
    /// What is known of a lease; it has the same number in weights_.
    struct Held {
        std::vector<WeightId> weights;
        std::vector<const std::byte*> addresses;
        std::vector<Device::Stream> streams;
    };

public:
    [[nodiscard]] static std::string run(const Composition& composition, const Scenario& scenario, Tally& tally) {
        Device::Config config;
        config.memory_bytes = std::uint64_t{256} << 20U;
        config.allocation_granularity = 256;
        config.pool_granularity = 1024;
        config.chunk_granularity = 4096;
        config.jitter = scenario.jitter;
        config.seed = scenario.seed;
        Device device{config};
        std::string failure;
        {
            Runner runner{composition, scenario, device};
            failure = runner.run_all(tally);
        }
        if (failure.empty()) {
            for (const auto& leak : device.leaks()) { failure += "left on the device: " + leak.what + "; "; }
            if (failure.empty() && device.report_count() > 0) { failure = device.reports().front().text; }
        }
        return failure;
    }

private:
    Runner(const Composition& composition, const Scenario& scenario, Device& device)
        : composition_{composition}, scenario_{scenario}, device_{device} {}

    std::string run_all(Tally& tally) {
        if (prepare()) { run_operations(tally); }
        weights_.reset();
        catalog_ = {};
        schedules_ = {};
        for (const auto stream : streams_) { static_cast<void>(device_.destroy_stream(stream).has_value()); }
        return failure_;
    }
    void run_operations(Tally& tally) {
        for (const Op& op : scenario_.ops) {
            apply(op);
            ++tally.operations;
            if (failure_.empty()) { check(); }
            if (!failure_.empty()) { break; }
        }
        leases_.clear();
        weights_->end_leases();
        tickets_.clear();
        weights_->drop_tickets();
        if (pass_is_open_) { apply({Do::end_pass}); }
        weights_->drop_pass();
        if (failure_.empty()) {
            check();
            expect(weights_->try_drain(), "drain");
            if (failure_.empty() && weights_->pending_bytes() != 0) { fail("pending, and everything is complete"); }
            if (const auto& change = weights_->budget_change();
                !change.complete_at && change.budget_bytes != 0 && failure_.empty()) {
                fail("a change is not complete, and everything is");
            }
            expect(device_.synchronize(), "synchronize");
            check();
            const auto statistics = weights_->statistics();
            ++tally.cases;
            tally.evictions += statistics.total.evictions;
            tally.prefetch_hits += statistics.total.prefetch_hits;
            tally.divergences += statistics.total.divergences;
            tally.host_waits += statistics.total.host_waits;
            tally.refused += refused_;
            tally.verified += *verified_;
            tally.leases += statistics.total.acquires;
            if (*verified_ != launched_) { fail("a kernel did not run"); }
        }
    }

    void fail(const std::string& what) {
        if (failure_.empty()) { failure_ = what; }
    }
    template <class T>
    bool expect(const residency::Result<T>& result, const char* what) {
        if (!result) { fail(std::string{what} + " failed: " + result.error().message()); }
        return result.has_value();
    }

    bool prepare() {
        for (std::uint32_t i = 0; i < scenario_.streams; ++i) {
            auto stream = device_.create_stream();
            if (!expect(stream, "create_stream")) { return false; }
            streams_.push_back(*stream);
        }
        launched_on_.assign(streams_.size(), 0);
        done_on_.assign(streams_.size(), 0);
        // Neighbours on the host, or not.
        const std::uint64_t align = scenario_.seed % 2 == 0 ? 1 : 256;
        std::uint64_t total = 1;
        for (const StorageSpec& spec : scenario_.storages) { total += (spec.bytes + align - 1) / align * align; }
        auto memory = device_.allocate_host(total);
        if (!expect(memory, "allocate_host")) { return false; }
        auto* const at = static_cast<std::byte*>(*memory);
        std::uint64_t state = scenario_.seed;
        for (std::uint64_t i = 0; i < total; ++i) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            at[i] = static_cast<std::byte>(state >> 56U);
        }
        const auto host = residency::HostBytes::adopt(
            at, total, residency::HostMemory::pinned,
            [&device = device_](std::byte* bytes) { static_cast<void>(device.deallocate_host(bytes).has_value()); });
        residency::CatalogBuilder builder;
        std::uint64_t offset = 0;
        for (std::size_t i = 0; i < scenario_.storages.size(); ++i) {
            const StorageSpec& spec = scenario_.storages[i];
            residency::StorageOptions options;
            options.placement = static_cast<residency::Placement>(spec.placement);
            options.is_mutable = spec.is_mutable;
            options.source = residency::HostSource{host, offset};
            builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {spec.bytes},
                               builder.add_storage(spec.bytes, options));
            offset += (spec.bytes + align - 1) / align * align;
        }
        for (std::uint32_t i = 0; i < scenario_.storages.size(); ++i) {
            if (!scenario_.storages[i].tied) { continue; }
            const std::uint64_t half = scenario_.storages[i].bytes / 2;
            builder.add_weight("t" + std::to_string(i), residency::dtype::u8, {scenario_.storages[i].bytes - half},
                               StorageId{i}, half);
        }
        auto catalog = builder.try_build();
        if (!expect(catalog, "the catalog")) { return false; }
        catalog_ = *catalog;
        for (std::size_t s = 0; s < schedules_.size(); ++s) {
            if (scenario_.schedules[s].empty()) { continue; }
            residency::ScheduleBuilder steps{catalog_};
            for (const auto& step : scenario_.schedules[s]) {
                std::vector<WeightId> ids;
                for (const auto weight : step) { ids.push_back(WeightId{weight}); }
                using Compute = residency::ScheduleBuilder::Compute;
                steps.step(ids, ids.empty() ? Compute{std::chrono::microseconds{1}} : std::nullopt);
            }
            auto built = steps.try_build(scenario_.one_shot ? residency::Cycle::one_shot : residency::Cycle::cyclic);
            if (!expect(built, "the schedule")) { return false; }
            schedules_[s] = *built;
        }

        // One byte is refused, and the refusal says which budget works.
        auto refused = try_create(1);
        if (refused) {
            budget_ = 0;
            weights_ = std::move(*refused);
        } else {
            const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
            if (numbers == nullptr || refused.error().kind() != residency::ErrorKind::budget) {
                if (!needs_schedule(refused.error())) { fail("one byte: " + refused.error().message()); }
                return false;
            }
            const std::uint64_t floor = numbers->floor_bytes;
            for (const bool is_probe : {true, false}) {
                auto made = try_create(budget_ == 0 ? floor : budget_);
                if (!made) {
                    if (!needs_schedule(made.error())) { fail("the refusal's own value: " + made.error().message()); }
                    return false;
                }
                if (!is_probe) {
                    weights_ = std::move(*made);
                    continue;
                }
                budget_ = floor + ((*made)->budget().total_bytes - floor) * scenario_.budget_per_mille / 1000;
                peak_before_ = (*made)->budget().bytes;
            }
        }
        budget_ = allowed_ = weights_->budget().bytes;
        return true;
    }
    [[nodiscard]] residency::Result<std::unique_ptr<AnyWeights>> try_create(std::uint64_t budget) const {
        return composition_.try_create(device_, catalog_, residency::Budget::bytes(budget), schedules_[0],
                                       scenario_.poison);
    }
    /// Some policies refuse to work without a schedule.
    [[nodiscard]] bool needs_schedule(const residency::Error& error) const {
        return error.kind() == residency::ErrorKind::invalid_argument &&
               (schedules_[0].empty() || schedules_[1].empty());
    }

    [[nodiscard]] Device::Stream stream(std::uint32_t i) const { return streams_[i % streams_.size()]; }
    [[nodiscard]] std::size_t number_of(Device::Stream on) const {
        return static_cast<std::size_t>(std::ranges::find(streams_, on) - streams_.begin());
    }
    [[nodiscard]] std::vector<WeightId> some_weights(const Op& op) const {
        std::vector<WeightId> ids;
        const auto count = static_cast<std::uint32_t>(catalog_.weights().size());
        for (std::uint32_t k = 0; k <= op.c % 4 / 2; ++k) { ids.push_back(WeightId{(op.b + k * (op.c + 1)) % count}); }
        return ids;
    }
    [[nodiscard]] bool is_streamed(StorageId id) const {
        return catalog_.storage(id).placement == residency::Placement::streamed && catalog_.storage(id).bytes > 0;
    }
    [[nodiscard]] std::set<StorageId> storages_of(std::span<const WeightId> ids) const {
        std::set<StorageId> storages;
        for (const WeightId id : ids) { storages.insert(catalog_.storage_of(id)); }
        return storages;
    }
    [[nodiscard]] std::set<StorageId> leased() const {
        std::set<StorageId> storages;
        for (const Held& held : leases_) { storages.merge(storages_of(held.weights)); }
        for (const auto& promised : tickets_) { storages.merge(storages_of(promised)); }
        return storages;
    }
    /// Whether the floor counts a storage: a step reads it, or there are no steps.
    [[nodiscard]] bool counts(StorageId id) const {
        const auto& schedule = weights_->schedule();
        return schedule.empty() || !schedule.use_order().uses(id).empty();
    }
    /// Whether there must be room: a declared step or a single weight that the floor counts alone, or, with slots, whatever has enough of
    /// them.
    [[nodiscard]] bool has_to_fit(std::span<const WeightId> ids, bool declared) {
        std::set<StorageId> together = storages_of(ids);
        std::erase_if(together, [&](StorageId id) { return !is_streamed(id); });
        const std::size_t wanted = together.size();
        together.merge(leased());
        std::erase_if(together, [&](StorageId id) { return !is_streamed(id); });
        if (composition_.is_slab) {
            std::uint64_t slot = 0, largest = 0, streamed = 0, resident = 0;
            for (const auto& storage : catalog_.storages()) {
                if (storage.placement == residency::Placement::resident) {
                    resident = (resident + 255) / 256 * 256 + storage.bytes;
                }
                if (storage.placement != residency::Placement::streamed || storage.bytes == 0) { continue; }
                const StorageId id{static_cast<std::uint32_t>(&storage - catalog_.storages().data())};
                largest = std::max(largest, (storage.bytes + 255) / 256 * 256);
                if (counts(id)) { slot = std::max(slot, (storage.bytes + 255) / 256 * 256); }
                ++streamed;
            }
            if (largest == 0) { return true; }
            if (slot == 0) { slot = largest; }
            for (const StorageId id : together) {
                if (catalog_.storage(id).bytes > slot) { return false; }  // it needs neighbours
            }
            if (changed_under_lease_) {
                changed_under_lease_ = !leases_.empty() || !tickets_.empty();
                return false;
            }
            const std::uint64_t cap = (budget_ - (resident + 255) / 256 * 256) / 4096 * 4096;
            if (slot % 4096 != 0) { return together.size() <= std::min(streamed, cap / slot); }
            return together.size() <= std::min(streamed, (budget_ - (resident + 255) / 256 * 256) / slot);
        }
        const bool is_alone = leases_.empty() && tickets_.empty();
        return is_alone &&
               (declared || (!composition_.is_planned && (wanted == 0 || (wanted == 1 && counts(*together.begin())))));
    }

    /// After a lease or a ticket, or a refusal.
    bool took(const residency::Status& result, std::span<const WeightId> ids, bool declared) {
        if (result) {
            ++acquires_;
            for (const StorageId id : storages_of(ids)) {
                ++accesses_;
                const auto& storage = catalog_.storage(id);
                accessed_bytes_ += storage.placement == residency::Placement::host ? 0 : storage.bytes;
            }
            return true;
        }
        ++refused_;
        if (result.error().kind() != residency::ErrorKind::budget) {
            fail("acquire: " + result.error().message());
        } else if (has_to_fit(ids, declared)) {
            fail("refused, although it fits: " + result.error().message());
        }
        return false;
    }
    /// After the weights took a further lease.
    void keep(std::vector<WeightId> ids, Device::Stream on) {
        Held held{std::move(ids), {}, {on}};
        for (const WeightId id : held.weights) { held.addresses.push_back(weights_->data(leases_.size(), id)); }
        leases_.push_back(std::move(held));
    }
    [[nodiscard]] const residency::Schedule& schedule() const { return weights_->schedule(); }

    void acquire_step(std::uint32_t step, const Op& op) {
        const auto& declared = schedule()[step];
        const Device::Stream on = op.a % 3 == 0 ? stream(op.a) : pass_stream_;
        const auto taken = weights_->try_acquire(declared, on);
        std::vector<WeightId> ids{declared.weights.begin(), declared.weights.end()};
        if (took(taken, ids, true)) { keep(std::move(ids), on); }
        next_step_ = (step + 1) % schedule().size();
    }

    void apply(const Op& op) {
        const bool in_pass = pass_is_open_;
        switch (op.what) {
            case Do::begin: {
                if (in_pass) { return; }
                pass_stream_ = stream(op.a);
                if (!expect(weights_->try_begin(pass_stream_), "begin")) { return; }
                pass_is_open_ = true;
                next_step_ = 0;
                return;
            }
            case Do::end_pass:
                if (!in_pass) { return; }
                expect(weights_->try_end(), "end");
                pass_is_open_ = false;
                ++passes_;
                return;
            case Do::next_step:
            case Do::any_step:
                if (!in_pass) { return; }
                if (schedule().empty()) {
                    const std::vector<WeightId> ids = some_weights(op);
                    if (took(weights_->try_acquire(ids, {}), ids, false)) { keep(ids, pass_stream_); }
                    return;
                }
                return acquire_step(op.what == Do::next_step ? next_step_ : op.b % schedule().size(), op);
            case Do::weights: {
                if (!in_pass) { return; }
                const std::vector<WeightId> ids = some_weights(op);
                if (took(weights_->try_acquire(ids, stream(op.a)), ids, false)) { keep(ids, stream(op.a)); }
                return;
            }
            case Do::request_step: {
                if (!in_pass || schedule().empty()) { return; }
                const auto& step = schedule()[next_step_];
                const auto promised = weights_->try_request(step);
                std::vector<WeightId> ids{step.weights.begin(), step.weights.end()};
                if (took(promised, ids, true)) { tickets_.push_back(std::move(ids)); }
                next_step_ = (next_step_ + 1) % schedule().size();
                return;
            }
            case Do::request_weights: {
                if (!in_pass) { return; }
                std::vector<WeightId> ids = some_weights(op);
                if (took(weights_->try_request(ids), ids, false)) { tickets_.push_back(std::move(ids)); }
                return;
            }
            case Do::lease_ticket: {
                if (tickets_.empty() || !in_pass) { return; }
                const std::size_t i = op.b % tickets_.size();
                const bool names_stream = op.a % 2 == 0;
                if (expect(weights_->try_lease(i, names_stream ? std::optional{stream(op.a)} : std::nullopt),
                           "lease of a ticket")) {
                    keep(std::move(tickets_[i]), names_stream ? stream(op.a) : pass_stream_);
                }
                return drop_ticket(i);
            }
            case Do::drop_ticket:
                if (!tickets_.empty()) { drop_ticket(op.b % tickets_.size()); }
                return;
            case Do::verify: {
                if (leases_.empty()) { return; }
                const std::size_t lease = leases_.size() - 1 - op.b % 3 % leases_.size();
                const auto& streams = leases_[lease].streams;
                return verify(lease, streams[op.a % streams.size()], op.c);
            }
            case Do::use_on: {
                if (leases_.empty()) { return; }
                const std::size_t lease = op.b % leases_.size();
                if (!expect(weights_->try_use_on(lease, stream(op.a)), "use_on")) { return; }
                leases_[lease].streams.push_back(stream(op.a));
                return;
            }
            case Do::end_lease:
                if (!leases_.empty()) {
                    const std::size_t lease = op.b % leases_.size();
                    weights_->end_lease(lease);
                    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(lease));
                }
                return;
            case Do::move_lease:
                if (!leases_.empty()) {
                    const std::size_t one = op.b % leases_.size(), other = op.c % leases_.size();
                    weights_->swap_leases(one, other);
                    std::swap(leases_[one], leases_[other]);
                }
                return;
            case Do::synchronize: expect(device_.synchronize(stream(op.a)), "synchronize"); return;
            case Do::drain: expect(weights_->try_drain(), "drain"); return;
            case Do::set_schedule: return set_schedule(op.a % 3);
            case Do::set_budget: return set_budget(op.a);
            case Do::spend: device_.spend(std::chrono::microseconds{op.c}); return;
            case Do::hint: return hint(op);
            case Do::wait: return wait();
            case Do::count: return;
        }
    }
    void drop_ticket(std::size_t ticket) {
        weights_->drop_ticket(ticket);
        tickets_.erase(tickets_.begin() + static_cast<std::ptrdiff_t>(ticket));
    }
    void verify(std::size_t lease, Device::Stream on, std::uint32_t duration) {
        for (const WeightId id : leases_[lease].weights) {
            const auto bytes = weights_->bytes(lease, id);
            if (bytes.empty()) { continue; }
            const auto& weight = catalog_.weight(id);
            Device::Kernel kernel;
            kernel.name = weight.name;
            kernel.duration = std::chrono::nanoseconds{duration * duration * 10 + 1};
            kernel.reads = {{bytes.data(), bytes.size()}};
            kernel.body = [at = bytes.data(), count = bytes.size(),
                           host = catalog_.host_bytes(weight.storage) + weight.offset_bytes, wrong = wrong_.get(),
                           verified = verified_.get(), done = &done_on_[number_of(on)]] {
                *wrong += std::memcmp(at, host, count) == 0 ? 0U : 1U;
                ++*verified;
                ++*done;
            };
            expect(device_.launch(on, std::move(kernel)), "launch");
            ++launched_;
            ++launched_on_[number_of(on)];
        }
    }
    void set_schedule(std::uint32_t which) {
        const residency::Schedule wanted = which < 2 ? schedules_[which] : residency::Schedule{};
        const residency::Schedule was = schedule();
        const auto set = weights_->try_set_schedule(wanted);
        if (pass_is_open_ || !leases_.empty() || !tickets_.empty()) {
            if (set || set.error().kind() != residency::ErrorKind::wrong_state) {
                fail("a schedule was set while leases were open");
            }
        } else if (!set) {
            const auto kind = set.error().kind();
            if (kind != residency::ErrorKind::budget && kind != residency::ErrorKind::invalid_argument) {
                fail(set.error().message());
            }
            if (!(schedule() == was)) { fail("refused, and yet another schedule"); }
        }
    }
    void set_budget(std::uint32_t share) {
        const auto floor = weights_->statistics().floor_bytes;
        const std::uint64_t wanted = floor + (weights_->budget().total_bytes - floor) * (share % 12) / 10;
        const auto set = weights_->try_set_budget(residency::Budget::bytes(wanted));
        const bool is_leased = !leases_.empty() || !tickets_.empty();
        if (pass_is_open_) {
            if (set || set.error().kind() != residency::ErrorKind::wrong_state) {
                fail("a budget was set while a pass was open");
            }
        } else if (!set && is_leased && composition_.is_planned &&
                   set.error().kind() == residency::ErrorKind::wrong_state) {
            if (weights_->budget().bytes != budget_) { fail("refused, and yet another budget"); }
        } else if (expect(set, "set_budget")) {
            peak_before_ = std::max(peak_before_, budget_);
            budget_ = weights_->budget().bytes;
            allowed_ = std::max(budget_, set->held_bytes);
            changed_under_lease_ = is_leased;
            if (set->budget_bytes != budget_ || set->held_bytes != weights_->statistics().held_bytes ||
                set->pending_bytes != allowed_ - budget_ || set->is_complete() != set->complete_at.has_value()) {
                fail("the report of a change is not what happened");
            }
            if (!is_leased && !set->is_complete()) { fail("pending, and no lease is open"); }
        }
    }
    /// Refused without a pass. In one, all that was asked of its stream so far is done afterwards; a lease stays what it is.
    void wait() {
        const auto waited = weights_->try_wait();
        if (!pass_is_open_) {
            if (waited || waited.error().kind() != residency::ErrorKind::wrong_state) { fail("waited without a pass"); }
            return;
        }
        if (!expect(waited, "wait")) { return; }
        ++waits_;
        const std::size_t on = number_of(pass_stream_);
        if (done_on_[on] != launched_on_[on]) { fail("after a wait a kernel on the pass's stream is not over"); }
    }
    void hint(const Op& op) {
        const auto n = static_cast<std::uint32_t>(catalog_.storages().size());
        const residency::prefetch::Hint hints[] = {{StorageId{op.b % n}, 0.5F, residency::UseOrder::never},
                                                   {StorageId{op.c % n}, 0.25F, op.a}};
        expect(weights_->try_hint(hints), "hint");
    }

    /// Every invariant.
    void check() {
        if (device_.report_count() > 0) { return fail(device_.reports().front().text); }
        if (*wrong_ > 0) { return fail("a kernel read wrong bytes"); }
        const auto statistics = weights_->statistics();
        const std::uint64_t peak = std::max(budget_, peak_before_);
        if (device_.peak_used_bytes() > peak) {
            return fail("the device held " + std::to_string(device_.peak_used_bytes()) + " bytes of a budget of " +
                        std::to_string(peak));
        }
        allowed_ = std::max(budget_, std::min(allowed_, statistics.held_bytes));
        if (statistics.held_bytes > allowed_) { return fail("held_bytes is above the budget"); }
        if (statistics.pending_bytes != allowed_ - budget_) { return fail("pending_bytes is not what is above"); }
        const auto memory = device_.memory();
        if (memory && memory->total_bytes - memory->free_bytes != statistics.held_bytes) {
            return fail("held_bytes says " + std::to_string(statistics.held_bytes) + ", the device " +
                        std::to_string(memory->total_bytes - memory->free_bytes));
        }
        if (statistics.requested_bytes > statistics.held_bytes) { return fail("requested_bytes is above held_bytes"); }
        const auto& total = statistics.total;
        if (total.passes != passes_ || total.acquires != acquires_) {
            return fail("passes or acquires are miscounted");
        }
        if (total.host_waits < waits_) { return fail("waits are miscounted"); }
        if (total.hits + total.prefetch_hits + total.demand_misses < accesses_ ||
            total.hit_bytes + total.prefetch_hit_bytes + total.missed_bytes < accessed_bytes_) {
            return fail("accesses are miscounted");
        }
        if (refused_ == 0 && total.hits + total.prefetch_hits + total.demand_misses != accesses_) {
            return fail("accesses are counted twice");
        }
        if (const auto& failed = weights_->failure()) { return fail("failure: " + failed->message()); }
        std::map<const std::byte*, std::pair<const std::byte*, StorageId>> places;  // begin → end
        for (std::size_t lease = 0; lease < leases_.size(); ++lease) {
            const Held& held = leases_[lease];
            for (std::size_t i = 0; i < held.weights.size(); ++i) {
                const auto& weight = catalog_.weight(held.weights[i]);
                const std::byte* const at = weights_->data(lease, held.weights[i]);
                if (at != held.addresses[i]) { return fail("a leased weight moved"); }
                if (weight.bytes == 0) { continue; }
                if (at == nullptr) { return fail("a leased weight has no address"); }
                const std::byte* const base = at - weight.offset_bytes;
                places.insert({base, {base + catalog_.storage(weight.storage).bytes, weight.storage}});
                if (places[base].second != weight.storage) { return fail("two leased storages begin at one address"); }
            }
        }
        const std::byte* end = nullptr;
        for (const auto& [begin, place] : places) {
            if (begin < end) { return fail("two leased storages overlap"); }
            end = place.first;
        }
    }

    const Composition& composition_;
    const Scenario& scenario_;
    Device& device_;
    std::string failure_;
    std::vector<Device::Stream> streams_;
    residency::Catalog catalog_;
    std::array<residency::Schedule, 2> schedules_;
    std::unique_ptr<std::uint64_t> wrong_ = std::make_unique<std::uint64_t>(0);
    std::unique_ptr<std::uint64_t> verified_ = std::make_unique<std::uint64_t>(0);
    std::uint64_t launched_ = 0;
    std::vector<std::uint64_t> launched_on_, done_on_;  // kernels, by stream
    std::uint64_t budget_ = 0, peak_before_ = 0;
    std::uint64_t allowed_ = 0;         // the budget, or what leases kept above it
    bool changed_under_lease_ = false;  // and places may still be lost to that
    std::unique_ptr<AnyWeights> weights_;
    Device::Stream pass_stream_;
    bool pass_is_open_ = false;
    std::uint32_t next_step_ = 0;
    std::deque<Held> leases_;
    std::deque<std::vector<WeightId>> tickets_;
    std::uint64_t passes_ = 0, acquires_ = 0, accesses_ = 0, accessed_bytes_ = 0, refused_ = 0, waits_ = 0;
};

}  // namespace

std::string run(const Composition& composition, const Scenario& scenario, Tally& tally) {
    return Runner::run(composition, scenario, tally);
}

}  // namespace model_based
