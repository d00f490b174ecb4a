// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Blocks. Reads what torch.save and torch.jit.save wrote: a pickle, of which nothing is executed, and the bytes of each storage,
/// in a ZIP archive or, before PyTorch 1.6, one after another. Tensors that are views of one storage share it. Those in lists,
/// nested dictionaries, modules and other objects are named by what leads to them, with dots: "layers.0.weight". Entries that are no
/// tensor are passed over. Where tensors lie in a dictionary or module inside the saved dictionary, such as "state_dict" of a
/// training's checkpoint, that one is read if it is the only one; see ReadOptions::key. Errors: malformed; io; unsupported where the
/// file holds no tensors, or several parts with some.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch(const Input& input, const ReadOptions& options = {});

/// Blocks. Reads the index of a model in several such files, as Hugging Face writes it: pytorch_model.bin.index.json.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch_index(const Input& input,
                                                                      const ReadOptions& options = {});

/// Blocks. Reads an index where the path ends in ".json", one file otherwise; a note says if an index beside the file lists it.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch(const std::string& path,
                                                                const ReadOptions& options = {});
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_torch(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_torch(path, options));
}
#endif

namespace detail {

/// A file of a PyTorch before 1.6 has its magic number in its first bytes, this many at most, after the pickle's protocol and frame.
inline constexpr std::size_t torch_magic_end = 23;
[[nodiscard]] inline bool is_torch_before_archives(std::string_view start) noexcept {
    constexpr std::string_view magic{"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12};
    return start.starts_with('\x80') && start.substr(0, torch_magic_end).find(magic) != std::string_view::npos;
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// A ZIP archive of torch.save: a folder with data.pkl, and a record data/KEY for each storage. The input and the directory must
/// outlive it.
class TorchArchive {
public:
    /// The first pickle of such an archive; null in any other archive.
    [[nodiscard]] static const ZipDirectory::Entry* find_pickle(const ZipDirectory& zip) noexcept;

    /// The archive with that directory, from byte `begin` of the input on. Errors: malformed, also where the pickle is longer
    /// than `longest_pickle` bytes; unsupported where it is no such archive or has another byte order.
    [[nodiscard]] static Result<TorchArchive> try_read(const Input& input, const ZipDirectory& zip, std::uint64_t begin,
                                                       std::uint64_t longest_pickle);

    [[nodiscard]] const std::string& pickle() const noexcept { return pickle_; }
    /// Offset of the pickle, from the start of the file.
    [[nodiscard]] std::uint64_t pickle_offset() const noexcept { return pickle_offset_; }

    /// The range of a storage in the file.
    [[nodiscard]] Result<ZipDirectory::Range> try_locate(const PickledStorage& storage) const;

private:
    static constexpr std::string_view pickle_tail = "/data.pkl";

    TorchArchive(const Input& input, const ZipDirectory& zip, std::string folder) noexcept
        : input_{&input}, zip_{&zip}, folder_{std::move(folder)} {}

    const Input* input_;
    const ZipDirectory* zip_;
    std::string folder_;  ///< with its slash
    std::string pickle_;
    std::uint64_t pickle_offset_ = 0;
};

/// What torch.save wrote before PyTorch 1.6: pickles one after another (a magic number, a version, the byte order, the model, the
/// keys of its storages), then each storage, as the number of its elements and its bytes. The input must outlive it.
class TorchStream {
public:
    /// Errors: malformed, also where the pickles are longer than `longest_pickle` bytes together; unsupported where it is of
    /// another version or byte order.
    [[nodiscard]] static Result<TorchStream> try_read(const Input& input, std::uint64_t longest_pickle);

    /// The pickle of the model.
    [[nodiscard]] const TorchPickle& pickle() const noexcept { return pickle_; }

    /// The range of a storage in the file.
    [[nodiscard]] Result<ZipDirectory::Range> try_locate(const PickledStorage& storage) const;

private:
    TorchStream(const Input& input, TorchPickle pickle) noexcept : input_{&input}, pickle_{std::move(pickle)} {}

    /// Finds the storages whose keys are given, from that byte of the file on.
    [[nodiscard]] Status locate_all(const TorchPickle& keys, std::uint64_t at);

    const Input* input_;
    TorchPickle pickle_;
    std::unordered_map<std::string, ZipDirectory::Range> storages_;  // by key
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch.ipp"
#endif
