// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// C19 C31 C32: each call of the device fails once while memory is given back, taken again, and weights are replaced.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tests/core/compositions.hpp"

namespace suspend_failures_test {

using namespace streaming;
using CallKind = Device::CallKind;

namespace {

constexpr std::uint32_t cache = 5;  // the weight that kernels write
constexpr std::byte written{0x5A};

bool gives_memory_back(CallKind kind) { return gives_back(kind) || kind == CallKind::deallocate_host; }

/// Passes that check all that is read, and what kernels wrote before.
template <class Weights>
class Program {
public:
    Program(Device& device, const Model& model, Stream stream)
        : device_{device}, model_{model}, stream_{stream}, free_bytes_{must(device.memory()).free_bytes} {
        auto chosen = options<Weights>(7 * 4096, in_order(model));
        if constexpr (requires { chosen.policies.pool.chunk_bytes; }) { chosen.policies.pool.chunk_bytes = 4096; }
        if constexpr (requires { chosen.poison; }) { chosen.poison = true; }
        weights_ = std::make_unique<Weights>(must(Weights::try_create(device, model.catalog, std::move(chosen))));
        REQUIRE(one_pass());
    }

    /// Everything once. Calls may fail.
    void run() {
        seen(weights_->try_suspend());
        expect_given_back();
        if (weights_->is_suspended()) { CHECK_FALSE(one_pass()); }
        seen(weights_->try_resume());
        seen(one_pass());
        seen(weights_->try_refresh({weight(0), weight(2), weight(4)}, [&] { replace(); }));
        seen(one_pass());
        seen(weights_->try_suspend());
        expect_given_back();
        seen(weights_->try_set_budget(residency::Budget::bytes(9 * 4096)));
        seen(weights_->try_resume());
        seen(one_pass());
    }
    /// Nothing fails any more: all of it works.
    void expect_working() {
        if (weights_->is_suspended()) { must(weights_->try_resume()); }
        CHECK(weights_->statistics().held_bytes <= weights_->budget().bytes);
        REQUIRE(one_pass());
        const auto before = weights_->statistics().total;
        must(weights_->try_suspend());
        CHECK(weights_->statistics().total.evictions > before.evictions);
        CHECK(weights_->statistics().total.evicted_bytes >= before.evicted_bytes + 4096);
        expect_given_back();
        must(weights_->try_resume());
        REQUIRE(one_pass());
        must(weights_->try_drain());
    }
    [[nodiscard]] std::uint64_t errors() const noexcept { return errors_; }

private:
    template <class R>
    void seen(const R& result) {
        errors_ += result ? 0U : 1U;
    }
    void expect_given_back() {
        if (weights_->is_suspended() && weights_->statistics().held_bytes == 0) {
            const auto memory = device_.memory();  // which may be what fails
            if (memory) { CHECK(memory->free_bytes == free_bytes_); }
        }
    }
    void replace() {
        const auto& catalog = model_.catalog;
        for (const std::uint32_t i : {0U, 2U, 4U}) {
            auto* const bytes = const_cast<std::byte*>(catalog.host_bytes(residency::StorageId{i}));
            must(device_.host_write(bytes, catalog.storages()[i].bytes));
            std::memset(bytes, static_cast<int>(++fillings_), static_cast<std::size_t>(catalog.storages()[i].bytes));
        }
    }
    [[nodiscard]] residency::Status one_pass() {
        auto pass = weights_->try_begin(stream_);
        if (!pass) { return pass.error(); }
        for (const residency::Schedule::Step& step : weights_->schedule()) {
            auto lease = pass->try_acquire(step);
            if (!lease) { return lease.error(); }
            for (const auto id : step.weights) {
                if (id == weight(cache)) {
                    use_cache(lease->bytes(id));
                } else {
                    verify(device_, model_, *lease, id, stream_);
                }
            }
        }
        return pass->try_end();
    }
    void use_cache(std::span<const std::byte> bytes) {
        auto* const at = const_cast<std::byte*>(bytes.data());
        Device::Kernel kernel;
        kernel.name = "cache";
        kernel.reads = kernel.writes = {{at, bytes.size()}};
        kernel.body = [at, count = bytes.size(), is_first = std::exchange(is_first_, false),
                       wrong = model_.wrong.get()] {
            const bool is_kept = std::all_of(at, at + count, [](std::byte b) { return b == written; });
            if (!is_first && !is_kept) { *wrong += count; }
            std::memset(at, std::to_integer<int>(written), count);
        };
        must(device_.launch(stream_, std::move(kernel)));
    }

    Device& device_;
    const Model& model_;
    Stream stream_;
    std::uint64_t free_bytes_;
    std::unique_ptr<Weights> weights_;
    std::uint64_t errors_ = 0;
    std::uint32_t fillings_ = 0;
    bool is_first_ = true;
};

template <class Weights>
void every_failure() {
    std::uint64_t points = 0;
    std::uint64_t seen = 0;
    for (std::size_t k = 0; k < residency::simulation::call_kinds; ++k) {
        const auto kind = static_cast<CallKind>(k);
        // Not the library's.
        if (kind == CallKind::launch_kernel || kind == CallKind::host_access) { continue; }
        for (std::uint64_t nth = 1;; ++nth) {
            Device device{small_config()};
            const Stream stream = must(device.create_stream());
            std::uint64_t calls = 0;
            {
                const Model model = make_model(device, {{4096},
                                                        {4096},
                                                        {3000},
                                                        {4096},
                                                        {500, residency::Placement::resident},
                                                        {6000, residency::Placement::resident, true},
                                                        {4000}});
                const std::string where = std::string{residency::simulation::name(kind)} + " " + std::to_string(nth);
                CAPTURE(where);
                Program<Weights> program{device, model, stream};
                const auto before = device.statistics().of(kind);
                device.fail(kind, nth, residency::ErrorKind::device);
                program.run();
                calls = device.statistics().of(kind) - before;
                device.clear_failures();
                program.expect_working();
                CHECK(*model.wrong == 0);
                if (calls >= nth) {
                    ++points;
                    seen += program.errors() > 0 ? 1U : 0U;
                }
                for (const auto& report : device.reports()) {
                    const bool follows =
                        gives_memory_back(kind) && report.kind == residency::simulation::ReportKind::misuse;
                    CHECK_MESSAGE(follows, report.text);
                }
            }
            must(device.destroy_stream(stream));
            for (const auto& leak : device.leaks()) {
                if (!gives_memory_back(kind)) {
                    FAIL_CHECK(residency::simulation::name(kind) << " " << nth << " left: " << leak.what);
                }
            }
            if (calls < nth) { break; }
        }
    }
    MESSAGE(points << " failures, " << seen << " of them reported");
    CHECK(points > 50);
    CHECK(seen > 20);
}

}  // namespace

TEST_SUITE_BEGIN("core suspend failures");

TEST_CASE_TEMPLATE("C19 C31 C32: any call fails once while memory is given back and taken again", Weights, OnDemand,
                   Ahead, compositions::Hinted, compositions::Planned) {
    every_failure<Weights>();
}

TEST_SUITE_END();

}  // namespace suspend_failures_test
