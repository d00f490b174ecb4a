// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/program.hpp"
#include "residency/model/catalog.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Name, in its folder, of the program of ExecuTorch that an export wrote.
inline constexpr const char* executorch_program_file = "model.pte";

/// Blocks. The program that a program of ExecuTorch carries among its named data, under "residency_program". Errors: those of the
/// readers; unsupported where it carries none.
[[nodiscard]] RESIDENCY_INLINE Result<Program> try_load_carried_program(const Input& executorch);

/// Blocks. The program of a model that an export wrote into a folder: program.residency, or what model.pte carries. Errors: those of
/// try_load_program_file and try_load_carried_program.
[[nodiscard]] RESIDENCY_INLINE Result<Program> try_load_program_folder(const std::string& folder);

/// Blocks. The program's catalog, with the weights file of that folder as its source: safetensors, or data of ExecuTorch (.ptd). Errors:
/// those of the reader, and mismatch where these are not the program's weights.
[[nodiscard]] RESIDENCY_INLINE Result<Catalog> try_bind_program_folder(const Program& program,
                                                                       const std::string& folder);

#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline Program load_program_folder(const std::string& folder) {
    return unwrap(try_load_program_folder(folder));
}
[[nodiscard]] inline Catalog bind_program_folder(const Program& program, const std::string& folder) {
    return unwrap(try_bind_program_folder(program, folder));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/program_folder.ipp"
#endif
