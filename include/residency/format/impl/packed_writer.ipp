// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/packed_writer.hpp"
#include "residency/format/text.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// A file that appears under its name when it is whole. Removes what is not finished.
class FreshFile {
public:
    explicit FreshFile(std::string path) : path_{std::move(path)}, partial_{path_ + ".partial"} {}
    FreshFile(const FreshFile&) = delete;
    FreshFile& operator=(const FreshFile&) = delete;
    ~FreshFile() {
        if (fd_ >= 0) {
            ::close(fd_);
            ::unlink(partial_.c_str());
        }
    }

    /// Whether what try_create() and try_finish() replace is that file.
    [[nodiscard]] bool writes_over(const std::string& source) const noexcept {
        struct stat read{};
        if (::stat(source.c_str(), &read) != 0) { return false; }
        for (const std::string* target : {&path_, &partial_}) {
            struct stat there{};
            if (::stat(target->c_str(), &there) == 0 && read.st_dev == there.st_dev && read.st_ino == there.st_ino) {
                return true;
            }
        }
        return false;
    }

    [[nodiscard]] Status try_create() {
        struct stat there{};
        if (path_.find('\0') != std::string::npos) {
            return Error{ErrorKind::io, shown(path_) + ": a path cannot hold a zero byte",
                         FileLocation{path_, 0, {}, {}}};
        }
        if (::lstat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
            return Error{ErrorKind::io, shown(path_) + ": is there, and no regular file: name another one",
                         FileLocation{path_, 0, {}, {}}};
        }
        fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        return fd_ < 0 ? Status{failed(partial_, 0, "cannot be created")} : Status{};
    }
    [[nodiscard]] Status try_write(std::uint64_t offset, std::span<const std::byte> data) {
        while (!data.empty()) {
            const ssize_t done =
                ::pwrite(fd_, data.data(), (std::min)(data.size(), std::size_t{1} << 30), static_cast<off_t>(offset));
            if (done < 0) {
                if (errno == EINTR) { continue; }
                return failed(partial_, offset, "cannot be written");
            }
            data = data.subspan(static_cast<std::size_t>(done));
            offset += static_cast<std::uint64_t>(done);
        }
        return {};
    }
    /// Brings it to the disk, and then under its name.
    [[nodiscard]] Status try_finish() {
        if (::fsync(fd_) != 0) { return failed(partial_, 0, "cannot be written"); }
        const bool is_closed = ::close(std::exchange(fd_, -1)) == 0;
        if (is_closed && std::rename(partial_.c_str(), path_.c_str()) == 0) { return {}; }
        Error error = failed(path_, 0, is_closed ? "cannot be replaced" : "cannot be closed");
        ::unlink(partial_.c_str());
        return error;
    }

private:
    [[nodiscard]] static Error failed(const std::string& name, std::uint64_t offset, const std::string& what) {
        const int code = errno;
        return {ErrorKind::io,
                shown(name) + ": byte " + std::to_string(offset) + ": " + what + ": " +
                    std::generic_category().message(code),
                FileLocation{name, offset, {}, {}}};
    }

    std::string path_, partial_;
    int fd_ = -1;
};

using PackJob = codec::detail::PartJob;

