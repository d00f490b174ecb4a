// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace lab {

/// A call of something that outlives it.
template <class R, class... Arguments>
class FunctionRef;
template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
public:
    template <class F>
        requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef>)
    FunctionRef(F& function) noexcept
        : object_{const_cast<void*>(static_cast<const void*>(std::addressof(function)))},
          call_{[](void* object, Arguments... arguments) -> R { return (*static_cast<F*>(object))(arguments...); }} {}
    R operator()(Arguments... arguments) const { return call_(object_, arguments...); }

private:
    void* object_;
    R (*call_)(void*, Arguments...);
};

/// Any evictor: the core is instantiated once for all that are compared.
class AnyEvictor {
public:
    AnyEvictor() : AnyEvictor{residency::evict::Lru{}} {}
    template <class E>
        requires(!std::same_as<E, AnyEvictor> && residency::evict::EvictionPolicy<E>)
    explicit AnyEvictor(E evictor) : evictor_{std::make_unique<Model<E>>(std::move(evictor))} {}

    [[nodiscard]] residency::Status attach(const residency::evict::Context& context) {
        return evictor_->attach(context);
    }
    void inserted(residency::StorageId id, residency::StepIndex now) noexcept { evictor_->inserted(id, now); }
    void used(residency::StorageId id, residency::StepIndex now) noexcept { evictor_->used(id, now); }
    void removed(residency::StorageId id) noexcept { evictor_->removed(id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<residency::StorageId> victim(residency::StepIndex now, MayLeave&& may_leave) noexcept {
        return evictor_->victim(now, FunctionRef<bool(residency::StorageId)>{may_leave});
    }
    [[nodiscard]] bool stays(residency::StorageId id) const noexcept { return evictor_->stays(id); }

private:
    struct Concept {
        virtual ~Concept() = default;
        virtual residency::Status attach(const residency::evict::Context& context) = 0;
        virtual void inserted(residency::StorageId id, residency::StepIndex now) noexcept = 0;
        virtual void used(residency::StorageId id, residency::StepIndex now) noexcept = 0;
        virtual void removed(residency::StorageId id) noexcept = 0;
        virtual std::optional<residency::StorageId> victim(
            residency::StepIndex now, FunctionRef<bool(residency::StorageId)> may_leave) noexcept = 0;
        virtual bool stays(residency::StorageId id) const noexcept = 0;
    };
    template <class E>
    struct Model final : Concept {
        explicit Model(E evictor) : own{std::move(evictor)} {}
        residency::Status attach(const residency::evict::Context& context) override { return own.attach(context); }
        void inserted(residency::StorageId id, residency::StepIndex now) noexcept override { own.inserted(id, now); }
        void used(residency::StorageId id, residency::StepIndex now) noexcept override { own.used(id, now); }
        void removed(residency::StorageId id) noexcept override { own.removed(id); }
        std::optional<residency::StorageId> victim(
            residency::StepIndex now, FunctionRef<bool(residency::StorageId)> may_leave) noexcept override {
            return own.victim(now, may_leave);
        }
        bool stays(residency::StorageId id) const noexcept override {
            if constexpr (requires { own.stays(id); }) {
                return own.stays(id);
            } else {
                return false;
            }
        }
        E own;
    };
    std::unique_ptr<Concept> evictor_;
};
static_assert(residency::evict::EvictionPolicy<AnyEvictor>);

/// Any prefetcher that does not guess.
class AnyPrefetcher {
public:
    static constexpr bool interruptible = false;

    AnyPrefetcher() : AnyPrefetcher{residency::prefetch::None{}} {}
    template <class P>
        requires(!std::same_as<P, AnyPrefetcher> && residency::prefetch::PrefetchPolicy<P> && !P::interruptible)
    explicit AnyPrefetcher(P prefetcher) : prefetcher_{std::make_unique<Model<P>>(std::move(prefetcher))} {}

    [[nodiscard]] residency::Status attach(const residency::prefetch::Context& context) {
        return prefetcher_->attach(context);
    }
    template <class Sink>
    void propose(residency::StepIndex now, Sink&& sink) noexcept {
        prefetcher_->propose(now, FunctionRef<bool(residency::StorageId, residency::StepIndex)>{sink});
    }

private:
    using Sink = FunctionRef<bool(residency::StorageId, residency::StepIndex)>;
    struct Concept {
        virtual ~Concept() = default;
        virtual residency::Status attach(const residency::prefetch::Context& context) = 0;
        virtual void propose(residency::StepIndex now, Sink sink) noexcept = 0;
    };
    template <class P>
    struct Model final : Concept {
        explicit Model(P prefetcher) : own{std::move(prefetcher)} {}
        residency::Status attach(const residency::prefetch::Context& context) override { return own.attach(context); }
        void propose(residency::StepIndex now, Sink sink) noexcept override { own.propose(now, sink); }
        P own;
    };
    std::unique_ptr<Concept> prefetcher_;
};
static_assert(residency::prefetch::PrefetchPolicy<AnyPrefetcher>);

}  // namespace lab
