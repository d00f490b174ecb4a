// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Addresses that are the same whether a weight is leased or not: tables of them, and kernels that read through tables.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace addresses_test {

using namespace planned;
using residency::Budget;
using residency::StepRange;

namespace {

using Table = std::vector<void*>;

Table addresses(const Weights& weights) {
    Table table;
    for (std::uint32_t i = 0; i < weights.catalog().weights().size(); ++i) {
        table.push_back(weights.address(WeightId{i}));
    }
    return table;
}

/// An engine of another make: a table of addresses in device memory, rewritten when the generation changes, and one kernel for each
/// range of steps that finds its weights in the table.
class Engine {
public:
    Engine(Device& device, const Model& model, Weights& weights, Stream stream)
        : device_{device},
          model_{model},
          weights_{weights},
          stream_{stream},
          bytes_{model.catalog.weights().size() * sizeof(void*)},
          table_{static_cast<void**>(must(device.allocate(bytes_)))},
          host_{static_cast<void**>(must(device.allocate_host(bytes_)))} {}
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() {
        must(device_.synchronize());
        must(device_.deallocate(table_));
        must(device_.deallocate_host(host_));
    }
    void pass() {
        auto pass = must(weights_.try_begin(stream_));
        for (const StepRange range : weights_.ranges()) {
            const auto lease = must(pass.try_acquire(range));
            if (weights_.generation() != generation_) { write_table(); }
            launch(range);
        }
        must(pass.try_end());
    }
    [[nodiscard]] std::uint32_t tables_written() const noexcept { return written_; }

private:
    void write_table() {
        must(device_.synchronize(stream_));  // kernels read the table, and copies the host's
        const Table now = addresses(weights_);
        std::memcpy(host_, now.data(), bytes_);
        must(device_.copy({{table_, host_, bytes_}}, stream_));
        generation_ = weights_.generation();
        ++written_;
    }
    void launch(StepRange range) {
        Device::Kernel kernel;
        kernel.name = "persistent";
        kernel.duration = std::chrono::microseconds{2} * (range.last - range.first);
        std::vector<residency::simulation::ByteRange> reads{{table_, bytes_}};
        std::vector<WeightId> ids;
        for (std::uint32_t i = range.first; i < range.last; ++i) {
            for (const WeightId id : weights_.schedule()[i].weights) {
                ids.push_back(id);
                reads.push_back({weights_.address(id), model_.catalog.weight(id).bytes});
            }
        }
        kernel.reads = std::span<const residency::simulation::ByteRange>{reads};
        kernel.body = [ids, table = table_, &model = model_] {
            for (const WeightId id : ids) {
                const residency::Weight& weight = model.catalog.weight(id);
                const std::byte* host = model.catalog.host_bytes(weight.storage) + weight.offset_bytes;
                if (weight.bytes > 0 && std::memcmp(table[index(id)], host, weight.bytes) != 0) { ++*model.wrong; }
                *model.verified += weight.bytes;
            }
        };
        must(device_.launch(stream_, std::move(kernel)));
    }

    Device& device_;
    const Model& model_;
    Weights& weights_;
    Stream stream_;
    std::uint64_t bytes_;
    void** table_;
    void** host_;
    std::uint64_t generation_ = UINT64_MAX;
    std::uint32_t written_ = 0;
};

}  // namespace

TEST_SUITE_BEGIN("planned addresses");

