// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/instantiate.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/transport/staged.hpp"

// The parts of a planned composition whose weights are staged, declared with `extern`, or their code, for one file.
#define STAGED_PARTS(EXTERN, D)                                                                                        \
    EXTERN template class residency::transport::Staged<D>;                                                             \
    EXTERN template class residency::core::Executor<D, residency::transport::Staged<D>>;                               \
    INSTANTIATE_PLANNED_DECIDER(EXTERN, residency::pool::Virtual<D>, residency::transport::Staged<D>)
