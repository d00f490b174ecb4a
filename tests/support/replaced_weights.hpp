// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random programs of passes, suspensions, other budgets and weights that are replaced, on any device: every weight that a kernel is given
// is checked against what the host had when the kernel was launched.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/support/files.hpp"

namespace support {

/// Where the weights of a ReplacedWeights are.
enum class WeightsIn : std::uint8_t { pinned, pageable, file };

/// `Harness` is one of the conformance suite of devices. Sizes are multiples and fractions of `unit_bytes`.
template <class Weights, class Harness>
class ReplacedWeights {
public:
    using Device = typename Weights::Device;
    using Options = typename Weights::Options;
    static constexpr bool is_planned = requires(const Weights& weights) { weights.generation(); };

    /// `own_bytes`: what the driver may take of the device for itself.
    ReplacedWeights(Harness& harness, std::uint64_t seed, WeightsIn place, std::uint64_t unit_bytes,
                    std::uint64_t own_bytes = 0)
        : harness_{harness}, device_{harness.device()}, random_{seed}, place_{place}, own_bytes_{own_bytes} {
        stream_ = unwrapped(device_.create_stream());
        sums_ = static_cast<std::uint64_t*>(unwrapped(device_.allocate(most_reads * 8)));
        read_back_ = static_cast<std::uint64_t*>(unwrapped(device_.allocate_host(most_reads * 8)));
        clear_sums();
        make_model(unit_bytes);
        make_schedule();
    }
    ReplacedWeights(const ReplacedWeights&) = delete;
    ReplacedWeights& operator=(const ReplacedWeights&) = delete;
    ~ReplacedWeights() {
        static_cast<void>(device_.deallocate(sums_).has_value());
        static_cast<void>(device_.deallocate_host(read_back_).has_value());
        static_cast<void>(device_.destroy_stream(stream_).has_value());
    }

    /// Runs a program. `configure(options)` sets what the budget and the schedule are not.
    template <class Configure>
    void run(int operations, const Configure& configure) {
        Options options;
        options.schedule = schedule_;
        configure(options);
        options.budget = residency::Budget::bytes(0);
        const auto limits = unwrapped(Weights::try_resolve_budget(device_, catalog_, options));
        floor_bytes_ = limits.floor_bytes;
        options.budget = any_budget();
        free_before_ = unwrapped(device_.memory()).free_bytes;
        weights_.emplace(unwrapped(Weights::try_create(device_, catalog_, std::move(options))));
        for (int i = 0; i < operations; ++i) {
            switch (random_() % 8) {
                case 0: suspend(); break;
                case 1:
                case 2: refresh(); break;
                case 3: unwrapped(weights_->try_set_budget(any_budget())); break;
                case 4: replay(); break;
                case 5: refuse_in_a_pass(); break;
                default: pass(random_() % 4 != 0);
            }
        }
        pass(true);
        check_sums();
        graph_.reset();
        weights_.reset();
    }
    /// How often a kernel read a weight that was replaced before.
    [[nodiscard]] std::uint64_t reads_of_replaced() const noexcept { return reads_of_replaced_; }

private:
    static constexpr std::size_t most_reads = 512;

    /// What a storage holds.
    struct Content {
        std::uint64_t offset = 0, bytes = 0;
        std::uint64_t source_sum = 0;             // of the bytes at the source
        std::optional<std::uint64_t> kernel_sum;  // of those that a kernel wrote, since it was replaced last
        bool is_mutable = false;
        bool is_replaced = false;
    };
    struct NoGraph {};

    template <class R>
    static decltype(auto) unwrapped(R&& result) {
        if (!result) { FAIL(result.error().message()); }
        if constexpr (requires { *result; }) { return *std::forward<R>(result); }
    }

