// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/conformance/gate.hpp"
#include "residency/device/device.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency::conformance {

/// A catalog, the bytes of its storages, and whatever must outlive the transport.
struct TransportModel {
    Catalog catalog;                               ///< of the storages
    std::vector<std::vector<std::byte>> contents;  ///< the bytes of each storage
    std::shared_ptr<void> owner;                   ///< of what lives as long as the transport
};

/// How check_transport_policy runs.
template <Device D>
struct TransportSuite {
    std::uint32_t seed = 1;                     ///< of the first run
    std::uint32_t runs = 20;                    ///< with another model each
    std::uint32_t operations = 100;             ///< in each run
    std::uint64_t target_bytes = 65536;         ///< of device memory, for arrivals
    std::chrono::milliseconds patience{20000};  ///< a call that has not returned by then counts as blocked
    /// Returns how many allocations there were. Empty: T2 is not checked.
    std::function<std::uint64_t()> allocations{};
    std::function<TransportModel(D&, std::uint32_t seed)> model{};  ///< empty: storages side by side in pinned memory
    std::function<void()> spoil{};  ///< makes every source unreadable; empty: half of 7 is not checked
};

/// A model of storages of up to 6,000 bytes, some of them empty, in two blocks of host memory without gaps.
template <Device D>
TransportModel host_model(D& device, std::uint32_t seed, HostMemory kind) {
    std::mt19937 random{seed};
    TransportModel model;
    CatalogBuilder builder;
    for (int block = 0; block < 2; ++block) {
        std::vector<std::size_t> sizes;
        std::size_t total = 1;
        for (int i = 0; i < 8; ++i) {
            sizes.push_back(random() % 8 == 0 ? 0 : 1 + random() % 6000);
            total += sizes.back();
        }
        std::vector<std::byte> bytes(total);
        for (std::byte& byte : bytes) { byte = static_cast<std::byte>(random()); }
        std::size_t offset = 0;
        for (const std::size_t size : sizes) {
            const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
            model.contents.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
            offset += size;
        }
        std::shared_ptr<const HostBytes> host;
        if (kind == HostMemory::pinned) {
            auto memory = device.allocate_host(total);
            REQUIRE(memory.has_value());
            std::memcpy(*memory, bytes.data(), total);
            host = HostBytes::adopt(static_cast<std::byte*>(*memory), total, kind, [&device](std::byte* at) {
                static_cast<void>(device.deallocate_host(at).has_value());
            });
        } else {
            host = HostBytes::own(std::move(bytes));
        }
        offset = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            builder.add("w" + std::to_string(8 * block + static_cast<int>(i)), dtype::u8, {sizes[i]},
                        HostSource{host, offset});
            offset += sizes[i];
        }
    }
    auto catalog = builder.try_build();
    REQUIRE(catalog.has_value());
    model.catalog = *catalog;
    return model;
}

namespace detail {

/// Makes random calls of one transport. After each call, in the order of the stream, it compares all bytes on the device with the bytes
/// that should be there.
template <class T, Device D>
    requires transport::TransportPolicy<T, D>
class TransportRun {
    using Fetches = std::vector<transport::Fetch>;
    static constexpr bool reads_ahead = requires(T t, const Fetches& fetches) {
        { t.read_ahead(fetches) } -> std::same_as<bool>;
        t.forget_ahead();
    };
    static constexpr bool pauses = requires(T t, std::span<const StorageId> storages) {
        { t.pause(storages) } -> std::same_as<Status>;
        { t.sources_changed(storages) } -> std::same_as<Status>;
    };
    static constexpr bool breaks = requires(D d) {
        d.fail(D::CallKind::any, std::uint64_t{1});
        d.clear_failures();
    };
    static constexpr bool shows_pieces = requires(D d) { d.take_pieces(); };
    static constexpr bool has_status = requires(const T t) {
        { t.status() } -> std::same_as<Status>;
    };

public:
    TransportRun(D& device, const TransportSuite<D>& suite, std::uint32_t seed)
        : device_{device},
          suite_{suite},
          random_{seed},
          target_{static_cast<std::byte*>(must(device.allocate(suite.target_bytes)))},
          back_{static_cast<std::byte*>(must(device.allocate_host(2 * suite.target_bytes)))},
          stream_{must(device.create_stream())},
          expected_(static_cast<std::size_t>(suite.target_bytes), std::byte{0}) {
        must(device_.fill(target_, std::byte{0}, suite.target_bytes, stream_));
        must(device_.synchronize(stream_));
    }
    TransportRun(const TransportRun&) = delete;
    TransportRun& operator=(const TransportRun&) = delete;
    ~TransportRun() {
        static_cast<void>(device_.synchronize().has_value());
        static_cast<void>(device_.destroy_stream(stream_).has_value());
        static_cast<void>(device_.deallocate_host(back_).has_value());
        static_cast<void>(device_.deallocate(target_).has_value());
    }

