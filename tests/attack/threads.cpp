// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "tests/attack/failed.hpp"
#include "tests/attack/model.hpp"
#include "tests/attack/run.hpp"

namespace attack {
namespace {

using namespace residency;

/// What the threads share.
struct Shared {
    Device& device;
    BudgetBroker& broker;
    std::uint64_t total_bytes;
    std::atomic<std::uint64_t> wrong = 0, ran = 0;
};

void must(const Status& status, const char* what) {
    if (!status) { failed(what, status.error().message()); }
}

void verify(Shared& shared, const Model& model, std::span<const std::byte> bytes, WeightId weight, Stream stream) {
    const std::vector<std::byte>& expected = model.content[index(weight)];
    if (bytes.empty()) { return; }
    Device::Kernel kernel;
    kernel.reads = {{bytes.data(), bytes.size()}};
    kernel.body = [at = bytes.data(), &expected, &shared] {
        ++shared.ran;
        if (std::memcmp(at, expected.data(), expected.size()) != 0) { ++shared.wrong; }
    };
    must(shared.device.launch(stream, std::move(kernel)), "a launch of a kernel");
}

void capture_and_launch(Shared& shared, const Model& model, Subject& subject, Stream stream) {
    const auto body = [&](const CapturedSteps& steps) -> Status {
        for (std::uint32_t step = 0; step < subject.schedule().size(); ++step) {
            if (auto acquired = steps.acquire(step); !acquired) { return acquired; }
            for (const WeightId weight : subject.schedule()[step].weights) {
                verify(shared, model, steps.bytes(weight), weight, stream);
            }
        }
        steps.release();
        return {};
    };
    const Status captured = subject.capture(stream, body);
    if (!captured && captured.error().kind() == ErrorKind::unsupported) { return; }  // a one-shot schedule that streams
    must(captured, "a capture beside other threads");
    ++tally().captures;
    for (int i = 0; i < 2; ++i) {
        const Status launched = subject.launch(subject.graphs() - 1, stream);
        if (!launched && launched.error().kind() != ErrorKind::stale) { must(launched, "a launch of a graph"); }
        ++tally().launches;
    }
    while (subject.graphs() > 0) { subject.drop_graph(0); }
}

/// Lives of one Residency: passes on two streams, the budget as the broker grants it.
void one_thread(Shared& shared, std::span<const Kind> kinds, std::uint64_t seed) {
    Random random{seed};
    const auto one_in = [&](std::uint64_t n) { return random() % n == 0; };
    const Kind kind = kinds[random() % kinds.size()];
    const auto model = make_model(shared.device, random, kind.source);
    Choice choice;
    choice.schedule = model->schedules[0];
    choice.budget = Budget::bytes(0);
    choice.learn = one_in(4);
    const Unpacker unpacker;
    choice.unpacker = &unpacker;
    if (choice.schedule.empty()) { return; }
    const Stream stream = *shared.device.create_stream(), second = *shared.device.create_stream();
    for (int life = 0; life < 2; ++life) {
        const auto sizes = kind.resolve(shared.device, model->catalog, choice);
        if (!sizes && sizes.error().kind() == ErrorKind::unsupported && kind.source == Source::packed) { break; }
        if (!sizes) { failed("the sizes of a budget", sizes.error().message()); }
        auto client = shared.broker.try_add_model({.name = kind.name,
                                                   .priority = static_cast<int>(random() % 3),
                                                   .floor_bytes = sizes->floor_bytes,
                                                   .wanted_bytes = sizes->total_bytes});
        if (!client) { continue; }  // the total has no room for its floor
        std::unique_ptr<Subject> subject;
        for (int tries = 0; tries < 50 && !subject; ++tries) {
            const auto budget = client->try_budget();
            if (!budget) {
                std::this_thread::yield();
                continue;
            }
            choice.budget = *budget;
            auto made = kind.make(shared.device, model->catalog, choice);
            if (!made) { failed("a construction", made.error().message()); }
            subject = std::move(*made);
        }
        if (!subject) { continue; }
        ++tally().constructed;
        for (int pass = 0; pass < 12; ++pass) {
            if (kind.has_graphs() && one_in(4)) { capture_and_launch(shared, *model, *subject, stream); }
            must(subject->begin(one_in(3) ? second : stream), "begin");
            for (std::uint32_t step = 0; step < subject->schedule().size(); ++step) {
                const Stream on = one_in(3) ? second : stream;
                const auto lease = subject->acquire_step(step, on);
                if (!lease) { failed("acquire", lease.error().message()); }
                ++tally().acquired;
                for (const WeightId weight : subject->schedule()[step].weights) {
                    verify(shared, *model, subject->bytes(*lease, weight), weight, on);
                }
                subject->end_lease(*lease);
            }
            must(subject->end(), "end");
            if (auto ended = subject->at_pass_end(*client); !ended) {
                failed("the end of a pass at the broker", ended.error().message());
            }
            if (shared.device.peak_used_bytes() > shared.total_bytes) {
                failed("the total was exceeded",
                       std::to_string(shared.device.peak_used_bytes()) + " > " + std::to_string(shared.total_bytes));
            }
        }
        must(subject->drain(), "drain");
    }
    must(shared.device.synchronize(stream), "synchronize");
    must(shared.device.synchronize(second), "synchronize");
    must(shared.device.destroy_stream(stream), "the end of a stream");
    must(shared.device.destroy_stream(second), "the end of a stream");
}

/// The caller's own memory comes and goes until `stop`.
void own_memory(Shared& shared, broker::MemoryClient& memory, std::uint64_t seed, const std::atomic<bool>& stop) {
    Random random{seed};
    std::vector<std::pair<void*, std::uint64_t>> blocks;
    const auto give_back = [&] {
        const auto [at, bytes] = blocks.back();
        must(shared.device.deallocate(at), "deallocate");
        memory.give_back(bytes);
        blocks.pop_back();
    };
    while (!stop) {
        if (random() % 2 != 0 && blocks.size() < 8) {
            const std::uint64_t bytes = (1 + random() % 10) * 4096;
            if (memory.try_take(bytes)) {
                const auto block = shared.device.allocate(bytes);
                if (!block) { failed("the caller's own memory", block.error().message()); }
                blocks.emplace_back(*block, bytes);
            }
        } else if (!blocks.empty()) {
            give_back();
        }
        std::this_thread::yield();
    }
    while (!blocks.empty()) { give_back(); }
}

}  // namespace

void run_threads(std::span<const Kind> kinds, std::uint64_t seed, unsigned threads) {
    now_at(seed, Mode::calm);
    now_at("threads");
    Random random{seed * 99991 + 5};
    Device::Config config;
    config.memory_bytes = std::uint64_t{64} << 20U;
    config.allocation_granularity = config.pool_granularity = std::uint64_t{1024} << (random() % 3);
    config.chunk_granularity = 4096;
    config.jitter = random() % 2 != 0 ? 1 : 12;
    config.seed = random();
    Device device{config};
    device.on_report([](const Device::Report& report) { failed("the checker reports", report.text); });
    const std::uint64_t total = 200000 + random() % 600000;
    BudgetBroker broker{
        {.total_bytes = total, .hysteresis = 0.05, .most_moved_bytes = std::uint64_t{1} << (12 + random() % 8)}};
    auto memory = broker.try_add_memory({.name = "own", .priority = 1});
    if (!memory) { failed("a client of the broker", memory.error().message()); }
    Shared shared{device, broker, total, {}, {}};
    std::atomic<bool> stop = false;
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back([&, i] { one_thread(shared, kinds, seed * 1000 + i); });
    }
    std::thread own{[&] { own_memory(shared, *memory, seed, stop); }};
    for (std::thread& thread : running) { thread.join(); }
    stop = true;
    own.join();
    if (shared.wrong != 0) { failed("a kernel read wrong bytes"); }
    for (const auto& leak : device.leaks()) { failed("left behind", leak.what); }
    tally().kernels += shared.ran;
    ++tally().cases;
}

}  // namespace attack
