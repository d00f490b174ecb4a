// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/view.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/number.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Where the index of a packed model file is.
struct PackedFront {
    std::uint64_t index_at = 0, index_bytes = 0;
};

[[nodiscard]] inline Result<PackedFront> read_packed_front(const Input& input) {
    const std::string& path = input.path();
    std::byte front[packed_front_bytes];
    if (input.bytes() < packed_front_bytes) {
        return malformed(path, input.bytes(), std::string{"the file ends inside its front: "} + cut_off,
                         residency::detail::in_bytes(input.bytes()), at_least(packed_front_bytes));
    }
    if (Status read = input.try_read(0, front); !read) { return read.error(); }
    const auto u32 = [&](std::size_t at) { return residency::detail::load_little_endian<std::uint32_t>(front + at); };
    const auto u64 = [&](std::size_t at) { return residency::detail::load_little_endian<std::uint64_t>(front + at); };
    if (std::memcmp(front, packed_magic, sizeof packed_magic) != 0) {
        return malformed(path, 0, "not a packed model file", "other bytes", "the magic of one");
    }
    if (u32(8) != packed_version) {
        return unsupported(path, 8,
                           "a packed model file of version " + std::to_string(u32(8)) +
                               "; this library reads version " + std::to_string(packed_version) +
                               ": pack the model again",
                           std::to_string(u32(8)), std::to_string(packed_version));
    }
    StableHash hash;
    hash.bytes(std::span{front}.first(40));
    if (u64(40) != hash.value()) { return malformed(path, 40, "the front was changed: its checksum is another"); }
    if (u64(32) != input.bytes()) {
        return malformed(path, 32, input.bytes() < u64(32) ? cut_off : "the file is longer than it says",
                         residency::detail::in_bytes(input.bytes()), residency::detail::in_bytes(u64(32)));
    }
    const PackedFront found{u64(16), u64(24)};
    if (found.index_bytes > packed_most_index_bytes || found.index_at < packed_front_bytes ||
        !residency::detail::lies_inside(found.index_at, found.index_bytes, input.bytes()) ||
        found.index_at + found.index_bytes != input.bytes()) {
        return malformed(path, 16, "the index does not lie at the end of the file");
    }
    return found;
}

/// Reads the sections of a packed model file's index in order.
class PackedIndexReader {
public:
    PackedIndexReader(const Input& input, const PackedFront& front, const ContainerReader& index)
        : input_{input}, front_{front}, index_{index} {}

    [[nodiscard]] Status read() {
        model_.format = "packed";
        model_.files.push_back(input_.source());
        if (Status read = read_metadata(); !read) { return read; }
        if (Status read = read_storages(); !read) { return read; }
        if (Status read = read_parts(); !read) { return read; }
        if (Status placed = place_storages(); !placed) { return placed; }
        if (Status read = read_weights(); !read) { return read; }
        return refuse_duplicates(model_, input_.path(), front_.index_at);
    }
    /// Complete after read().
    [[nodiscard]] ModelFile& model() noexcept { return model_; }

private:
    static constexpr std::uint64_t most_entries = std::uint64_t{1} << 26;

