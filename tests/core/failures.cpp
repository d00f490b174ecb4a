// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// C19: each call of the device fails once, at every point of a program: nothing is left behind, every byte that is read is
// right, and the object goes on.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/core/compositions.hpp"

namespace failures_test {

using namespace streaming;
using CallKind = Device::CallKind;

namespace {

using InPieces = compositions::Hinted;
using compositions::Planned;

/// Errors that the program saw, and whether it got to its end.
struct Outcome {
    std::uint64_t errors = 0;
    bool constructed = false;
};

/// Calls in which the host waited for the device. The library drains with one of them and the waits for points of other streams.
std::uint64_t waiting_calls(const Device& device) {
    return device.statistics().of(CallKind::synchronize_stream) + device.statistics().of(CallKind::synchronize_device);
}

/// Two passes with overlapping leases, tickets and a second stream, a change of schedule and of budget, a third pass.
template <class Weights>
Outcome program(Device& device, const Model& model, Stream stream, Stream second) {
    Outcome outcome;
    const auto seen = [&](const auto& result) {
        outcome.errors += result ? 0U : 1U;
        return static_cast<bool>(result);
    };
    auto chosen = options<Weights>(5 * 4096, in_order(model));
    if constexpr (requires { chosen.policies.pool.chunk_bytes; }) { chosen.policies.pool.chunk_bytes = 4096; }
    if constexpr (requires { chosen.poison; }) { chosen.poison = true; }
    auto made = Weights::try_create(device, model.catalog, std::move(chosen));
    if (!seen(made)) { return outcome; }
    outcome.constructed = true;
    Weights& weights = *made;
    const std::uint64_t waited = waiting_calls(device) - weights.statistics().total.host_waits;
    const auto one_pass = [&] {
        auto pass = weights.try_begin(stream);
        if (!seen(pass)) { return; }
        std::optional<typename Weights::Lease> last;
        for (const residency::Schedule::Step& step : weights.schedule()) {
            if constexpr (requires { weights.prefetcher().hint({}); }) {
                const residency::prefetch::Hint hint{residency::StorageId{(step.position + 2) % 7}};
                seen(weights.prefetcher().hint({&hint, 1}));
            }
            auto lease = pass->try_acquire(step);
            if (!seen(lease)) { continue; }
            for (const auto id : step.weights) { verify(device, model, *lease, id, stream); }
            if (step.position % 3 == 1 && seen(lease->try_use_on(second))) {
                for (const auto id : step.weights) {
                    verify(device, model, *lease, id, second, std::chrono::microseconds{80});
                }
            }
            if (step.position % 2 == 0) { last = std::move(*lease); }
        }
        if (auto ticket = pass->try_request(weight(0)); seen(ticket)) {
            if (auto lease = ticket->try_lease(second); seen(lease)) {
                verify(device, model, *lease, weight(0), second);
            }
        }
        last.reset();
        seen(pass->try_end());
    };
    one_pass();
    one_pass();
    seen(weights.try_set_schedule(in_order(model, residency::Cycle::one_shot)));
    one_pass();
    seen(weights.try_set_budget(residency::Budget::bytes(4 * 4096)));
    one_pass();
    // With a lease open: it stays, and where a change fails the budget does.
    std::optional<typename Weights::Lease> kept;
    if (auto pass = weights.try_begin(stream); seen(pass)) {
        if (auto lease = pass->try_acquire(weight(2)); seen(lease)) { kept = std::move(*lease); }
        seen(pass->try_end());
    }
    const std::byte* const at = kept ? kept->data(weight(2)) : nullptr;
    for (const std::uint64_t pages : {7U, 3U, 5U}) {
        const std::uint64_t before = weights.budget().bytes;
        if (!seen(weights.try_set_budget(residency::Budget::bytes(pages * 4096)))) {
            CHECK(weights.budget().bytes == before);
        }
        if (kept) {
            CHECK(kept->data(weight(2)) == at);
            verify(device, model, *kept, weight(2), stream);
        }
    }
    kept.reset();
    one_pass();
    outcome.errors += weights.failure() ? 1U : 0U;
    // Whatever failed, it works now.
    device.clear_failures();
    for (int i = 0; i < 2; ++i) {
        auto pass = weights.try_begin(stream);
        REQUIRE_MESSAGE(pass.has_value(), message_of(pass ? residency::Status{} : residency::Status{pass.error()}));
        for (const residency::Schedule::Step& step : weights.schedule()) {
            auto lease = pass->try_acquire(step);
            REQUIRE_MESSAGE(lease.has_value(), (lease ? std::string{} : lease.error().message()));
            for (const auto id : step.weights) { verify(device, model, *lease, id, stream); }
        }
        must(pass->try_end());
    }
    must(weights.try_drain());
    CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
    // A drain that failed may have counted before it got to that call.
    const std::uint64_t waits = weights.statistics().total.host_waits;
    CHECK(waits >= waiting_calls(device) - waited);
    if (outcome.errors == 0) { CHECK(waits == waiting_calls(device) - waited); }
    return outcome;
}

template <class Weights>
void every_failure() {
    std::uint64_t points = 0;
    std::uint64_t refused = 0;
    for (std::size_t k = 0; k < residency::simulation::call_kinds; ++k) {
        const auto kind = static_cast<CallKind>(k);
        if (kind == CallKind::launch_kernel) { continue; }  // not the library's
        for (const auto error : {residency::ErrorKind::device, residency::ErrorKind::out_of_memory}) {
            const bool allocates = kind == CallKind::allocate || kind == CallKind::pool_allocate ||
                                   kind == CallKind::create_chunk || kind == CallKind::create_pool;
            if (error == residency::ErrorKind::out_of_memory && !allocates) { continue; }
            for (std::uint64_t nth = 1;; ++nth) {
                Device device{small_config()};
                const Stream stream = must(device.create_stream());
                const Stream second = must(device.create_stream());
                std::uint64_t left = 0;
                std::uint64_t calls = 0;
                {
                    const Model model = make_model(device, {{4096},
                                                            {4096},
                                                            {3000},
                                                            {4096},
                                                            {4096},
                                                            {4096},
                                                            {4000},
                                                            {256, residency::Placement::resident}});
                    const auto before = device.statistics().of(kind);
                    device.fail(kind, nth, error);
                    const std::string where =
                        std::string{residency::simulation::name(kind)} + " " + std::to_string(nth);
                    CAPTURE(where);
                    const Outcome outcome = program<Weights>(device, model, stream, second);
                    calls = device.statistics().of(kind) - before;
                    if (calls < nth) { break; }
                    ++points;
                    refused += outcome.constructed ? 0U : 1U;
                    device.clear_failures();
                    CHECK(*model.wrong == 0);
                    for (const auto& report : device.reports()) {
                        // A pool that could not be given something back cannot be destroyed either.
                        const bool follows =
                            gives_back(kind) && report.kind == residency::simulation::ReportKind::misuse;
                        CHECK_MESSAGE(follows, report.text);
                    }
                }
                device.clear_failures();
                must(device.destroy_stream(stream));
                must(device.destroy_stream(second));
                // What could not be given back is still there; nothing else is.
                for (const auto& leak : device.leaks()) {
                    ++left;
                    if (!gives_back(kind)) {
                        FAIL_CHECK(residency::simulation::name(kind) << " " << nth << " left: " << leak.what);
                    }
                }
                CHECK(left <= 2);
            }
        }
    }
    MESSAGE(points << " failures, " << refused << " of them in construction");
    CHECK(points > 100);
    CHECK(refused > 5);
}

}  // namespace

TEST_SUITE_BEGIN("core failures");

TEST_CASE("C19: any call fails once; on demand from a stream-ordered pool") { every_failure<OnDemand>(); }
TEST_CASE("C19: any call fails once; ahead of use from a slab") { every_failure<Ahead>(); }
TEST_CASE("C19: any call fails once; speculative copies in pieces") { every_failure<InPieces>(); }
TEST_CASE("C19: any call fails once; planned") { every_failure<Planned>(); }

TEST_SUITE_END();

}  // namespace failures_test
