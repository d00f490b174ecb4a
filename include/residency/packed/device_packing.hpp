// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/codec/task.hpp"
#include "residency/device/device.hpp"
#include "residency/device/memory_node.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/memory_ahead.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/transport/staged.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed { namespace detail {

/// A storage whose parts lie packed in pinned memory.
struct PlacedStorage {
    std::shared_ptr<const HostBytes> memory{};         ///< null: it does not get smaller
    std::uint64_t begin = 0, bytes = 0;                ///< in the memory
    std::shared_ptr<std::vector<PackedPart>> parts{};  ///< null as the memory is
};

/// Packs storages on a device while they are read. Raw bytes go to the device in batches, through a ring of pinned memory where they do not
/// lie in such memory; kernels pack a batch into cells of device memory, unpack it again and compare; and once all parts of some storages
/// are packed, memory of their size, which threads have touched before, is pinned, and they go there. Several batches are under way at once, so that both directions of
/// the link and the kernels work at the same time.
template <FlagDevice D>
class DevicePacking {
public:
    using Job = codec::detail::PartJob;

    /// `jobs`: the parts of the storages, all of those of a storage one after another, in forms that the packer takes. `progress`: told
    /// the raw bytes of each batch that was packed; false cancels.
    DevicePacking(D& device, const Packer<D>& packer, std::span<const Job> jobs,
                  const std::function<bool(std::uint64_t)>& progress)
        : device_{device}, packer_{packer}, jobs_{jobs}, progress_{progress} {}
    DevicePacking(const DevicePacking&) = delete;
    DevicePacking& operator=(const DevicePacking&) = delete;
    ~DevicePacking() {
        static_cast<void>(drain().has_value());
        if (!is_drained_) {
            transport_.abandon();
            // Copies may still write there: never given back.
            static_cast<void>(std::make_unique<decltype(held_)>(std::move(held_)).release());
        }
        transport_.close();
        for (Group& group : groups_) {
            if (group.sent) { static_cast<void>(device_.destroy_event(*group.sent).has_value()); }
        }
        for (Slot& slot : slots_) {
            if (slot.packed) { static_cast<void>(device_.destroy_event(*slot.packed).has_value()); }
            if (slot.stream) { static_cast<void>(device_.destroy_stream(*slot.stream).has_value()); }
        }
        if (back_) { static_cast<void>(device_.destroy_stream(*back_).has_value()); }
        if (control_ != nullptr && is_drained_) { static_cast<void>(device_.deallocate_host(control_).has_value()); }
        if (memory_ != nullptr && is_drained_) { static_cast<void>(device_.deallocate(memory_).has_value()); }
    }

    /// Blocks. Packs as many storages as go, in their order. Errors: whatever stopped it; cancelled, if `progress` did. What was packed
    /// before stays so: see placed().
    [[nodiscard]] Status run(const Catalog& catalog, unsigned threads) {
        if (jobs_.empty()) { return {}; }
        Status done = open(catalog, threads);
        if (done) { done = pack(); }
        Status drained = drain();
        if (!drained) { groups_placed_ = 0; }  // what was sent may not have arrived
        return done ? std::move(drained) : std::move(done);
    }
    /// Where each of the first storages is now, in the order of the jobs. The caller gets the memory with it.
    [[nodiscard]] std::vector<PlacedStorage> take_placed() {
        std::vector<PlacedStorage> placed;
        for (std::size_t g = 0; g < groups_placed_; ++g) {
            for (PlacedStorage& storage : groups_[g].storages) { placed.push_back(std::move(storage)); }
        }
        return placed;
    }

private:
    static constexpr std::size_t batch_jobs = 32;   // of one launch: 64 MiB raw
    static constexpr std::size_t most_slots = 6;    // batches under way
    static constexpr std::size_t group_jobs = 128;  // of storages that share pinned memory, at least
    static constexpr double usual_share = 0.7;      // of the raw bytes, of a first group

    /// A batch under way.
    struct Slot {
        std::optional<typename D::Stream> stream{};
        std::optional<typename D::Event> packed{};
        std::byte* raw = nullptr;                 // device memory, a cell a job
        std::byte* control = nullptr;             // device memory, as Control says
        std::byte* pinned = nullptr;              // the same on the host
        std::vector<codec::PackTask> tasks{};     // of the batch
        std::vector<transport::Fetch> fetches{};  // the same
    };
    /// Offsets in a slot's control memory.
    struct Control {
        static constexpr std::uint64_t differing = 0;
        static constexpr std::uint64_t results = sizeof(unsigned long long);
        static constexpr std::uint64_t tasks = results + batch_jobs * sizeof(codec::PackResult);
        static constexpr std::uint64_t workspace = (tasks + batch_jobs * sizeof(codec::PackTask) + 15) / 16 * 16;
    };
    /// Whole storages whose packed bytes go to one range of pinned memory.
    struct Group {
        std::size_t first = 0, last = 0;  // jobs
        std::vector<PlacedStorage> storages{};
        std::optional<typename D::Event> sent{};  // none where nothing was to be sent
    };

