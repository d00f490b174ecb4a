// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Whether the compiler finds CUDA's headers.
#include <cuda.h>