/// The jobs of a model, in the order of the file. Error invalid_argument: a form that a weight cannot have.
[[nodiscard]] inline Result<std::vector<PackJob>> pack_jobs(const ModelFile& model, const PackOptions& options) {
    std::vector<std::optional<std::size_t>> first(model.storages.size());  // by storage: the first weight on it
    std::vector<PackedForm> forms(model.storages.size(), PackedForm::raw);
    for (std::size_t i = 0; i < model.weights.size(); ++i) {
        const ModelFile::WeightEntry& weight = model.weights[i];
        const PackedForm form = options.form ? options.form(weight) : codec::chunk_form(weight.type);
        const auto refused = [&](const std::string& why) {
            return Error{ErrorKind::invalid_argument, "weight " + shown(weight.name) + " cannot be packed as " +
                                                          codec::form_name(static_cast<std::uint32_t>(form)) + ": " +
                                                          why};
        };
        const auto is_taken = codec::takes(form, weight.type);
        if (!is_taken) { return refused("this library does not know the form"); }
        if (!*is_taken) {
            return refused("it is of type " + shown(weight.dtype) + ", which the form does not take; leave it raw");
        }
        const ModelFile::StorageEntry& storage = model.storages[weight.storage];
        if (form == PackedForm::bf16_tiles &&
            (weight.offset_bytes != 0 || weight.bytes != storage.bytes || !weight.strides.empty())) {
            return refused("it is not the whole of its storage, row by row; take bf16_tiers");
        }
        auto& known = first[weight.storage];
        if (!known) {
            known = i;
            forms[weight.storage] = form;
        } else if (form != forms[weight.storage] ||
                   (form == PackedForm::bf16_tiles && model.weights[*known].shape != weight.shape)) {
            // Views of one storage: a form for all of them, or raw.
            forms[weight.storage] = PackedForm::raw;
        }
    }
    std::vector<PackJob> jobs;
    for (std::uint32_t i = 0; i < model.storages.size(); ++i) {
        const Shape shape = first[i] ? model.weights[*first[i]].shape : Shape{};
        codec::detail::append_jobs(i, model.storages[i].bytes, forms[i], shape, jobs);
    }
    return jobs;
}

/// Packs jobs with several threads; next() gives the results in the order of the jobs. What is read and not yet taken stays below a
/// number of bytes, beside one job.
class PackThreads {
public:
    struct Packed {
        PackedPart part;
        std::vector<std::byte> bytes;
    };

    PackThreads(const std::vector<PackJob>& jobs, const ModelFile& model, const std::vector<host::WeightFile>& files)
        : jobs_{jobs}, model_{model}, files_{files}, results_(jobs.size()) {}
    PackThreads(const PackThreads&) = delete;
    PackThreads& operator=(const PackThreads&) = delete;
    ~PackThreads() {
        {
            const std::lock_guard lock{mutex_};
            is_over_ = true;
        }
        changed_.notify_all();
        threads_.join();
    }
    [[nodiscard]] Status try_start(unsigned threads) {
        return threads_.try_start_some((std::min<std::size_t>)(threads, (std::max<std::size_t>)(1, jobs_.size())),
                                       [this] { work(); });
    }
    /// Blocks until the job that follows the last one is packed, or `patience` has passed: then none. Error: the first of any job.
    [[nodiscard]] Result<std::optional<Packed>> try_next(std::chrono::milliseconds patience) {
        std::unique_lock lock{mutex_};
        changed_.wait_for(lock, patience, [&] { return error_ || results_[taken_]; });
        if (error_) { return *error_; }
        if (!results_[taken_]) { return std::optional<Packed>{}; }
        std::optional<Packed> packed = std::move(results_[taken_]);
        results_[taken_].reset();
        held_bytes_ -= jobs_[taken_++].bytes;
        lock.unlock();
        changed_.notify_all();
        return packed;
    }

private:
    static constexpr std::uint64_t most_held_bytes = std::uint64_t{512} << 20;

    void work() {
        std::vector<std::byte> raw, scratch;
        for (;;) {
            std::size_t turn = 0;
            {
                std::unique_lock lock{mutex_};
                changed_.wait(lock, [&] {
                    return is_over_ || error_ || next_ == jobs_.size() || held_bytes_ == 0 ||
                           held_bytes_ + jobs_[next_].bytes <= most_held_bytes;
                });
                if (is_over_ || error_ || next_ == jobs_.size()) { return; }
                turn = next_++;
                held_bytes_ += jobs_[turn].bytes;
            }
            const PackJob& job = jobs_[turn];
            const ModelFile::StorageEntry& storage = model_.storages[job.storage];
            raw.resize(static_cast<std::size_t>(job.bytes));
            Packed packed;
            Status done = files_[storage.file].try_read(storage.offset_bytes + job.offset, raw);
            if (done) {
                auto part = codec::try_pack_part(job.form, job.extents, raw, packed.bytes, scratch);
                if (part) {
                    packed.part = *part;
                } else {
                    done = part.error().in("storage " + std::to_string(job.storage));
                }
            }
            {
                const std::lock_guard lock{mutex_};
                if (!done && !error_) { error_ = done.error(); }
                if (done) { results_[turn] = std::move(packed); }
            }
            changed_.notify_all();
        }
    }

