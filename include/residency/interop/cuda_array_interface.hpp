// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/core/engine/lease.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/interop/check_readable.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The members of a CUDA array interface, version 3
/// (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html): what an object of Python returns as
/// __cuda_array_interface__, so that CuPy and Numba read its memory without a copy. PyTorch refuses read-only arrays. The object has to
/// keep the lease open.
struct CudaArrayInterface {
    static constexpr int version = 3;  ///< of the interface

    std::string typestr;                      ///< such as "<f4"
    Shape shape;                              ///< elements, slowest first
    std::vector<std::int64_t> strides_bytes;  ///< of each extent; empty for a dense array
    std::uint64_t address = 0;                ///< on the device; 0 for an array without elements
    bool is_read_only = true;                 ///< unless kernels may write
    /// On which the bytes are there: 1 for the legacy default stream, 2 for that per thread, otherwise a cudaStream_t. Whoever
    /// works on another stream waits for it first, and declares that one by Lease::use_on.
    std::uint64_t stream = 1;

    /// The interface of a weight that lies at an address. Error unsupported, which names the type: the interface has no name for the
    /// weight's dtype, such as bf16; DLPack has more. Error invalid_argument: a stride beyond 63 bits.
    [[nodiscard]] static Result<CudaArrayInterface> try_describe(const Weight& weight, const void* at,
                                                                 bool is_read_only, std::uint64_t stream);
    /// As a JSON object, whose arrays have to become tuples in Python.
    [[nodiscard]] std::string json() const;
};

/// The interface of a leased weight, for the stream of the lease. Valid until the lease ends. Precondition: the lease is open. Errors:
/// invalid_argument (the lease does not cover the weight), unsupported (kernels read it packed), or those of CudaArrayInterface::try_describe.
template <Device D>
    requires requires(const typename D::Stream stream) {
        { stream.is_legacy_default() } -> std::same_as<bool>;
        { stream.is_default() } -> std::same_as<bool>;
        stream.get();
    }
[[nodiscard]] Result<CudaArrayInterface> cuda_array_interface(const Lease<D>& lease, WeightId id) {
    if (auto readable = detail::check_readable(lease, id); !readable) { return readable.error(); }
    const Weight& weight = lease.catalog().weight(id);
    const typename D::Stream stream = lease.stream();
    const std::uint64_t number = stream.is_legacy_default() ? 1
                                 : stream.is_default()      ? 2
                                                            : reinterpret_cast<std::uintptr_t>(stream.get());
    auto described = CudaArrayInterface::try_describe(weight, lease.data(id),
                                                      !lease.catalog().storage(weight.storage).is_mutable, number);
    if (!described) { return described.error().in("weight " + detail::quoted(weight.name)); }
    return described;
}

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/interop/impl/cuda_array_interface.ipp"
#endif
