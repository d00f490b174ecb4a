// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/host/loading.hpp"
#include "residency/impl/c/model.hpp"
#include "residency/model/number.hpp"
#include "residency/planned.hpp"
#include "residency/transport/staged.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace c {

/// How the streams of a device are written as pointers: `from(device, pointer)` and `to(stream)`, one the inverse of the other. Null is the
/// default stream.
template <class D>
struct StreamPointer;

/// The streams that a model has made; they end with it.
template <Device D>
class OwnStreams {
public:
    using Stream = typename D::Stream;

    explicit OwnStreams(D& device) noexcept : device_{&device} {}
    OwnStreams(const OwnStreams&) = delete;
    OwnStreams& operator=(const OwnStreams&) = delete;
    ~OwnStreams() {
        for (const Stream stream : streams_) { static_cast<void>(device_->destroy_stream(stream).has_value()); }
    }

    [[nodiscard]] Result<Stream> create() {
        streams_.reserve(streams_.size() + 1);
        auto made = device_->create_stream();
        if (made) { streams_.push_back(*made); }
        return made;
    }
    /// Error invalid_argument: it is none of these.
    [[nodiscard]] Status destroy(Stream stream) {
        const auto found = std::find(streams_.begin(), streams_.end(), stream);
        if (found == streams_.end()) {
            return Error{ErrorKind::invalid_argument,
                         "this stream was not made by residency_create_stream() of this model, or is destroyed"};
        }
        if (Status destroyed = device_->destroy_stream(stream); !destroyed) { return destroyed; }
        streams_.erase(found);
        return {};
    }

private:
    D* device_;
    std::vector<Stream> streams_;
};

/// A model that a Residency of this type streams, on a device of its own. Whatever is open ends before the Residency, that before the streams,
/// and they before the device.
template <class Weights>
class OpenedModel final : public Model {
    using Device = typename Weights::Device;
    using Stream = typename Device::Stream;
    using Pointer = StreamPointer<Device>;

public:
    /// `device` has the bytes of the catalog.
    OpenedModel(std::unique_ptr<Device> device, Weights weights) noexcept
        : device_{std::move(device)}, weights_{std::move(weights)} {}

    const Catalog& catalog() const noexcept override { return weights_.catalog(); }
    std::uint32_t steps() const noexcept override { return weights_.schedule().size(); }
    std::string_view device_name() const noexcept override { return device_->name(); }
    std::optional<std::uint64_t> report_count() const override {
        if constexpr (requires { device_->report_count(); }) {
            return device_->report_count();
        } else {
            return std::nullopt;
        }
    }

    Result<void*> create_stream() override {
        auto made = streams_.create();
        if (!made) { return made.error(); }
        return Pointer::to(*made);
    }
    Status destroy_stream(void* stream) override { return streams_.destroy(from(stream)); }
    Status synchronize(void* stream) override { return device_->synchronize(from(stream)); }

    Status begin_pass(void* stream) override {
        auto begun = weights_.try_begin(from(stream));
        if (!begun) { return begun.error(); }
        pass_ = std::move(*begun);
        current_ = &pass_;
        return {};
    }
    Status end_pass() override {
        if (current_ == nullptr) { return no_pass(); }
        current_ = nullptr;
        return pass_.try_end();
    }

    bool has_lease(LeaseHandle lease) const noexcept override { return leases_.find(lease) != nullptr; }
    std::uint32_t open_leases() const noexcept override { return open_leases_; }
    Result<LeaseHandle> acquire_step(std::uint32_t step, void* stream) override {
        const Schedule& schedule = weights_.schedule();
        if (step >= schedule.size()) {
            return Error{ErrorKind::invalid_argument, "there is no step " + std::to_string(step) +
                                                          ": the schedule has " + std::to_string(schedule.size())};
        }
        return acquire(schedule[step], stream);
    }
    Result<LeaseHandle> acquire_weights(std::span<const WeightId> weights, void* stream) override {
        return acquire(weights, stream);
    }
    Status use_on(LeaseHandle lease, void* stream) override {
        return leases_.find(lease)->lease.try_use_on(from(stream));
    }
    Result<void*> address(LeaseHandle handle, WeightId weight) override {
        const Lease<Device>& lease = leases_.find(handle)->lease;
        if (!catalog().contains(weight) || !lease.covers(weight)) {
            return Error{ErrorKind::invalid_argument,
                         "this lease does not cover weight " + std::to_string(index(weight))};
        }
        return static_cast<void*>(lease.address(weight));
    }
    Status read(LeaseHandle handle, WeightId weight, std::uint64_t offset, std::uint64_t bytes, void* to) override {
        auto at = address(handle, weight);
        if (!at) { return at.error(); }
        const std::uint64_t whole = catalog().weight(weight).bytes;
        if (offset > whole || bytes > whole - offset) {
            return Error{ErrorKind::invalid_argument,
                         residency::detail::in_bytes(bytes) + " from byte " + std::to_string(offset) +
                             " are more than the weight has: " + residency::detail::in_bytes(whole)};
        }
        if (bytes == 0) { return {}; }
        const Stream stream = leases_.find(handle)->stream;
        const Copy copy{to, static_cast<const std::byte*>(*at) + offset, bytes};
        Status copied = device_->copy({&copy, 1}, stream);
        return copied ? device_->synchronize(stream) : std::move(copied);
    }
    Status release(LeaseHandle handle) override {
        const bool had_failed = weights_.failure().has_value();
        leases_.find(handle)->lease.end();
        leases_.remove(handle);
        --open_leases_;
        if (had_failed || !weights_.failure()) { return {}; }
        // wrong_state would say that the lease is open still.
        const Error& why = *weights_.failure();
        return why.kind() == ErrorKind::wrong_state ? Error{ErrorKind::device, why.message()} : why;
    }

