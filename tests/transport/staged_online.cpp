// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include <doctest/doctest.h>

#include "residency/evict/lru.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/lookahead.hpp"
#include "tests/transport/staged_streaming.hpp"

using OnDemand = residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<2>,
                                      residency::pool::StreamOrdered<streaming::Device>, staged_streaming::Staged>;

TEST_CASE("staged, decided online: passes from a file") {
    staged_streaming::stream_from_file<OnDemand>(6 * 20480, 20000);
}

TEST_CASE("staged, decided online: a file that is truncated fails the pass, and the object can be destroyed") {
    staged_streaming::change_while_streaming<OnDemand>(6 * 20480, 20000);
}

TEST_CASE("staged, decided online: whichever read fails, nothing wrong is used unnoticed") {
    staged_streaming::fail_every_read<OnDemand>(4 * 20480, 20000, 8192);
}
