// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compositions.hpp"

template class residency::core::Online<residency::evict::Lru, residency::prefetch::None, compositions::Slab,
                                       compositions::Pinned>;
template class residency::core::Engine<
    residency::core::Online<residency::evict::Lru, residency::prefetch::None, compositions::Slab, compositions::Pinned>,
    compositions::Pinned>;
template class residency::Lease<compositions::OnSlabEngine>;
template class residency::Ticket<compositions::OnSlabEngine>;
template class residency::Pass<compositions::OnSlabEngine>;
template class residency::Residency<residency::evict::Lru, residency::prefetch::None, compositions::Slab,
                                    compositions::Pinned>;