    void make_model(std::uint64_t unit) {
        const std::size_t storages = 6 + random_() % 8;
        std::uint64_t total = 0;
        for (std::size_t i = 0; i < storages; ++i) {
            Content content;
            content.offset = total;
            content.bytes = random_() % 9 == 0 ? random_() % 300 : 1 + random_() % (3 * unit);
            total += (content.bytes + 255) / 256 * 256;
            contents_.push_back(content);
        }
        residency::CatalogBuilder builder;
        bytes_.resize(total + 8);
        if (place_ == WeightsIn::file) {
            file_ = folder_.file("weights");
        } else if (place_ == WeightsIn::pageable) {
            host_ = residency::HostBytes::own(std::vector<std::byte>(bytes_.size()));
        } else {
            auto* const at = static_cast<std::byte*>(unwrapped(device_.allocate_host(bytes_.size())));
            host_ = residency::HostBytes::adopt(
                at, bytes_.size(), residency::HostMemory::pinned,
                [&device = device_](std::byte* p) { static_cast<void>(device.deallocate_host(p).has_value()); });
        }
        for (std::size_t i = 0; i < storages; ++i) { replace(i); }
        const auto file = std::make_shared<const residency::SourceFile>(
            residency::SourceFile{file_, static_cast<std::uint64_t>(bytes_.size()), std::nullopt, {}});
        for (std::size_t i = 0; i < storages; ++i) {
            Content& content = contents_[i];
            residency::StorageOptions options;
            if (place_ == WeightsIn::file) {
                options.source = residency::FileSource{file, content.offset};
            } else {
                options.source = residency::HostSource{host_, content.offset};
            }
            const std::uint64_t kind = random_() % 10;
            content.is_mutable = kind == 0 || i == 2;
            options.is_mutable = content.is_mutable;
            if (content.is_mutable || kind == 1) { options.placement = residency::Placement::resident; }
            if (kind == 2 && !content.is_mutable && place_ == WeightsIn::pinned) {
                options.placement = residency::Placement::host;
            }
            content.is_replaced = false;
            builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {content.bytes},
                               builder.add_storage(content.bytes, options));
        }
        catalog_ = unwrapped(builder.try_build());
    }
    void make_schedule() {
        residency::ScheduleBuilder builder{catalog_};
        const std::size_t steps = 4 + random_() % 6;
        for (std::size_t i = 0; i < steps; ++i) {
            std::vector<residency::WeightId> step;
            for (std::uint64_t k = 1 + random_() % 2; k > 0; --k) {
                const std::uint64_t next = (random_() % 4 == 0 ? random_() : 2 * i + k) % contents_.size();
                step.push_back(residency::WeightId{static_cast<std::uint32_t>(next)});
            }
            builder.step(std::span<const residency::WeightId>{step}, std::chrono::microseconds{5});
        }
        schedule_ = unwrapped(builder.try_build());
    }
    [[nodiscard]] residency::Budget any_budget() {
        const std::uint64_t more = random_() % 3 == 0 ? catalog_.total_bytes() : random_() % catalog_.total_bytes();
        return residency::Budget::bytes(floor_bytes_ + more);
    }