    [[nodiscard]] Status read_metadata() {
        SectionReader about = index_.section(section_tag("MODL"));
        model_.metadata.push_back({"residency.packed_from", about.text(1024)});
        const std::uint64_t keys = about.count(most_entries, 16);
        for (std::uint64_t i = 0; i < keys && about.ok(); ++i) {
            std::string key = about.text(UINT32_MAX);
            std::string value = about.text(UINT32_MAX);
            model_.metadata.push_back({std::move(key), std::move(value)});
        }
        for (const ModelFile::Metadata& entry : model_.metadata) {
            about.require(is_utf8(entry.key) && is_utf8(entry.value), "metadata that is not UTF-8", "UTF-8");
        }
        return about.finish();
    }
    [[nodiscard]] Status read_storages() {
        SectionReader storages = index_.section(section_tag("STOR"));
        storage_bytes_ = storages.array<std::uint64_t>(most_entries);
        part_counts_ = storages.array<std::uint32_t>(most_entries);
        mutables_ = storages.array<std::uint8_t>(most_entries);
        storages.require(part_counts_.size() == storage_bytes_.size() && mutables_.size() == storage_bytes_.size(),
                         "arrays of different lengths", "one entry a storage in each");
        return storages.finish();
    }
    [[nodiscard]] Status read_parts() {
        std::uint64_t counted = 0;
        for (const std::uint32_t parts : part_counts_) { counted += parts; }
        SectionReader section = index_.section(section_tag("PART"));
        forms_ = section.array<std::uint32_t>(most_entries);
        for (auto& field : fields_) { field = section.array<std::uint64_t>(most_entries); }
        for (const auto& field : fields_) {
            section.require(field.size() == forms_.size(), "arrays of different lengths", "one entry a part in each");
        }
        section.require(counted == forms_.size(), std::to_string(forms_.size()) + " parts",
                        std::to_string(counted) + ", as the storages have");
        return section.finish();
    }
    /// Appends the storages with their parts, which lie one behind the other.
    [[nodiscard]] Status place_storages() {
        std::size_t next = 0;                    // part
        std::uint64_t end = packed_front_bytes;  // of the parts so far
        for (std::size_t i = 0; i < storage_bytes_.size(); ++i) {
            auto parts = std::make_shared<std::vector<PackedPart>>();
            std::uint64_t left = storage_bytes_[i];
            for (std::uint32_t k = 0; k < part_counts_[i]; ++k, ++next) {
                const PackedPart part = part_of(next);
                if (Status good = check_part(part, next, i, left, end); !good) { return good; }
                left -= part.raw_bytes;
                end = part.offset_bytes + part.packed_bytes;
                parts->push_back(part);
            }
            if (left != 0) {
                return broken_part(next, i,
                                   "the parts lack the last " + residency::detail::in_bytes(left) + " of the storage");
            }
            if (mutables_[i] > 1) { return broken_part(next, i, "whether it is mutable is not 0 or 1"); }
            const std::uint64_t offset = parts->empty() ? packed_front_bytes : parts->front().offset_bytes;
            model_.storages.push_back({0, offset, storage_bytes_[i], mutables_[i] != 0, std::move(parts)});
        }
        return {};
    }
    [[nodiscard]] PackedPart part_of(std::size_t number) const {
        return {static_cast<PackedForm>(forms_[number]),
                fields_[0][number],
                fields_[1][number],
                fields_[2][number],
                fields_[3][number],
                fields_[4][number],
                fields_[5][number]};
    }
    /// `left`: bytes of the storage that the parts before leave. `end`: of the parts before in the file.
    [[nodiscard]] Status check_part(const PackedPart& part, std::size_t number, std::size_t storage, std::uint64_t left,
                                    std::uint64_t end) const {
        if (forms_[number] > static_cast<std::uint32_t>(PackedForm::f32_tiers)) {
            return unsupported(input_.path(), front_.index_at,
                               part_name(number, storage) + "it is packed as " + codec::form_name(forms_[number]) +
                                   ", which this library does not know");
        }
        if (part.raw_bytes > left) {
            return broken_part(number, storage, "the parts have more bytes than the storage");
        }
        if (part.offset_bytes < end || part.offset_bytes > front_.index_at ||
            part.packed_bytes > front_.index_at - part.offset_bytes) {
            return broken_part(number, storage, "its bytes do not lie behind the part before it and before the index");
        }
        if (part.packed_bytes > part.raw_bytes) {
            return broken_part(number, storage, "it takes more bytes than it stands for");
        }
        return {};
    }
    [[nodiscard]] static std::string part_name(std::size_t number, std::size_t storage) {
        return "part " + std::to_string(number) + ", of storage " + std::to_string(storage) + ": ";
    }
    [[nodiscard]] Error broken_part(std::size_t number, std::size_t storage, const std::string& what) const {
        return malformed(input_.path(), front_.index_at, part_name(number, storage) + what);
    }