    [[nodiscard]] std::size_t batches() const noexcept { return (jobs_.size() + batch_jobs - 1) / batch_jobs; }
    [[nodiscard]] std::byte* cell(std::size_t job) const noexcept { return cells_ + job % cell_count_ * cell_bytes_; }

    /// Cuts the jobs into groups, takes memory, and starts the threads that read.
    [[nodiscard]] Status open(const Catalog& catalog, unsigned threads) {
        std::size_t widest = 0;
        std::vector<std::uint64_t> raw_bytes;  // of the groups
        for (std::size_t first = 0; first < jobs_.size();) {
            std::size_t last = first;
            while (last < jobs_.size() && last - first < group_jobs) {
                const std::uint32_t storage = jobs_[last].storage;
                while (last < jobs_.size() && jobs_[last].storage == storage) { ++last; }
            }
            groups_.push_back({first, last, {}, {}});
            raw_bytes.push_back(0);
            for (std::size_t j = first; j < last; ++j) { raw_bytes.back() += jobs_[j].bytes; }
            widest = (std::max)(widest, last - first);
            first = last;
        }
        for (const Job& job : jobs_) {
            cell_bytes_ = (std::max)(cell_bytes_, pool::round_up(job.bytes, codec::packed_alignment_bytes));
        }
        results_.resize(jobs_.size());
        const std::uint64_t control_bytes =
            pool::round_up(Control::workspace + packer_.workspace_bytes(batch_jobs), codec::packed_alignment_bytes);
        std::uint64_t raw_cells = 0;
        // Cells for the batches under way and for two groups, one that is packed and one that is sent; for fewer where there is no room.
        for (std::size_t count = (std::min)(most_slots, batches()), groups = 2; memory_ == nullptr;
             count = (count + 1) / 2, groups = 1) {
            raw_cells = count * batch_jobs;
            cell_count_ = (std::min)(jobs_.size(), groups * widest + raw_cells);
            auto memory = device_.allocate((raw_cells + cell_count_) * cell_bytes_ + count * control_bytes);
            if (memory) {
                memory_ = *memory;
                slots_.resize(count);
            } else if ((count == 1 && groups == 1) || memory.error().kind() != ErrorKind::out_of_memory) {
                return memory.error();
            }
        }
        auto control = device_.allocate_host(slots_.size() * Control::workspace);
        if (!control) { return control.error(); }
        control_ = *control;
        std::byte* at = static_cast<std::byte*>(memory_);
        cells_ = at + raw_cells * cell_bytes_;
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            Slot& slot = slots_[i];
            auto stream = device_.create_stream();
            if (!stream) { return stream.error(); }
            slot.stream = *stream;
            auto event = device_.create_event(Timing::off);
            if (!event) { return event.error(); }
            slot.packed = *event;
            slot.raw = at + i * batch_jobs * cell_bytes_;
            slot.control = cells_ + cell_count_ * cell_bytes_ + i * control_bytes;
            slot.pinned = static_cast<std::byte*>(control_) + i * Control::workspace;
        }
        auto back = device_.create_stream();
        if (!back) { return back.error(); }
        back_ = *back;

