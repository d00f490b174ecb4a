// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/serve.hpp"
#include "residency/routed/tables.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// A cache of experts without their bytes: its tables in memory of the host, and the code of the kernels on them. It says what a device
/// would decide, for tools and tests. Preconditions: of Tables and Call, that is most_experts of a layer and most_choices of a call.
template <Policy P>
class OnHost {
public:
    /// `first_expert`: by layer the number of its first expert, and behind them that of all experts. Each has `bytes` bytes. Throws or ends
    /// the program where P does not take `config`.
    OnHost(std::vector<std::uint32_t> first_expert, std::uint32_t slots, std::uint64_t bytes,
           const typename P::Config& config = {})
        : sources(first_expert.back(), Source{nullptr, bytes}),
          first_{std::move(first_expert)},
          rounds_(first_.size() - 1),
          numbers_{unwrap(P::numbers(config))} {
        for (std::size_t layer = 0; layer + 1 < first_.size(); ++layer) {
            RESIDENCY_ASSERT(first_[layer + 1] - first_[layer] <= most_experts, "a layer has most_experts at most");
        }
        state.slots = slots;
        tables.layers = static_cast<std::uint32_t>(rounds_.size());
        tables.layer_share = 1.0 / tables.layers;
        tables.sources = sources.data();
        tables.slot_of = slot_of_.data();
        tables.slot = slot_.data();
        tables.rounds = rounds_.data();
        tables.of_expert = of_expert_.data();
        tables.of_slot = of_slot_.data();
        tables.numbers = &numbers_;
        tables.fills = fills_.data();
        tables.guess_fills = guess_fills_.data();
        tables.state = &state;
        tables.mistake = &mistake_;
    }
    OnHost(const OnHost&) = delete;
    OnHost& operator=(const OnHost&) = delete;
    ~OnHost() = default;

    /// One layer's experts are chosen; below 0: padding.
    void serve(std::uint32_t layer, const std::vector<std::int32_t>& chosen) { decide(layer, chosen, false); }
    /// Guesses what a layer will choose, after the last one that was served. All that is listed comes.
    void guess(std::uint32_t layer, const std::vector<std::int32_t>& chosen) {
        decide(layer, chosen, true);
        for (std::uint32_t i = 0; i < state.guess_fills; ++i) {
            state.guess_next += guess_fills_[i].pieces - guess_fills_[i].first_piece;
        }
    }
    /// Whether an expert, by its number over all layers, has a slot.
    [[nodiscard]] bool has(std::uint32_t expert) const { return slot_of_[expert] != none; }
    /// Of the last call, by choice; -1: padding, or it is read in host memory.
    [[nodiscard]] const std::vector<std::int32_t>& slots() const noexcept { return slots_out_; }

    std::vector<Source> sources;  ///< by expert
    State state;                  ///< with the counters
    Tables<P> tables;             ///< as kernels see them

private:
    void decide(std::uint32_t layer, const std::vector<std::int32_t>& chosen, bool is_guess) {
        RESIDENCY_ASSERT(chosen.size() <= most_choices && layer < tables.layers, "give the choices of one layer");
        const Call call{layer,
                        first_[layer],
                        first_[layer + 1] - first_[layer],
                        static_cast<std::uint32_t>(chosen.size()),
                        ChoiceType::i32,
                        chosen.data(),
                        addresses_.data(),
                        slots_out_.data(),
                        state.layer};
        Decision<P, OneThread>{one_, scratch_, tables, call, is_guess}.make();
        RESIDENCY_ASSERT(mistake_.is_set == 0, "choose experts that the layer has");
    }

    std::vector<std::uint32_t> first_, rounds_;
    std::vector<std::uint32_t> slot_of_ = std::vector<std::uint32_t>(sources.size(), none);
    std::vector<Slot> slot_ = std::vector<Slot>(sources.size());
    std::vector<typename P::OfExpert> of_expert_ = std::vector<typename P::OfExpert>(sources.size());
    std::vector<typename P::OfSlot> of_slot_ = std::vector<typename P::OfSlot>(sources.size());
    std::vector<Fill> fills_ = std::vector<Fill>(most_choices);
    std::vector<Fill> guess_fills_ = fills_;
    std::vector<const std::byte*> addresses_ = std::vector<const std::byte*>(most_choices);
    std::vector<std::int32_t> slots_out_ = std::vector<std::int32_t>(most_choices);
    OneThread one_;
    Scratch scratch_{};
    Mistake mistake_;
    typename P::Numbers numbers_;
};

}}}  // namespace residency::RESIDENCY_ABI::routed
