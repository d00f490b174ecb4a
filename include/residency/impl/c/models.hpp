// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "residency/impl/c/model.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace c {

/// What a handle of the C API says. Its 64 bits are, from the highest: 2 for the kind, 8 for the place of the model, 10 for the lower bits of
/// the generation of that place, 12 for the number of a lease or graph, 32 for its generation. A model has its whole generation below its place.
struct HandleBits {
    enum class Kind : std::uint8_t { none, model, lease, graph };

    Kind kind = Kind::none;
    std::uint32_t place = 0;
    std::uint64_t place_generation = 0;  ///< of a lease or a graph: its lower bits
    std::uint32_t index = 0;             ///< from 0
    std::uint32_t generation = 0;

    static constexpr std::uint64_t place_mask = 0xFF;
    static constexpr std::uint64_t model_mask = (std::uint64_t{1} << 54) - 1;
    static constexpr std::uint64_t item_mask = 0x3FF;
    static constexpr std::uint64_t index_mask = 0xFFF;

    [[nodiscard]] static HandleBits of(const void* handle) noexcept {
        const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(handle);
        HandleBits result;
        result.kind = static_cast<Kind>(bits >> 62);
        result.place = static_cast<std::uint32_t>(bits >> 54 & place_mask);
        if (result.kind == Kind::model) {
            result.place_generation = bits & model_mask;
        } else {
            result.place_generation = bits >> 44 & item_mask;
            result.index = static_cast<std::uint32_t>(bits >> 32 & index_mask);
            result.generation = static_cast<std::uint32_t>(bits);
        }
        return result;
    }
    template <class Handle>
    [[nodiscard]] Handle* pointer() const noexcept {
        std::uint64_t bits = std::uint64_t{static_cast<std::uint8_t>(kind)} << 62 | std::uint64_t{place} << 54;
        if (kind == Kind::model) {
            bits |= place_generation & model_mask;
        } else {
            bits |= (place_generation & item_mask) << 44 | std::uint64_t{index} << 32 | generation;
        }
        return reinterpret_cast<Handle*>(bits);  // NOLINT(performance-no-int-to-ptr): it is no address
    }
};
static_assert(Model::max_leases <= HandleBits::index_mask + 1 && Model::max_graphs <= HandleBits::index_mask + 1);

/// A place for one open model; one thread at a time is in it. The place is used again under another generation.
struct ModelPlace {
    std::atomic<bool> is_taken = false;         ///< by an open model, or one that is about to be
    std::atomic<const void*> thread = nullptr;  ///< what stands for the thread in it; null: none
    std::uint64_t generation = 1;
    std::unique_ptr<Model> model;
    bool in_body = false;                  ///< of a capture
    std::vector<std::string> dtype_names;  ///< by weight
    std::vector<WeightId> acquired;        ///< by the call under way; kept for its memory
    std::string budget_text, json;         ///< that were given out last
};

/// A thread in a place, until it ends. A thread that is in it already, in the body of a capture, may come in again.
class ModelVisit {
public:
    /// `me` stands for the calling thread, and for no other one. is_in() says whether the place is free for it.
    ModelVisit(ModelPlace& place, const void* me) noexcept : place_{&place} {
        const void* other = nullptr;
        is_first_ =
            place.thread.compare_exchange_strong(other, me, std::memory_order_acquire, std::memory_order_relaxed);
        is_in_ = is_first_ || other == me;
    }
    ModelVisit(const ModelVisit&) = delete;
    ModelVisit& operator=(const ModelVisit&) = delete;
    ~ModelVisit() {
        if (is_first_) { place_->thread.store(nullptr, std::memory_order_release); }
    }

    [[nodiscard]] bool is_in() const noexcept { return is_in_; }
    [[nodiscard]] ModelPlace& place() const noexcept { return *place_; }

private:
    ModelPlace* place_;
    bool is_first_ = false;
    bool is_in_ = false;
};

/// The places of all open models of a process.
struct ModelPlaces {
    std::array<ModelPlace, HandleBits::place_mask + 1> places;
    std::atomic<std::uint32_t> next =
        0;  ///< where the next search for a free place begins, so that places are reused late
};

}}}  // namespace residency::RESIDENCY_ABI::c
