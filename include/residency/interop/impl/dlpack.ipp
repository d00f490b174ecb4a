// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

#include "residency/config.hpp"
#include "residency/interop/dlpack.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace dlpack {

RESIDENCY_INLINE Result<DataType> data_type(const DType& dtype) {
    constexpr std::array codes{
        std::pair{dtype::f64, TypeCode::ieee_float},          std::pair{dtype::f32, TypeCode::ieee_float},
        std::pair{dtype::f16, TypeCode::ieee_float},          std::pair{dtype::bf16, TypeCode::bfloat},
        std::pair{dtype::f8_e4m3, TypeCode::f8_e4m3},         std::pair{dtype::f8_e4m3fn, TypeCode::f8_e4m3fn},
        std::pair{dtype::f8_e4m3fnuz, TypeCode::f8_e4m3fnuz}, std::pair{dtype::f8_e5m2, TypeCode::f8_e5m2},
        std::pair{dtype::f8_e5m2fnuz, TypeCode::f8_e5m2fnuz}, std::pair{dtype::f8_e8m0, TypeCode::f8_e8m0},
        std::pair{dtype::i64, TypeCode::signed_integer},      std::pair{dtype::i32, TypeCode::signed_integer},
        std::pair{dtype::i16, TypeCode::signed_integer},      std::pair{dtype::i8, TypeCode::signed_integer},
        std::pair{dtype::u64, TypeCode::unsigned_integer},    std::pair{dtype::u32, TypeCode::unsigned_integer},
        std::pair{dtype::u16, TypeCode::unsigned_integer},    std::pair{dtype::u8, TypeCode::unsigned_integer},
        std::pair{dtype::boolean, TypeCode::boolean},         std::pair{dtype::complex64, TypeCode::complex},
    };
    for (const auto& [known, code] : codes) {
        if (known == dtype) { return DataType{code, static_cast<std::uint8_t>(dtype.block_bits()), 1}; }
    }
    return Error{ErrorKind::unsupported, "elements of type \"" + std::string{dtype.name()} +
                                             "\" do not take whole bytes each, or DLPack does not know them: export "
                                             "weights of such types as bytes, under a lease"};
}

namespace detail {

RESIDENCY_INLINE Result<std::vector<std::int64_t>> dimensions(const Weight& weight) {
    std::vector<std::int64_t> result;
    result.reserve(weight.shape.size() * 2);
    for (const auto* const numbers : {&weight.shape, &weight.strides}) {
        for (const std::uint64_t number : *numbers) {
            if (number > INT64_MAX) {
                return Error{ErrorKind::invalid_argument,
                             "an extent or a stride of " + std::to_string(number) + ": DLPack has 63 bits for it"};
            }
            result.push_back(static_cast<std::int64_t>(number));
        }
    }
    return result;
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::dlpack
