// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/routed/routed_experts.hpp"
#include "tests/attack/device.hpp"
#include "tests/attack/model.hpp"

namespace attack {

/// Experts that a router on the device chooses, under attack beside other models.
class Experts {
public:
    using Cache = residency::RoutedExperts<Device>;

    /// No call of the device fails meanwhile.
    Experts(Device& device, Random& random);
    Experts(const Experts&) = delete;
    Experts& operator=(const Experts&) = delete;
    ~Experts();

    /// One more operation on the cache, or its construction. `may_fail`: a call of the device may fail, and a refusal has a reason.
    /// `allow(bytes)` is told of what it may hold from then on.
    void operate(Random& random, bool may_fail, const std::function<void(std::uint64_t)>& allow);
    [[nodiscard]] bool is_made() const noexcept { return cache_.has_value(); }
    /// The bytes that it may hold now, memory for choices included, and what is pending.
    [[nodiscard]] std::uint64_t cap_bytes() const noexcept {
        return own_bytes_ + (cache_ ? cache_->budget().bytes + cache_->pending_bytes() : 0);
    }
    /// What it holds. Blocks; nothing: the device did not say it.
    [[nodiscard]] std::optional<std::uint64_t> held_bytes();
    /// Nothing fails any more: it works.
    void recover(Random& random);
    /// All kernels have run: none read wrong bytes.
    void collect() const;
    [[nodiscard]] std::uint64_t kernels() const noexcept { return ran_; }

private:
    using Allow = std::function<void(std::uint64_t)>;
    void construct(Random& random, const Allow& allow);
    void serve(Random& random);
    void prefill(Random& random);
    void set_budget(Random& random, const Allow& allow);
    [[nodiscard]] residency::Status run_prefill(std::uint32_t ring);
    /// Ends the program unless a call may have failed.
    void refused(const char* what, const residency::Error& error) const;
    /// A kernel that finds `wrong()` bytes.
    template <class Count>
    void read(Count wrong);
    /// Whether an expert's bytes are there.
    [[nodiscard]] bool is_at(const std::byte* at, std::uint32_t layer, std::uint32_t expert) const;

    static constexpr std::uint32_t most_choices = 6;

    Device& device_;
    Server server_;
    std::shared_ptr<const residency::HostBytes> host_;
    residency::Catalog catalog_;
    std::vector<std::vector<residency::WeightId>> experts_;     // by layer
    std::vector<std::vector<std::vector<std::byte>>> content_;  // by layer and expert
    std::optional<Cache> cache_;
    Stream stream_{};
    std::int32_t* choices_ = nullptr;  // on the device
    std::int32_t* staged_ = nullptr;   // pinned
    std::uint64_t own_bytes_ = 0;      // of choices_
    bool is_packed_ = false;           // the experts are
    bool may_fail_ = false;            // or has failed
    std::atomic<std::uint64_t> wrong_ = 0, ran_ = 0;
};

}  // namespace attack