    /// Other bytes for a storage, at its source.
    void replace(std::size_t i) {
        Content& content = contents_[i];
        const std::span<std::byte> bytes{bytes_.data() + content.offset, static_cast<std::size_t>(content.bytes)};
        Harness::fill_pattern(bytes, random_());
        content.source_sum = Harness::checksum(bytes);
        content.kernel_sum.reset();
        content.is_replaced = true;
        if (place_ != WeightsIn::file) {
            auto* const to = const_cast<std::byte*>(host_->data()) + content.offset;
            if constexpr (requires { device_.host_write(to, content.bytes); }) {
                if (place_ == WeightsIn::pinned && !bytes.empty()) { unwrapped(device_.host_write(to, content.bytes)); }
            }
            if (!bytes.empty()) { std::memcpy(to, bytes.data(), bytes.size()); }
            return;
        }
        // In place, or another file in its place.
        const std::string_view all{reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
        if (random_() % 2 == 0) {
            write_all(file_, all);
        } else {
            write_all(file_ + ".new", all);
            REQUIRE(std::rename((file_ + ".new").c_str(), file_.c_str()) == 0);
        }
    }

    void clear_sums() {
        unwrapped(device_.fill(sums_, std::byte{0}, most_reads * 8, stream_));
        expected_.clear();
    }
    /// Waits for the kernels so far, and compares what they read.
    void check_sums() {
        const residency::Copy copy{read_back_, sums_, most_reads * 8};
        unwrapped(device_.copy({&copy, 1}, stream_));
        unwrapped(device_.synchronize(stream_));
        std::vector<std::uint64_t> got(read_back_, read_back_ + expected_.size());
        CHECK(got == expected_);
        clear_sums();
    }
    template <class Lease>
    void read(const Lease& lease, residency::WeightId id) {
        const Content& content = contents_[residency::index(id)];
        const std::span<const std::byte> bytes = lease.bytes(id);
        if (bytes.empty()) { return; }
        harness_.launch_checksum(bytes.data(), bytes.size(), sums_ + expected_.size(), stream_);
        expected_.push_back(content.kernel_sum.value_or(content.source_sum));
        if (content.is_replaced) { ++reads_of_replaced_; }
    }
    template <class Lease>
    void write(const Lease& lease, residency::WeightId id) {
        Content& content = contents_[residency::index(id)];
        const std::span<const std::byte> bytes = lease.bytes(id);
        if (!content.is_mutable || bytes.empty() || random_() % 2 == 0) { return; }
        const std::uint64_t seed = random_();
        harness_.launch_pattern(const_cast<std::byte*>(bytes.data()), bytes.size(), seed, stream_);
        std::vector<std::byte> now(bytes.size());
        Harness::fill_pattern(now, seed);
        content.kernel_sum = Harness::checksum(now);
    }
    /// A pass that may leave steps out. Nothing waits for it.
    void pass(bool is_whole) {
        if (expected_.size() + 4 * schedule_.size() > most_reads || random_() % 4 == 0) { check_sums(); }
        auto pass = unwrapped(weights_->try_begin(stream_));
        for (const residency::Schedule::Step& step : weights_->schedule()) {
            if (!is_whole && random_() % 3 == 0) { continue; }
            const auto lease = unwrapped(pass.try_acquire(step));
            for (const auto id : step.weights) { read(lease, id); }
            for (const auto id : step.weights) { write(lease, id); }
        }
        unwrapped(pass.try_end());
    }
    /// With a pass or a lease open, nothing is given back or replaced.
    void refuse_in_a_pass() {
        const auto refused = [&](const residency::Status& status) {
            REQUIRE_FALSE(status);
            CHECK(status.error().kind() == residency::ErrorKind::wrong_state);
        };
        const auto refused_both = [&] {
            refused(weights_->try_suspend());
            refused(weights_->try_refresh_all([] { FAIL_CHECK("bytes are replaced under a lease"); }));
        };
        auto pass = unwrapped(weights_->try_begin(stream_));
        refused_both();
        auto lease = unwrapped(pass.try_acquire(weights_->schedule()[0]));
        unwrapped(pass.try_end());
        refused_both();
        for (const auto id : weights_->schedule()[0].weights) { read(lease, id); }
        CHECK_FALSE(weights_->is_suspended());
    }

    void refresh() {
        if (random_() % 5 == 0) {
            unwrapped(weights_->try_refresh_all([&] {
                for (std::size_t i = 0; i < contents_.size(); ++i) {
                    if (!contents_[i].is_mutable) { replace(i); }
                }
            }));
            return;
        }
        std::vector<residency::WeightId> some;
        for (std::uint32_t i = 0; i < contents_.size(); ++i) {
            if (random_() % 3 == 0) { some.push_back(residency::WeightId{i}); }
        }
        if (some.size() == 1) {
            unwrapped(weights_->try_refresh(some[0], [&] { replace(residency::index(some[0])); }));
        } else if (random_() % 4 == 0) {
            // It gives up half-way: what is at the sources then is what passes read.
            const auto given_up = weights_->try_refresh(some, [&]() -> residency::Status {
                for (std::size_t i = 0; i < some.size() / 2; ++i) { replace(residency::index(some[i])); }
                return residency::Error{residency::ErrorKind::cancelled, "given up"};
            });
            REQUIRE_FALSE(given_up);
            CHECK(given_up.error().kind() == residency::ErrorKind::cancelled);
            for (std::size_t i = some.size() / 2; i < some.size(); ++i) {
                contents_[residency::index(some[i])].kernel_sum.reset();
            }
        } else {
            unwrapped(weights_->try_refresh(some, [&] {
                for (const auto id : some) { replace(residency::index(id)); }
            }));
        }
    }

    void suspend() {
        [[maybe_unused]] std::uint64_t generation = 0;
        if constexpr (is_planned) { generation = weights_->generation(); }
        unwrapped(weights_->try_suspend());
        unwrapped(weights_->try_suspend());
        CHECK(weights_->is_suspended());
        CHECK(weights_->statistics().held_bytes == 0);
        CHECK(weights_->statistics().requested_bytes == 0);
        const auto refused = weights_->try_begin(stream_);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == residency::ErrorKind::wrong_state);
        CHECK_FALSE(weights_->try_set_schedule(schedule_));
        if constexpr (is_planned) {
            CHECK(weights_->generation() != generation);
            for (std::uint32_t i = 0; i < contents_.size(); ++i) {
                const bool is_on_device = catalog_.storages()[i].placement != residency::Placement::host;
                if (is_on_device) { CHECK(weights_->address(residency::WeightId{i}) == nullptr); }
            }
            if (graph_) {
                const auto launched = graph_->try_launch(stream_);
                REQUIRE_FALSE(launched);
                CHECK(launched.error().kind() ==
                      (graph_->is_stale() ? residency::ErrorKind::stale : residency::ErrorKind::wrong_state));
            }
        }
        CHECK(unwrapped(device_.memory()).free_bytes + own_bytes_ >= free_before_);
        if (random_() % 3 == 0) {
            const auto change = unwrapped(weights_->try_set_budget(any_budget()));
            CHECK(change.held_bytes == 0);
            CHECK(change.is_complete());
        }
        if (random_() % 3 == 0) { refresh(); }
        unwrapped(weights_->try_drain());
        unwrapped(weights_->try_resume());
        unwrapped(weights_->try_resume());
        CHECK_FALSE(weights_->is_suspended());
        CHECK(weights_->statistics().held_bytes <= weights_->budget().bytes);
    }

