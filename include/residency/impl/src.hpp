// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The source of residency::compiled. A program without CMake and Meson is compiled with RESIDENCY_HEADER_ONLY=0 everywhere and has one
// file that includes this header; or one for each of the two below, which two cores compile in half the time.
#if !defined(RESIDENCY_HEADER_ONLY) || RESIDENCY_HEADER_ONLY
#error "residency/impl/src.hpp is for programs that are compiled with RESIDENCY_HEADER_ONLY=0, in every file"
#endif

#include "residency/impl/src_plain.hpp"
#include "residency/impl/src_simulated.hpp"
