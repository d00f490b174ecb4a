// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Bytes of device memory, or of pinned host memory.
struct ByteRange {
    const void* at = nullptr;  ///< the first byte
    std::uint64_t bytes = 0;   ///< how many
};

/// A list of ranges. Up to four need no allocation.
class ByteRanges {
public:
    ByteRanges() = default;
    /// Holds these ranges.
    /// @{
    ByteRanges(std::initializer_list<ByteRange> ranges) : ByteRanges{std::span{ranges.begin(), ranges.size()}} {}
    ByteRanges(std::span<const ByteRange> ranges) { append(ranges); }  // NOLINT(google-explicit-constructor)
    ByteRanges(const std::vector<ByteRange>& ranges)
        : ByteRanges{std::span{ranges}} {}  // NOLINT(google-explicit-constructor)
    /// @}

    /// Adds one.
    void push_back(ByteRange range) { append({&range, 1}); }
    /// No ranges are left.
    void clear() noexcept {
        count_ = 0;
        many_.clear();
    }
    /// Valid until the list changes.
    [[nodiscard]] std::span<const ByteRange> view() const noexcept {
        return many_.empty() ? std::span<const ByteRange>{few_.data(), count_} : std::span<const ByteRange>{many_};
    }

private:
    void append(std::span<const ByteRange> ranges) {
        if (many_.empty() && count_ + ranges.size() <= few_.size()) {
            for (const ByteRange& range : ranges) { few_[count_++] = range; }
            return;
        }
        if (many_.empty()) { many_.assign(few_.begin(), few_.begin() + static_cast<std::ptrdiff_t>(count_)); }
        many_.insert(many_.end(), ranges.begin(), ranges.end());
    }
    std::array<ByteRange, 4> few_{};
    std::size_t count_ = 0;
    std::vector<ByteRange> many_;
};

/// A host function that acts as a kernel. Move-only. Up to 48 bytes of captures need no allocation.
class KernelFunction {
public:
    KernelFunction() noexcept = default;
    /// Holds a function of that kind.
    template <class F>
        requires(!std::same_as<std::remove_cvref_t<F>, KernelFunction> && std::invocable<std::remove_cvref_t<F>&>)
    KernelFunction(F&& function) {  // NOLINT(google-explicit-constructor)
        using Stored = std::remove_cvref_t<F>;
        if constexpr (sizeof(Stored) <= sizeof storage_ && std::is_nothrow_move_constructible_v<Stored>) {
            ::new (static_cast<void*>(storage_.data())) Stored(std::forward<F>(function));
            call_ = [](void* at) { (*static_cast<Stored*>(at))(); };
            relocate_ = [](void* from, void* to) noexcept {
                if (to != nullptr) { ::new (to) Stored(std::move(*static_cast<Stored*>(from))); }
                std::destroy_at(static_cast<Stored*>(from));
            };
        } else {
            *this = KernelFunction{Boxed<Stored>{std::make_unique<Stored>(std::forward<F>(function))}};
        }
    }
    /// The source is empty afterwards.
    /// @{
    KernelFunction(KernelFunction&& other) noexcept { take(other); }
    KernelFunction& operator=(KernelFunction&& other) noexcept {
        if (this != &other) {
            reset();
            take(other);
        }
        return *this;
    }
    /// @}
    ~KernelFunction() { reset(); }

    /// Holds nothing afterwards.
    void reset() noexcept {
        if (relocate_ != nullptr) { relocate_(storage_.data(), nullptr); }
        call_ = nullptr;
        relocate_ = nullptr;
    }
    /// Whether there is a function.
    [[nodiscard]] explicit operator bool() const noexcept { return call_ != nullptr; }
    /// Calls it; precondition: there is one.
    void operator()() { call_(storage_.data()); }

private:
    template <class F>
    struct Boxed {
        std::unique_ptr<F> function;
        void operator()() { (*function)(); }
    };
    void take(KernelFunction& other) noexcept {
        if (other.relocate_ != nullptr) { other.relocate_(other.storage_.data(), storage_.data()); }
        call_ = std::exchange(other.call_, nullptr);
        relocate_ = std::exchange(other.relocate_, nullptr);
    }
    alignas(std::max_align_t) std::array<std::byte, 48> storage_;
    void (*call_)(void*) = nullptr;
    void (*relocate_)(void*, void*) noexcept = nullptr;
};

/// A kernel of the simulated device.
struct Kernel {
    std::string_view name = "kernel";         ///< in reports and timelines
    std::string_view group{};                 ///< what it is a part of, for observers, such as a step; may be empty
    std::chrono::nanoseconds duration{1000};  ///< on the device
    ByteRanges reads;                         ///< of device memory, or of pinned host memory
    ByteRanges writes;                        ///< the same; a range may be in both
    /// Runs at the kernel's end, in the thread that advances the clock, with the device locked: it must not throw and must not call the
    /// device. Addresses are real, so that it may read and write what the kernel declares. May be empty.
    KernelFunction body;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
