// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "residency/routed/policies.hpp"
#include "residency/routed/serve.hpp"
#include "residency/routed/tables.hpp"

namespace routed_test {

/// The tables of a cache, in memory of the host, and the code of the kernels on them. Its slots have no bytes.
template <class P>
struct OnHost {
    /// `first_expert`: by layer, the number of its first expert, and that of all.
    OnHost(std::vector<std::uint32_t> first_expert, std::uint32_t slots, std::uint64_t bytes)
        : first{std::move(first_expert)},
          rounds(first.size() - 1),
          sources(first.back(), residency::routed::Source{nullptr, bytes}) {
        state.slots = slots;
        t.layers = static_cast<std::uint32_t>(first.size() - 1);
        t.first_expert = first.data();
        t.sources = sources.data();
        t.slot_of = slot_of.data();
        t.slot = slot.data();
        t.rounds = rounds.data();
        t.of_expert = of_expert.data();
        t.of_slot = of_slot.data();
        t.numbers = &numbers;
        t.fills = fills.data();
        t.guess_fills = guess_fills.data();
        t.state = &state;
        t.mistake = &mistake;
    }
    void serve(std::uint32_t layer, const std::vector<std::int32_t>& chosen) { decide(layer, chosen, false); }
    /// What is guessed for a layer, after the last one that was served. All of what is listed comes.
    void guess(std::uint32_t layer, const std::vector<std::int32_t>& chosen) {
        decide(layer, chosen, true);
        for (std::uint32_t i = 0; i < state.guess_fills; ++i) {
            state.guess_next += guess_fills[i].pieces - guess_fills[i].first_piece;
        }
    }
    void decide(std::uint32_t layer, const std::vector<std::int32_t>& chosen, bool is_guess) {
        const residency::routed::Call call{layer,
                                           static_cast<std::uint32_t>(chosen.size()),
                                           residency::routed::ChoiceType::i32,
                                           chosen.data(),
                                           addresses.data(),
                                           slots_out.data(),
                                           state.layer};
        residency::routed::Decision<P, residency::routed::OneThread>{one, scratch, t, call, is_guess}.make();
    }
    [[nodiscard]] bool has(std::uint32_t expert) const { return slot_of[expert] != residency::routed::none; }

    std::vector<std::uint32_t> first, rounds;
    std::vector<residency::routed::Source> sources;
    std::vector<std::uint32_t> slot_of = std::vector<std::uint32_t>(sources.size(), residency::routed::none);
    std::vector<residency::routed::Slot> slot = std::vector<residency::routed::Slot>(sources.size());
    std::vector<typename P::OfExpert> of_expert = std::vector<typename P::OfExpert>(sources.size());
    std::vector<typename P::OfSlot> of_slot = std::vector<typename P::OfSlot>(sources.size());
    std::vector<residency::routed::Fill> fills = std::vector<residency::routed::Fill>(residency::routed::most_choices);
    std::vector<residency::routed::Fill> guess_fills = fills;
    std::vector<const std::byte*> addresses = std::vector<const std::byte*>(residency::routed::most_choices);
    std::vector<std::int32_t> slots_out = std::vector<std::int32_t>(residency::routed::most_choices);
    residency::routed::Tables<P> t;
    residency::routed::OneThread one;
    residency::routed::Scratch scratch{};
    residency::routed::State state;
    residency::routed::Mistake mistake;
    typename P::Numbers numbers = *P::numbers({});
};

/// First experts of layers of equal size.
inline std::vector<std::uint32_t> equal_layers(std::uint32_t layers, std::uint32_t per_layer) {
    std::vector<std::uint32_t> first;
    for (std::uint32_t layer = 0; layer <= layers; ++layer) { first.push_back(layer * per_layer); }
    return first;
}

/// What a router might choose: different experts, some of them often.
inline std::vector<std::int32_t> choose_some(std::mt19937& random, std::uint32_t experts, std::uint32_t count) {
    std::set<std::int32_t> chosen;
    while (chosen.size() < count) {
        const auto expert = random() % 3 == 0 ? random() % experts : random() % ((experts + 2) / 3);
        chosen.insert(static_cast<std::int32_t>(expert));
    }
    std::vector<std::int32_t> result(chosen.begin(), chosen.end());
    std::shuffle(result.begin(), result.end(), random);
    return result;
}

}  // namespace routed_test
