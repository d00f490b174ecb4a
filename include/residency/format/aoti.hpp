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

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// One constant of a model that AOTInductor compiled, as its generated code describes it.
struct AotiConstant {
    std::string name;
    std::string dtype;  ///< PyTorch's name, such as "float32"
    Shape shape;
    Strides strides;                    ///< elements; empty where dense
    std::uint64_t offset_elements = 0;  ///< in its storage
    /// The constant's data_size: of the whole storage, with padding where there is some.
    std::uint64_t storage_bytes = 0;
};

/// How storages follow each other in a weights blob.
enum class AotiLayout : std::uint8_t {
    automatic,  ///< the one that gives the size of the blob
    dense,      ///< without gaps: what is written where all constants are on the GPU, or data_size includes the padding
    padded,     ///< each padded to 64 bytes
};

/// Reads a weights blob by itself (AOTInductor's <model>_weights.blob), given the constants in the order of the blob. Each has
/// a storage of its own. Errors: malformed where the sizes do not add up to the blob's.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti_blob(const Input& input,
                                                                    std::span<const AotiConstant> constants,
                                                                    AotiLayout layout = AotiLayout::automatic);

/// The constants in the C++ file that AOTInductor generates beside a blob, without those that it folds at run time.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<AotiConstant>> try_read_aoti_constants(const Input& input);

/// Reads a package (.pt2): every model's weights, whether as saved tensors listed by weights_config.json, as a blob with the
/// generated code beside it, or as the raw records of an exported program. Weights in one record share a storage. Where there
/// are several models, their names come before their weights': "model/weight". Weights inside a shared library are not read.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti_package(const Input& input);

/// Reads the weights_config.json of an unpacked package, of either kind. Its records lie beside it, or where the package has
/// them: in ../../weights of data/aotinductor/<model>.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti_config(const Input& input);

/// The same for a path: a configuration where it ends in ".json", a package otherwise.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_aoti(const std::string& path);
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_aoti(const std::string& path) { return unwrap(try_read_aoti(path)); }
#endif

namespace detail {

class ZipDirectory;

/// The package with that directory.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> read_aoti_package(const Input& input, const ZipDirectory& zip);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/aoti.ipp"
#endif
