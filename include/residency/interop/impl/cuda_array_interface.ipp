// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/interop/cuda_array_interface.hpp"
#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<CudaArrayInterface> CudaArrayInterface::try_describe(const Weight& weight, const void* at,
                                                                             bool is_read_only, std::uint64_t stream) {
    constexpr std::array names{
        std::pair{dtype::f64, std::string_view{"<f8"}},       std::pair{dtype::f32, std::string_view{"<f4"}},
        std::pair{dtype::f16, std::string_view{"<f2"}},       std::pair{dtype::i64, std::string_view{"<i8"}},
        std::pair{dtype::i32, std::string_view{"<i4"}},       std::pair{dtype::i16, std::string_view{"<i2"}},
        std::pair{dtype::i8, std::string_view{"|i1"}},        std::pair{dtype::u64, std::string_view{"<u8"}},
        std::pair{dtype::u32, std::string_view{"<u4"}},       std::pair{dtype::u16, std::string_view{"<u2"}},
        std::pair{dtype::u8, std::string_view{"|u1"}},        std::pair{dtype::boolean, std::string_view{"|b1"}},
        std::pair{dtype::complex64, std::string_view{"<c8"}},
    };
    CudaArrayInterface result;
    for (const auto& [known, name] : names) {
        if (known == weight.dtype) { result.typestr = name; }
    }
    if (result.typestr.empty()) {
        return Error{ErrorKind::unsupported, "the CUDA array interface has no name for elements of type \"" +
                                                 std::string{weight.dtype.name()} + "\": DLPack may have one"};
    }
    const std::uint64_t element_bytes = weight.dtype.block_bits() / 8;
    result.shape = weight.shape;
    if (!weight.is_dense()) {
        for (const std::uint64_t stride : weight.strides) {
            if (stride > static_cast<std::uint64_t>(INT64_MAX) / element_bytes) {
                return Error{ErrorKind::invalid_argument,
                             "a stride of " + std::to_string(stride) +
                                 " elements: the CUDA array interface has 63 bits for bytes"};
            }
            result.strides_bytes.push_back(static_cast<std::int64_t>(stride * element_bytes));
        }
    }
    result.address = weight.elements() == 0 ? 0 : reinterpret_cast<std::uintptr_t>(at);
    result.is_read_only = is_read_only;
    result.stream = stream;
    return result;
}

RESIDENCY_INLINE std::string CudaArrayInterface::json() const {
    const auto list = [](const auto& numbers) {
        std::string text = "[";
        for (const auto number : numbers) { text += (text.size() > 1 ? ", " : "") + std::to_string(number); }
        return text + "]";
    };
    return "{\"version\": " + std::to_string(version) + ", \"typestr\": \"" + typestr +
           "\", \"shape\": " + list(shape) +
           ", \"strides\": " + (strides_bytes.empty() ? std::string{"null"} : list(strides_bytes)) + ", \"data\": [" +
           std::to_string(address) + ", " + (is_read_only ? "true" : "false") +
           "], \"stream\": " + std::to_string(stream) + "}";
}

}}  // namespace residency::RESIDENCY_ABI
