// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/use_order.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

/// A storage that is likely to be needed, as the caller knows.
struct Hint {
    StorageId storage = no_storage;         ///< the one that is needed
    float probability = 1;                  ///< 0 … 1
    StepIndex needed_at = UseOrder::never;  ///< the step that would need it; never: not known
};

/// Proposes what the caller named, such as a router's experts one layer ahead: the most probable first, among equals the soonest,
/// then the first named. Every hint is proposed once. They are guesses: a demand miss overtakes what is in flight and drops the
/// rest, and the decider sends fewer of them where guesses turn out wrong and late.
class Hinted {
public:
    static constexpr bool interruptible = true;  ///< its proposals are guesses: a demand miss goes before them
    /// How much it copies ahead.
    struct Config {
        std::uint32_t capacity = 256;  ///< hints kept at a time; of more, the least probable are dropped
        float least_probability = 0;   ///< hints below it are not taken
    };

    Hinted() noexcept : Hinted{Config{}} {}
    /// Copies ahead as `config` says.
    explicit Hinted(Config config) noexcept : config_{config} {}

    /// What PrefetchPolicy asks for.
    [[nodiscard]] Status attach(const Context& context) {
        hints_.clear();
        hints_.reserve(config_.capacity);
        storages_ = context.bytes.size();
        is_hinted_.assign(storages_, 0);
        return {};
    }

    /// Adds hints. Allocates nothing. A hint replaces an earlier one for its storage. Error invalid_argument, and no hint is taken:
    /// an id that no storage has, or a probability outside 0 … 1.
    [[nodiscard]] Status hint(std::span<const Hint> hints) {
        for (const Hint& each : hints) {
            if (index(each.storage) >= storages_ || !detail::is_share(each.probability)) {
                return Error{ErrorKind::invalid_argument, "a hint for storage " + std::to_string(index(each.storage)) +
                                                              " of " + std::to_string(storages_) +
                                                              " with probability " + std::to_string(each.probability)};
            }
        }
        for (const Hint& each : hints) { take(each); }
        return {};
    }
    /// As above, with a list.
    [[nodiscard]] Status hint(std::initializer_list<Hint> hints) {
        return hint(std::span{hints.begin(), hints.size()});
    }
    /// Number of hints not yet offered.
    [[nodiscard]] std::size_t size() const noexcept { return hints_.size(); }

    /// Forgets every hint.
    void clear() noexcept {
        for (const Hint& each : hints_) { is_hinted_[index(each.storage)] = 0; }
        hints_.clear();
    }
    /// Offers each hint once. Drops hints for steps that have passed.
    template <class Sink>
    void propose(StepIndex now, Sink&& sink) noexcept {
        bool goes_on = true;
        while (goes_on && !hints_.empty()) {
            const Hint next = hints_.back();
            hints_.pop_back();
            is_hinted_[index(next.storage)] = 0;
            if (next.needed_at >= now) { goes_on = sink(next.storage, next.needed_at); }
        }
    }

private:
    /// Whether a is offered after b.
    [[nodiscard]] static bool is_after(const Hint& a, const Hint& b) noexcept {
        return a.probability != b.probability ? a.probability < b.probability : a.needed_at > b.needed_at;
    }
    void take(const Hint& hint) noexcept {
        if (is_hinted_[index(hint.storage)] != 0) {
            hints_.erase(std::find_if(hints_.begin(), hints_.end(),
                                      [&](const Hint& old) { return old.storage == hint.storage; }));
            is_hinted_[index(hint.storage)] = 0;
        }
        if (hint.probability < config_.least_probability || config_.capacity == 0) { return; }
        if (hints_.size() == config_.capacity) {
            if (!is_after(hints_.front(), hint)) { return; }
            is_hinted_[index(hints_.front().storage)] = 0;
            hints_.erase(hints_.begin());
        }
        hints_.insert(std::lower_bound(hints_.begin(), hints_.end(), hint, is_after), hint);
        is_hinted_[index(hint.storage)] = 1;
    }

    Config config_;
    std::size_t storages_ = 0;             // of the model
    std::vector<Hint> hints_;              // in the order of their offers, from the back
    std::vector<std::uint8_t> is_hinted_;  // by storage: 1 where hints_ has it
};
static_assert(PrefetchPolicy<Hinted>);

}}}  // namespace residency::RESIDENCY_ABI::prefetch
