// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/device/device.hpp"

namespace residency::inline RESIDENCY_ABI {

namespace transport {
template <Device D>
class Pinned;
}

template <class Evictor, class Prefetcher, class Pool, class Transport = transport::Pinned<typename Pool::Device>>
class Residency;

}  // namespace residency::inline RESIDENCY_ABI
