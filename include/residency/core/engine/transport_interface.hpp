// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/measure/measure_link.hpp"
#include "residency/device/link.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A transport of any type, as copy scheduler, session and player call it. The rules are those of transport::TransportPolicy.
template <Device D>
class TransportInterface {
public:
    TransportInterface() = default;
    TransportInterface(const TransportInterface&) = delete;
    TransportInterface& operator=(const TransportInterface&) = delete;
    virtual ~TransportInterface() = default;

    [[nodiscard]] virtual Status open(D& device, const Catalog& catalog) = 0;
    [[nodiscard]] virtual Status enqueue(std::span<const transport::Fetch> fetches, typename D::Stream stream) = 0;
    /// What the transport's own threads failed at; success where it has none.
    [[nodiscard]] virtual Status status() const = 0;
    /// Forgets that failure, and appends the storages of which bytes did not arrive. Precondition: the copy stream is drained.
    virtual void take_failure(std::vector<StorageId>& storages) = 0;
    [[nodiscard]] virtual bool is_capturable() const noexcept = 0;
    /// Announces what the next call of enqueue brings. False: not now, or never.
    [[nodiscard]] virtual bool read_ahead(std::span<const transport::Fetch> fetches) = 0;
    virtual void forget_ahead() = 0;
    /// Blocks until no thread reads these storages' sources; what was announced is withdrawn.
    [[nodiscard]] virtual Status pause(std::span<const StorageId> storages) = 0;
    /// The sources' bytes were replaced, after pause(). Precondition: the copy stream is drained.
    [[nodiscard]] virtual Status sources_changed(std::span<const StorageId> storages) = 0;
    /// Blocks. What its copies reach, where it uses more than the device's own link. None: it does not.
    [[nodiscard]] virtual Result<std::optional<plan::Link>> measure_links(D& device, std::uint64_t device_bytes,
                                                                          MemorySource& memory) = 0;
    [[nodiscard]] virtual std::vector<LinkUse> links() const = 0;
    /// Of all links that it uses, in bytes per second; less than before: some were lost. 0: it uses the device's own link only.
    [[nodiscard]] virtual double links_rate() const noexcept = 0;
    /// Whether it copies on streams of its own, beside the copy stream.
    [[nodiscard]] bool has_own_streams() const noexcept { return links_rate() > 0; }
    /// Whether it holds bytes of the model nearer than the host does: then plans are for rate_of(), and hold() follows each.
    [[nodiscard]] virtual bool holds() const noexcept { return false; }
    /// What calls cost that bring `bytes` different bytes in a pass, once hold() has been told of them.
    [[nodiscard]] virtual transport::CallRate rate_of(std::uint64_t) const { return {}; }
    /// The calls of the plan in force: a part of each is held from now on. Blocks. Precondition: the copy stream is drained.
    virtual void hold(std::span<const std::span<const transport::Fetch>>) {}
    /// Holds nothing until the next hold(). On failure some of it may be held, and it may be called again. Blocks. Precondition: as hold().
    [[nodiscard]] virtual Status release_held() { return {}; }
    /// Whether it has common_plan(), tell_plan() and has_newer_plan().
    [[nodiscard]] virtual bool shares_plans() const noexcept { return false; }
    /// A plan of others, with which this transport shares what it brings where plans are the same: for the steps of a problem and a budget, newer
    /// than the one that it gave or was told last. None: there is none.
    [[nodiscard]] virtual std::optional<plan::Plan> common_plan(const plan::Problem&, std::uint64_t, bool) {
        return std::nullopt;
    }
    /// A plan was made for that.
    virtual void tell_plan(const plan::Problem&, std::uint64_t, const plan::Plan&) {}
    /// Whether there is such a newer plan for what was planned last.
    [[nodiscard]] virtual bool has_newer_plan() const { return false; }
    /// Finds out whether links were lost, and bytes with them, which status() says then. Blocks. An error: a neighbour may still read or write.
    [[nodiscard]] virtual Status check_links() = 0;
    virtual void close() noexcept = 0;
    virtual void abandon() noexcept = 0;
};

/// Puts a transport `T` behind a TransportInterface. Calls that are optional in the policy do nothing if `T` lacks them.
template <Device D, transport::TransportPolicy<D> T>
class TransportAdapter final : public TransportInterface<D> {
public:
    explicit TransportAdapter(typename T::Config config) : transport_{std::move(config)} {}

