// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "residency/device/memory_limits.hpp"
#include "residency/error.hpp"
#include "residency/host/region.hpp"
#include "residency/host/thread_group.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed { namespace detail {

/// Host memory in ranges that are taken one after another, each of a size that is known only then. Threads touch the pages of the next ranges
/// beforehand, since the system makes a page more slowly than a device pins it.
class MemoryAhead {
public:
    MemoryAhead() = default;
    MemoryAhead(const MemoryAhead&) = delete;
    MemoryAhead& operator=(const MemoryAhead&) = delete;
    ~MemoryAhead() {
        {
            const std::lock_guard lock{mutex_};
            ends_ = true;
        }
        changed_.notify_all();
        threads_.join();
    }

    /// `most_bytes`: that each range can have. `share`: of it that the first one will probably have, up to 1. `node`: where pages are asked
    /// for. Error out_of_memory: no thread.
    [[nodiscard]] Status start(const std::vector<std::uint64_t>& most_bytes, double share, unsigned threads,
                               std::optional<unsigned> node = std::nullopt) {
        ranges_.reserve(most_bytes.size());
        for (const std::uint64_t bytes : most_bytes) { ranges_.push_back({bytes, {}, 0, 0}); }
        share_ = share;
        node_ = node;
        return threads_.try_start_some(threads, [this] { work(); });
    }
    /// The next range: its first `bytes` bytes, up to the most it was made for, with all pages there. Blocks. Error out_of_memory, also
    /// where a limit of the process leaves no room for it.
    [[nodiscard]] Result<std::shared_ptr<host::Region>> take(std::uint64_t bytes) {
        std::unique_lock lock{mutex_};
        Range& range = ranges_[taken_];
        if (Status mapped = map(range, bytes); !mapped) { return mapped.error(); }
        while (range.given_out < bytes) { touch_piece(range, bytes, lock); }
        ++taken_;
        next_ = (std::max)(next_, taken_);
        changed_.notify_all();
        changed_.wait(lock, [&] { return range.under_way == 0; });
        if (range.most_bytes != 0) { share_ = static_cast<double>(bytes) / static_cast<double>(range.most_bytes); }
        range.region->cut(static_cast<std::size_t>(bytes));
        return std::move(range.region);
    }

private:
    static constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;
    static constexpr std::size_t ranges_ahead = 2;

    struct Range {
        std::uint64_t most_bytes = 0;
        std::shared_ptr<host::Region> region{};  // null: not mapped yet, or taken
        std::uint64_t given_out = 0;             // bytes that are touched, or will be by a thread that has them
        unsigned under_way = 0;                  // pieces that a thread touches
    };

    /// For a range that will probably have so many bytes.
    [[nodiscard]] Status map(Range& range, std::uint64_t bytes) const {
        if (range.region != nullptr) { return {}; }
        if (Status room = host::read_memory_limits().check_room(bytes, "packed weights"); !room) { return room; }
        auto region = host::Region::try_map(range.most_bytes, true, node_);
        if (!region) { return region.error(); }
        range.region = std::move(*region);
        return {};
    }
    /// Touches the next piece of a range up to `end`, without the lock.
    void touch_piece(Range& range, std::uint64_t end, std::unique_lock<std::mutex>& lock) {
        constexpr std::uint64_t page_bytes = host::Region::page_bytes;
        const std::uint64_t first = range.given_out;  // whole pages
        const std::uint64_t last = (std::min)((end + page_bytes - 1) / page_bytes * page_bytes, first + piece_bytes);
        volatile std::byte* const at = range.region->data();
        range.given_out = last;
        ++range.under_way;
        lock.unlock();
        for (std::uint64_t page = first; page < last; page += page_bytes) { at[page] = std::byte{}; }
        lock.lock();
        if (--range.under_way == 0) { changed_.notify_all(); }
    }
    /// Whether there is something to touch: `next_` is its range then.
    [[nodiscard]] bool find_range() {
        for (; next_ < (std::min)(ranges_.size(), taken_ + ranges_ahead); ++next_) {
            if (ranges_[next_].given_out < probable_bytes(ranges_[next_])) { return true; }
        }
        return false;
    }
    [[nodiscard]] std::uint64_t probable_bytes(const Range& range) const noexcept {
        return static_cast<std::uint64_t>(share_ * static_cast<double>(range.most_bytes));
    }
    void work() {
        std::unique_lock lock{mutex_};
        for (;;) {
            changed_.wait(lock, [&] { return ends_ || find_range(); });
            if (ends_) { return; }
            Range& range = ranges_[next_];
            if (!map(range, probable_bytes(range))) { return; }  // take() will say why
            touch_piece(range, probable_bytes(range), lock);
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Range> ranges_;
    std::size_t taken_ = 0;  // ranges
    std::size_t next_ = 0;   // the first range that may have to be touched
    double share_ = 1;       // of the most bytes that a range probably has
    std::optional<unsigned> node_;
    bool ends_ = false;
    host::ThreadGroup threads_;
};

}}}}  // namespace residency::RESIDENCY_ABI::packed::detail
