// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/trace_writer.hpp"

namespace lab::trace {

using namespace residency;

/// Reads a trace block by block; holds one block of steps at a time. Every call may block on the file.
class Reader {
public:
    struct Step {
        std::span<const StorageId> storages;  ///< valid until the next call
        std::int64_t compute_ns = Trace::unknown;
    };

    /// Errors: io, or malformed with the place in the file.
    [[nodiscard]] static Result<Reader> try_open(const std::string& path) {
        auto file = residency::detail::open_regular_file(path);
        if (!file) { return file.error(); }
        return try_from(std::move(*file), path);
    }
    /// From an open file, such as one in memory; `source` names it in messages. Errors as above. Precondition: it is open.
    [[nodiscard]] static Result<Reader> try_from(residency::detail::FileHandle file, const std::string& source) {
        Reader reader{source};
        reader.file_ = std::move(file);
        std::vector<std::byte> block;
        auto container = reader.next_block(block);
        if (!container) { return container.error(); }
        SectionReader section = container->section(residency::detail::trace_storages_tag);
        reader.head_.name = section.text(UINT32_MAX);
        reader.head_.catalog_hash = reader.catalog_hash_;
        reader.head_.bytes = section.array<std::uint64_t>(UINT32_MAX);
        reader.head_.groups = section.array<std::uint32_t>(UINT32_MAX);
        section.require(reader.head_.groups.empty() || reader.head_.groups.size() == reader.head_.bytes.size(),
                        std::to_string(reader.head_.groups.size()) + " layers", "one a storage, or none");
        if (auto read = section.finish(); !read) { return read.error(); }
        return reader;
    }

    /// Name, storages and layers; without steps.
    [[nodiscard]] const Trace& head() const noexcept { return head_; }
    /// The next step. False: there are no more, and the file is complete. An error: malformed or cut off, or io.
    [[nodiscard]] Result<bool> try_next(Step& step) {
        while (position_ == counts_.size()) {
            if (is_done_) { return false; }
            if (auto read = read_steps(); !read) { return read.error(); }
        }
        step = {std::span{accesses_}.subspan(first_access_, counts_[position_]), compute_ns_[position_]};
        first_access_ += counts_[position_++];
        return true;
    }

private:
    explicit Reader(std::string path) : path_{std::move(path)} {}