    Status set_budget(const Budget& budget) override {
        auto changed = weights_.try_set_budget(budget);
        return changed ? Status{} : Status{changed.error()};
    }
    const ResolvedBudget& budget() const noexcept override { return weights_.budget(); }
    Status set_schedule(Schedule schedule) override { return weights_.try_set_schedule(std::move(schedule)); }
    Status drain() override { return weights_.try_drain(); }
    Statistics statistics() const override { return weights_.statistics(); }

    bool has_graph(GraphHandle graph) const noexcept override { return graphs_.find(graph) != nullptr; }
    Result<GraphHandle> capture(void* stream, int (*body)(void* context), void* context) override {
        if (open_graphs_ == max_graphs) { return too_many("graphs", max_graphs); }
        // A capture begins without leases, so that all there are at its end are its own.
        struct PassOfCapture {
            OpenedModel* model;
            ~PassOfCapture() {
                model->current_ = nullptr;
                model->end_all_leases();
            }
        };
        auto captured = weights_.try_capture(from(stream), [&](Pass<Device>& pass) -> Status {
            current_ = &pass;
            const PassOfCapture until_here{this};
            const int returned = body(context);
            if (returned == 0) { return {}; }
            return Error{ErrorKind::cancelled, "the body of the capture returned " + std::to_string(returned)};
        });
        if (!captured) { return captured.error(); }
        const GraphHandle handle = graphs_.add();
        *graphs_.find(handle) = std::move(*captured);
        ++open_graphs_;
        return handle;
    }
    Status launch(GraphHandle graph, void* stream) override { return graphs_.find(graph)->try_launch(from(stream)); }
    void destroy(GraphHandle graph) override {
        graphs_.remove(graph);
        --open_graphs_;
    }

private:
    /// A lease, and the stream that it was acquired for.
    struct OpenLease {
        Lease<Device> lease;
        Stream stream{};
    };

    [[nodiscard]] static Error no_pass() {
        return {ErrorKind::wrong_state, "no pass is open: residency_begin_pass() begins one"};
    }
    [[nodiscard]] static Error too_many(const char* what, std::uint32_t most) {
        return {ErrorKind::wrong_state, "there are " + std::to_string(most) + " " + what + " of this model already"};
    }
    [[nodiscard]] Stream from(void* stream) const { return Pointer::from(*device_, stream); }

    template <class What>
    [[nodiscard]] Result<LeaseHandle> acquire(const What& what, void* stream) {
        if (current_ == nullptr) { return no_pass(); }
        if (open_leases_ == max_leases) { return too_many("leases", max_leases); }
        const Stream on = from(stream);
        auto lease = current_->try_acquire(what, on);
        if (!lease) { return lease.error(); }
        const LeaseHandle handle = leases_.add();
        *leases_.find(handle) = {std::move(*lease), on};
        ++open_leases_;
        return handle;
    }
    void end_all_leases() {
        leases_.for_each_handle([&](LeaseHandle handle, const OpenLease&) { leases_.remove(handle); });
        open_leases_ = 0;
    }

    std::unique_ptr<Device> device_;
    OwnStreams<Device> streams_{*device_};
    Weights weights_;
    Pass<Device> pass_;
    Pass<Device>* current_ = nullptr;  // the open pass: pass_, or that of a capture; null: none
    simulation::HandleTable<OpenLease, LeaseTag> leases_{this};
    simulation::HandleTable<CapturedPass<Device>, GraphTag> graphs_{this};
    std::uint32_t open_leases_ = 0;
    std::uint32_t open_graphs_ = 0;
};

/// Blocks. Loads the bytes, and makes the Residency that can reach where they are: pinned memory, or through a staging ring.
template <class D>
[[nodiscard]] Result<std::unique_ptr<Model>> open_on(std::unique_ptr<D> device, OpenRequest request) {
    host::LoadOptions load;
    load.tier = request.tier;
    load.schedule = request.schedule;
    auto loaded = host::try_load(*device, request.catalog, std::move(load));
    if (!loaded) { return loaded.error(); }
    const auto make = [&]<class Weights>(std::type_identity<Weights>) -> Result<std::unique_ptr<Model>> {
        typename Weights::Options options;
        options.budget = request.budget;
        options.schedule = std::move(request.schedule);
        options.strict = request.strict;
        auto weights = Weights::try_create(*device, std::move(loaded->catalog), std::move(options));
        if (!weights) { return weights.error(); }
        return std::unique_ptr<Model>{std::make_unique<OpenedModel<Weights>>(std::move(device), std::move(*weights))};
    };
    using Through = Residency<evict::Planned, prefetch::Planned, pool::Virtual<D>, transport::Staged<D>>;
    if (loaded->report.tier == host::Tier::pinned) { return make(std::type_identity<Planned<D>>{}); }
    return make(std::type_identity<Through>{});
}

}}}  // namespace residency::RESIDENCY_ABI::c