    void run(T& transport, std::uint32_t seed) {
        open(transport, seed);
        for (std::uint32_t i = 0; i < suite_.operations && !failed_; ++i) {
            switch (below(10)) {
                case 0: fail(transport); break;
                case 1: shut(transport); break;
                case 2:
                case 3:
                    if constexpr (reads_ahead) { announce(transport); }
                    break;
                case 4:
                    compare();
                    if constexpr (pauses) { pause(transport); }
                    break;
                default: send(transport);
            }
        }
        capture(transport);
        count(transport);
        if constexpr (reads_ahead) { announce(transport); }  // close() comes instead of these calls
        compare();
        expect_healthy(transport);
        spoil(transport);
        must(device_.synchronize());
        transport.close();
    }

private:
    [[nodiscard]] std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
    template <class V>
    static V must(Result<V> result) {
        if (!result) { FAIL(result.error().message()); }
        if constexpr (!std::is_void_v<V>) { return std::move(*result); }
    }
    void expect(bool holds, const char* rule) {
        if (!holds && !failed_) {
            failed_ = true;
            FAIL_CHECK(std::string{rule});
        }
    }

    /// Afterwards the transport alone holds the catalog.
    void open(T& transport, std::uint32_t seed) {
        CatalogBuilder bare;
        bare.add_weight("w", dtype::u8, {4}, bare.add_storage(4));
        expect(!transport.open(device_, must(bare.try_build())),
               "2: open() fails where a storage has no bytes that can be reached");
        TransportModel model =
            suite_.model ? suite_.model(device_, seed) : host_model(device_, seed, HostMemory::pinned);
        for (std::uint64_t nth = 1;; ++nth) {
            if constexpr (breaks) { device_.fail(D::CallKind::any, nth); }
            const Status opened = transport.open(device_, model.catalog);
            if constexpr (breaks) { device_.clear_failures(); }
            if (opened) { break; }
            if (!breaks || nth > 1000) { FAIL(opened.error().message()); }
        }
        contents_ = std::move(model.contents);
        owner_ = std::move(model.owner);
    }

    /// Parts of storages, to places that do not overlap. Many are neighbours on both sides.
    [[nodiscard]] Fetches some() {
        Fetches fetches;
        std::size_t used = below(expected_.size() / 2);
        std::size_t id = below(contents_.size());
        for (std::size_t count = 1 + below(8); count > 0; --count) {
            const bool follows = below(3) != 0;
            id = follows ? (id + 1) % contents_.size() : below(contents_.size());
            const std::size_t whole = contents_[id].size();
            if (whole == 0) { continue; }
            const std::size_t from = below(3) == 0 ? below(whole) : 0;
            const std::size_t bytes = below(3) == 0 ? 1 + below(whole - from) : whole - from;
            if (below(3) == 0) { used += below(500); }
            if (used + bytes > expected_.size()) { break; }
            fetches.push_back({StorageId{static_cast<std::uint32_t>(id)}, from, bytes, target_ + used, below(4) == 0});
            used += bytes;
        }
        std::ranges::shuffle(fetches, shuffles_);
        if (below(2) == 0) { std::ranges::sort(fetches, {}, &transport::Fetch::to); }
        return fetches;
    }
    void apply(const Fetches& fetches) {
        for (const transport::Fetch& fetch : fetches) {
            std::memcpy(expected_.data() + (static_cast<std::byte*>(fetch.to) - target_),
                        contents_[index(fetch.storage)].data() + fetch.offset_bytes,
                        static_cast<std::size_t>(fetch.bytes));
        }
    }
    [[nodiscard]] Fetches next() {
        if (announced_.empty()) { return some(); }
        Fetches fetches = std::move(announced_.front());
        announced_.pop_front();
        return fetches;
    }
    void send(T& transport) {
        const Fetches fetches = next();
        if constexpr (shows_pieces) { static_cast<void>(device_.take_pieces()); }
        must(transport.enqueue(fetches, stream_));
        apply(fetches);
        if constexpr (shows_pieces) { look_at_pieces(fetches); }
        if (below(2) == 0) { read_back(); }
    }
    void look_at_pieces(const Fetches& fetches) {
        for (const Copy& piece : device_.take_pieces()) {
            const auto* const begin = static_cast<const std::byte*>(piece.to);
            for (const transport::Fetch& fetch : fetches) {
                const auto* const to = static_cast<const std::byte*>(fetch.to);
                expect(!fetch.begins_allocation || to <= begin || begin + piece.bytes <= to,
                       "3: no copy goes across the beginning of an allocation");
            }
        }
    }

