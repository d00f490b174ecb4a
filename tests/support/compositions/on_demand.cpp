// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compositions.hpp"

template class residency::core::Online<residency::evict::Lru, residency::prefetch::None, compositions::StreamOrdered,
                                       compositions::Pinned>;
template class residency::core::Engine<residency::core::Online<residency::evict::Lru, residency::prefetch::None,
                                                               compositions::StreamOrdered, compositions::Pinned>,
                                       compositions::Pinned>;
template class residency::Lease<compositions::OnDemandEngine>;
template class residency::Ticket<compositions::OnDemandEngine>;
template class residency::Pass<compositions::OnDemandEngine>;
template class residency::Residency<residency::evict::Lru, residency::prefetch::None, compositions::StreamOrdered,
                                    compositions::Pinned>;
