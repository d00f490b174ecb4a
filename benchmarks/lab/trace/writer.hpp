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

#include "benchmarks/lab/trace/format.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

namespace lab::trace {

using namespace residency;

/// Writes a trace to a file while it happens. Every call blocks while the file is written. A writer that is not finished leaves a
/// file that its reader knows to be cut off.
class Writer {
public:
    /// `groups`: the layer of each storage, or empty.
    [[nodiscard]] static Result<Writer> try_open(const std::string& path, std::string_view name,
                                                 std::uint64_t catalog_hash, std::span<const std::uint64_t> bytes,
                                                 std::span<const std::uint32_t> groups = {}) {
        RESIDENCY_ASSERT(groups.empty() || groups.size() == bytes.size(), "give a layer for each storage, or none");
        Writer writer{path, catalog_hash, bytes.size()};
        writer.file_.reset(std::fopen(path.c_str(), "wb"));
        if (!writer.file_) { return writer.failed("cannot be opened for writing"); }
        ContainerWriter container = writer.container();
        SectionWriter& section = container.section(detail::storages_tag);
        section.text(name);
        section.array(bytes);
        section.array(groups);
        if (auto put = writer.put(container); !put) { return put.error(); }
        return writer;
    }

    /// Error invalid_argument: a storage that there is not. Precondition: not finished.
    [[nodiscard]] Status try_step(std::span<const StorageId> storages, std::int64_t compute_ns = Trace::unknown) {
        for (const StorageId id : storages) {
            if (index(id) >= storage_count_) {
                return Error{ErrorKind::invalid_argument, "a trace of " + std::to_string(storage_count_) +
                                                              " storages has no storage " + std::to_string(index(id))};
            }
        }
        counts_.push_back(static_cast<std::uint32_t>(storages.size()));
        accesses_.insert(accesses_.end(), storages.begin(), storages.end());
        compute_ns_.push_back(compute_ns < 0 ? Trace::unknown : compute_ns);
        ++steps_;
        return accesses_.size() + counts_.size() >= detail::accesses_in_block ? flush() : Status{};
    }
    /// Completes the file. Precondition: not finished.
    [[nodiscard]] Status try_finish() {
        if (auto flushed = flush(); !flushed) { return flushed; }
        ContainerWriter last = container();
        SectionWriter& section = last.section(detail::done_tag);
        section.u64(steps_);
        section.u64(accesses_written_);
        if (auto put = this->put(last); !put) { return put; }
        if (std::fclose(file_.release()) != 0) { return failed("cannot be written"); }
        return {};
    }

private:
    Writer(std::string path, std::uint64_t catalog_hash, std::size_t storage_count)
        : path_{std::move(path)}, catalog_hash_{catalog_hash}, storage_count_{storage_count} {}

    [[nodiscard]] Error failed(const char* what) const {
        return {ErrorKind::io, residency::detail::quoted(path_) + ": " + what, FileLocation{path_, written_, {}, {}}};
    }
    [[nodiscard]] ContainerWriter container() const { return {ContainerKind::trace, format_version, catalog_hash_}; }
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
        SectionWriter& section = block.section(detail::steps_tag);
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
    residency::detail::FileHandle file_;
    std::uint64_t written_ = 0;  // bytes
    std::uint64_t steps_ = 0;
    std::uint64_t accesses_written_ = 0;
    std::vector<std::uint32_t> counts_;  // of the steps not yet written
    std::vector<StorageId> accesses_;
    std::vector<std::int64_t> compute_ns_;
};

/// Writes a whole trace. Blocks.
[[nodiscard]] inline Status try_save(const Trace& trace, const std::string& path) {
    auto writer = Writer::try_open(path, trace.name, trace.catalog_hash, trace.bytes, trace.groups);
    if (!writer) { return writer.error(); }
    for (std::size_t i = 0; i < trace.steps(); ++i) {
        if (auto put = writer->try_step(trace.step(i), trace.compute_ns[i]); !put) { return put; }
    }
    return writer->try_finish();
}
#if RESIDENCY_EXCEPTIONS
inline void save(const Trace& trace, const std::string& path) { unwrap(try_save(trace, path)); }
#endif

}  // namespace lab::trace
