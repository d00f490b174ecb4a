// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compositions.hpp"

template class residency::core::Planned<compositions::Virtual, compositions::Pinned>;
template class residency::core::Engine<residency::core::Planned<compositions::Virtual, compositions::Pinned>,
                                       compositions::Pinned>;
template class residency::Lease<compositions::PlannedEngine>;
template class residency::Ticket<compositions::PlannedEngine>;
template class residency::Pass<compositions::PlannedEngine>;
template class residency::Residency<residency::evict::Planned, residency::prefetch::Planned, compositions::Virtual,
                                    compositions::Pinned>;
template class residency::CapturedPass<compositions::PlannedEngine>;
