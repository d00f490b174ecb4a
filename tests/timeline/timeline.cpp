// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The timeline of a simulated device: what is in it, and how it is drawn.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/timeline/pass_timeline.hpp"
#include "residency/timeline/simulated_timeline.hpp"

namespace timeline_test {

using namespace residency;
using namespace std::chrono_literals;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) { ++found; }
    return found;
}

}  // namespace

TEST_CASE("steps lie around their kernels, stalls between them, and arrows lead from copies to kernels") {
    PassTimeline timeline;
    const std::size_t copy = timeline.add_copy({{{"q", 100}, {"k", 300}}, 0ns, 400ns});
    timeline.add_kernel({"first", "a", 0ns, 100ns});
    timeline.add_kernel({"first", "b", 100ns, 150ns});
    timeline.add_stall(150ns, 400ns, copy);
    timeline.add_kernel({"second", "c", 400ns, 500ns});
    timeline.add_kernel({"", "d", 500ns, 600ns});
    timeline.add_memory(0ns, 7, 9);
    timeline.add_copy_back(5, 600ns, 700ns);
    const std::string text = timeline.trace().json();
    for (const char* part :
         {"\"name\":\"compute\"", "\"name\":\"copies to the device\"", "\"name\":\"copies to the host\"",
          "\"name\":\"first\",\"ts\":0.000,\"dur\":0.150",
          "\"name\":\"a\",\"ts\":0.000,\"dur\":0.100,\"args\":{\"note\":\"first\"}",
          "\"name\":\"second\",\"ts\":0.400,\"dur\":0.100", "\"name\":\"d\",\"ts\":0.500,\"dur\":0.100}",
          "\"name\":\"stall: waits for q and 1 more\",\"ts\":0.150,\"dur\":0.250",
          "\"name\":\"q and 1 more\",\"ts\":0.000,\"dur\":0.400,\"args\":{\"bytes\":400}",
          "\"name\":\"q\",\"ts\":0.000,\"dur\":0.100,\"args\":{\"bytes\":100}",
          "\"name\":\"k\",\"ts\":0.100,\"dur\":0.300", "\"name\":\"held bytes\",\"ts\":0.000,\"args\":{\"value\":7}",
          "\"name\":\"budget bytes\",\"ts\":0.000,\"args\":{\"value\":9}"}) {
        CAPTURE(part);
        CAPTURE(text);
        CHECK(count(text, part) == 1);
    }
    CHECK(count(text, "\"ph\":\"s\"") == 1);
    CHECK(count(text, "\"name\":\"waits for\",\"ts\":0.400,\"cat\":\"wait\",\"id\":1,\"bp\":\"e\"") == 1);
}

TEST_CASE("a pass as a table: steps, copies, waits with their cause, and times in which nothing ran") {
    PassTimeline timeline;
    timeline.add_pass({"pass 0", 0us, 90us, 1});
    timeline.add_kernel({"earlier", "x", 0us, 90us});
    timeline.add_pass({"pass 1", 100us, 1000us, 3 * 1024 + 512});
    const std::size_t late = timeline.add_copy({{{"q", 512}, {"k", 1024}}, 320us, 400us});
    const std::size_t long_one = timeline.add_copy({{{"v", 2048}}, 400us, 600us});
    timeline.add_kernel({"first", "a", 100us, 150us, 0, 1});
    timeline.add_kernel({"first", "b", 150us, 200us, 0, 1});
    timeline.add_stall(200us, 400us, late);
    timeline.add_kernel({"second", "c", 400us, 500us, 0, 2});
    timeline.add_stall(500us, 600us, long_one);
    timeline.add_kernel({"", "d", 600us, 650us, 0, 3});
    timeline.add_kernel({std::string(70, 's'), "e\n", 950us, 1000us, 0, 4});
    CHECK(timeline.table() ==
          "pass 1: 0.900 ms, 3.5 KiB copied\n"
          "step                                               weights                start    end  waits  for\n"
          "first                                              a and 1 more           0.000  0.100\n"
          "copy                                               q and 1 more, 1.5 KiB  0.220  0.300\n"
          "copy                                               v, 2.0 KiB             0.300  0.500\n"
          "second                                             c                      0.300  0.400  0.200  "
          "copy of q and 1 more: it began late, the link had stood idle\n"
          "-                                                  d                      0.500  0.550  0.100  "
          "copy of v: the link was busy\n"
          "idle                                               nothing ran            0.550  0.850\n"
          "ssssssssssssssssssssssss…ssssssssssssssssssssssss  e\\x0a                  0.850  0.900\n");
    CHECK(timeline.table(0) ==
          "pass 0: 0.090 ms, 1 B copied\n"
          "step     weights  start    end  waits  for\n"
          "earlier  x        0.000  0.090\n");
    CHECK(timeline.table(1) == timeline.table());
    CHECK(PassTimeline{}.table() == "step  weights  start  end  waits  for\n");
}

