// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A program that checks a policy by the component conformance.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "residency/conformance/eviction_policy.hpp"
#include "residency/evict/queues.hpp"

TEST_CASE("a policy keeps its contract") { residency::conformance::check_eviction_policy<residency::evict::Lru>(); }
