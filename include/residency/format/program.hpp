// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// What a weight of a compiled model was to its author.
enum class ProgramWeightKind : std::uint8_t {
    parameter,
    buffer,
};

/// A constant of a method's generated code.
struct ProgramConstant {
    std::string name;             ///< in the generated code
    std::string original;         ///< in the module that was compiled
    WeightId weight = no_weight;  ///< whose bytes it reads
    friend bool operator==(const ProgramConstant&, const ProgramConstant&) = default;  ///< compares all members
};

/// What the generated code runs after one marker, or the life of what one probe returned.
struct ProgramStep {
    std::vector<WeightId> weights;  ///< each once
    std::optional<std::uint32_t>
        live_until;  ///< position of the last step during which the weights are used; none: this one
    std::optional<std::chrono::nanoseconds> compute;  ///< the compiler's estimate
    std::string kernels;                              ///< names of the generated kernels, with spaces between
    std::string module;                               ///< path of the module that they came from; may be empty
    friend bool operator==(const ProgramStep&, const ProgramStep&) = default;  ///< compares all members
};

/// An argument of a method, as it was exported.
struct ProgramInput {
    DType dtype;                                                                 ///< of its elements
    Shape shape;                                                                 ///< as it was exported
    friend bool operator==(const ProgramInput&, const ProgramInput&) = default;  ///< compares all members
};

/// A method of a compiled model, such as "prefill" or "decode".
struct ProgramMethod {
    std::string name;                        ///< unique in its program
    std::string package;                     ///< name of the package's file, in the folder of the program
    std::vector<ProgramInput> inputs;        ///< tensors only, in the order of the call
    std::vector<ProgramConstant> constants;  ///< of its generated code
    std::vector<ProgramStep> steps;          ///< in the order in which they run
    friend bool operator==(const ProgramMethod&, const ProgramMethod&) = default;  ///< compares all members
};

/// Another name of a weight.
struct ProgramAlias {
    std::string name;                                                            ///< as the module spells it
    WeightId weight = no_weight;                                                 ///< the weight that it names
    friend bool operator==(const ProgramAlias&, const ProgramAlias&) = default;  ///< compares all members
};

/// What a compiler knew of a model: its weights, and for each method the steps that read them. A container (model/container.hpp) of
/// kind program, version 1, in which catalog_hash is that of `catalog`:
///
///     HEAD  texts compiler, device, weights file, budget
///     STOR  u64 count; for each u64 bytes, u64 alignment, u8 mutable, text name of the tensor in the weights file
///     WGTS  u64 count; for each text name, text dtype, array u64 shape, array u64 strides, u32 storage, u64 offset in bytes,
///           u8 kind (0 parameter, 1 buffer)
///     ALIA  u64 count; for each text name, u32 weight
///     PINS  array u32 weights
///     METH  u64 count; for each text name, text package, u64 inputs (text dtype, array u64 shape), u64 constants (text name, text original, u32 weight), u64 steps
///           (array u32 weights, u32 live until or 2^32 − 1, i64 nanoseconds or −1, text kernels, text module)
struct Program {
    std::string compiler;                  ///< such as "torch 2.11.0"
    std::string device;                    ///< "cpu", or "cuda:sm_90"
    std::string weights_file;              ///< name of the file with the bytes, in the folder of the program
    std::string budget;                    ///< for Budget::parse; empty: the runtime's own
    Catalog catalog;                       ///< without sources; the pinned weights and what kernels write are resident
    std::vector<std::string> tensors;      ///< by storage: its name in the weights file
    std::vector<ProgramWeightKind> kinds;  ///< by weight
    std::vector<ProgramAlias> aliases;     ///< names that are unique among aliases and weights
    std::vector<WeightId> pins;            ///< ascending
    std::vector<ProgramMethod> methods;    ///< at least one; each name once

    /// The method of that name, or null.
    [[nodiscard]] const ProgramMethod* find_method(std::string_view name) const noexcept;
    /// The weight of that name or alias.
    [[nodiscard]] std::optional<WeightId> find(std::string_view name) const noexcept;

    /// The schedule of a method. Precondition: the method is one of `methods`.
    [[nodiscard]] RESIDENCY_INLINE Result<Schedule> try_schedule(const ProgramMethod& method) const;

    /// `catalog` with the sources of the tensors of `weights`, a catalog read from the weights file. Error mismatch, naming the tensor:
    /// it is missing or has another size.
    [[nodiscard]] RESIDENCY_INLINE Result<Catalog> try_bind(const Catalog& weights) const;
};

/// The version of the bytes that save() writes.
inline constexpr std::uint32_t program_file_version = 1;

/// The bytes of a program. The same program gives the same bytes. Precondition: what Program says of its members holds.
[[nodiscard]] RESIDENCY_INLINE std::vector<std::byte> save(const Program& program);
/// Blocks. Writes those bytes to a file, whole or not at all. Error io.
[[nodiscard]] RESIDENCY_INLINE Status try_save_file(const Program& program, const std::string& path);

/// Reads what save() or the export wrote. `source` names the bytes in messages. Errors: malformed, with the place, for what is no
/// program or not consistent in itself; unsupported for a later version. Allocates no more than a small multiple of the bytes given.
[[nodiscard]] RESIDENCY_INLINE Result<Program> try_load_program(std::span<const std::byte> bytes,
                                                                std::string source = "program");
/// Blocks. The same from a file. Error io as well.
[[nodiscard]] RESIDENCY_INLINE Result<Program> try_load_program_file(const std::string& path);

#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline Program load_program_file(const std::string& path) { return unwrap(try_load_program_file(path)); }
#endif

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
#include "residency/format/impl/program.ipp"
#endif
