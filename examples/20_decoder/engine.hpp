// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv_cache.hpp"
#include "llama.hpp"
#include "residency/broker/broker.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/fwd.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/pinned.hpp"
#include "workspace.hpp"

namespace decoder {

/// A text in the making: a model's weights and the text's KV cache under one budget. Each pass takes the tokens that are new, appends
/// to the cache and chooses the next token. Passes of one token are launched as a graph, where the transport can be captured.
/// `Pool`: pool::Virtual, or pool::Packed for a model that is packed in host memory.
template <class Backend, class Transport = residency::transport::Pinned<typename Backend::Device>,
          class Pool = residency::pool::Virtual<typename Backend::Device>>
class Engine {
    using Device = typename Backend::Device;
    using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned, Pool, Transport>;
    using Graph = decltype(std::declval<Weights&>().capture(typename Device::Stream{},
                                                            std::declval<void (&)(typename Weights::Pass&)>()));

public:
    /// What a budget comes to.
    struct Sizes {
        residency::ResolvedBudget total;    ///< of weights and cache together
        residency::ResolvedBudget weights;  ///< the weights by themselves, at their floor
        std::uint64_t cache_bytes = 0;      ///< that the whole text takes
    };
    /// How a pass went.
    struct Step {
        std::uint64_t token = 0;          ///< the one that follows
        std::chrono::nanoseconds time{};  ///< from the token before to this one; of the first one, from the call
        bool is_graph = false;
        bool is_disturbed = false;  ///< steps were measured, a graph was captured, or the weights made room
    };

    /// What would come of a budget. Error budget, thrown: it is below what the largest step and the whole text's cache take.
    [[nodiscard]] static Sizes resolve(Backend& backend, const Checkpoint& model, const Workspace<Backend>& work,
                                       const residency::Budget& budget, std::uint32_t positions) {
        Sizes sizes;
        typename Weights::Options smallest = options_for(backend);
        smallest.budget = residency::Budget::bytes(0);
        smallest.schedule = make_schedule(model, {1, positions, work.cache}, work.activations);
        sizes.weights = Weights::resolve_budget(backend.device(), model.catalog, std::move(smallest));
        sizes.cache_bytes = KvCache<Device>::bytes(backend.device(), work.cache, positions);
        residency::BudgetContext context;
        context.streamed_bytes = model.catalog.streamed_bytes();
        context.everything_bytes = sizes.weights.total_bytes + sizes.cache_bytes;
        context.floor_bytes = sizes.weights.floor_bytes + sizes.cache_bytes;
        context.floor_step_name = "the largest step and a KV cache of " + std::to_string(positions) + " positions";
        context.free_device_bytes = residency::unwrap(backend.device().memory()).free_bytes;
        context.reserve_bytes = std::uint64_t{512} << 20U;
        sizes.total = budget.resolve(context);
        return sizes;
    }

    /// For a text of so many positions in all, the first `prompt` of them in one pass. The budget holds for weights and cache together.
    /// Without `link`, that is measured. `time_stalls`: so that a recorded step says why it waits.
    /// Errors, thrown: as of resolve, and the device's own.
    Engine(Backend& backend, const Checkpoint& model, const Workspace<Backend>& work, const residency::Budget& budget,
           std::uint32_t prompt, std::uint32_t positions, bool use_graphs, typename Transport::Config transport = {},
           std::optional<residency::plan::Link> link = {}, bool time_stalls = false)
        : backend_{backend},
          model_{model},
          work_{work},
          positions_{positions},
          sizes_{resolve(backend, model, work, budget, positions)},
          broker_{{.total_bytes = sizes_.total.bytes}},
          client_{broker_.add_model({.name = "weights",
                                     .floor_bytes = sizes_.weights.floor_bytes,
                                     .wanted_bytes = sizes_.weights.total_bytes})},
          cache_{backend.device(),
                 broker_.add_memory({.name = "KV cache",
                                     .priority = 1,
                                     .headroom_bytes = KvCache<Device>::bytes(backend.device(), work.cache, 1),
                                     .limit_bytes = sizes_.cache_bytes}),
                 work.cache, work.activations.host, sizes_.cache_bytes},
          use_graphs_{use_graphs && Transport::capturable},
          scheduled_{prompt} {
        residency::unwrap(cache_.try_grow(prompt, backend.stream()));
        typename Weights::Options options = options_for(backend);
        options.budget = client_.budget();
        options.schedule = make_schedule(model, batch(prompt), work.activations);
        options.learn = Backend::learns;
        options.transport = std::move(transport);
        options.policies.link = link;
        options.time_stalls = time_stalls;
        weights_.emplace(backend.device(), model.catalog, std::move(options));
    }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Blocks until the token is there. `record`: for the timeline, kernel by kernel.
    Step step(std::span<const std::uint64_t> tokens, bool record = false) {
        const auto count = static_cast<std::uint32_t>(tokens.size());
        if (count != scheduled_) {  // after the prompt, token by token
            weights_->set_schedule(make_schedule(model_, batch(count), work_.activations));
            scheduled_ = count;
            passes_ = 0;
        }
        Step result;
        result.is_disturbed = grow(position_ + count) || passes_ < eager_passes;
        const Activations& a = work_.activations;
        a.host.position() = position_;
        for (std::uint32_t i = 0; i < count; ++i) { a.host.id(i) = tokens[i]; }

        // The first passes measure the steps, and load what the device loads when it is first used.
        const bool may_be_graph = use_graphs_ && count == 1 && passes_ >= eager_passes && !is_changing_ && !record;
        const auto begin = last_end_.value_or(backend_.device().host_time());
        try {
            enqueue(count, may_be_graph, record, result);
            backend_.wait();
        } catch (...) {
            backend_.fail(std::current_exception());  // before anything is drained
            throw;
        }
        last_end_ = backend_.device().host_time();
        result.time = *last_end_ - begin;
        if (record) { backend_.recorded().end(*weights_); }
        result.token = *a.next;

        position_ += count;
        ++passes_;
        follow_budget();
        return result;
    }