    /// One pass as a graph, captured where there is none: it stays valid while weights are replaced.
    void replay() {
        if constexpr (is_planned && residency::CapturingDevice<Device>) {
            if (place_ != WeightsIn::pinned) { return; }
            check_sums();
            std::size_t next = 0;
            if (!graph_ || graph_->is_stale()) {
                graph_.reset();
                auto captured = weights_->try_capture(stream_, [&](auto& pass) -> residency::Status {
                    for (const residency::Schedule::Step& step : weights_->schedule()) {
                        auto lease = pass.try_acquire(step);
                        if (!lease) { return lease.error(); }
                        for (const auto id : step.weights) {
                            const auto bytes = lease->bytes(id);
                            if (bytes.empty()) { continue; }
                            harness_.launch_checksum(bytes.data(), bytes.size(), sums_ + next++, stream_);
                        }
                    }
                    return {};
                });
                graph_.emplace(unwrapped(std::move(captured)));
            }
            for (int i = 0; i < 2; ++i) {
                unwrapped(graph_->try_launch(stream_));
                for (const residency::Schedule::Step& step : weights_->schedule()) {
                    for (const auto id : step.weights) {
                        const Content& content = contents_[residency::index(id)];
                        if (content.bytes == 0) { continue; }
                        expected_.push_back(content.kernel_sum.value_or(content.source_sum));
                    }
                }
                check_sums();
                if (i == 0) { refresh(); }
            }
        }
    }

    template <class W>
    struct CapturedBy {
        using type = NoGraph;
    };
    template <class W>
        requires(requires { typename W::Device::Graph; })
    struct CapturedBy<W> {
        using type = residency::CapturedPass<typename W::Device>;
    };

    Harness& harness_;
    Device& device_;
    std::mt19937_64 random_;
    WeightsIn place_;
    std::uint64_t own_bytes_;
    typename Device::Stream stream_{};
    std::uint64_t* sums_ = nullptr;       // on the device, one for each read
    std::uint64_t* read_back_ = nullptr;  // on the host
    std::vector<std::uint64_t> expected_;
    TemporaryFolder folder_;
    std::string file_;
    std::vector<std::byte> bytes_;  // of the source
    std::shared_ptr<const residency::HostBytes> host_;
    std::vector<Content> contents_;  // by storage, and by weight
    residency::Catalog catalog_;
    residency::Schedule schedule_;
    std::uint64_t floor_bytes_ = 0, free_before_ = 0;
    std::optional<Weights> weights_;
    std::optional<typename CapturedBy<Weights>::type> graph_;
    std::uint64_t reads_of_replaced_ = 0;
};

/// Programs of other seeds, from `first_seed` on. Returns how often a kernel read a weight that was replaced before.
template <class Weights, class Harness, class Configure>
[[nodiscard]] std::uint64_t replace_weights(std::uint64_t first_seed, std::uint64_t programs, WeightsIn place,
                                            std::uint64_t unit_bytes, std::uint64_t own_bytes,
                                            const Configure& configure) {
    std::uint64_t reads = 0;
    for (std::uint64_t program_seed = first_seed; program_seed < first_seed + programs; ++program_seed) {
        CAPTURE(program_seed);
        Harness harness;
        ReplacedWeights<Weights, Harness> program{harness, program_seed, place, unit_bytes, own_bytes};
        program.run(24, configure);
        reads += program.reads_of_replaced();
    }
    return reads;
}

}  // namespace support
