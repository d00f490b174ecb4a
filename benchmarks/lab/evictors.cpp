// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The evictors of the library, by the names under which the laboratory knows them.

#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/evict/static_split.hpp"

#include "benchmarks/lab/registry.hpp"

namespace evict = residency::evict;
using lab::In;
using lab::Knows;

static const lab::AddEvictor<evict::Lru> lru{"lru"};
static const lab::AddEvictor<evict::Fifo> fifo{"fifo", In::when_named};
static const lab::AddEvictor<evict::Lfu> lfu{"lfu"};
static const lab::AddEvictor<evict::Sieve> sieve{"sieve", In::when_named};
static const lab::AddEvictor<evict::S3Fifo> s3_fifo{"s3fifo"};
static const lab::AddEvictor<evict::Gdsf> gdsf{"gdsf", In::when_named};
static const lab::AddEvictor<evict::ExpectedUse> expected_use{
    "expecteduse", In::default_comparison, Knows::past, [](const lab::Setting& setting) {
        return evict::ExpectedUse{{.layers = {setting.layers.begin(), setting.layers.end()}}};
    }};
static const lab::AddEvictor<evict::StaticSplit> static_split{"staticsplit", In::default_comparison, Knows::future};
static const lab::AddEvictor<evict::Scheduled> scheduled{"scheduled", In::when_named, Knows::future};
static const lab::AddEvictor<evict::Belady> belady{
    "belady", In::default_comparison, Knows::future,
    [](const lab::Setting& setting) { return evict::Belady{{.recorded = *setting.future}}; }};
