// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The source of residency::compiled_cuda, beside src.hpp.
#if !defined(RESIDENCY_HEADER_ONLY) || RESIDENCY_HEADER_ONLY
#error "residency/impl/src_cuda.hpp is for programs that are compiled with RESIDENCY_HEADER_ONLY=0, in every file"
#endif

// What one file of a program includes that is compiled with RESIDENCY_HEADER_ONLY=0 and uses CudaDevice, see config.hpp.
#include "residency/device/cuda.hpp"
#include "residency/device/impl/cuda.ipp"
#include "residency/device/impl/cuda_copies.ipp"
#include "residency/device/impl/cuda_graphs.ipp"
#include "residency/device/impl/cuda_memory.ipp"
#include "residency/device/impl/cuda_stream.ipp"
#include "residency/device/impl/cuda_virtual_memory.ipp"
#include "residency/impl/presets.hpp"

RESIDENCY_DETAIL_PRESETS(, residency::CudaDevice);
