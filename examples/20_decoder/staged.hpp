// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/instantiate.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/transport/staged.hpp"

// What a planned composition has beside the preset where its weights are staged, declared with `extern`, or its code, for one file.
#define STAGED_PARTS(EXTERN, D) EXTERN template class residency::transport::Staged<D>