    const std::vector<PackJob>& jobs_;
    const ModelFile& model_;
    const std::vector<host::WeightFile>& files_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::vector<std::optional<Packed>> results_;
    std::size_t next_ = 0, taken_ = 0;  // jobs: the next to pack, the next to hand out
    std::uint64_t held_bytes_ = 0;
    std::optional<Error> error_;
    bool is_over_ = false;
    host::ThreadGroup threads_;
};

/// The index of a packed model file.
[[nodiscard]] inline std::vector<std::byte> packed_index(const ModelFile& model,
                                                         const std::vector<std::vector<PackedPart>>& parts) {
    ContainerWriter writer{ContainerKind::packed, packed_index_version, 0};
    SectionWriter& about = writer.section(section_tag("MODL"));
    about.text(model.format);
    about.u64(model.metadata.size());
    for (const ModelFile::Metadata& entry : model.metadata) {
        about.text(entry.key);
        about.text(entry.value);
    }
    std::vector<std::uint64_t> bytes;
    std::vector<std::uint32_t> counts, forms;
    std::vector<std::uint8_t> mutables;
    std::vector<std::uint64_t> fields[6];
    for (std::size_t i = 0; i < model.storages.size(); ++i) {
        bytes.push_back(model.storages[i].bytes);
        counts.push_back(static_cast<std::uint32_t>(parts[i].size()));
        mutables.push_back(model.storages[i].is_mutable ? 1 : 0);
        for (const PackedPart& part : parts[i]) {
            forms.push_back(static_cast<std::uint32_t>(part.form));
            const std::uint64_t values[6] = {part.raw_bytes, part.packed_bytes, part.offset_bytes,
                                             part.checksum,  part.rows,         part.columns};
            for (std::size_t k = 0; k < 6; ++k) { fields[k].push_back(values[k]); }
        }
    }
    SectionWriter& storages = writer.section(section_tag("STOR"));
    storages.array(bytes);
    storages.array(counts);
    storages.array(mutables);
    SectionWriter& section = writer.section(section_tag("PART"));
    section.array(forms);
    for (const auto& field : fields) { section.array(field); }
    SectionWriter& weights = writer.section(section_tag("WGHT"));
    weights.u64(model.weights.size());
    for (const ModelFile::WeightEntry& weight : model.weights) {
        weights.text(weight.name);
        weights.text(weight.dtype);
        weights.text(weight.type.name());
        weights.u32(weight.type.block_bits());
        weights.u32(weight.type.block_elements());
        weights.u32(weight.storage);
        weights.u64(weight.offset_bytes);
        weights.array(weight.shape);
        weights.array(weight.strides);
    }
    return writer.finish();
}

}  // namespace detail

