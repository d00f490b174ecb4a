// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// A type of ggml: its number in files, and the size of its blocks.
struct GgmlType {
    std::uint32_t number = 0;
    DType type;
    const char* name = "";  ///< as ggml spells it
};

/// Every type that a file may hold, as of gguf 0.19. The numbers left out are types that were withdrawn.
inline constexpr std::array ggml_types{
    GgmlType{0, dtype::f32, "F32"},
    GgmlType{1, dtype::f16, "F16"},
    GgmlType{2, DType::block("Q4_0", 18, 32), "Q4_0"},
    GgmlType{3, DType::block("Q4_1", 20, 32), "Q4_1"},
    GgmlType{6, DType::block("Q5_0", 22, 32), "Q5_0"},
    GgmlType{7, DType::block("Q5_1", 24, 32), "Q5_1"},
    GgmlType{8, DType::block("Q8_0", 34, 32), "Q8_0"},
    GgmlType{9, DType::block("Q8_1", 40, 32), "Q8_1"},
    GgmlType{10, DType::block("Q2_K", 84, 256), "Q2_K"},
    GgmlType{11, DType::block("Q3_K", 110, 256), "Q3_K"},
    GgmlType{12, DType::block("Q4_K", 144, 256), "Q4_K"},
    GgmlType{13, DType::block("Q5_K", 176, 256), "Q5_K"},
    GgmlType{14, DType::block("Q6_K", 210, 256), "Q6_K"},
    GgmlType{15, DType::block("Q8_K", 292, 256), "Q8_K"},
    GgmlType{16, DType::block("IQ2_XXS", 66, 256), "IQ2_XXS"},
    GgmlType{17, DType::block("IQ2_XS", 74, 256), "IQ2_XS"},
    GgmlType{18, DType::block("IQ3_XXS", 98, 256), "IQ3_XXS"},
    GgmlType{19, DType::block("IQ1_S", 50, 256), "IQ1_S"},
    GgmlType{20, DType::block("IQ4_NL", 18, 32), "IQ4_NL"},
    GgmlType{21, DType::block("IQ3_S", 110, 256), "IQ3_S"},
    GgmlType{22, DType::block("IQ2_S", 82, 256), "IQ2_S"},
    GgmlType{23, DType::block("IQ4_XS", 136, 256), "IQ4_XS"},
    GgmlType{24, dtype::i8, "I8"},
    GgmlType{25, dtype::i16, "I16"},
    GgmlType{26, dtype::i32, "I32"},
    GgmlType{27, dtype::i64, "I64"},
    GgmlType{28, dtype::f64, "F64"},
    GgmlType{29, DType::block("IQ1_M", 56, 256), "IQ1_M"},
    GgmlType{30, dtype::bf16, "BF16"},
    GgmlType{34, DType::block("TQ1_0", 54, 256), "TQ1_0"},
    GgmlType{35, DType::block("TQ2_0", 66, 256), "TQ2_0"},
    GgmlType{39, DType::block("MXFP4", 17, 32), "MXFP4"},
    GgmlType{40, DType::block("NVFP4", 36, 64), "NVFP4"},
    GgmlType{41, DType::block("Q1_0", 18, 128), "Q1_0"},
};

[[nodiscard]] constexpr std::optional<GgmlType> find_ggml_type(std::uint32_t number) noexcept {
    for (const GgmlType& known : ggml_types) {
        if (known.number == number) { return known; }
    }
    return std::nullopt;
}

}}}  // namespace residency::RESIDENCY_ABI::format