    /// Enqueues a read of what lies on the device at this point of the stream.
    void read_back() {
        if (reads_.size() == 2) { look(); }
        const Copy home{back_ + reads_.size() * expected_.size(), target_, expected_.size()};
        must(device_.copy({&home, 1}, stream_));
        reads_.push_back(expected_);
    }
    void look() {
        must(device_.synchronize(stream_));
        for (std::size_t i = 0; i < reads_.size(); ++i) {
            expect(std::memcmp(back_ + i * expected_.size(), reads_[i].data(), expected_.size()) == 0,
                   "3: what comes later on the stream sees every byte, what came before sees none; nothing else is "
                   "written");
        }
        reads_.clear();
        if constexpr (requires { device_.report_count(); }) {
            expect(device_.report_count() == 0, "3, T1: bytes are written in the order of the stream");
        }
    }
    void compare() {
        read_back();
        look();
    }

    /// T1: a call of the device fails.
    void fail(T& transport) {
        if constexpr (breaks) {
            using Kind = typename D::CallKind;
            constexpr Kind kinds[] = {Kind::copy,   Kind::copy, Kind::create_event,
                                      Kind::record, Kind::wait, Kind::wait_flag};
            const Fetches fetches = next();
            if (fetches.empty()) { return; }
            device_.fail(kinds[below(std::size(kinds))], 1 + below(3));
            const Status sent = transport.enqueue(fetches, stream_);
            device_.clear_failures();
            if (!sent) {
                // Read before the transport is called again, so that whatever still arrives is seen.
                must(device_.fill(target_, std::byte{0x77}, expected_.size(), stream_));
                std::ranges::fill(expected_, std::byte{0x77});
                compare();
                must(transport.enqueue(fetches, stream_));
            }
            apply(fetches);
            compare();
            expect_healthy(transport);
        }
    }
    /// 3, 6: while the stream is held back, announces and enqueues more than can be on its way at once.
    void shut(T& transport) {
        if constexpr (FlagDevice<D>) {
            Gate<D> gate{device_, stream_, suite_.patience};
            for (int i = 0; i < 12; ++i) {
                if constexpr (reads_ahead) {
                    if (below(3) == 0) { announce(transport); }
                }
                const Fetches fetches = next();
                must(transport.enqueue(fetches, stream_));
                apply(fetches);
            }
            expect(gate.open(), "3, 6: enqueue(), read_ahead() and forget_ahead() do not block");
        }
    }
    void announce(T& transport) {
        if constexpr (reads_ahead) {
            if (below(6) == 0) {
                transport.forget_ahead();
                announced_.clear();
            }
            for (std::size_t count = 1 + below(4); count > 0; --count) {
                Fetches fetches = some();
                if (fetches.empty() || !transport.read_ahead(fetches)) { return; }
                announced_.push_back(std::move(fetches));
            }
        }
    }
    /// 8: what was announced is withdrawn, and the sources are read anew afterwards. The stream is drained.
    void pause(T& transport) {
        if (below(4) != 0) { return; }
        std::vector<StorageId> all;
        for (std::uint32_t i = 0; i < contents_.size(); ++i) { all.push_back(StorageId{i}); }
        must(transport.pause(all));
        must(transport.sources_changed(all));
        announced_.clear();
    }
    /// 4: a graph brings the same bytes at every launch.
    void capture(T& transport) {
        if constexpr (T::capturable && CapturingDevice<D>) {
            Fetches fetches = some();
            compare();
            must(device_.begin_capture(stream_));
            const Status sent = transport.enqueue(fetches, stream_);
            const auto graph = device_.end_capture(stream_);
            expect(sent.has_value() && graph.has_value(), "4: enqueue() works in a stream capture");
            if (!graph) { return; }
            for (int launch = 0; launch < 2; ++launch) {
                must(device_.fill(target_, std::byte{0x55}, expected_.size(), stream_));
                std::ranges::fill(expected_, std::byte{0x55});
                must(device_.launch(*graph, stream_));
                apply(fetches);
                compare();
            }
            must(device_.destroy_graph(*graph));
        }
    }
    /// T2: of many equal calls, at most half may allocate: for what was never needed before.
    void count(T& transport) {
        if (!suite_.allocations) { return; }
        while (!announced_.empty()) { send(transport); }
        const Fetches fetches = some();
        constexpr int calls = 200;
        int without = 0;
        for (int i = 0; i < calls; ++i) {
            const std::uint64_t before = suite_.allocations();
            Status sent = transport.enqueue(fetches, stream_);
            without += suite_.allocations() == before ? 1 : 0;
            must(std::move(sent));
            // The further the host is ahead of the device, the more memory it may need.
            must(device_.synchronize(stream_));
        }
        apply(fetches);
        expect(2 * without >= calls, "T2: enqueue() allocates nothing in steady state");
    }
    void expect_healthy(const T& transport) {
        if constexpr (has_status) { expect(transport.status().has_value(), "7: status() is of its own threads only"); }
    }
    void spoil(T& transport) {
        if constexpr (has_status) {
            if (!suite_.spoil) { return; }
            while (!announced_.empty()) { send(transport); }
            suite_.spoil();
            for (int tries = 0; tries < 100 && transport.status(); ++tries) {
                static_cast<void>(transport.enqueue(some(), stream_).has_value());
                must(device_.synchronize(stream_));
            }
            expect(!transport.status(), "7: status() tells what its threads failed at");
            expect(!transport.enqueue(some(), stream_), "7: after that nothing is enqueued any more");
        }
    }

