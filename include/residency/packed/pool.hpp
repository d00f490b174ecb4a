// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/device/device.hpp"
#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// A pool::Virtual whose image holds packed weights. Selects the decider that unpacks them.
template <VirtualMemoryDevice D>
class Packed : public Virtual<D> {
public:
    using Virtual<D>::Virtual;
};

/// A MemoryPool whose storages are packed weights. Selects the online decider that unpacks them.
template <class Pool>
class PackedStorages : public Pool {
public:
    using Pool::Pool;
};

}}}  // namespace residency::RESIDENCY_ABI::pool
