// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compositions.hpp"

template class residency::core::Online<residency::evict::Scheduled, residency::prefetch::Lookahead<2>,
                                       compositions::Slab, compositions::Pinned>;
template class residency::core::Engine<
    residency::core::Online<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, compositions::Slab,
                            compositions::Pinned>,
    compositions::Pinned>;
template class residency::Lease<compositions::AheadEngine>;
template class residency::Ticket<compositions::AheadEngine>;
template class residency::Pass<compositions::AheadEngine>;
template class residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, compositions::Slab,
                                    compositions::Pinned>;
