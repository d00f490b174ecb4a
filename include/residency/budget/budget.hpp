// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The unit of a budget.
enum class BudgetKind : std::uint8_t {
    bytes,
    percent_of_weights,  ///< of the bytes of all streamed and resident weights
    percent_of_free,     ///< of the device memory that is free
    automatic,           ///< the device memory that is free, less a reserve
};

/// Who set a budget, in the order of precedence.
enum class BudgetOrigin : std::uint8_t { load_time, stored, automatic };

[[nodiscard]] constexpr std::string_view name_of(BudgetOrigin origin) noexcept {
    switch (origin) {
        case BudgetOrigin::load_time: return "load-time";
        case BudgetOrigin::stored: return "stored";
        case BudgetOrigin::automatic: return "automatic";
    }
    return "unknown";
}

/// What a budget is resolved against. Bytes as the pool rounds them.
struct BudgetContext {
    std::uint64_t streamed_bytes = 0;       ///< of all streamed storages
    std::uint64_t resident_bytes = 0;       ///< of all resident storages
    std::uint64_t everything_bytes = 0;     ///< of all of them together, as the pool rounds; 0: the sum of the two
    std::uint64_t resident_from_bytes = 0;  ///< with so much nothing streams; 0: everything_bytes
    std::uint64_t floor_bytes = 0;          ///< the smallest budget that works: residents and the largest step
    std::uint32_t floor_step = UINT32_MAX;  ///< the step that sets the floor; UINT32_MAX: no step
    std::string floor_step_name;            ///< its name; may be empty
    std::string floor_weight;               ///< where no step sets the floor: the weight that does; may be empty
    std::uint32_t floor_storages =
        0;  ///< where neither does: the number of storages that do, the largest; 0: not known
    std::uint64_t floor_step_bytes =
        0;                             ///< streamed bytes of what sets the floor, before the pool rounds; 0: not known
    bool has_packed_bytes = false;     ///< the floor holds packed bytes too, beside those that are unpacked from them
    std::string pool_advice;           ///< what makes the pool waste memory, and what to do; may be empty
    std::uint32_t leases_at_once = 1;  ///< policies.leases_at_once, for which the floor has room
    std::optional<std::uint64_t> free_device_bytes;  ///< none without a device
    bool is_free_in_stock = false;            ///< these are what a stock of chunks (pool::ChunkStock) has for a model
    std::uint64_t device_bytes = UINT64_MAX;  ///< of the whole device; UINT64_MAX: not known
    std::uint64_t reserve_bytes = 0;          ///< left free by an automatic budget
    std::uint64_t granularity_bytes = 1;  ///< budgets are rounded down to multiples of it, the floor and the total up
};

/// Why a resolved budget is not the one that was asked for, beside rounding.
enum class BudgetAdjustment : std::uint8_t {
    none,
    zero_to_floor,     ///< zero was asked for: the floor
    clamped_to_total,  ///< more than the total was asked for
    raised_to_floor,   ///< an automatic budget was below the floor
};

/// A budget in bytes, and how it came about.
struct ResolvedBudget {
    std::uint64_t bytes = 0;        ///< the cap, a multiple of BudgetContext::granularity_bytes
    std::uint64_t asked_bytes = 0;  ///< before rounding and adjustment
    std::uint64_t floor_bytes = 0;  ///< rounded up to the granularity
    std::uint64_t total_bytes = 0;  ///< that everything takes, rounded up to the granularity; at least the floor
    std::uint64_t resident_from_bytes =
        0;  ///< with so much nothing streams: the total, or less where no step reads some weights
    BudgetAdjustment adjustment = BudgetAdjustment::none;  ///< what was changed to make it fit
    BudgetOrigin origin = BudgetOrigin::load_time;         ///< where the budget came from
    std::string text;                                      ///< one line: who asked for what, and the result

    /// Whether more than the total was asked for.
    [[nodiscard]] bool is_clamped() const noexcept { return adjustment == BudgetAdjustment::clamped_to_total; }
    /// Whether weights are evicted and copied again. False: everything is resident.
    [[nodiscard]] bool is_streaming() const noexcept { return bytes < resident_from_bytes; }
};

