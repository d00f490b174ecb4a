// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// A type of ggml or of a fork of it: its number in files, and the size of its blocks. `name` must outlive the readers.
struct GgmlType {
    std::uint32_t number = 0;  ///< in files
    DType type;                ///< what the weight is then
    const char* name = "";     ///< as ggml spells it
};

/// Every type that ggml has, as of August 2026. The numbers left out are types that were withdrawn.
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
    GgmlType{42, DType::block("Q2_0", 18, 64), "Q2_0"},
};

/// The type of that number in a file. 4 is MXFP4 too: the number of Q4_2, which no GGUF file has, in what Ollama wrote in 2025.
[[nodiscard]] constexpr std::optional<GgmlType> find_ggml_type(std::uint32_t number) noexcept {
    constexpr std::uint32_t of_ollama = 4;
    constexpr std::uint32_t mxfp4 = 39;
    if (number == of_ollama) { number = mxfp4; }
    for (const GgmlType& known : ggml_types) {
        if (known.number == number) { return known; }
    }
    return std::nullopt;
}

namespace detail {

/// What a number stands for that ggml does not have: a type that it withdrew, or one of a fork. For messages.
struct ForeignGgmlType {
    std::uint32_t number = 0;
    const char* name = "";
    const char* whose = "";
};

inline constexpr const char* ggml_withdrew = ", which ggml withdrew";
inline constexpr const char* ggml_of_ik = " of ik_llama.cpp";
inline constexpr const char* ggml_of_bitnet = " of bitnet.cpp";
inline constexpr const char* ggml_of_rocm = " of ROCmFPX";
inline constexpr const char* ggml_of_prism = " of PrismML's llama.cpp";

/// In the order of the numbers; a number may stand for several.
inline constexpr std::array foreign_ggml_types{
    ForeignGgmlType{5, "Q4_3", ggml_withdrew},
    ForeignGgmlType{31, "Q4_0_4_4", ggml_withdrew},
    ForeignGgmlType{32, "Q4_0_4_8", ggml_withdrew},
    ForeignGgmlType{33, "Q4_0_8_8", ggml_withdrew},
    ForeignGgmlType{36, "IQ4_NL_4_4", ggml_withdrew},
    ForeignGgmlType{36, "I2_S", " of bitnet.cpp and ik_llama.cpp"},
    ForeignGgmlType{37, "IQ4_NL_4_8", ggml_withdrew},
    ForeignGgmlType{37, "I8_S", ggml_of_bitnet},
    ForeignGgmlType{38, "IQ4_NL_8_8", ggml_withdrew},
    ForeignGgmlType{38, "TL1", ggml_of_bitnet},
    ForeignGgmlType{97, "Q8_0_X4", ggml_of_ik},
    ForeignGgmlType{98, "Q8_1_X4", ggml_of_ik},
    ForeignGgmlType{99, "Q8_2_X4", ggml_of_ik},
    ForeignGgmlType{100, "Q4_0_ROCMFP4", ggml_of_rocm},
    ForeignGgmlType{101, "Q4_0_ROCMFP4_FAST", ggml_of_rocm},
    ForeignGgmlType{102, "Q6_0_ROCMFPX", ggml_of_rocm},
    ForeignGgmlType{103, "Q8_0_ROCMFPX", ggml_of_rocm},
    ForeignGgmlType{104, "Q3_0_ROCMFPX", ggml_of_rocm},
    ForeignGgmlType{107, "Q2_0_ROCMFPX", ggml_of_rocm},
    ForeignGgmlType{108, "Q4_0_ROCMI4", ggml_of_rocm},
    ForeignGgmlType{133, "Q6_0", ggml_of_ik},
    ForeignGgmlType{134, "IQ1_BN", ggml_of_ik},
    ForeignGgmlType{135, "IQ2_BN", ggml_of_ik},
    ForeignGgmlType{136, "Q8_K64", ggml_of_ik},
    ForeignGgmlType{137, "IQ2_K", ggml_of_ik},
    ForeignGgmlType{138, "IQ3_K", ggml_of_ik},
    ForeignGgmlType{139, "IQ4_K", ggml_of_ik},
    ForeignGgmlType{140, "IQ5_K", ggml_of_ik},
    ForeignGgmlType{141, "IQ6_K", ggml_of_ik},
    ForeignGgmlType{142, "PQ2_0", ggml_of_prism},
    ForeignGgmlType{142, "IQ2_TN", ", which ik_llama.cpp withdrew"},
    ForeignGgmlType{143, "PTQ1_0", ggml_of_prism},
    ForeignGgmlType{143, "IQ1_TN", ", which ik_llama.cpp withdrew"},
    ForeignGgmlType{144, "IQ4_KS", ggml_of_ik},
    ForeignGgmlType{145, "IQ2_KS", ggml_of_ik},
    ForeignGgmlType{146, "IQ4_KSS", ggml_of_ik},
    ForeignGgmlType{147, "Q8_K16", ggml_of_ik},
    ForeignGgmlType{148, "Q8_K32", ggml_of_ik},
    ForeignGgmlType{149, "Q8_KR8", ggml_of_ik},
    ForeignGgmlType{150, "Q8_K128", ggml_of_ik},
    ForeignGgmlType{151, "Q8_KV", ggml_of_ik},
    ForeignGgmlType{152, "IQ5_KS", ggml_of_ik},
    ForeignGgmlType{153, "IQ2_KT", ggml_of_ik},
    ForeignGgmlType{154, "IQ3_KT", ggml_of_ik},
    ForeignGgmlType{155, "IQ4_KT", ggml_of_ik},
    ForeignGgmlType{156, "IQ3_KS", ggml_of_ik},
    ForeignGgmlType{157, "IQ2_KL", ggml_of_ik},
    ForeignGgmlType{158, "IQ1_KT", ggml_of_ik},
    ForeignGgmlType{202, "Q4_0_R8", ggml_of_ik},
    ForeignGgmlType{206, "Q5_0_R4", ggml_of_ik},
    ForeignGgmlType{208, "Q8_0_R8", ggml_of_ik},
    ForeignGgmlType{210, "Q2_K_R4", ggml_of_ik},
    ForeignGgmlType{211, "Q3_K_R4", ggml_of_ik},
    ForeignGgmlType{212, "Q4_K_R4", ggml_of_ik},
    ForeignGgmlType{213, "Q5_K_R4", ggml_of_ik},
    ForeignGgmlType{214, "Q6_K_R4", ggml_of_ik},
    ForeignGgmlType{216, "IQ2_XXS_R4", ggml_of_ik},
    ForeignGgmlType{217, "IQ2_XS_R4", ggml_of_ik},
    ForeignGgmlType{218, "IQ3_XXS_R4", ggml_of_ik},
    ForeignGgmlType{219, "IQ1_S_R4", ggml_of_ik},
    ForeignGgmlType{220, "IQ4_NL_R4", ggml_of_ik},
    ForeignGgmlType{221, "IQ3_S_R4", ggml_of_ik},
    ForeignGgmlType{222, "IQ2_S_R4", ggml_of_ik},
    ForeignGgmlType{223, "IQ4_XS_R8", ggml_of_ik},
    ForeignGgmlType{229, "IQ1_M_R4", ggml_of_ik},
    ForeignGgmlType{230, "BF16_R16", ggml_of_ik},
    ForeignGgmlType{233, "Q6_0_R4", ggml_of_ik},
    ForeignGgmlType{335, "IQ2_BN_R4", ggml_of_ik},
    ForeignGgmlType{337, "IQ2_K_R4", ggml_of_ik},
    ForeignGgmlType{338, "IQ3_K_R4", ggml_of_ik},
    ForeignGgmlType{339, "IQ4_K_R4", ggml_of_ik},
    ForeignGgmlType{340, "IQ5_K_R4", ggml_of_ik},
    ForeignGgmlType{344, "IQ4_KS_R4", ggml_of_ik},
    ForeignGgmlType{352, "IQ5_KS_R4", ggml_of_ik},
    ForeignGgmlType{353, "MXFP4_R8", ggml_of_ik},
    ForeignGgmlType{397, "Q8_K_R16", ggml_of_ik},
    ForeignGgmlType{398, "Q8_KV_R8", ggml_of_ik},
    ForeignGgmlType{399, "Q8_K_R8", ggml_of_ik},
};

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format