        CatalogBuilder storages;  // the transport opens these alone
        std::uint64_t staged_bytes = 0;
        for (std::size_t j = 0; j < jobs_.size(); ++j) {
            if (j == 0 || jobs_[j].storage != jobs_[j - 1].storage) {
                const Storage& storage = catalog.storages()[jobs_[j].storage];
                storages.add_storage(storage.bytes, {.source = storage.source});
                const auto* const host = std::get_if<HostSource>(&storage.source);
                if (host == nullptr || host->host->kind() != HostMemory::pinned) { staged_bytes += storage.bytes; }
            }
        }
        auto sources = storages.try_build();
        if (!sources) { return sources.error(); }
        transport::StagedConfig config;
        config.threads = threads;
        config.ring_bytes = std::clamp<std::uint64_t>(staged_bytes, config.slot_bytes, config.ring_bytes);
        const unsigned machine = (std::max)(1U, std::thread::hardware_concurrency());
        if (Status started = room_.start(raw_bytes, usual_share, std::clamp(machine / 2, 1U, 8U),
                                         residency::detail::memory_node_of(device_));
            !started) {
            return started;
        }
        transport_ = transport::Staged<D>{config};
        is_drained_ = false;
        return transport_.open(device_, *sources);
    }

    [[nodiscard]] Status pack() {
        for (std::size_t batch = 0; batch < batches(); ++batch) {
            const std::size_t last = (std::min)(jobs_.size(), (batch + 1) * batch_jobs);
            if (batch >= slots_.size()) {
                if (Status got = collect(batch - slots_.size() + 1); !got) { return got; }
            }
            // Its cells are free once the groups that lie there were sent.
            std::optional<typename D::Event> sent;
            for (std::size_t g = 0; g < groups_.size() && groups_[g].first + cell_count_ < last; ++g) {
                if (Status got = collect((groups_[g].last + batch_jobs - 1) / batch_jobs); !got) { return got; }
                if (groups_[g].sent) { sent = groups_[g].sent; }
            }
            if (Status begun = enqueue(slots_[batch % slots_.size()], batch * batch_jobs, last, sent); !begun) {
                return begun;
            }
        }
        return collect(batches());
    }

    [[nodiscard]] Status enqueue(Slot& slot, std::size_t first, std::size_t last,
                                 const std::optional<typename D::Event>& sent) {
        slot.tasks.clear();
        slot.fetches.clear();
        for (std::size_t j = first; j < last; ++j) {
            const Job& job = jobs_[j];
            if (j > 0 && job.storage != jobs_[j - 1].storage) { ++storage_; }
            std::byte* const raw = slot.raw + (j - first) * cell_bytes_;
            slot.fetches.push_back({StorageId{storage_}, job.offset, job.bytes, raw});
            slot.tasks.push_back({raw, cell(j), static_cast<std::uint32_t>(job.bytes),
                                  static_cast<std::uint32_t>(codec::packed_room_bytes(job.bytes)), job.form, 0});
        }
        const std::uint64_t bytes = std::span{slot.tasks}.size_bytes();
        std::byte* const pinned_tasks = slot.pinned + Control::tasks;
        if constexpr (requires { device_.host_write(pinned_tasks, bytes); }) {
            if (Status may = device_.host_write(pinned_tasks, bytes); !may) { return may; }
        }
        std::memcpy(pinned_tasks, slot.tasks.data(), static_cast<std::size_t>(bytes));
        const typename D::Stream stream = *slot.stream;
        if (Status done = transport_.enqueue(slot.fetches, stream); !done) { return done; }
        const Copy tasks{slot.control + Control::tasks, pinned_tasks, bytes};
        if (Status done = device_.copy({&tasks, 1}, stream); !done) { return done; }
        if (sent) {
            if (Status done = device_.wait(stream, *sent); !done) { return done; }
        }
        PackBatch batch;
        batch.tasks = slot.tasks;
        batch.on_device = reinterpret_cast<const codec::PackTask*>(slot.control + Control::tasks);
        batch.results = reinterpret_cast<codec::PackResult*>(slot.control + Control::results);
        batch.differing = reinterpret_cast<unsigned long long*>(slot.control + Control::differing);
        batch.workspace = slot.control + Control::workspace;
        if (Status done = packer_.enqueue(device_, batch, stream); !done) { return done; }
        const Copy results{slot.pinned, slot.control, Control::results + slot.tasks.size() * sizeof(codec::PackResult)};
        if (Status done = device_.copy({&results, 1}, stream); !done) { return done; }
        return device_.record(*slot.packed, stream);
    }

    /// Blocks until the first `count` batches are packed, and sends the groups that are complete with them.
    [[nodiscard]] Status collect(std::size_t count) {
        for (; collected_ < count; ++collected_) {
            const Slot& slot = slots_[collected_ % slots_.size()];
            if (Status done = device_.synchronize(*slot.packed); !done) { return done; }
            // A read that failed was noted before its bytes went on.
            if (Status read = transport_.status(); !read) { return read; }
            const std::size_t first = collected_ * batch_jobs, tasks = slot.tasks.size();
            const std::uint64_t bytes = Control::results + tasks * sizeof(codec::PackResult);
            if constexpr (requires { device_.host_read(slot.pinned, bytes); }) {
                if (Status may = device_.host_read(slot.pinned, bytes); !may) { return may; }
            }
            unsigned long long differing = 0;
            std::memcpy(&differing, slot.pinned + Control::differing, sizeof differing);
            if (differing != 0) {
                return Error{ErrorKind::mismatch,
                             "what the device unpacked is not what it packed: this is a fault of "
                             "the program or of the machine"};
            }
            std::memcpy(results_.data() + first, slot.pinned + Control::results, tasks * sizeof(codec::PackResult));
            std::uint64_t raw_bytes = 0;
            for (const codec::PackTask& task : slot.tasks) { raw_bytes += task.raw_bytes; }
            if (!progress_(raw_bytes)) { return Error{ErrorKind::cancelled, "packing was cancelled"}; }
            const std::size_t packed = first + tasks;
            for (; groups_placed_ < groups_.size() && groups_[groups_placed_].last <= packed; ++groups_placed_) {
                if (Status sent = send(groups_[groups_placed_]); !sent) { return sent; }
            }
        }
        return {};
    }

    /// Takes pinned memory for the storages of a group that get smaller, and sends their parts there.
    [[nodiscard]] Status send(Group& group) {
        std::uint64_t total = 0;
        for (std::size_t j = group.first; j < group.last;) {
            const std::uint32_t number = jobs_[j].storage;
            PlacedStorage storage{{}, total, 0, std::make_shared<std::vector<PackedPart>>()};
            std::uint64_t raw = 0;
            bool is_packed = false;
            for (; j < group.last && jobs_[j].storage == number; ++j) {
                const codec::PackResult& result = results_[j];
                PackedPart part;
                part.form = result.packed_bytes != 0 ? jobs_[j].form : PackedForm::raw;
                part.raw_bytes = jobs_[j].bytes;
                part.packed_bytes = result.packed_bytes != 0 ? result.packed_bytes : jobs_[j].bytes;
                part.offset_bytes = storage.bytes;
                part.checksum = result.checksum;
                storage.bytes += pool::round_up(part.packed_bytes, codec::packed_alignment_bytes);
                raw += part.raw_bytes;
                is_packed = is_packed || part.form != PackedForm::raw;
                storage.parts->push_back(part);
            }
            if (is_packed && storage.bytes < raw) {
                total += storage.bytes;
            } else {
                storage = {};
            }
            group.storages.push_back(std::move(storage));
        }
        auto region = room_.take(total);
        if (!region) { return region.error(); }
        if (total == 0) { return {}; }
        const auto memory = try_pin(device_, std::move(*region));
        if (!memory) { return memory.error(); }
        held_.push_back(memory->bytes);
        auto event = device_.create_event(Timing::off);
        if (!event) { return event.error(); }
        group.sent = *event;
        std::vector<Copy> copies;
        std::size_t job = group.first;
        for (PlacedStorage& storage : group.storages) {
            const std::uint32_t number = jobs_[job].storage;
            for (std::size_t part = 0; job < group.last && jobs_[job].storage == number; ++job, ++part) {
                if (storage.parts == nullptr) { continue; }
                const PackedPart& one = (*storage.parts)[part];
                std::byte* const to = memory->writable.data() + storage.begin + one.offset_bytes;
                copies.push_back({to, cell(job), one.packed_bytes});
                const std::uint64_t place = pool::round_up(one.packed_bytes, codec::packed_alignment_bytes);
                std::memset(to + one.packed_bytes, 0, static_cast<std::size_t>(place - one.packed_bytes));
            }
            if (storage.parts != nullptr) { storage.memory = memory->bytes; }
        }
        if (Status copied = device_.copy(copies, *back_); !copied) { return copied; }
        return device_.record(*event, *back_);
    }

    /// Blocks until the device is done with all that was enqueued.
    [[nodiscard]] Status drain() {
        if (is_drained_) { return {}; }
        Status drained;
        for (const Slot& slot : slots_) {
            if (slot.stream) { drained = drained ? await(*slot.stream) : std::move(drained); }
        }
        if (back_) { drained = drained ? await(*back_) : std::move(drained); }
        if (drained) {
            is_drained_ = true;
            held_.clear();
        }
        return drained;
    }
    /// A call that fails once is tried again.
    [[nodiscard]] Status await(typename D::Stream stream) {
        Status done = device_.synchronize(stream);
        return done ? std::move(done) : device_.synchronize(stream);
    }

    D& device_;
    const Packer<D>& packer_;
    std::span<const Job> jobs_;
    const std::function<bool(std::uint64_t)>& progress_;

    std::vector<Group> groups_;
    std::vector<codec::PackResult> results_;  // by job
    std::vector<Slot> slots_;
    std::optional<typename D::Stream> back_;  // on which packed bytes go to the host
    void* memory_ = nullptr;                  // of the device
    void* control_ = nullptr;                 // pinned
    std::byte* cells_ = nullptr;              // job j has cell j mod cell_count_
    std::size_t cell_count_ = 0;
    std::uint64_t cell_bytes_ = 0;  // of the largest job
    MemoryAhead room_;              // a range a group
    transport::Staged<D> transport_;
    bool is_drained_ = true;

    std::uint32_t storage_ = 0;  // of the transport: of the job that was enqueued last
    std::size_t collected_ = 0;  // batches
    std::size_t groups_placed_ = 0;
    std::vector<std::shared_ptr<const HostBytes>> held_;  // memory that copies may still write
};

}}}}  // namespace residency::RESIDENCY_ABI::packed::detail