    [[nodiscard]] Error cut_off(std::uint64_t offset, std::string found, std::string expected) const {
        return {ErrorKind::malformed,
                residency::detail::quoted(path_) + " at byte " + std::to_string(offset) + ": found " + found +
                    ", expected " + expected,
                FileLocation{path_, offset, std::move(found), std::move(expected)}};
    }
    [[nodiscard]] Result<ContainerReader> next_block(std::vector<std::byte>& block) {
        constexpr std::uint64_t largest_block_bytes = std::uint64_t{1} << 32;
        constexpr std::size_t header = residency::detail::container_header_bytes;
        block.resize(header);
        const std::size_t got = std::fread(block.data(), 1, header, file_.get());
        if (got != header) { return cut_off(offset_ + got, "the end of the file", "another block"); }
        const auto bytes = residency::detail::load_little_endian<std::uint64_t>(block.data() + 24);
        if (bytes < header || bytes > largest_block_bytes) {
            return cut_off(offset_ + 24, "a block of " + std::to_string(bytes) + " bytes",
                           std::to_string(header) + " to " + std::to_string(largest_block_bytes));
        }
        // In pieces: a length that the file does not have must not be allocated.
        constexpr std::size_t piece = std::size_t{1} << 20;
        while (block.size() < bytes) {
            const std::size_t had = block.size();
            block.resize((std::min)(static_cast<std::size_t>(bytes), had + piece));
            const std::size_t more = std::fread(block.data() + had, 1, block.size() - had, file_.get());
            if (more != block.size() - had) {
                return cut_off(offset_ + had + more, "the end of the file", "more of a block");
            }
        }
        const std::string source = residency::detail::quoted(path_) + ", block at byte " + std::to_string(offset_);
        auto container = ContainerReader::try_open(block, source);
        if (!container) { return container.error(); }
        if (offset_ == 0) { catalog_hash_ = container->catalog_hash(); }
        if (auto fits = container->expect(ContainerKind::trace, trace_file_version, catalog_hash_); !fits) {
            return fits.error();
        }
        offset_ += bytes;
        return container;
    }
    [[nodiscard]] Status read_steps() {
        auto container = next_block(block_);
        if (!container) { return container.error(); }
        counts_.clear();
        position_ = first_access_ = 0;
        if (container->has(residency::detail::trace_done_tag)) {
            SectionReader section = container->section(residency::detail::trace_done_tag);
            const std::uint64_t steps = section.u64();
            const std::uint64_t accesses = section.u64();
            section.require(steps == steps_ && accesses == accesses_read_,
                            std::to_string(steps) + " steps and " + std::to_string(accesses) + " accesses",
                            std::to_string(steps_) + " and " + std::to_string(accesses_read_));
            if (auto read = section.finish(); !read) { return read; }
            if (std::fgetc(file_.get()) != EOF) { return cut_off(offset_, "more bytes", "the end of the file"); }
            is_done_ = true;
            return {};
        }
        SectionReader section = container->section(residency::detail::trace_steps_tag);
        const std::uint64_t first = section.u64();
        section.require(first == steps_, "step " + std::to_string(first), "step " + std::to_string(steps_));
        counts_ = section.array<std::uint32_t>(UINT32_MAX);
        accesses_ = section.array<StorageId>(UINT32_MAX);
        compute_ns_ = section.array<std::int64_t>(UINT32_MAX);
        std::uint64_t sum = 0;
        for (const std::uint32_t count : counts_) { sum += count; }
        section.require(!counts_.empty() && sum == accesses_.size() && compute_ns_.size() == counts_.size(),
                        std::to_string(counts_.size()) + " steps of " + std::to_string(sum) + " accesses with " +
                            std::to_string(accesses_.size()) + " storages and " + std::to_string(compute_ns_.size()) +
                            " times",
                        "as many of each, and at least one step");
        const std::size_t storages = head_.bytes.size();
        section.require(
            std::all_of(accesses_.begin(), accesses_.end(), [&](StorageId id) { return index(id) < storages; }),
            "a storage that there is not", "ids below " + std::to_string(storages));
        section.require(std::all_of(compute_ns_.begin(), compute_ns_.end(), [](std::int64_t ns) { return ns >= -1; }),
                        "a negative duration", "nanoseconds, or -1 for unknown");
        if (auto read = section.finish(); !read) {
            counts_.clear();
            return read;
        }
        steps_ += counts_.size();
        accesses_read_ += accesses_.size();
        return {};
    }

    std::string path_;
    residency::detail::FileHandle file_;
    std::uint64_t offset_ = 0;
    std::uint64_t catalog_hash_ = 0;
    Trace head_;
    std::vector<std::byte> block_;
    std::vector<std::uint32_t> counts_;
    std::vector<StorageId> accesses_;
    std::vector<std::int64_t> compute_ns_;
    std::size_t position_ = 0;
    std::size_t first_access_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t accesses_read_ = 0;
    bool is_done_ = false;
};

/// Reads all that is left of a trace. Blocks.
[[nodiscard]] inline Result<Trace> try_load(Reader reader, const std::string& source) {
    Trace trace = reader.head();
    for (Reader::Step step;;) {
        const auto more = reader.try_next(step);
        if (!more) { return more.error(); }
        if (!*more) { break; }
        trace.add_step(step.storages, step.compute_ns);
    }
    if (auto fits = trace.try_check_sums(source); !fits) { return fits.error(); }
    return trace;
}
/// Reads a whole trace. Blocks.
[[nodiscard]] inline Result<Trace> try_load(const std::string& path) {
    auto reader = Reader::try_open(path);
    if (!reader) { return reader.error(); }
    return try_load(std::move(*reader), path);
}
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline Trace load(const std::string& path) { return unwrap(try_load(path)); }
#endif

}  // namespace lab::trace
