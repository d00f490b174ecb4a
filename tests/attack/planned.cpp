// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/links.hpp"
#include "residency/transport/staged.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

using namespace residency;

void attack::add_planned(std::vector<Kind>& kinds) {
    using Pool = pool::Virtual<Device>;
    kinds.push_back(planned<Residency<evict::Planned, prefetch::Planned, Pool>>("planned"));
    kinds.push_back(planned<Residency<evict::Planned, prefetch::Planned, Pool, transport::Staged<Device>>>(
        "planned, staged", Source::file));
    kinds.push_back(planned<Residency<evict::Planned, prefetch::Planned, Pool, transport::Links<Device>>>(
        "planned, links", Source::large));
}
