// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/conformance/gate.hpp"
#include "residency/device/device.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency::conformance {

/// How check_memory_pool runs.
struct MemoryPoolSuite {
    std::uint32_t seed = 1;          ///< of the first run
    std::uint32_t runs = 120;        ///< with other storages, another cap and another order each
    std::uint32_t operations = 100;  ///< in each run
    /// Whether free bytes may lie apart. The pool's floor then holds for one storage at a time, and for equal storages that fill the
    /// device's granules.
    bool fragments = false;
    std::uint64_t unit_bytes =
        0;  ///< storages have up to twelve times as many; 0: an eighth of the device's pool_granularity()
    std::uint64_t own_bytes = 0;                ///< device bytes that others may take or give back meanwhile
    std::chrono::milliseconds patience{20000};  ///< a call that has not returned by then counts as blocked
    /// Returns how many allocations there were. Empty: half of P2 is not checked.
    std::function<std::uint64_t()> allocations = nullptr;
};

namespace detail {

template <class D>
concept CountsReports = requires(const D d) { d.report_count(); };
/// A device that can be made to fail.
template <class D>
concept Breakable = requires(D d) {
    d.fail(D::CallKind::any, std::uint64_t{1});
    d.clear_failures();
    d.lose_device();
};

/// Brings storages to a pool and takes them away as a session does, in random order. Checks the contract after each call, and reads back
/// every byte that was written.
template <pool::MemoryPool P>
class PoolRun {
    using Device = typename P::Device;
    using Stream = typename Device::Stream;

    struct Held {
        std::uint64_t bytes = 0;
        std::uint64_t from = 0;   // its bytes, in source_
        std::byte* at = nullptr;  // null: not in the pool
        bool is_fixed = false;    // while the cap changes
    };

public:
    PoolRun(Device& device, const MemoryPoolSuite& suite, std::uint32_t seed)
        : device_{device}, suite_{suite}, random_{seed}, fragments_{suite.fragments} {
        granule_ = device.pool_granularity();
        const std::uint64_t unit =
            suite.unit_bytes != 0 ? suite.unit_bytes : (std::max)(granule_ / 8, std::uint64_t{1});
        is_tidy_ = below(3) == 0;
        const bool are_equal = is_tidy_ || below(3) == 0;
        const auto any = [&] { return 1 + below(below(4) == 0 ? 12 * unit : 3 * unit); };
        std::uint64_t bytes = is_tidy_ ? unit << below(3) : any();
        for (std::uint64_t count = 1 + below(14); count > 0; --count) {
            held_.push_back({bytes});
            if (!are_equal) { bytes = any(); }
        }
        step_ = 1 + static_cast<std::size_t>(below((std::min)(held_.size(), std::size_t{3})));
        for (Held& held : held_) {
            held.from = below(unit);
            sizes_.push_back(held.bytes);
            total_bytes_ += held.bytes;
        }
        std::ranges::sort(sizes_, std::greater{});
        requirements_.storages = sizes_;
        requirements_.step = std::span{sizes_}.first(step_);
        requirements_.largest_storage_bytes = sizes_.front();
        if (!is_tidy_ && below(3) == 0) {  // the larger ones are read by no step
            requirements_.largest_scheduled_bytes = sizes_[static_cast<std::size_t>(below(sizes_.size()))];
            fragments_ = fragments_ || requirements_.largest_scheduled_bytes < sizes_.front();
        }
        requirements_.largest_alignment_bytes = std::uint64_t{1} << below(9);

        source_bytes_ = 13 * unit;
        source_ = static_cast<std::byte*>(must(device_.allocate_host(source_bytes_)));
        for (std::uint64_t i = 0; i < source_bytes_; ++i) { source_[i] = static_cast<std::byte>(random_()); }
        back_bytes_ = 2 * total_bytes_;
        back_ = static_cast<std::byte*>(must(device_.allocate_host(back_bytes_)));
        copies_ = must(device_.create_stream());
        reader_ = must(device_.create_stream());
        event_ = must(device_.create_event(Timing::off));
        before_bytes_ = used_bytes();
    }
    PoolRun(const PoolRun&) = delete;
    PoolRun& operator=(const PoolRun&) = delete;
    ~PoolRun() {
        static_cast<void>(device_.synchronize().has_value());
        static_cast<void>(device_.destroy_event(event_).has_value());
        static_cast<void>(device_.destroy_stream(reader_).has_value());
        static_cast<void>(device_.destroy_stream(copies_).has_value());
        static_cast<void>(device_.deallocate_host(back_).has_value());
        static_cast<void>(device_.deallocate_host(source_).has_value());
    }