TEST_CASE("a stall behind a copy that began late is not the link's, though the link was busy while it lasted") {
    PassTimeline timeline;
    timeline.add_pass({"pass 0", 0us, 1000us, 2048});
    const std::size_t before = timeline.add_copy({{{"a", 512}}, 0us, 100us});
    timeline.add_stall(50us, 100us, before);
    timeline.add_kernel({"first", "a", 100us, 700us});
    const std::size_t late = timeline.add_copy({{{"b", 512}}, 600us, 800us});  // since there was no memory sooner
    timeline.add_stall(700us, 800us, late);
    timeline.add_kernel({"second", "b", 800us, 850us});
    const std::size_t next = timeline.add_copy({{{"c", 1024}}, 810us, 1000us});
    timeline.add_stall(850us, 1000us, next);
    timeline.add_kernel({"third", "c", 1000us, 1001us});
    const std::string text = timeline.table();
    CHECK(text.find("copy of b: it began late, the link had stood idle") != std::string::npos);
    CHECK(text.find("copy of a: the link was busy") != std::string::npos);
    CHECK_FALSE(timeline.began_late(timeline.stalls()[0]));
    CHECK(timeline.began_late(timeline.stalls()[1]));
    CHECK_FALSE(timeline.began_late({700us, 800us, std::nullopt}));
    timeline.add_pass({"all", 0us, 1100us, 2048});
    CHECK(timeline.table().find("copy of c: the link was busy") != std::string::npos);
    using residency::cause_of_stall;
    using residency::StallCause;
    CHECK(cause_of_stall(100us, {}, 60us, {}) == StallCause::room);
    CHECK(cause_of_stall(100us, {}, 20us, 70us) == StallCause::issued_late);
    CHECK(cause_of_stall(100us, 90us, 60us, {}) == StallCause::declared_time);
    CHECK(cause_of_stall(100us, 20us, 20us, 20us) == StallCause::link);
}

TEST_CASE("what is idle between steps is said where it is some per cent of the last pass, with the step before it") {
    const auto idle = [](auto gap) {
        PassTimeline timeline;
        timeline.add_pass({"pass 4", 0us, 1000us + 2 * gap, 0});
        timeline.add_kernel({"a", "a", 0us, 500us});
        timeline.add_kernel({"b", "b", 500us + gap, 600us + gap});
        timeline.add_kernel({"other stream", "o", 600us + gap, 700us + gap, 1});  // of another row: no gap
        timeline.add_stall(700us + gap, 800us + gap, std::nullopt);
        timeline.add_kernel({"c", "c", 800us + gap, 900us + gap});
        timeline.add_kernel({"d", "d", 900us + 2 * gap, 1000us + 2 * gap});
        return timeline.idle_in_words();
    };
    CHECK(idle(0us).empty());
    CHECK(idle(14us).empty());  // 2.7 %
    CHECK(idle(4us).empty());
    CHECK(idle(20us).starts_with("idle between steps: 0.040 ms of 1.040 ms (pass 4), the longest 0.020 ms after a; "));
    CHECK(idle(20us).find("a synchronize of your own") != std::string::npos);
    PassTimeline many;  // of launches: too short to tell
    many.add_pass({"pass 0", 0us, 800us, 0});
    for (int i = 0; i < 100; ++i) { many.add_kernel({"s", "s", i * 8us, i * 8us + 4us}); }
    CHECK(many.idle_in_words().empty());
    PassTimeline covered;  // by a kernel that began before the pass
    covered.add_pass({"pass 1", 100us, 1000us, 0});
    covered.add_kernel({"long", "l", 0us, 900us, 1});
    covered.add_kernel({"a", "a", 100us, 110us});
    covered.add_kernel({"b", "b", 890us, 990us});
    CHECK(covered.idle_in_words().empty());
    CHECK(covered.table().find("nothing ran") == std::string::npos);
    CHECK(PassTimeline{}.idle_in_words().empty());
}