/// The hard cap on device bytes, as a caller states it. A regular value; a default-constructed budget is automatic.
///
/// The text of a budget is `auto`, or a number, perhaps one blank, and perhaps a unit. Nothing else is one.
///
///     number   digits, and perhaps a point and 1 to 6 digits: 8, 1.5, 12.5
///     unit     KiB MiB GiB TiB, or K M G T    powers of 1024, as Docker, systemd and Slurm take the letters
///              kB MB GB TB                    powers of 1000
///              %                              of the weights; 100 and above stands for everything
///              %free                          of the free device memory, up to 100
///              none                           bytes; no point then
///
/// Units may be in upper or lower case. Fractions are rounded down to bytes. Zero of anything stands for the floor.
class Budget {
public:
    constexpr Budget() noexcept = default;

    /// `bytes` bytes of device memory, not less.
    [[nodiscard]] static constexpr Budget bytes(std::uint64_t bytes) noexcept { return {BudgetKind::bytes, bytes}; }
    /// `percent` and `millionths` of a per cent. 100 and above stands for everything, rounding included. Precondition:
    /// millionths < 1,000,000.
    [[nodiscard]] static constexpr Budget percent_of_weights(std::uint64_t percent,
                                                             std::uint32_t millionths = 0) noexcept {
        RESIDENCY_ASSERT(millionths < million, "give less than one per cent as millionths");
        return {BudgetKind::percent_of_weights, percent, millionths};
    }
    /// A fraction of a per cent is given as millionths, or as text.
    template <std::floating_point Percent>
    static Budget percent_of_weights(Percent percent, std::uint32_t millionths = 0) = delete;
    /// A percentage of the device memory that is free now. Precondition: at most 100 per cent.
    [[nodiscard]] static constexpr Budget percent_of_free(std::uint64_t percent,
                                                          std::uint32_t millionths = 0) noexcept {
        RESIDENCY_ASSERT(millionths < million, "give less than one per cent as millionths");
        RESIDENCY_ASSERT(percent < 100 || (percent == 100 && millionths == 0),
                         "no more than all of the free memory can be asked for");
        return {BudgetKind::percent_of_free, percent, millionths};
    }
    /// As percent_of_weights().
    template <std::floating_point Percent>
    static Budget percent_of_free(Percent percent, std::uint32_t millionths = 0) = delete;
    /// What the device has free when the composition is made, less a reserve.
    [[nodiscard]] static constexpr Budget automatic() noexcept { return {}; }

    /// Error malformed, with the place: the text is no budget, or 64 bits do not hold a number.
    [[nodiscard]] static Result<Budget> try_parse(std::string_view text);
#if RESIDENCY_EXCEPTIONS
    /// As try_parse(), but throws Exception.
    [[nodiscard]] static Budget parse(std::string_view text) { return unwrap(try_parse(text)); }
#endif

    /// How the budget was given.
    [[nodiscard]] constexpr BudgetKind kind() const noexcept { return kind_; }
    /// Bytes, or whole per cent; 0 if automatic.
    [[nodiscard]] constexpr std::uint64_t amount() const noexcept { return amount_; }
    /// Whether it asks for the floor: zero bytes or zero per cent.
    [[nodiscard]] constexpr bool is_zero() const noexcept {
        return kind_ != BudgetKind::automatic && amount_ == 0 && millionths_ == 0;
    }
    /// The share of `whole` that a percentage comes to, rounded down, or UINT64_MAX if 64 bits do not hold it.
    [[nodiscard]] constexpr std::uint64_t share_of(std::uint64_t whole) const noexcept {
        // Whole per cent: with p = 100 q + r and w = 100 h + l, w p / 100 = w q + h r + l r / 100.
        const auto whole_parts = detail::checked_multiply(whole, amount_ / 100);
        const std::uint64_t r = amount_ % 100;
        // Millionths m of a per cent: with w = 10^8 h + l, w m / 10^8 = h m + l m / 10^8.
        constexpr std::uint64_t unit = 100 * std::uint64_t{million};
        const std::uint64_t rest = whole % 100 * r;
        const std::uint64_t below_unit = whole % unit * millionths_;
        const std::uint64_t parts = whole / 100 * r + rest / 100 + whole / unit * millionths_ + below_unit / unit;
        const std::uint64_t carried = (rest % 100 * million + below_unit % unit) / unit;
        return whole_parts ? detail::saturating_add(*whole_parts, parts + carried) : UINT64_MAX;
    }
    /// The text of this budget; bytes in the largest unit of which they are a multiple.
    [[nodiscard]] std::string text() const;