    void run(P& pool) {
        open(pool);
        for (std::uint32_t i = 0; i < suite_.operations && !failed_; ++i) {
            switch (below(8)) {
                case 0:
                case 1:
                case 2: bring(pool, some()); break;
                case 3:
                case 4: drop(pool, some()); break;
                case 5: read(held_[some()]); break;
                case 6:
                    if (below(3) == 0) { recover(pool); }
                    break;
                default:
                    if (below(2) == 0) { change(pool); }
            }
            if constexpr (pool::ResizablePool<P>) {
                if (is_changing_ && below(4) == 0) { finish_change(pool); }
            }
        }
        if constexpr (pool::ResizablePool<P>) {
            if (is_changing_) { finish_change(pool); }
        }
        empty(pool);
        expect_room(pool);
        close(pool);
    }

private:
    [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
    [[nodiscard]] std::size_t some() { return static_cast<std::size_t>(below(held_.size())); }
    /// The value of a Result. An error ends the test case, with its message.
    template <class T>
    static T must(Result<T> result) {
        if (!result) { FAIL(result.error().message()); }
        if constexpr (!std::is_void_v<T>) { return std::move(*result); }
    }
    void expect(bool holds, const char* rule) {
        if (!holds && !failed_) {
            failed_ = true;
            FAIL_CHECK(std::string{rule});
        }
    }
    [[nodiscard]] std::uint64_t used_bytes() {
        const MemoryInfo memory = must(device_.memory());
        return memory.total_bytes - memory.free_bytes;
    }
    [[nodiscard]] bool may_fail() const noexcept { return !fragments_ || is_tidy_; }

    /// Makes a call, sometimes once with a device that fails and then again. `unchanged`: the state that the failed call must leave as
    /// it was.
    template <class Call, class Unchanged>
    auto attempt(Call call, Unchanged unchanged) {
        if constexpr (Breakable<Device>) {
            if (below(3) == 0) {
                device_.fail(Device::CallKind::any, 1 + below(1 + below(4)));
                auto tried = call();
                device_.clear_failures();
                bool done = tried.has_value();
                if constexpr (requires { *tried == nullptr; }) { done = done && *tried != nullptr; }
                if (done) { return tried; }
                if (!tried) { unchanged(); }
            }
        }
        return call();
    }
    template <class Call>
    auto counted(const char* rule, Call call) {
        const std::uint64_t before = suite_.allocations ? suite_.allocations() : 0;
        auto result = call();
        const std::uint64_t after = suite_.allocations ? suite_.allocations() : 0;
        if (result) { expect(before == after, rule); }  // an error may carry text
        return result;
    }

    void expect_counts(const P& pool, const char* rule) {
        std::uint64_t requested = 0;
        for (const Held& held : held_) { requested += held.at != nullptr ? pool.occupied(held.bytes) : 0; }
        expect(pool.requested_bytes() == requested, rule);
        expect(pool.requested_bytes() == requested,
               "3, 8: requested_bytes() is what is handed out, as occupied() counts it");
        const std::uint64_t holds = pool.held_bytes();
        expect(requested <= holds, "8: what is handed out is held");
        expect(holds <= limit_, "P1, 5, 12: held_bytes() keeps to the cap; in a change to the larger of the two");
        const std::uint64_t used = used_bytes();
        const std::uint64_t least = before_bytes_ + holds;
        expect(used <= least + suite_.own_bytes && least <= used + suite_.own_bytes,
               "8: held_bytes() is what the driver counts");
        if constexpr (CountsReports<Device>) {
            expect(device_.report_count() == 0, "6, 7: memory is given, and reused, in the order of the stream");
        }
    }

    // The bytes of a storage, and who reads them.

    void write(const Held& held) {
        const Copy piece{held.at, source_ + held.from, held.bytes};
        must(device_.copy({&piece, 1}, copies_));
    }
    /// Reads on another stream, for which the copy stream waits in drop(). Reads the following storage too, if one copy may.
    void read(const Held& held) {
        if (held.at == nullptr) { return; }
        const Held* const next = P::one_range ? next_to(held) : nullptr;
        const std::uint64_t bytes = held.bytes + (next != nullptr ? next->bytes : 0);
        if (back_used_ + bytes > back_bytes_) { look(); }
        must(device_.record(event_, copies_));
        must(device_.wait(reader_, event_));
        const Copy piece{back_ + back_used_, held.at, bytes};
        const Status copied = device_.copy({&piece, 1}, reader_);
        expect(copied.has_value() || next == nullptr, "2: one copy may go from one storage into the next");
        if (!copied) { FAIL(copied.error().message()); }
        pending_.push_back({held.from, back_used_, held.bytes});
        if (next != nullptr) { pending_.push_back({next->from, back_used_ + held.bytes, next->bytes}); }
        back_used_ += bytes;
    }
    [[nodiscard]] const Held* next_to(const Held& held) const {
        const auto found = std::ranges::find(held_, held.at + held.bytes, &Held::at);
        return found != held_.end() ? &*found : nullptr;
    }
    void read_all() {
        for (const Held& held : held_) { read(held); }
        look();
    }
    void follow_reads() {
        must(device_.record(event_, reader_));
        must(device_.wait(copies_, event_));
    }
    /// Blocks until everything is over, then compares what was read.
    void look() {
        must(device_.synchronize());
        for (const Read& read : pending_) {
            expect(std::memcmp(back_ + read.back, source_ + read.from, read.bytes) == 0,
                   "6, 7, 12, P4: what is allocated keeps its bytes until it is deallocated");
        }
        pending_.clear();
        back_used_ = 0;
    }

    // The life of a storage.

    [[nodiscard]] std::byte* ask(P& pool, std::uint64_t bytes) {
        const std::uint64_t held = pool.held_bytes();
        const std::uint64_t requested = pool.requested_bytes();
        auto at = attempt(
            [&] {
                return counted("P2: allocate() allocates nothing of the host",
                               [&] { return pool.allocate(bytes, copies_); });
            },
            [&] {
                expect(pool.held_bytes() == held && pool.requested_bytes() == requested,
                       "P4: a failed allocate() changes nothing");
            });
        if (!at) {
            expect(false, "P3: exhaustion is a null address, never an error");
            return nullptr;
        }
        return static_cast<std::byte*>(*at);
    }
    void put(P& pool, Held& held, std::byte* at) {
        expect(reinterpret_cast<std::uintptr_t>(at) % requirements_.largest_alignment_bytes == 0,
               "5, 6: addresses have the alignment that was asked for");
        for (const Held& other : held_) {
            expect(
                &other == &held || other.at == nullptr || at + held.bytes <= other.at || other.at + other.bytes <= at,
                "6: no two allocations overlap");
        }
        held.at = at;
        expect_counts(pool, "6: an allocation is counted");
        expect(!is_changing_ || !must_move(pool, held), "12: in a change allocate() gives what may stay");
    }
    void release(P& pool, Held& held, std::byte* at) {
        const std::uint64_t holds = pool.held_bytes();
        const std::uint64_t requested = pool.requested_bytes();
        const Status done = attempt(
            [&] {
                return counted("P2: deallocate() allocates nothing of the host",
                               [&] { return pool.deallocate(at, held.bytes, copies_); });
            },
            [&] {
                expect(pool.held_bytes() == holds && pool.requested_bytes() == requested,
                       "P4: a failed deallocate() changes nothing");
            });
        expect(done.has_value(), "7, P4: deallocate() goes well, the second time too");
    }
    /// Whether it fits together with all that is there, by what the pool says.
    [[nodiscard]] bool has_to_fit(const P& pool, const Held& held) const {
        std::vector<std::uint64_t> together{held.bytes};
        for (const Held& other : held_) {
            if (other.at != nullptr) { together.push_back(other.bytes); }
        }
        pool::Requirements requirements = requirements_;
        requirements.step = together;
        return !is_changing_ && (may_fail() || together.size() == 1) && pool.floor_bytes(device_, requirements) <= cap_;
    }
    void bring(P& pool, std::size_t i) {
        Held& held = held_[i];
        if (held.at != nullptr) { return; }
        std::byte* at = ask(pool, held.bytes);
        if (at == nullptr && has_to_fit(pool, held)) {
            expect(fragments_, "4: what has room under the cap finds it");
            look();
            if constexpr (pool::RecoverablePool<P>) { must(pool.recover()); }
            at = ask(pool, held.bytes);
            expect(at != nullptr, "4, 11: after recover() what has room under the cap finds it");
        }
        if (at == nullptr) { return; }
        put(pool, held, at);
        write(held);
        if (below(2) == 0) { read(held); }
    }
    void drop(P& pool, std::size_t i) {
        Held& held = held_[i];
        if (held.at == nullptr || held.is_fixed) { return; }
        follow_reads();
        release(pool, held, std::exchange(held.at, nullptr));
        expect_counts(pool, "7: a deallocation is counted");
    }

    // The life of the pool.

    void open(P& pool) {
        const std::uint64_t floor = pool.floor_bytes(device_, requirements_);
        const std::uint64_t ceiling = pool::ceiling_bytes(pool, device_, requirements_);
        expect(0 < floor && floor <= ceiling, "4: the floor is not above the ceiling");
        const auto choice = below(3);
        cap_ = limit_ = choice == 0 ? floor : choice == 1 ? ceiling : floor + below(ceiling - floor + granule_);
        for (std::uint64_t nth = 1;; ++nth) {
            if constexpr (Breakable<Device>) { device_.fail(Device::CallKind::any, nth); }
            const Status opened = pool.open(device_, requirements_, cap_);
            if constexpr (Breakable<Device>) { device_.clear_failures(); }
            if (opened) { break; }
            if (!Breakable<Device> || nth > 1000) { FAIL(opened.error().message()); }
            expect(pool.requested_bytes() == 0 && used_bytes() <= before_bytes_ + suite_.own_bytes,
                   "P4: a failed open() holds nothing");
        }
        expect_counts(pool, "5: nothing is handed out yet");
        std::vector<std::uint64_t> taken;
        for (const Held& held : held_) {
            taken.push_back(pool.occupied(held.bytes));
            expect(taken.back() >= held.bytes, "3: an allocation takes at least its bytes");
        }
        std::ranges::sort(taken, std::greater{});
        const auto step = taken.begin() + static_cast<std::ptrdiff_t>(step_);
        expect(std::accumulate(taken.begin(), step, std::uint64_t{0}) <= floor,
               "3, 4: a step takes no more than the floor");
        expect(std::accumulate(taken.begin(), taken.end(), std::uint64_t{0}) <= ceiling,
               "3, 4: everything takes no more than the ceiling");
        expect_room(pool);
    }
    /// 4: checks what a cap promises of an empty pool: that the largest step fits, or that everything does.
    void expect_room(P& pool) {
        std::vector<Held*> order;
        for (Held& held : held_) { order.push_back(&held); }
        std::ranges::sort(order, std::greater{}, &Held::bytes);
        const bool is_all = cap_ >= pool::ceiling_bytes(pool, device_, requirements_) && may_fail();
        if (!is_all) { order.resize(may_fail() ? step_ : 1); }
        for (Held* const held : order) {
            bring(pool, static_cast<std::size_t>(held - held_.data()));
            expect(held->at != nullptr,
                   is_all ? "4: everything fits under the ceiling" : "4: a step fits under the floor");
        }
    }
    /// What is still there afterwards must not leave.
    void recover(P& pool) {
        for (std::size_t i = 0; i < held_.size(); ++i) {
            if (below(4) != 0) { drop(pool, i); }
        }
        look();
        if constexpr (pool::RecoverablePool<P>) {
            step(pool, "11: recover() goes well, the second time too", [&] { return pool.recover(); });
        }
        read_all();
        bring(pool, some());
    }
    /// Makes a step of a change, or of a recovery. It may fail half way, and is then called again and goes on from there.
    template <class Call>
    void step(P& pool, const char* rule, Call call) {
        const Status done =
            attempt(call, [&] { expect_counts(pool, "P4: after a failed call everything allocated is there"); });
        expect(done.has_value(), rule);
        expect_counts(pool, "11, 15, 16: nothing that is allocated is lost");
    }

    [[nodiscard]] std::vector<pool::Place> places() {
        std::vector<pool::Place> all;
        for (const Held& held : held_) {
            if (held.at != nullptr) { all.push_back({held.at, held.bytes, held.is_fixed}); }
        }
        std::ranges::shuffle(all, random_);
        return all;
    }
    /// Changes the cap. A pool that cannot be resized is emptied, closed and opened anew.
    void change(P& pool) {
        if constexpr (pool::ResizablePool<P>) {
            resize(pool);
        } else {
            close(pool);
            open(pool);
        }
    }
    void resize(P& pool)
        requires pool::ResizablePool<P>
    {
        for (Held& held : held_) { held.is_fixed = false; }
        if (below(2) == 0) {
            for (std::size_t i = 0; i < held_.size(); ++i) { bring(pool, i); }
        }
        const bool pins = below(2) == 0;
        for (Held& held : held_) { held.is_fixed = pins && held.at != nullptr && below(3) == 0; }
        const std::uint64_t floor = pool.floor_bytes(device_, requirements_);
        const std::uint64_t ceiling = pool::ceiling_bytes(pool, device_, requirements_);
        const std::uint64_t next =
            below(3) == 0 ? ceiling + granule_ * below(3) : floor + below(ceiling - floor + granule_);
        limit_ = (std::max)(limit_, next);
        const bool was_changing = std::exchange(is_changing_, true);
        const auto all = places();
        const Status resized = attempt([&] { return pool.resize(next, all); },
                                       [&] {
                                           expect_counts(pool, "P4: a failed resize() changes nothing");
                                           for (std::size_t i = 0; i < held_.size(); ++i) {
                                               expect(was_changing || !must_move(pool, held_[i]),
                                                      "P4: after a failed resize() nothing has to move");
                                           }
                                       });
        expect(resized.has_value(), "12, P4: resize() goes well, the second time too");
        cap_ = next;
        expect_counts(pool, "12: what is allocated stays where it is");
        if (below(2) == 0) { read_all(); }
        while (pool.is_over() && !failed_) {
            std::vector<std::size_t> left;
            for (std::size_t i = 0; i < held_.size(); ++i) {
                if (held_[i].at != nullptr && !held_[i].is_fixed) { left.push_back(i); }
            }
            expect(!left.empty(), "13: what is fixed needs no place");
            if (left.empty()) { return; }
            drop(pool, left[static_cast<std::size_t>(below(left.size()))]);
        }
        for (Held& held : held_) {
            if (!held.is_fixed && must_move(pool, held)) { move(pool, held, false); }
        }
        if (below(2) == 0) { bring(pool, some()); }
        commit(pool);
    }
    [[nodiscard]] static bool must_move([[maybe_unused]] const P& pool, const Held& held) {
        if constexpr (pool::ResizablePool<P>) { return held.at != nullptr && pool.must_move(held.at); }
        return false;
    }
    /// Unpins what was fixed: it moves or leaves, and the change is over.
    void finish_change(P& pool)
        requires pool::ResizablePool<P>
    {
        for (std::size_t i = 0; i < held_.size(); ++i) {
            Held& held = held_[i];
            held.is_fixed = false;
            if (!must_move(pool, held)) { continue; }
            if (below(2) == 0) {
                move(pool, held, true);
            } else {
                drop(pool, i);
            }
        }
        commit(pool);
    }
    void move(P& pool, Held& held, bool may_leave)
        requires pool::ResizablePool<P>
    {
        std::byte* to = ask(pool, held.bytes);
        if (to == nullptr) {
            look();
            step(pool, "15: reclaim() goes well, the second time too", [&] { return pool.reclaim(); });
            to = ask(pool, held.bytes);
        }
        if (to == nullptr) {
            expect(may_leave || fragments_, "13, 15: what is not over has a place for everything that has to move");
            drop(pool, static_cast<std::size_t>(&held - held_.data()));
            return;
        }
        follow_reads();
        const Copy piece{to, held.at, held.bytes};
        must(device_.copy({&piece, 1}, copies_));
        std::byte* const from = std::exchange(held.at, nullptr);
        release(pool, held, from);
        put(pool, held, to);
        read(held);
    }
    void commit(P& pool)
        requires pool::ResizablePool<P>
    {
        look();
        step(pool, "16: commit_resize() goes well, the second time too", [&] { return pool.commit_resize(); });
        is_changing_ = false;
        for (Held& held : held_) {
            if (!must_move(pool, held)) { continue; }
            expect(held.is_fixed, "16: after commit_resize() only what is fixed has still to move");
            is_changing_ = true;
        }
        if (!is_changing_) {
            limit_ = cap_;
            for (Held& held : held_) { held.is_fixed = false; }
            expect_counts(pool, "16: commit_resize() gives back what is above the cap");
        }
        read_all();
        if (!is_changing_ && below(2) == 0) {
            empty(pool);
            expect_room(pool);
        }
    }
    /// Takes everything away. Afterwards there is room as in a pool that was just opened, whatever came and went before.
    void empty(P& pool) {
        for (std::size_t i = 0; i < held_.size(); ++i) {
            held_[i].is_fixed = false;
            drop(pool, i);
        }
        look();
        if constexpr (pool::RecoverablePool<P>) {
            if (suite_.fragments) {
                must(pool.recover());
                expect(pool.held_bytes() == 0, "11: recover() gives back what is held without use");
            }
        }
    }
    void close(P& pool) {
        if constexpr (pool::ResizablePool<P>) {
            if (is_changing_) { finish_change(pool); }
        }
        read_all();
        empty(pool);
        if constexpr (requires { pool.try_close(); }) {
            if (random_() % 2 == 0) { must(pool.try_close()); }
        }
        pool.close();
        expect(
            pool.held_bytes() == 0 && pool.requested_bytes() == 0 && used_bytes() <= before_bytes_ + suite_.own_bytes,
            "9: close() gives everything back");
    }

    struct Read {
        std::uint64_t from = 0, back = 0, bytes = 0;
    };

    Device& device_;
    const MemoryPoolSuite& suite_;
    std::mt19937_64 random_;
    std::uint64_t granule_ = 0;
    bool is_tidy_ = false;  // storages fill whole granules
    bool fragments_ = false;
    std::vector<Held> held_;
    std::size_t step_ = 1;
    std::vector<std::uint64_t> sizes_;  // largest first
    std::uint64_t total_bytes_ = 0;
    pool::Requirements requirements_;  // refers to sizes_
    std::byte* source_ = nullptr;
    std::byte* back_ = nullptr;
    std::uint64_t source_bytes_ = 0, back_bytes_ = 0, back_used_ = 0;
    std::vector<Read> pending_;
    Stream copies_{}, reader_{};
    typename Device::Event event_{};
    std::uint64_t before_bytes_ = 0;
    std::uint64_t cap_ = 0;
    std::uint64_t limit_ = 0;  // the cap; during a change, the larger of the two
    bool is_changing_ = false;
    bool failed_ = false;
};

/// 4: of equal storages that are rounded up as far as possible, no smaller cap holds the largest step, or all of them.
template <pool::MemoryPool P>
void check_floor_is_needed(typename P::Device& device, const MemoryPoolSuite& suite, P& pool) {
    const std::uint64_t bytes = device.pool_granularity() / 4 + 1;
    const std::uint64_t storages = suite.fragments ? 1 : 7;
    for (const std::uint64_t step : {std::uint64_t{1}, (storages + 1) / 2, storages}) {
        const std::vector<std::uint64_t> sizes(static_cast<std::size_t>(storages), bytes);
        const pool::Requirements requirements{sizes, std::span{sizes}.first(static_cast<std::size_t>(step)), bytes, 1};
        const std::uint64_t floor = pool.floor_bytes(device, requirements);
        auto stream = device.create_stream();
        REQUIRE(stream.has_value());
        REQUIRE_MESSAGE(pool.open(device, requirements, floor).has_value(), "5: the floor is enough");
        std::vector<void*> places;
        for (std::uint64_t i = 0; i < step; ++i) {
            const auto at = pool.allocate(bytes, *stream);
            REQUIRE_MESSAGE((at.has_value() && *at != nullptr), "4: a step fits under the floor");
            places.push_back(*at);
        }
        CHECK_MESSAGE(pool.held_bytes() == floor, "4: floor and ceiling are the smallest that will do");
        for (void* const at : places) { REQUIRE(pool.deallocate(at, bytes, *stream).has_value()); }
        REQUIRE(device.synchronize().has_value());
        pool.close();
        REQUIRE(device.destroy_stream(*stream).has_value());
    }
}

/// 3: as many of the smallest storages fit as occupied() says, up to 4,096.
template <pool::MemoryPool P>
void check_occupied(typename P::Device& device, P& pool) {
    const std::uint64_t storages = (std::min)(device.pool_granularity(), std::uint64_t{4096});
    const std::vector<std::uint64_t> sizes(static_cast<std::size_t>(storages), 1);
    const pool::Requirements requirements{sizes, std::span{sizes}.first(1), 1, 1};
    const std::uint64_t cap = pool.floor_bytes(device, requirements);
    auto stream = device.create_stream();
    REQUIRE(stream.has_value());
    REQUIRE(pool.open(device, requirements, cap).has_value());
    std::vector<void*> places;
    while (places.size() < storages) {
        const auto at = pool.allocate(1, *stream);
        REQUIRE_MESSAGE(at.has_value(), "P3: exhaustion is a null address, never an error");
        if (*at == nullptr) { break; }
        places.push_back(*at);
    }
    const std::uint64_t each = pool.occupied(1);
    CHECK_MESSAGE((places.size() * each <= cap && (places.size() == storages || (places.size() + 1) * each > cap)),
                  "3: an allocation takes of the cap what occupied() says");
    for (void* const at : places) { REQUIRE(pool.deallocate(at, 1, *stream).has_value()); }
    REQUIRE(device.synchronize().has_value());
    pool.close();
    REQUIRE(device.destroy_stream(*stream).has_value());
}

/// P2: storages come and go while the stream is held back.
template <pool::MemoryPool P>
void check_nothing_blocks(typename P::Device& device, const MemoryPoolSuite& suite, P& pool) {
    if constexpr (FlagDevice<typename P::Device>) {
        const std::uint64_t bytes = (device.pool_granularity() + 3) / 4;
        const std::vector<std::uint64_t> sizes(8, bytes);
        const pool::Requirements requirements{sizes, std::span{sizes}.first(1), bytes, 1};
        auto stream = device.create_stream();
        REQUIRE(stream.has_value());
        REQUIRE(pool.open(device, requirements, pool::ceiling_bytes(pool, device, requirements)).has_value());
        {
            Gate<typename P::Device> gate{device, *stream, suite.patience};
            for (int round = 0; round < 3; ++round) {
                std::vector<void*> places;
                for (std::uint64_t i = 0; i < 8; ++i) {
                    const auto at = pool.allocate(bytes, *stream);
                    REQUIRE(at.has_value());
                    if (*at != nullptr) { places.push_back(*at); }
                }
                CHECK_MESSAGE(!places.empty(), "4, 6: what was deallocated in the order of the stream has room again");
                for (void* const at : places) { REQUIRE(pool.deallocate(at, bytes, *stream).has_value()); }
            }
            CHECK_MESSAGE(gate.open(), "P2: allocate() and deallocate() do not block");
        }
        pool.close();
        REQUIRE(device.destroy_stream(*stream).has_value());
    }
}

/// 10: abandons a pool on a device that is lost.
template <pool::MemoryPool P>
void check_abandon(const std::function<std::unique_ptr<P>()>& make) {
    using Device = typename P::Device;
    if constexpr (Breakable<Device> && std::is_default_constructible_v<Device>) {
        std::optional<Device> device{std::in_place};
        if constexpr (requires { device->expect_leaks(); }) { device->expect_leaks(); }
        {
            const std::unique_ptr<P> made = make();
            P& pool = *made;
            const std::uint64_t bytes = device->pool_granularity();
            const std::vector<std::uint64_t> sizes(4, bytes);
            const pool::Requirements requirements{sizes, std::span{sizes}.first(1), bytes, 1};
            REQUIRE(pool.open(*device, requirements, pool::ceiling_bytes(pool, *device, requirements)).has_value());
            auto stream = device->create_stream();
            REQUIRE(stream.has_value());
            REQUIRE(pool.allocate(bytes, *stream).has_value());
            device->lose_device();
            const auto calls = device->statistics().calls;
            pool.abandon();
            CHECK_MESSAGE((pool.held_bytes() == 0 && pool.requested_bytes() == 0), "10: abandon() forgets everything");
            pool.close();
            CHECK_MESSAGE(device->statistics().calls == calls,
                          "10: abandon() makes no call of the device, nor does what follows");
        }
    }
}

}  // namespace detail

/// Checks the expressions and the rules P1–P4 of pool::MemoryPool on random runs, and those of RecoverablePool and ResizablePool if the
/// pool models them. Reports through doctest, with the seed of the run. `make` returns a pool as a user would configure it. On a
/// SimulatedDevice every access is checked, and some calls are made to fail.
///
///     TEST_CASE("my pool") {
///         SimulatedDevice device;
///         residency::conformance::check_memory_pool<MyPool<SimulatedDevice>>(device);
///     }
template <pool::MemoryPool P>
void check_memory_pool(
    typename P::Device& device, const MemoryPoolSuite& suite = {},
    const std::function<std::unique_ptr<P>()>& make = [] { return std::make_unique<P>(typename P::Config{}); }) {
    static_assert(std::is_default_constructible_v<typename P::Config>, "1: a pool's knobs have defaults");
    std::unique_ptr<P> pool = make();
    detail::check_floor_is_needed(device, suite, *pool);
    detail::check_occupied(device, *pool);
    detail::check_nothing_blocks(device, suite, *pool);
    detail::check_abandon<P>(make);
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run;
        CAPTURE(seed);
        if (run % 4 != 3) { pool = make(); }  // otherwise a pool that was open before
        detail::PoolRun<P>{device, suite, seed}.run(*pool);
    }
}

}  // namespace residency::conformance