    [[nodiscard]] Status read_weights() {
        SectionReader weights = index_.section(section_tag("WGHT"));
        const std::uint64_t count = weights.count(most_entries, 8);
        for (std::uint64_t i = 0; i < count && weights.ok(); ++i) {
            if (Status read = read_weight(weights); !read) { return read; }
        }
        return weights.finish();
    }
    /// Leaves the weight out where the section ends before it does, which finish() says.
    [[nodiscard]] Status read_weight(SectionReader& weights) {
        ModelFile::WeightEntry weight;
        weight.name = weights.text(65535);
        weight.dtype = weights.text(255);
        const std::string type = weights.text(DType::max_name_bytes);
        const std::uint32_t bits = weights.u32();
        const std::uint32_t elements = weights.u32();
        weight.storage = weights.u32();
        weight.offset_bytes = weights.u64();
        weight.shape = weights.array<std::uint64_t>(64);
        weight.strides = weights.array<std::uint64_t>(64);
        if (!weights.ok()) { return {}; }
        const auto broken = [&](const std::string& what) {
            return malformed(input_.path(), front_.index_at + weights.offset(),
                             "weight " + shown(weight.name) + ": " + what);
        };
        if (!is_utf8(weight.name) || !is_utf8(weight.dtype)) { return broken("a text is not UTF-8"); }
        if (const auto known = dtype::find(type); known && known->block_bits() == bits && elements == 1) {
            weight.type = *known;
        }
        if (weight.type == DType{}) {
            if (bits % 8 != 0) { return broken(unknown_type + (": found " + shown(type))); }
            const auto block = DType::try_block(type, bits / 8, elements);
            if (!block) { return broken(block.error().message()); }
            weight.type = *block;
        }
        if (weight.storage >= model_.storages.size()) { return broken("it lies in no storage of this file"); }
        if (!weight.strides.empty() && weight.strides.size() != weight.shape.size()) {
            return broken("its strides do not match its shape");
        }
        if (Status added = append_view(model_, weight); !added) { return broken(added.error().message()); }
        return {};
    }

    const Input& input_;
    PackedFront front_;
    const ContainerReader& index_;
    std::vector<std::uint64_t> storage_bytes_;  // by storage, as the next two
    std::vector<std::uint32_t> part_counts_;
    std::vector<std::uint8_t> mutables_;
    std::vector<std::uint32_t> forms_;      // by part, as the next one
    std::vector<std::uint64_t> fields_[6];  // of PackedPart, from raw_bytes on
    ModelFile model_;
};

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_packed(const Input& input) {
    const auto front = detail::read_packed_front(input);
    if (!front) { return front.error(); }
    std::vector<std::byte> index(static_cast<std::size_t>(front->index_bytes));
    if (Status read = input.try_read(front->index_at, index); !read) { return read.error(); }
    const std::string source = detail::shown(input.path()) + ", index at byte " + std::to_string(front->index_at);
    const auto container = ContainerReader::try_open(index, source);
    if (!container) { return container.error(); }
    if (Status fits = container->expect(ContainerKind::packed, detail::packed_index_version, 0); !fits) {
        return fits.error();
    }
    detail::PackedIndexReader reader{input, *front, *container};
    if (Status read = reader.read(); !read) { return read.error(); }
    return std::move(reader.model());
}

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
        if (Status valid = check_path(path_); !valid) { return valid; }
        if (::lstat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
            return Error{ErrorKind::io, shown(path_) + ": is there, and no regular file: name another one",
                         FileLocation{path_, 0, {}, {}}};
        }
        fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        return fd_ < 0 ? Status{system_error(partial_, 0, cannot_create)} : Status{};
    }
    [[nodiscard]] Status try_write(std::uint64_t offset, std::span<const std::byte> data) {
        while (!data.empty()) {
            const ssize_t done =
                ::pwrite(fd_, data.data(), (std::min)(data.size(), std::size_t{1} << 30), static_cast<off_t>(offset));
            if (done < 0) {
                if (errno == EINTR) { continue; }
                return system_error(partial_, offset, "cannot be written");
            }
            data = data.subspan(static_cast<std::size_t>(done));
            offset += static_cast<std::uint64_t>(done);
        }
        return {};
    }
    /// Brings it to the disk, and then under its name.
    [[nodiscard]] Status try_finish() {
        if (::fsync(fd_) != 0) { return system_error(partial_, 0, "cannot be written"); }
        const bool is_closed = ::close(std::exchange(fd_, -1)) == 0;
        if (is_closed && std::rename(partial_.c_str(), path_.c_str()) == 0) { return {}; }
        Error error = system_error(path_, 0, is_closed ? "cannot be replaced" : "cannot be closed");
        ::unlink(partial_.c_str());
        return error;
    }

private:
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
        return Error{ErrorKind::cancelled, "packing was cancelled after " + residency::detail::in_bytes(done_bytes) +
                                               " of " + residency::detail::in_bytes(report.raw_bytes) +
                                               "; nothing is left of the file"};
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
                                                 residency::detail::in_bytes(index.size()) +
                                                 "; a packed file has room for " +
                                                 residency::detail::in_bytes(detail::packed_most_index_bytes)};
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