    [[nodiscard]] Status open(D& device, const Catalog& catalog) override { return transport_.open(device, catalog); }
    [[nodiscard]] Status enqueue(std::span<const transport::Fetch> fetches, typename D::Stream stream) override {
        return transport_.enqueue(fetches, stream);
    }
    [[nodiscard]] Status status() const override {
        if constexpr (requires { transport_.status(); }) {
            return transport_.status();
        } else {
            return {};
        }
    }
    void take_failure([[maybe_unused]] std::vector<StorageId>& storages) override {
        if constexpr (requires { transport_.take_failure(storages); }) { transport_.take_failure(storages); }
    }
    [[nodiscard]] bool is_capturable() const noexcept override { return T::capturable; }
    [[nodiscard]] bool read_ahead([[maybe_unused]] std::span<const transport::Fetch> fetches) override {
        if constexpr (requires { transport_.read_ahead(fetches); }) {
            return transport_.read_ahead(fetches);
        } else {
            return false;
        }
    }
    void forget_ahead() override {
        if constexpr (requires { transport_.forget_ahead(); }) { transport_.forget_ahead(); }
    }
    [[nodiscard]] Status pause([[maybe_unused]] std::span<const StorageId> storages) override {
        if constexpr (requires { transport_.pause(storages); }) {
            return transport_.pause(storages);
        } else {
            return {};
        }
    }
    [[nodiscard]] Status sources_changed([[maybe_unused]] std::span<const StorageId> storages) override {
        if constexpr (requires { transport_.sources_changed(storages); }) {
            return transport_.sources_changed(storages);
        } else {
            return {};
        }
    }
    [[nodiscard]] Result<std::optional<plan::Link>> measure_links([[maybe_unused]] D& device,
                                                                  [[maybe_unused]] std::uint64_t device_bytes,
                                                                  [[maybe_unused]] MemorySource& memory) override {
        if constexpr (requires { transport_.links(); }) {
            auto link = try_measure_links(device, device_bytes, memory, transport_);
            if (!link) { return link.error(); }
            return std::optional{*link};
        } else {
            return std::optional<plan::Link>{};
        }
    }
    [[nodiscard]] std::vector<LinkUse> links() const override {
        if constexpr (requires { transport_.links(); }) {
            return transport_.links();
        } else {
            return {};
        }
    }
    [[nodiscard]] double links_rate() const noexcept override {
        if constexpr (requires { transport_.links(); }) {
            return transport_.rate();
        } else {
            return 0;
        }
    }
    [[nodiscard]] bool holds() const noexcept override {
        if constexpr (requires { transport_.holds(); }) {
            return transport_.holds();
        } else {
            return false;
        }
    }
    [[nodiscard]] transport::CallRate rate_of([[maybe_unused]] std::uint64_t bytes) const override {
        if constexpr (requires { transport_.holds(); }) {
            return transport_.rate_of(bytes);
        } else {
            return {};
        }
    }
    void hold([[maybe_unused]] std::span<const std::span<const transport::Fetch>> calls) override {
        if constexpr (requires { transport_.holds(); }) { transport_.hold(calls); }
    }
    [[nodiscard]] Status release_held() override {
        if constexpr (requires { transport_.holds(); }) {
            return transport_.release_held();
        } else {
            return {};
        }
    }
    [[nodiscard]] bool shares_plans() const noexcept override {
        return requires { transport_.has_newer_plan(); };
    }
    [[nodiscard]] std::optional<plan::Plan> common_plan([[maybe_unused]] const plan::Problem& problem,
                                                        [[maybe_unused]] std::uint64_t budget_bytes,
                                                        [[maybe_unused]] bool is_captured) override {
        if constexpr (requires { transport_.common_plan(problem, budget_bytes, is_captured); }) {
            return transport_.common_plan(problem, budget_bytes, is_captured);
        } else {
            return std::nullopt;
        }
    }
    void tell_plan([[maybe_unused]] const plan::Problem& problem, [[maybe_unused]] std::uint64_t budget_bytes,
                   [[maybe_unused]] const plan::Plan& plan) override {
        if constexpr (requires { transport_.tell_plan(problem, budget_bytes, plan); }) {
            transport_.tell_plan(problem, budget_bytes, plan);
        }
    }
    [[nodiscard]] bool has_newer_plan() const override {
        if constexpr (requires { transport_.has_newer_plan(); }) {
            return transport_.has_newer_plan();
        } else {
            return false;
        }
    }
    [[nodiscard]] Status check_links() override {
        if constexpr (requires { transport_.links(); }) {
            return transport_.check_neighbours();
        } else {
            return {};
        }
    }
    void close() noexcept override { transport_.close(); }
    void abandon() noexcept override {
        if constexpr (requires { transport_.abandon(); }) { transport_.abandon(); }
    }

private:
    T transport_;
};

}}}  // namespace residency::RESIDENCY_ABI::core
