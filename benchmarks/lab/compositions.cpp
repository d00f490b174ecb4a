// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Compositions beyond an evictor with look-ahead, by the names under which the laboratory knows them.

#include "benchmarks/lab/registry.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"

using namespace residency;

namespace {

lab::AnyEvictor expected_use(const lab::Setting& setting) {
    return lab::AnyEvictor{evict::ExpectedUse{{.layers = {setting.layers.begin(), setting.layers.end()}}}};
}
lab::Composition hinted(const char* name, double recall) {
    return {.name = name, .needs_guesses = true, .is_default = true, .run = [recall](lab::RunJob job) {
                job.recall = recall;
                return lab::run_hinted(job, expected_use);
            }};
}

}  // namespace

static const lab::AddComposition<evict::Lru, prefetch::None> on_demand{"lru+none"};
static const lab::AddComposition<evict::Scheduled, prefetch::Scheduled> on_schedule{"scheduled+scheduled",
                                                                                    lab::In::default_comparison, true};
static const lab::AddRun by_plan{{.name = "planned", .needs_order = true, .is_default = true, .run = lab::run_planned}};
static const lab::AddRun packed_by_plan{{.name = "packed", .needs_order = true, .run = lab::run_packed, .packs = true}};
static const lab::AddRun without_hints{hinted("unhinted", 0)};
static const lab::AddRun hinted_50{hinted("hinted-50%", 0.5)};
static const lab::AddRun hinted_80{hinted("hinted-80%", 0.8)};
static const lab::AddRun hinted_95{hinted("hinted-95%", 0.95)};
