// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// The layout of a tensor in a file of ExecuTorch's data.
struct ExecutorchLayout {
    std::string dtype;  ///< PyTorch's name, such as "float32"
    DType type;         ///< what the name stands for
    Shape shape;        ///< outermost extent first
    Strides strides;    ///< elements; empty where dense
};

/// Bytes that a file of ExecuTorch has under a name.
struct ExecutorchData {
    std::string key;                           ///< UTF-8, unique in the file
    std::uint64_t offset_bytes = 0;            ///< from the start of the file
    std::uint64_t bytes = 0;                   ///< how many
    std::optional<ExecutorchLayout> layout{};  ///< none: a backend's own bytes
};

/// A part of a method that a backend runs, with what that backend wrote about it.
struct ExecutorchDelegate {
    std::string backend;             ///< such as "CudaBackend"
    std::uint64_t offset_bytes = 0;  ///< from the start of the file, of what that backend wrote
    std::uint64_t bytes = 0;         ///< how many
};

/// A method of a program, such as "forward".
struct ExecutorchMethod {
    std::string name;                           ///< UTF-8
    std::vector<ExecutorchDelegate> delegates;  ///< in the order of the file
};

/// What a program (.pte) or a file of data (.ptd) of ExecuTorch says. Every range lies inside the file.
struct ExecutorchFile {
    bool is_program = false;                ///< false: data alone
    std::vector<ExecutorchData> data;       ///< in the order of the file
    std::vector<ExecutorchMethod> methods;  ///< of a program
    std::vector<std::string> outside;  ///< names of the program's tensors whose bytes are in files of data; each once
    std::uint64_t unnamed_constants = 0;  ///< tensors of the program that have no name

    /// The bytes of that name, or null.
    [[nodiscard]] RESIDENCY_INLINE const ExecutorchData* find(std::string_view key) const noexcept;
};

/// A constant of a method, as ExecuTorch's CUDA backend describes it.
struct ExecutorchConstant {
    std::string name;                   ///< in the module that was compiled
    std::string key;                    ///< of its storage, which other constants and methods may share
    std::string dtype;                  ///< PyTorch's name
    DType type;                         ///< what the name stands for
    Shape shape;                        ///< outermost extent first
    Strides strides;                    ///< elements
    std::uint64_t offset_elements = 0;  ///< in its storage
    std::uint64_t storage_bytes = 0;    ///< of the whole storage
    bool is_on_cuda = true;             ///< false: the method reads it on the processor
};

/// What ExecuTorch's CUDA backend writes about one delegate (ETCUDAFQN3).
struct ExecutorchCudaWeights {
    std::string library;                        ///< key of the compiled library
    std::vector<ExecutorchConstant> constants;  ///< in the order of the file
};

/// Blocks. Reads what a program or a file of data says. Errors: malformed, with the place; unsupported for a later version.
[[nodiscard]] RESIDENCY_INLINE Result<ExecutorchFile> try_read_executorch_file(const Input& input);

/// Blocks. Reads what the CUDA backend wrote about a delegate of a program. Errors: malformed; unsupported for another version of it, and
/// for a delegate of another backend.
[[nodiscard]] RESIDENCY_INLINE Result<ExecutorchCudaWeights> try_read_executorch_cuda(
    const Input& program, const ExecutorchDelegate& delegate);

/// Blocks. The weights of a program and of its data, or of data alone. Constants of the CUDA backend have their names, types and views,
/// and share storages by key, whichever methods they are of; one name of two different constants is "method/name" for the second. Other
/// named bytes are weights of bytes (u8), or what their layout says. Libraries are passed over.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_executorch(std::span<const Input> inputs);
/// Blocks. The same of a file; for a program, with the files of data (.ptd) in its folder that hold what it names.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_executorch(const std::string& path);
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_executorch(const std::string& path) { return unwrap(try_read_executorch(path)); }
#endif

namespace detail {

/// Name under which a program of ExecuTorch carries the program of residency_export.
inline constexpr const char* executorch_program_key = "residency_program";

/// Whether a program of ExecuTorch, or a file of its data, begins with these bytes: a schema's identifier from byte 4 on.
[[nodiscard]] constexpr bool is_executorch_program(std::string_view start) noexcept {
    return start.size() >= 8 && start.substr(4, 3) == "ET1";
}
[[nodiscard]] constexpr bool is_executorch_data(std::string_view start) noexcept {
    return start.size() >= 8 && start.substr(4, 3) == "FT0";
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/executorch.ipp"
#endif