    /// The budget in bytes. Error budget, with the numbers: it is below the floor and not automatic, or the context lacks the free
    /// device memory that it needs. Precondition: the granularity is not 0.
    [[nodiscard]] Result<ResolvedBudget> try_resolve(const BudgetContext& context,
                                                     BudgetOrigin origin = BudgetOrigin::load_time) const;
#if RESIDENCY_EXCEPTIONS
    /// As try_resolve(), but throws Exception.
    [[nodiscard]] ResolvedBudget resolve(const BudgetContext& context,
                                         BudgetOrigin origin = BudgetOrigin::load_time) const {
        return unwrap(try_resolve(context, origin));
    }
#endif

    friend constexpr bool operator==(const Budget&, const Budget&) noexcept = default;  ///< compares all members

private:
    struct Unit {
        std::string_view name;
        std::uint64_t bytes;
    };
    /// The largest first; of equal ones the first is that of text().
    static constexpr std::array<Unit, 12> units{{{"TiB", std::uint64_t{1} << 40},
                                                 {"T", std::uint64_t{1} << 40},
                                                 {"TB", 1000000000000},
                                                 {"GiB", std::uint64_t{1} << 30},
                                                 {"G", std::uint64_t{1} << 30},
                                                 {"GB", 1000000000},
                                                 {"MiB", std::uint64_t{1} << 20},
                                                 {"M", std::uint64_t{1} << 20},
                                                 {"MB", 1000000},
                                                 {"KiB", std::uint64_t{1} << 10},
                                                 {"K", std::uint64_t{1} << 10},
                                                 {"kB", 1000}}};
    static constexpr std::uint32_t million = 1000000;

    constexpr Budget(BudgetKind kind, std::uint64_t amount, std::uint32_t millionths = 0) noexcept
        : kind_{kind}, millionths_{millionths}, amount_{amount} {}

    BudgetKind kind_ = BudgetKind::automatic;
    std::uint32_t millionths_ = 0;  // of a per cent, beside amount_
    std::uint64_t amount_ = 0;
};

namespace detail {
/// What to do about a floor above all of a device's memory, as the end of a message.
[[nodiscard]] RESIDENCY_INLINE std::string device_too_small(std::uint64_t device_bytes);
/// What to do where a stock of chunks has too little for a model, as the end of a message.
[[nodiscard]] RESIDENCY_INLINE std::string room_in_stock();
/// That a floor has room for leases that are open together, as the end of a message. Empty: one at a time.
[[nodiscard]] RESIDENCY_INLINE std::string leases_in_words(std::uint32_t leases_at_once);
}  // namespace detail

/// The budgets that may be stated, in the order of precedence.
struct BudgetSources {
    std::optional<Budget> load_time;         ///< by the program that runs the model
    std::optional<Budget> stored;            ///< beside the model
    Budget automatic = Budget::automatic();  ///< otherwise

    /// The budget that holds, and who set it.
    [[nodiscard]] constexpr std::pair<Budget, BudgetOrigin> winner() const noexcept {
        if (load_time) { return {*load_time, BudgetOrigin::load_time}; }
        if (stored) { return {*stored, BudgetOrigin::stored}; }
        return {automatic, BudgetOrigin::automatic};
    }
    /// Resolves the winner as Budget::try_resolve does. No other budget is tried in its place.
    [[nodiscard]] Result<ResolvedBudget> try_resolve(const BudgetContext& context) const {
        const auto [budget, origin] = winner();
        return budget.try_resolve(context, origin);
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_resolve(), but throws Exception.
    [[nodiscard]] ResolvedBudget resolve(const BudgetContext& context) const { return unwrap(try_resolve(context)); }
#endif
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/budget/impl/budget.ipp"
#endif
