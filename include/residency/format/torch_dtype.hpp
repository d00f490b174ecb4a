// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// A type of PyTorch: its name, the class of its typed storages, and its number in exported programs (0: none).
struct TorchDType {
    std::string_view name;     ///< as PyTorch spells it
    std::string_view storage;  ///< of its typed storages
    std::uint32_t number = 0;  ///< in exported programs
    DType type;                ///< what the weight is then
};

/// The types that a stored weight may have, as of PyTorch 2.15.
inline constexpr std::array torch_dtypes{
    TorchDType{"uint8", "ByteStorage", 1, dtype::u8},
    TorchDType{"int8", "CharStorage", 2, dtype::i8},
    TorchDType{"int16", "ShortStorage", 3, dtype::i16},
    TorchDType{"int32", "IntStorage", 4, dtype::i32},
    TorchDType{"int64", "LongStorage", 5, dtype::i64},
    TorchDType{"float16", "HalfStorage", 6, dtype::f16},
    TorchDType{"float32", "FloatStorage", 7, dtype::f32},
    TorchDType{"float64", "DoubleStorage", 8, dtype::f64},
    TorchDType{"complex32", "", 9, DType::plain("complex32", 32, 2)},
    TorchDType{"complex64", "ComplexFloatStorage", 10, dtype::complex64},
    TorchDType{"complex128", "ComplexDoubleStorage", 11, DType::plain("complex128", 128, 8)},
    TorchDType{"bool", "BoolStorage", 12, dtype::boolean},
    TorchDType{"bfloat16", "BFloat16Storage", 13, dtype::bf16},
    TorchDType{"uint16", "", 28, dtype::u16},
    TorchDType{"float8_e4m3fn", "", 29, dtype::f8_e4m3fn},
    TorchDType{"float8_e5m2", "", 30, dtype::f8_e5m2},
    TorchDType{"float8_e4m3fnuz", "", 31, dtype::f8_e4m3fnuz},
    TorchDType{"float8_e5m2fnuz", "", 32, dtype::f8_e5m2fnuz},
    TorchDType{"float8_e8m0fnu", "", 33, dtype::f8_e8m0},
    TorchDType{"uint32", "", 34, dtype::u32},
    TorchDType{"uint64", "", 35, dtype::u64},
    TorchDType{"float4_e2m1fn_x2", "", 0, DType::block("float4_e2m1fn_x2", 1, 1)},
};

/// The type of that name, with or without "torch." before it.
[[nodiscard]] constexpr std::optional<TorchDType> find_torch_dtype(std::string_view name) noexcept {
    constexpr std::string_view prefix = "torch.";
    if (name.substr(0, prefix.size()) == prefix) { name.remove_prefix(prefix.size()); }
    for (const TorchDType& known : torch_dtypes) {
        if (known.name == name) { return known; }
    }
    return std::nullopt;
}
[[nodiscard]] constexpr std::optional<TorchDType> find_torch_storage(std::string_view storage) noexcept {
    for (const TorchDType& known : torch_dtypes) {
        if (!storage.empty() && known.storage == storage) { return known; }
    }
    return std::nullopt;
}
[[nodiscard]] constexpr std::optional<TorchDType> find_torch_dtype(std::uint64_t number) noexcept {
    for (const TorchDType& known : torch_dtypes) {
        if (number != 0 && known.number == number) { return known; }
    }
    return std::nullopt;
}

}}}  // namespace residency::RESIDENCY_ABI::format