TEST_CASE("C27: an address is the lease's, leased or not, for as long as the generation is the same") {
    CheckedDevice device;
    const Model model = make_model(device,
                                   {{3 * chunk},
                                    {100},
                                    {0},
                                    {5 * chunk},
                                    {chunk, residency::Placement::resident},
                                    {2 * chunk, residency::Placement::host},
                                    {4 * chunk}},
                                   true);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 9 * chunk, in_order(model));
        CHECK(weights.statistics().streaming);
        const Table before = addresses(weights);
        const auto generation = weights.generation();
        for (int p = 0; p < 3; ++p) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                for (const WeightId id : step.weights) {
                    CHECK(lease.data(id) == static_cast<const std::byte*>(before[index(id)]));
                    CHECK(lease.address(id) == before[index(id)]);
                    CHECK(lease.address<std::uint8_t>(id) == weights.address<std::uint8_t>(id));
                    verify(device, model, lease, id, stream);
                }
            }
            must(pass.try_end());
            CHECK(addresses(weights) == before);
            CHECK(weights.generation() == generation);
        }
        CHECK(before[2] == nullptr);  // no bytes
        // A second weight on the later half of the same storage.
        CHECK(static_cast<std::byte*>(before[7]) == static_cast<std::byte*>(before[0]) + 3 * chunk / 2);

        // Out of order, two chunks of one slot together: memory is mapped anew, addresses stay.
        {
            auto pass = must(weights.try_begin(stream));
            const auto a = must(pass.try_acquire(weight(0)));
            const auto b = must(pass.try_acquire(weight(6)));
            verify(device, model, a, weight(0), stream);
            verify(device, model, b, weight(6), stream);
        }
        CHECK(addresses(weights) == before);
        CHECK(weights.generation() == generation);
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "C27: a change of the budget or the schedule that moves weights changes the generation; one that does not, does "
    "not") {
    std::mt19937_64 random{27};
    std::uint32_t moved = 0, stayed = 0;
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        CheckedDevice device;
        const auto made = random_model(random);
        const Model model = make_model(device, made.specs);
        const Schedule schedule = schedule_of(model, made.steps);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make(device, model, 0, schedule);
            Table before = addresses(weights);
            auto generation = weights.generation();
            for (int change = 0; change < 6; ++change) {
                if (random() % 3 == 0) {
                    auto steps = made.steps;
                    std::swap(steps.front(), steps.back());
                    const bool back = random() % 2 == 0;
                    if (!weights.try_set_schedule(back ? schedule : schedule_of(model, steps))) { continue; }
                } else {
                    if (!weights.try_set_budget(Budget::percent_of_weights(random() % 11 * 10))) { continue; }
                }
                const Table now = addresses(weights);
                (now == before ? stayed : moved) += 1;
                if (weights.generation() == generation) { CHECK(now == before); }
                if (now != before) { CHECK(weights.generation() > generation); }
                generation = weights.generation();
                before = now;
                run_pass(weights, model, stream);
                CHECK(addresses(weights) == before);
            }
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
    CHECK(moved > 8);
    CHECK(stayed > 20);
}

TEST_CASE("C27: an open lease keeps addresses and generation through a change of the budget") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 3 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 30 * chunk, in_order(model));
        run_pass(weights, model, stream);
        auto pass = must(weights.try_begin(stream));
        const auto lease = must(pass.try_acquire(weight(3)));
        must(pass.try_end());
        const Table before = addresses(weights);
        const auto generation = weights.generation();
        must(weights.try_set_budget(Budget::bytes(15 * chunk)));
        CHECK(weights.generation() == generation);
        CHECK(addresses(weights) == before);
        verify(device, model, lease, weight(3), stream);
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("C27 C28: kernels over ranges that read weights through a table, rewritten only with the generation") {
    std::mt19937_64 random{28};
    for (int round = 0; round < 20; ++round) {
        CAPTURE(round);
        CheckedDevice device;
        const auto made = random_model(random);
        const Model model = make_model(device, made.specs);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make(device, model, std::uint64_t{1} << 30U, schedule_of(model, made.steps));
            Engine engine{device, model, weights, stream};
            engine.pass();
            CHECK(weights.ranges().size() == 1);
            CHECK(engine.tables_written() == 1);
            for (const std::uint64_t percent : {75U, 50U, 0U, 100U}) {
                const auto generation = weights.generation();
                const auto written = engine.tables_written();
                static_cast<void>(weights.try_set_budget(Budget::percent_of_weights(percent)).has_value());
                for (int p = 0; p < 3; ++p) { engine.pass(); }
                CHECK(engine.tables_written() - written == (weights.generation() != generation ? 1U : 0U));
            }
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
}

TEST_SUITE_END();

}  // namespace addresses_test
