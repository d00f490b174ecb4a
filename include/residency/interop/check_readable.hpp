// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "residency/core/engine/lease.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Whether an open lease gives the elements of a weight to other libraries. Errors: invalid_argument (it does not cover the weight),
/// unsupported (kernels read the weight packed).
template <Device D>
[[nodiscard]] Status check_readable(const Lease<D>& lease, WeightId id) {
    if (!lease.covers(id)) {
        return Error{ErrorKind::invalid_argument, "the lease does not cover weight " + std::to_string(index(id)) +
                                                      ": ask for one that the lease was acquired for"};
    }
    if (lease.packed(id).data != nullptr) {
        return Error{ErrorKind::unsupported, "weight " + detail::quoted(lease.catalog().weight(id).name) +
                                                 " lies packed on the device, which other libraries cannot read"};
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::detail
