// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

// The reader of what AOTInductor saves: a component of its own, which no other header includes.

/// One constant of a model that AOTInductor compiled, as its generated code describes it.
struct AotiConstant {
    std::string name;                   ///< in the generated code
    std::string dtype;                  ///< PyTorch's name, such as "float32"
    Shape shape;                        ///< outermost extent first
    Strides strides;                    ///< elements; empty where dense
    std::uint64_t offset_elements = 0;  ///< in its storage
    std::uint64_t storage_bytes = 0;  ///< the constant's data_size: of the whole storage, with padding if there is any
};

/// How storages follow each other in a weights blob.
enum class AotiLayout : std::uint8_t {
    automatic,  ///< the one of the others that gives the size of the blob
    dense,      ///< without gaps: all constants are on the GPU, or data_size includes the padding
    padded,     ///< each padded to 64 bytes
};

/// Blocks. Reads a weights blob alone (AOTInductor's MODEL_weights.blob): the bytes of all constants of a compiled model, one after
/// another. `constants` have the order of the blob. Each constant gets a storage of its own. Error malformed: the sizes do not add up to
/// that of the blob.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti_blob(const Input& input,
                                                                    std::span<const AotiConstant> constants,
                                                                    AotiLayout layout = AotiLayout::automatic);

/// Blocks. The constants in the C++ file that AOTInductor generates beside a blob, without those that it folds at run time.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<AotiConstant>> try_read_aoti_constants(const Input& input);

/// Blocks. Reads the weights of every model in a package (.pt2): saved tensors that weights_config.json lists, a blob with the
/// generated code beside it, or the raw records of an exported program. Weights in one record share a storage. In a package of
/// several models a weight is named "model/weight". Weights inside a shared library are not read.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti_package(const Input& input);

/// Blocks. Reads the weights_config.json of an unpacked package, of either kind. Its records lie beside it, or where the package
/// has them: in ../../weights of data/aotinductor/MODEL.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti_config(const Input& input);

/// Blocks. Reads a configuration where the path ends in ".json", a package otherwise.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti(const std::string& path);

/// Blocks. Reads a model file of any format: those of try_read_model, and what AOTInductor saved.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_model_or_aoti(const std::string& path,
                                                                        const ReadOptions& options = {});
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_aoti(const std::string& path) { return unwrap(try_read_aoti(path)); }
[[nodiscard]] inline ModelFile read_model_or_aoti(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_model_or_aoti(path, options));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/aoti.ipp"
#endif