    /// Forgets the text; the next step's tokens are its first.
    void rewind() noexcept { position_ = 0; }

    [[nodiscard]] const Sizes& sizes() const noexcept { return sizes_; }
    [[nodiscard]] residency::Statistics statistics() const { return weights_->statistics(); }
    /// What no token takes less than: the exact bound, or what the latency of the copies makes of it.
    [[nodiscard]] double latency_floor_seconds() const {
        return (std::max)(weights_->plan().bound_seconds(), weights_->plan().latency_floor_seconds());
    }
    /// What the plan in force makes of a pass.
    [[nodiscard]] double predicted_seconds() const { return weights_->plan().predicted_seconds(); }
    [[nodiscard]] std::uint64_t cache_bytes() const { return cache_.held_bytes(); }
    /// How often the weights' budget followed the cache.
    [[nodiscard]] std::uint64_t budget_changes() const noexcept { return changes_; }
    /// What the broker granted at most, to weights and cache together.
    [[nodiscard]] std::uint64_t peak_bytes() const { return broker_.statistics().peak_granted_bytes; }
    /// Blocks until everything is complete; throws what an end of a lease could not.
    void finish() {
        weights_->drain();
        if (weights_->failure()) { residency::throw_error(*weights_->failure()); }
    }

private:
    static constexpr std::uint32_t eager_passes = 4;

    /// The usual chunks of memory, or smaller ones where the device gives such: that of a small model does.
    [[nodiscard]] static typename Weights::Options options_for(Backend& backend) {
        typename Weights::Options options;
        options.policies.pool.chunk_bytes =
            (std::min)(options.policies.pool.chunk_bytes, backend.device().chunk_granularity());
        if constexpr (requires { options.policies.unpacker; }) { options.policies.unpacker = &backend.unpacker(); }
        return options;
    }
    [[nodiscard]] Batch batch(std::uint32_t tokens) const {
        return {.tokens = tokens, .length = positions_, .cache = work_.cache};
    }
    void run(typename Weights::Pass& pass, std::uint32_t tokens) {
        forward(backend_, model_, weights_->schedule(), pass, batch(tokens), work_.activations);
    }
    /// The pass, the same way on all GPUs that run the model. They launch when all have begun: nobody maps or frees memory meanwhile.
    void enqueue(std::uint32_t count, bool may_be_graph, bool record, Step& result) {
        enum Way : std::uint8_t { eager, capture, launch };
        const bool is_captured = graph_ && !graph_->is_stale();
        const int way = backend_.rank().least(!may_be_graph ? eager : is_captured ? launch : capture);
        result.is_graph = way != eager;
        if (!result.is_graph) {
            if (record) { backend_.recorded().begin(*weights_); }
            auto pass = weights_->begin(backend_.stream());  // may plan again, and map
            static_cast<void>(backend_.rank().least(way));
            run(pass, count);
            pass.end();
            return;
        }
        if (way == capture) {
            graph_ = weights_->capture(backend_.stream(), [&](typename Weights::Pass& pass) { run(pass, count); });
            result.is_disturbed = true;
            static_cast<void>(backend_.rank().least(way));
        }
        graph_->launch(backend_.stream());
    }
    /// Room in the cache; whether the weights had to make it.
    bool grow(std::uint64_t positions) {
        bool changed = false;
        while (true) {
            const auto grown = cache_.try_grow(positions, backend_.stream());
            if (grown) { return changed; }
            if (grown.error().kind() != residency::ErrorKind::budget || !follow_budget()) {
                residency::throw_error(grown.error());
            }
            changed = true;
        }
    }
    /// The weights' budget becomes what the cache leaves of the total; whether it changed.
    bool follow_budget() {
        const auto end = client_.at_pass_end(*weights_);
        is_changing_ = end.change.budget_bytes != end.change.budget_before_bytes;
        changes_ += is_changing_ ? 1 : 0;
        return is_changing_;
    }

    Backend& backend_;
    const Checkpoint& model_;
    const Workspace<Backend>& work_;
    std::uint32_t positions_;
    Sizes sizes_;
    residency::BudgetBroker broker_;
    residency::broker::ModelClient client_;
    KvCache<Device> cache_;
    std::optional<Weights> weights_;
    std::optional<Graph> graph_;
    bool use_graphs_;
    bool is_changing_ = false;
    std::uint32_t scheduled_;  ///< the tokens of a pass of the schedule
    std::optional<std::chrono::nanoseconds> last_end_;
    std::uint64_t position_ = 0, changes_ = 0;
    std::uint64_t passes_ = 0;  ///< of the schedule
};

}  // namespace decoder