TEST_CASE("a simulated device: copies by weight, kernels by step, and the stall between copy and kernel") {
    SimulatedDevice device;
    const auto memory = unwrap(device.allocate_host(std::size_t{3} << 20));
    const auto host =
        HostBytes::borrow({static_cast<const std::byte*>(memory), std::size_t{3} << 20}, HostMemory::pinned);
    CatalogBuilder builder;
    for (const char* name : {"q", "k", "v"}) {
        StorageOptions options;
        options.source = HostSource{host, (std::uint64_t{1} << 20) * (name[0] == 'q' ? 0U : name[0] == 'k' ? 1U : 2U)};
        builder.add_weight(name, dtype::u8, {std::uint64_t{1} << 20},
                           builder.add_storage(std::uint64_t{1} << 20, options));
    }
    const Catalog catalog = builder.build();
    auto* const there = static_cast<std::byte*>(unwrap(device.allocate(std::size_t{3} << 20)));
    const auto* const here = host->data();
    const auto copies = unwrap(device.create_stream("copies"));
    const auto compute = unwrap(device.create_stream("compute"));
    const auto arrived = unwrap(device.create_event(Timing::off));

    SimulatedTimeline timeline;
    timeline.name_weights(catalog);
    device.observe([&](const SimulatedDevice::ExecutedOperation& operation) { timeline.add(operation); });
    const auto launch = [&](const char* name, const char* step) {
        SimulatedDevice::Kernel kernel;
        kernel.name = name;
        kernel.group = step;
        kernel.duration = 1us;
        unwrap(device.launch(compute, std::move(kernel)));
    };
    const std::size_t mib = std::size_t{1} << 20;
    const Copy both[] = {{there + mib / 2, here + mib / 2, mib}};  // half of q and half of k
    unwrap(device.copy(both, copies));
    unwrap(device.record(arrived, copies));
    launch("before", "step 0");
    unwrap(device.wait(compute, arrived));
    launch("after", "step 1");
    const Copy later[] = {{there + 2 * mib, here + 2 * mib, mib}};
    unwrap(device.copy(later, copies));
    unwrap(device.synchronize());
    unwrap(device.wait(compute, arrived));  // complete: nothing to wait for
    launch("last", "step 1");
    unwrap(device.synchronize());
    device.observe({});

    const auto& drawn = timeline.timeline();
    REQUIRE(drawn.copies().size() == 2);
    REQUIRE(drawn.copies()[0].pieces.size() == 2);
    CHECK(drawn.copies()[0].pieces[0].weight == "q");
    CHECK(drawn.copies()[0].pieces[0].bytes == mib / 2);
    CHECK(drawn.copies()[0].pieces[1].weight == "k");
    CHECK(drawn.copies()[1].pieces[0].weight == "v");
    REQUIRE(drawn.kernels().size() == 3);
    CHECK(drawn.kernels()[0].step == "step 0");
    CHECK(drawn.kernels()[1].name == "after");
    CHECK(drawn.kernels()[1].start == drawn.copies()[0].end);
    const std::string text = drawn.trace().json();
    CAPTURE(text);
    CHECK(count(text, "\"name\":\"stall: waits for q and 1 more\"") == 1);
    CHECK(count(text, "\"name\":\"stall") == 1);
    CHECK(count(text, "\"ph\":\"s\"") == 1);
    CHECK(count(text, "\"ph\":\"f\"") == 1);
    unwrap(device.deallocate(there));
    unwrap(device.deallocate_host(memory));
}

}  // namespace timeline_test
