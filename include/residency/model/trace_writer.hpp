// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Of the file of a trace, written and read in blocks, so that neither side holds all of it: containers (model/container.hpp) of
/// kind trace one after the other, each with the same catalog hash and a checksum of its own.
///
///     the first   STOR: text name, array of u64 bytes by storage, array of u32 layers by storage (or none)
///     others      STEP: u64 number of the first step here; array of u32 accesses of each step; array of u32 storages;
///                       array of i64 nanoseconds of each step (−1: unknown)
///     the last    DONE: u64 steps, u64 accesses
///
/// A file without the last one was cut off.
inline constexpr std::uint32_t trace_file_version = 1;

namespace detail {

inline constexpr std::uint32_t trace_storages_tag = section_tag("STOR");
inline constexpr std::uint32_t trace_steps_tag = section_tag("STEP");
inline constexpr std::uint32_t trace_done_tag = section_tag("DONE");

}  // namespace detail

/// Writes what a program uses, while it runs, to a file that residency-lab replays. Every call blocks while the file is written. A
/// writer that is not finished leaves a file that its reader knows to be cut off.
class TraceWriter {
public:
    static constexpr std::int64_t unknown = -1;  ///< the nanoseconds of a step that nobody measured

    /// A trace of a catalog's storages. `layers`: that of each storage, or empty. Error io.
    [[nodiscard]] static Result<TraceWriter> try_open(const std::string& path, const Catalog& catalog,
                                                      std::span<const std::uint32_t> layers = {}) {
        std::vector<std::uint64_t> bytes;
        bytes.reserve(catalog.storages().size());
        for (const Storage& storage : catalog.storages()) { bytes.push_back(storage.bytes); }
        return try_open(path, {}, catalog.hash(), bytes, layers);
    }
    /// A trace of storages with those bytes, such as the experts of a program that knows no catalog. Storages are numbered in this
    /// order. `name` may be empty, and the hash of a catalog 0. Error io.
    [[nodiscard]] static Result<TraceWriter> try_open(const std::string& path, std::string_view name,
                                                      std::uint64_t catalog_hash, std::span<const std::uint64_t> bytes,
                                                      std::span<const std::uint32_t> layers = {}) {
        RESIDENCY_ASSERT(layers.empty() || layers.size() == bytes.size(), "give a layer for each storage, or none");
        TraceWriter writer{path, catalog_hash, bytes.size()};
        writer.file_.reset(std::fopen(path.c_str(), "wb"));
        if (!writer.file_) { return writer.failed("cannot be opened for writing"); }
        ContainerWriter container = writer.container();
        SectionWriter& section = container.section(detail::trace_storages_tag);
        section.text(name);
        section.array(bytes);
        section.array(layers);
        if (auto put = writer.put(container); !put) { return put.error(); }
        return writer;
    }

    /// What one step used: each storage once, in order. Errors: invalid_argument (a storage that there is not); io; wrong_state
    /// (it is finished).
    [[nodiscard]] Status try_step(std::span<const StorageId> storages, std::int64_t compute_ns = unknown) {
        if (!file_) { return is_finished(); }
        for (const StorageId id : storages) {
            if (index(id) >= storage_count_) {
                return Error{ErrorKind::invalid_argument, "a trace of " + std::to_string(storage_count_) +
                                                              " storages has no storage " + std::to_string(index(id))};
            }
        }
        counts_.push_back(static_cast<std::uint32_t>(storages.size()));
        accesses_.insert(accesses_.end(), storages.begin(), storages.end());
        compute_ns_.push_back(compute_ns < 0 ? unknown : compute_ns);
        ++steps_;
        return accesses_.size() + counts_.size() >= accesses_in_block ? flush() : Status{};
    }
    /// Completes the file: nothing can be added. Errors: io; wrong_state (it is finished).
    [[nodiscard]] Status try_finish() {
        if (!file_) { return is_finished(); }
        if (auto flushed = flush(); !flushed) { return flushed; }
        ContainerWriter last = container();
        SectionWriter& section = last.section(detail::trace_done_tag);
        section.u64(steps_);
        section.u64(accesses_written_);
        if (auto put = this->put(last); !put) { return put; }
        if (std::fclose(file_.release()) != 0) { return failed("cannot be written"); }
        return {};
    }
#if RESIDENCY_EXCEPTIONS
    /// As the calls above, but throw Exception.
    /// @{
    [[nodiscard]] static TraceWriter open(const std::string& path, const Catalog& catalog,
                                          std::span<const std::uint32_t> layers = {}) {
        return unwrap(try_open(path, catalog, layers));
    }
    void step(std::span<const StorageId> storages, std::int64_t compute_ns = unknown) {
        unwrap(try_step(storages, compute_ns));
    }
    void finish() { unwrap(try_finish()); }
    /// @}
#endif

private:
    static constexpr std::size_t accesses_in_block = std::size_t{1} << 16;

    TraceWriter(std::string path, std::uint64_t catalog_hash, std::size_t storage_count)
        : path_{std::move(path)}, catalog_hash_{catalog_hash}, storage_count_{storage_count} {}

    [[nodiscard]] Error is_finished() const {
        return {ErrorKind::wrong_state, detail::quoted(path_) + ": the trace is finished: open another one"};
    }
    [[nodiscard]] Error failed(const char* what) const {
        return {ErrorKind::io, detail::quoted(path_) + ": " + what, FileLocation{path_, written_, {}, {}}};
    }
    [[nodiscard]] ContainerWriter container() const {
        return {ContainerKind::trace, trace_file_version, catalog_hash_};
    }
    [[nodiscard]] Status put(const ContainerWriter& container) {
        const std::vector<std::byte> block = container.finish();
        if (std::fwrite(block.data(), 1, block.size(), file_.get()) != block.size()) {
            return failed("cannot be written");
        }
        written_ += block.size();
        return {};
    }
    [[nodiscard]] Status flush() {
        if (counts_.empty()) { return {}; }
        ContainerWriter block = container();
        SectionWriter& section = block.section(detail::trace_steps_tag);
        section.u64(steps_ - counts_.size());
        section.array(counts_);
        section.array(accesses_);
        section.array(compute_ns_);
        accesses_written_ += accesses_.size();
        counts_.clear();
        accesses_.clear();
        compute_ns_.clear();
        return put(block);
    }

    std::string path_;
    std::uint64_t catalog_hash_;
    std::size_t storage_count_;
    detail::FileHandle file_;
    std::uint64_t written_ = 0;  // bytes
    std::uint64_t steps_ = 0;
    std::uint64_t accesses_written_ = 0;
    std::vector<std::uint32_t> counts_;  // of the steps not yet written
    std::vector<StorageId> accesses_;
    std::vector<std::int64_t> compute_ns_;
};

}}  // namespace residency::RESIDENCY_ABI
