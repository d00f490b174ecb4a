// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// A type as safetensors spells it.
struct SafetensorsDType {
    std::string_view name;  ///< in files
    DType type;             ///< what the weight is then
};

/// Every type of the format, as of safetensors 0.8. Its F8_E4M3 is the one without infinities.
inline constexpr std::array safetensors_dtypes{
    SafetensorsDType{"BOOL", dtype::boolean},
    SafetensorsDType{"F4", dtype::f4},
    SafetensorsDType{"F6_E2M3", dtype::f6_e2m3},
    SafetensorsDType{"F6_E3M2", dtype::f6_e3m2},
    SafetensorsDType{"U8", dtype::u8},
    SafetensorsDType{"I8", dtype::i8},
    SafetensorsDType{"F8_E5M2", dtype::f8_e5m2},
    SafetensorsDType{"F8_E4M3", dtype::f8_e4m3fn},
    SafetensorsDType{"F8_E8M0", dtype::f8_e8m0},
    SafetensorsDType{"F8_E4M3FNUZ", dtype::f8_e4m3fnuz},
    SafetensorsDType{"F8_E5M2FNUZ", dtype::f8_e5m2fnuz},
    SafetensorsDType{"I16", dtype::i16},
    SafetensorsDType{"U16", dtype::u16},
    SafetensorsDType{"F16", dtype::f16},
    SafetensorsDType{"BF16", dtype::bf16},
    SafetensorsDType{"I32", dtype::i32},
    SafetensorsDType{"U32", dtype::u32},
    SafetensorsDType{"F32", dtype::f32},
    SafetensorsDType{"C64", dtype::complex64},
    SafetensorsDType{"F64", dtype::f64},
    SafetensorsDType{"I64", dtype::i64},
    SafetensorsDType{"U64", dtype::u64},
};

[[nodiscard]] constexpr std::optional<DType> find_safetensors_dtype(std::string_view name) noexcept {
    for (const SafetensorsDType& known : safetensors_dtypes) {
        if (known.name == name) { return known.type; }
    }
    return std::nullopt;
}
/// How the format spells a type; empty where it has no such type.
[[nodiscard]] constexpr std::string_view safetensors_name(const DType& type) noexcept {
    for (const SafetensorsDType& known : safetensors_dtypes) {
        if (known.type == type) { return known.name; }
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::format
