// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "residency/plan/options.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/streaming.hpp"

namespace streaming {

using compositions::Ahead;
using compositions::OnDemand;

template <class Weights>
typename Weights::Options options(std::uint64_t budget, residency::Schedule schedule = {}) {
    typename Weights::Options result;
    result.budget = residency::Budget::bytes(budget);
    result.schedule = std::move(schedule);
    if constexpr (requires { result.policies.options.effort; }) {
        result.policies.options.effort = residency::plan::Effort::quick;  // any plan will do
    }
    return result;
}
template <class Weights>
Weights make(Device& device, const Model& model, std::uint64_t budget, residency::Schedule schedule = {}) {
    return must(Weights::try_create(device, model.catalog, options<Weights>(budget, std::move(schedule))));
}

}  // namespace streaming
