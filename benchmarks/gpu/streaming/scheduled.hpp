// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/instantiate.hpp"
#include "residency/device/cuda.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "residency/transport/pinned.hpp"

// A composition that is compiled in a file of its own: SCHEDULED() is its code.
#define SCHEDULED(EXTERN)                                                                                              \
    EXTERN template class residency::pool::Slab<residency::CudaDevice>;                                                \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Scheduled, residency::prefetch::Scheduled,                            \
                       residency::pool::Slab<residency::CudaDevice>,                                                   \
                       residency::transport::Pinned<residency::CudaDevice>)

SCHEDULED(extern);
