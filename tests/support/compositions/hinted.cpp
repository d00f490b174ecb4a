// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compositions.hpp"

template class residency::core::Online<residency::evict::Lru, residency::prefetch::Hinted, compositions::StreamOrdered,
                                       compositions::Pinned>;
template class residency::core::Engine<residency::core::Online<residency::evict::Lru, residency::prefetch::Hinted,
                                                               compositions::StreamOrdered, compositions::Pinned>,
                                       compositions::Pinned>;
template class residency::Lease<compositions::HintedEngine>;
template class residency::Ticket<compositions::HintedEngine>;
template class residency::Pass<compositions::HintedEngine>;
template class residency::Residency<residency::evict::Lru, residency::prefetch::Hinted, compositions::StreamOrdered,
                                    compositions::Pinned>;