RESIDENCY_INLINE Result<PackReport> try_write_packed(const ModelFile& model, const std::string& path,
                                                     const PackOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    for (const ModelFile::StorageEntry& storage : model.storages) {
        if (storage.parts != nullptr) {
            return Error{ErrorKind::invalid_argument,
                         "the model is packed already: pack the one that it was made from"};
        }
    }
    const auto jobs = detail::pack_jobs(model, options);
    if (!jobs) { return jobs.error(); }
    detail::FreshFile out{path};
    const auto is_written_over = [&](const SourceFile& file) { return out.writes_over(file.path); };
    std::vector<host::WeightFile> files;
    for (const SourceFile& file : model.files) {
        auto opened = host::WeightFile::try_open(file, host::FileAccess::cached);
        if (!opened) { return opened.error(); }
        // A file in pieces has the path of its first one.
        if (is_written_over(file) || std::any_of(file.pieces.begin(), file.pieces.end(), is_written_over)) {
            return Error{ErrorKind::invalid_argument,
                         detail::shown(path) + " is the model that is read: name another file"};
        }
        files.push_back(std::move(*opened));
    }
    if (Status created = out.try_create(); !created) { return created.error(); }

    PackReport report;
    report.raw_bytes = model.total_bytes();
    std::vector<std::vector<PackedPart>> parts(model.storages.size());
    std::uint64_t at = detail::packed_first_part, done_bytes = 0;
    const auto up = [](std::uint64_t offset) {
        return (offset + codec::packed_alignment_bytes - 1) / codec::packed_alignment_bytes *
               codec::packed_alignment_bytes;
    };
    const auto goes_on = [&] {
        return !options.progress || options.progress({done_bytes, report.packed_bytes, report.raw_bytes,
                                                      std::chrono::steady_clock::now() - start});
    };
    const auto cancelled = [&] {
        return Error{ErrorKind::cancelled, "packing was cancelled after " + std::to_string(done_bytes) + " of " +
                                               std::to_string(report.raw_bytes) +
                                               " bytes; nothing is left of the file"};
    };
    {
        detail::PackThreads threads{*jobs, model, files};
        const unsigned wanted =
            options.threads != 0 ? options.threads : (std::max)(1U, std::thread::hardware_concurrency());
        if (Status started = threads.try_start(wanted); !started) { return started.error(); }
        for (std::size_t i = 0; i < jobs->size();) {
            if (!goes_on()) { return cancelled(); }
            auto next = threads.try_next(std::chrono::milliseconds{50});
            if (!next) { return next.error(); }
            if (!*next) { continue; }
            PackedPart part = (*next)->part;
            part.offset_bytes = at;
            if (Status written = out.try_write(at, (*next)->bytes); !written) { return written.error(); }
            at = up(at + part.packed_bytes);
            done_bytes += part.raw_bytes;
            report.packed_bytes += part.packed_bytes;
            PackReport::Form& form = report.forms[part.form];
            ++form.parts;
            form.raw_bytes += part.raw_bytes;
            form.packed_bytes += part.packed_bytes;
            parts[(*jobs)[i++].storage].push_back(part);
        }
    }
    if (!goes_on()) { return cancelled(); }
    const std::vector<std::byte> index = detail::packed_index(model, parts);
    if (index.size() > detail::packed_most_index_bytes) {
        return Error{ErrorKind::unsupported, detail::shown(path) + ": the index of the model takes " +
                                                 std::to_string(index.size()) + " bytes; a packed file has room for " +
                                                 std::to_string(detail::packed_most_index_bytes)};
    }
    if (Status written = out.try_write(at, index); !written) { return written.error(); }
    report.file_bytes = at + index.size();
    std::vector<std::byte> front;
    for (const char c : detail::packed_magic) { front.push_back(static_cast<std::byte>(c)); }
    residency::detail::append_little_endian(front, detail::packed_version);
    residency::detail::append_little_endian(front, std::uint32_t{0});
    residency::detail::append_little_endian(front, at);
    residency::detail::append_little_endian(front, static_cast<std::uint64_t>(index.size()));
    residency::detail::append_little_endian(front, report.file_bytes);
    StableHash hash;
    hash.bytes(front);
    residency::detail::append_little_endian(front, hash.value());
    if (Status written = out.try_write(0, front); !written) { return written.error(); }
    if (Status finished = out.try_finish(); !finished) { return finished.error(); }
    report.elapsed = std::chrono::steady_clock::now() - start;
    return report;
}

}}}  // namespace residency::RESIDENCY_ABI::format