    D& device_;
    const TransportSuite<D>& suite_;
    std::mt19937_64 random_;
    std::mt19937 shuffles_{1};
    std::byte* target_;
    std::byte* back_;
    typename D::Stream stream_;
    std::vector<std::byte> expected_;
    std::vector<std::vector<std::byte>> contents_;
    std::shared_ptr<void> owner_;
    std::deque<Fetches> announced_;
    std::vector<std::vector<std::byte>> reads_;  // what should have been read, and is not compared yet
    bool failed_ = false;
};

}  // namespace detail

/// Checks the expressions 1–7 and the rules T1 and T2 of transport::TransportPolicy on random runs, and reports through doctest with
/// the seed of the run. `make` returns a transport as a user would configure it. On a SimulatedDevice every access is checked, and some
/// calls are made to fail.
///
///     TEST_CASE("my transport") {
///         SimulatedDevice device;
///         residency::conformance::check_transport_policy<MyTransport<SimulatedDevice>>(device);
///     }
template <class T, Device D>
    requires transport::TransportPolicy<T, D>
void check_transport_policy(
    D& device, const TransportSuite<D>& suite = {},
    const std::function<std::unique_ptr<T>()>& make = [] { return std::make_unique<T>(typename T::Config{}); }) {
    static_assert(std::is_default_constructible_v<typename T::Config>, "1: a transport's knobs have defaults");
    std::unique_ptr<T> transport;
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run;
        CAPTURE(seed);
        if (run % 2 == 0) { transport = make(); }  // otherwise a transport that was open before: 5
        detail::TransportRun<T, D>{device, suite, seed}.run(*transport, seed);
    }
}

}  // namespace residency::conformance
