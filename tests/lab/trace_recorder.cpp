// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/trace/recorder.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"

namespace trace_recorder_test {

using namespace residency;
using namespace std::chrono_literals;

TEST_CASE("a run is recorded by storages, tied weights once a step") {
    CatalogBuilder builder;
    builder.add("a", dtype::u8, {10});
    builder.add("b", dtype::u8, {20});
    builder.tie("a again", "a");
    const Catalog catalog = *builder.try_build();
    const auto schedule = ScheduleBuilder{catalog}.step({"a", "a again", "b"}, 5us).step({"b"}).try_build();
    REQUIRE(schedule);

    lab::trace::Recorder recorder{catalog};
    for (const auto& step : *schedule) { recorder.step(step); }
    const std::vector<WeightId> weights{WeightId{2}, WeightId{0}, WeightId{1}};
    recorder.step(weights, 7ns);
    CHECK(recorder.trace().steps() == 3);
    const lab::trace::Trace trace = recorder.take();
    CHECK(trace.catalog_hash == catalog.hash());
    CHECK(trace.bytes == std::vector<std::uint64_t>{10, 20});
    CHECK(trace.total_bytes() == 30);
    CHECK(trace.step_offsets == std::vector<std::uint64_t>{0, 2, 3, 5});
    CHECK(trace.accesses == std::vector{StorageId{0}, StorageId{1}, StorageId{1}, StorageId{0}, StorageId{1}});
    CHECK(trace.compute_ns == std::vector<std::int64_t>{5000, lab::trace::Trace::unknown, 7});
    CHECK(recorder.trace().steps() == 0);
    recorder.step(weights);
    CHECK(recorder.take().step(0).size() == 2);

    const auto steps = trace.try_order();
    REQUIRE(steps);
    CHECK(steps->steps() == 3);
    CHECK(steps->next_use(StorageId{0}, 0) == 2);
    const auto accesses = trace.try_access_order();
    REQUIRE(accesses);
    CHECK(accesses->steps() == 5);
    CHECK(accesses->next_use(StorageId{1}, 2) == 4);
}

}  // namespace trace_recorder_test
