// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/50_compiled/waits.hpp"
#include "residency/aoti/aoti.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/compiled/exported.hpp"
#include "tests/compiled/stand_in/torch.hpp"
#include "tests/support/files.hpp"

namespace capture_test {

using namespace residency;
using test::elements;
using test::Exported;
using test::stand_in_folder;

namespace {

/// A simulated device whose streams are pointers, as those of CUDA: what was compiled for CUDA runs on it.
class PointerDevice : public SimulatedDevice {
public:
    class Stream {
    public:
        Stream() noexcept = default;
        explicit Stream(const SimulatedDevice::Stream* stream) noexcept : stream_{stream} {}
        operator SimulatedDevice::Stream() const noexcept {  // NOLINT(google-explicit-constructor)
            return stream_ == nullptr ? SimulatedDevice::Stream{} : *stream_;
        }
        operator void*() const noexcept {  // NOLINT(google-explicit-constructor)
            return const_cast<SimulatedDevice::Stream*>(stream_);
        }
        friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.stream_ == b.stream_; }

    private:
        const SimulatedDevice::Stream* stream_ = nullptr;
    };
    [[nodiscard]] Result<Stream> create_stream() {
        auto stream = SimulatedDevice::create_stream();
        if (!stream) { return stream.error(); }
        return Stream{streams_.emplace_back(std::make_unique<SimulatedDevice::Stream>(*stream)).get()};
    }
    [[nodiscard]] Status copy(std::span<const Copy> copies, Stream stream) {
        pieces += copies.size();
        return SimulatedDevice::copy(copies, stream);
    }

    std::uint64_t pieces = 0;  // of all copies

private:
    std::vector<std::unique_ptr<SimulatedDevice::Stream>> streams_;
};

using Model = aoti::CompiledModel<Planned<PointerDevice>>;

PointerDevice* device_of_kernels = nullptr;

std::chrono::microseconds eager_time{0}, graph_time{0};  // of a kernel

void launch(void* stream, const void* reads, std::uint64_t bytes, void (*body)(void*), void* context) {
    const auto on = *static_cast<const SimulatedDevice::Stream*>(stream);
    SimulatedDevice::Kernel kernel{.name = "kernel",
                                   .duration = unwrap(device_of_kernels->is_capturing(on)) ? graph_time : eager_time,
                                   .reads = {},
                                   .writes = {},
                                   .body = [body, context] { body(context); }};
    if (bytes > 0) { kernel.reads.push_back({static_cast<const std::byte*>(reads), bytes}); }
    unwrap(device_of_kernels->launch(on, std::move(kernel)));
}

/// A symbol of the stand-in for PyTorch.
template <class T>
T& stand_in_value(const char* name) {
    void* library = ::dlopen((stand_in_folder + "/libtorch_cpu.so").c_str(), RTLD_NOW);
    REQUIRE(library != nullptr);
    void* found = ::dlsym(library, name);
    REQUIRE(found != nullptr);
    return *static_cast<T*>(found);
}

struct Captures {
    Captures() {
        device_of_kernels = &device;
        stand_in_value<stand_in::Launch>("stand_in_launch") = launch;
    }
    ~Captures() {
        device_of_kernels = nullptr;
        eager_time = graph_time = {};
    }
    Captures(const Captures&) = delete;
    Captures& operator=(const Captures&) = delete;

    [[nodiscard]] Model open(const Exported& exported, const char* budget, bool time_stalls = false) {
        format::Program program = exported.program();
        program.device = "cuda:sm_90";
        exported.save(program);
        Model::Options options;
        options.budget = Budget::parse(budget);
        options.package.torch_folder = stand_in_folder;
        options.weights.time_stalls = time_stalls;
        return unwrap(Model::try_open(device, exported.path(), std::move(options)));
    }
    [[nodiscard]] std::vector<aoti::TensorView> inputs() { return {{&factor, dtype::f32, {1}}}; }
    void check(std::span<const aoti::Tensor> outputs) {
        unwrap(device.synchronize(stream));
        REQUIRE(outputs.size() == 1);
        const auto* values = static_cast<const float*>(outputs[0].data());
        CHECK(values[0] == factor * float(elements));
        CHECK(values[1] == factor * 2 * float(elements) + 1);
        CHECK(values[2] == factor * 3 * float(elements));
    }
    [[nodiscard]] float cache(const Model& model) const {
        return *static_cast<const float*>(unwrap(model.try_mutable("cache")).data);
    }

    PointerDevice device;
    PointerDevice::Stream stream = unwrap(device.create_stream());
    float factor = 2;
    std::int64_t& live_pools = stand_in_value<std::int64_t>("stand_in_live_pools");
    std::int64_t& open_pools = stand_in_value<std::int64_t>("stand_in_open_pools");
};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE_FIXTURE(Captures, "a run is captured, and its launches read the inputs and bring the weights each time") {
    const Exported exported;
    for (const char* budget : {"100%", "67%", "0"}) {
        CAPTURE(budget);
        Model model = open(exported, budget);
        check(unwrap(model.try_run("run", inputs(), stream)));
        CHECK(cache(model) == 1);
        auto captured = model.try_capture("run", inputs(), stream);
        REQUIRE_MESSAGE(captured.has_value(), captured.error().message());
        CHECK(live_pools == 1);
        CHECK(open_pools == 0);
        unwrap(device.synchronize(stream));
        CHECK(cache(model) == 1);  // nothing of it has run
        CHECK(model.last_run().steps_not_called.empty());
        for (float next : {3.0F, 5.0F, 2.0F}) {
            factor = next;
            unwrap(captured->try_launch(stream));
            check(captured->outputs());
        }
        CHECK(cache(model) == 4);
        const auto eager = unwrap(model.try_run("run", inputs(), stream));  // they may alternate
        unwrap(captured->try_launch(stream));
        check(captured->outputs());
        check(eager);
        const Statistics statistics = model.weights().statistics();
        CHECK(statistics.held_bytes <= statistics.budget_bytes);
        CHECK(statistics.streaming == (std::string{budget} != "100%"));
    }
    CHECK(live_pools == 0);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "the program compiled says which step of a run waited, and why") {
    const Exported exported;
    const auto explain = [&](const char* budget, std::chrono::microseconds kernel, bool is_graph) {
        eager_time = graph_time = kernel;
        TimelineRecorder<PointerDevice> recorder{device};
        Model model = open(exported, budget, true);
        compiled::Explainer<Model> explainer{model, recorder, "run", inputs(), stream};
        return is_graph ? explainer.graph() : explainer.pass();
    };
    for (const bool is_graph : {false, true}) {
        CAPTURE(is_graph);
        // Kernels take no time: the link is the limit.
        const compiled::Why link = explain("0", std::chrono::microseconds{0}, is_graph);
        CHECK(link.cause == StallCause::link);
        CHECK(link.waits >= 2);
        CHECK(link.longest_milliseconds > 0);
        CHECK(link.longest_milliseconds <= link.waited_milliseconds);
        CHECK(contains(link.text, "the link was busy all the time"));
        // They take long, and the memory for one step is the next one's only when the step is over.
        const compiled::Why room = explain("0", std::chrono::microseconds{2000}, is_graph);
        CHECK(room.cause == StallCause::room);
        CHECK(contains(room.text, "the link stood idle until memory was free"));
        CHECK(room.piece_bytes == std::uint64_t{2} << 20);
        CHECK(room.ring_pieces >= 1);
        for (const compiled::Why* why : {&link, &room}) {
            CAPTURE(why->text);
            CHECK((contains(why->step, "first") || contains(why->step, "second") || contains(why->step, "third")));
            CHECK(contains(why->text, why->step.substr(why->step.find_last_of(' ')).c_str()));
        }
        // Everything stays: nothing waits, and no ring is there.
        const compiled::Why none = explain("100%", std::chrono::microseconds{0}, is_graph);
        CHECK(none.waits == 0);
        CHECK(none.step.empty());
        CHECK(none.ring_pieces == 0);
    }
    compiled::Row row;
    row.milliseconds = 1.2;
    row.bound_milliseconds = 1;
    row.planned_milliseconds = 1.1;
    row.choice = "1.2 ms on the device eagerly, 1.3 ms as a graph";
    row.why = explain("0", std::chrono::microseconds{2000}, false);
    const std::string text = compiled::in_words(row);
    for (const char* part : {"1.200 of the least: the plan takes 1.100 of it, the run 1.091 of the plan; ",
                             "room: ", " pieces of 2 MiB hold what is streamed; 1.2 ms on the device eagerly"}) {
        CHECK_MESSAGE(contains(text, part), text);
    }
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "after a change of the budget a captured run is stale, and is captured again") {
    const Exported exported;
    Model model = open(exported, "0");
    check(unwrap(model.try_run("run", inputs(), stream)));
    auto captured = unwrap(model.try_capture("run", inputs(), stream));
    unwrap(model.weights().try_set_budget(Budget::parse("67%")));
    CHECK(captured.is_stale());
    const Status refused = captured.try_launch(stream);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::stale);
    captured = unwrap(model.try_capture("run", inputs(), stream));
    CHECK(live_pools == 1);
    factor = 7;
    unwrap(captured.try_launch(stream));
    check(captured.outputs());
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "a captured run keeps what it needs of a package that is unloaded") {
    const Exported exported;
    Model model = open(exported, "0");
    for (const char* method : {"again", "run"}) { check(unwrap(model.try_run(method, inputs(), stream))); }
    auto captured = unwrap(model.try_capture("run", inputs(), stream));
    REQUIRE(model.try_release("run"));
    factor = 3;
    unwrap(captured.try_launch(stream));
    check(captured.outputs());
    check(unwrap(model.try_run("again", inputs(), stream)));
}

TEST_CASE_FIXTURE(Captures, "what cannot be captured is refused, and the next run works") {
    const Exported exported, swapped{"MARKERS_SWAPPED"}, without{"WITHOUT_POOLS"};
    Model model = open(exported, "0");
    const auto refusal = [&](Model& of, const char* method) {
        const auto captured = of.try_capture(method, inputs(), stream);
        REQUIRE_FALSE(captured);
        return captured.error().message();
    };
    CHECK(contains(refusal(model, "run"), "run it once before it is captured"));
    CHECK(contains(refusal(model, "fly"), "the model has no method \"fly\""));
    check(unwrap(model.try_run("run", inputs(), stream)));
    const auto none = model.try_capture("run", {}, stream);
    REQUIRE_FALSE(none);
    CHECK(contains(none.error().message(), "takes 1 inputs, not 0"));
    CHECK(live_pools == 0);
    check(unwrap(model.try_run("run", inputs(), stream)));

    // Markers of another export, that come with a package in its place.
    support::write_all(exported.path() + "/again.pt2", support::read_all(swapped.path() + "/again.pt2"));
    REQUIRE_FALSE(model.try_run("again", inputs(), stream));
    CHECK(contains(refusal(model, "again"), "marker 1 came where marker 0 belongs"));
    CHECK(live_pools == 0);
    check(unwrap(model.try_run("run", inputs(), stream)));

    Model older = open(without, "0");
    check(unwrap(older.try_run("run", inputs(), stream)));
    CHECK(contains(refusal(older, "run"), "cannot be captured: it was compiled for the CPU, or by an older export"));
    check(unwrap(older.try_run("run", inputs(), stream)));
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures,
                  "graphs of two callers, with weights that change and memory that is given back between launches") {
    const Exported exported;
    const std::uint64_t free_bytes = unwrap(device.memory()).free_bytes;
    for (const char* budget : {"100%", "0"}) {
        CAPTURE(budget);
        Model model = open(exported, budget);
        auto& weights = model.weights();
        check(unwrap(model.try_run("run", inputs(), stream)));
        const std::uint64_t without_states = unwrap(device.memory()).free_bytes;
        auto first = unwrap(model.try_make_state());
        auto second = unwrap(model.try_make_state());
        const std::uint64_t states = without_states - unwrap(device.memory()).free_bytes;
        const auto caches = [&] {
            unwrap(device.synchronize(stream));
            const auto cache_of = [&](const auto&... of) {
                return *static_cast<const float*>(unwrap(model.try_mutable("cache", of...)).data);
            };
            return std::array{cache_of(), cache_of(first), cache_of(second)};
        };
        using Caches = std::array<float, 3>;
        auto of_first = unwrap(model.try_capture("run", inputs(), stream, {&first}));
        auto of_second = unwrap(model.try_capture("run", inputs(), stream, {&second}));
        CHECK(live_pools == 2);
        CHECK(caches() == Caches{1, 0, 0});
        const auto launch_both = [&] {
            for (auto* graph : {&of_first, &of_second, &of_first}) {
                unwrap(graph->try_launch(stream));
                check(graph->outputs());
            }
        };
        launch_both();
        CHECK(caches() == Caches{1, 2, 1});
        check(unwrap(model.try_run("run", inputs(), stream)));  // on the model's own
        CHECK(caches() == Caches{2, 2, 1});

        // Weights are replaced between launches: the next one reads the new bytes, and the graphs stay valid.
        const WeightId id{1};
        const std::byte* host = weights.catalog().host_bytes(weights.catalog().storage_of(id));
        const std::span<float> values{reinterpret_cast<float*>(const_cast<std::byte*>(host)), elements};
        const auto refresh = [&](float value) {
            unwrap(weights.try_refresh(id, [&] { std::fill(values.begin(), values.end(), value); }));
        };
        refresh(5);
        CHECK_FALSE(of_first.is_stale());
        unwrap(of_second.try_launch(stream));
        unwrap(device.synchronize(stream));
        CHECK(static_cast<const float*>(of_second.outputs()[0].data())[1] == factor * 5 * float(elements) + 1);
        refresh(2);
        launch_both();
        CHECK(caches() == Caches{2, 4, 3});

        // Suspended: no launch, and the callers' states stay where they are.
        unwrap(weights.try_suspend());
        CHECK(unwrap(device.memory()).free_bytes == free_bytes - states);
        const auto refuse = [&](auto& graph, ErrorKind kind) {
            CHECK(graph.is_stale() == (kind == ErrorKind::stale));
            const Status refused = graph.try_launch(stream);
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == kind);
        };
        refuse(of_first, ErrorKind::wrong_state);
        refuse(of_second, ErrorKind::wrong_state);
        unwrap(weights.try_resume());
        CHECK(caches() == Caches{2, 4, 3});

        // Captured again, or not, they go on where they were.
        check(unwrap(model.try_run("run", inputs(), stream, {&second})));
        of_first = unwrap(model.try_capture("run", inputs(), stream, {&first}));
        CHECK(live_pools == 2);
        launch_both();
        CHECK(caches() == Caches{2, 6, 5});

        // Released, the model takes its memory again when it is captured, and refuses what was captured before.
        REQUIRE(model.try_release("run"));
        CHECK(weights.is_suspended());
        refuse(of_second, ErrorKind::wrong_state);
        const auto unloaded = model.try_capture("run", inputs(), stream, {&first});
        REQUIRE_FALSE(unloaded);
        CHECK(contains(unloaded.error().message(), "run it once before it is captured"));
        check(unwrap(model.try_run("run", inputs(), stream, {&first})));
        of_first = unwrap(model.try_capture("run", inputs(), stream, {&first}));
        unwrap(of_first.try_launch(stream));
        check(of_first.outputs());
        CHECK(caches() == Caches{2, 8, 5});
    }
    CHECK(live_pools == 0);
    CHECK(unwrap(device.memory()).free_bytes == free_bytes);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "runs that follow each other: in the way that takes less time, with the same results") {
    const Exported exported;
    for (const char* budget : {"100%", "67%", "0"}) {
        CAPTURE(budget);
        Model model = open(exported, budget);
        Model::RepeatedRun run{"run", inputs()};
        float runs = 0;
        bool was_graph = false;
        const auto settle = [&] {
            for (std::uint32_t i = 0; i < 2 * aoti::GraphChoice::most_runs && !run.is_settled(); ++i) {
                factor = float(i % 5 + 1);
                check(unwrap(model.try_run(run, stream)));
                CHECK(cache(model) == ++runs);
                CHECK(live_pools == (run.is_graph() ? 1 : 0));
                was_graph = was_graph || run.is_graph();
                const Statistics statistics = model.weights().statistics();
                CHECK(statistics.held_bytes <= statistics.budget_bytes);
            }
            CHECK(run.is_settled());
            CHECK(was_graph);
            CHECK_FALSE(run.refusal());
            for (int i = 0; i < 3; ++i) {  // a graph is not complete when the next one comes
                static_cast<void>(unwrap(model.try_run(run, stream)));
                ++runs;
                if (!run.is_graph()) {
                    unwrap(device.synchronize(stream));
                }  // the stand-in's allocator knows no streams
            }
            check(unwrap(model.try_run(run, stream)));
            CHECK(cache(model) == ++runs);
        };
        settle();
        unwrap(model.weights().try_set_budget(Budget::parse("75%")));
        check(unwrap(model.try_run(run, stream)));
        CHECK(cache(model) == ++runs);
        CHECK_FALSE(run.is_graph());
        CHECK_FALSE(run.is_settled());
        was_graph = false;
        settle();
        check(unwrap(model.try_run("again", inputs(), stream)));  // another method
        check(unwrap(model.try_run(run, stream)));
        CHECK(cache(model) == (runs += 2));
        settle();
        REQUIRE(model.try_release("run"));
        check(unwrap(model.try_run(run, stream)));
        CHECK(cache(model) == ++runs);
    }
    CHECK(live_pools == 0);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures,
                  "weights lie on the host in the order of their addresses, whatever their order in the file") {
    std::vector<std::uint64_t> pieces;
    for (const bool reversed : {false, true}) {
        Exported exported;
        exported.write_weights(elements, reversed);
        Model model = open(exported, "0");
        const Catalog& catalog = model.weights().catalog();
        for (std::uint32_t w = 1; w < 3; ++w) {
            const WeightId before{w - 1}, id{w};
            const auto apart = static_cast<std::byte*>(model.weights().address(id)) -
                               static_cast<std::byte*>(model.weights().address(before));
            CHECK(catalog.host_bytes(catalog.storage_of(id)) - catalog.host_bytes(catalog.storage_of(before)) == apart);
        }
        check(unwrap(model.try_run("run", inputs(), stream)));
        const std::uint64_t pieces_before = device.pieces;
        check(unwrap(model.try_run("run", inputs(), stream)));
        pieces.push_back(device.pieces - pieces_before);
    }
    CHECK(pieces[0] > 0);
    CHECK(pieces[1] == pieces[0]);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "runs that follow each other are planned with what their steps take in a graph") {
    using std::chrono::microseconds;
    eager_time = microseconds{400};  // the host takes as long for a kernel
    graph_time = microseconds{20};
    const Exported exported;
    Model model = open(exported, "0");
    Model::RepeatedRun run{"run", inputs()};
    const auto times = [&] {
        std::vector<microseconds> result;
        for (const auto& step : model.weights().schedule()) {
            result.push_back(std::chrono::duration_cast<microseconds>(step.compute.value_or(microseconds{0})));
        }
        return result;
    };
    std::vector<microseconds> eager;
    for (std::uint32_t i = 0; i < 2 * aoti::GraphChoice::most_runs && !run.is_settled(); ++i) {
        if (!run.is_graph()) { eager = times(); }
        check(unwrap(model.try_run(run, stream)));
    }
    REQUIRE(run.is_settled());
    CHECK(run.is_graph());
    const std::vector<microseconds> graph = times();
    CHECK(std::accumulate(eager.begin(), eager.end(), microseconds{0}) >= graph.size() * eager_time);
    for (const microseconds time : graph) {  // each step by itself
        CHECK(time >= graph_time);
        CHECK(time < 5 * graph_time);
    }
    CHECK(live_pools == 1);

    // By hand.
    auto timed = unwrap(model.try_capture("run", inputs(), stream, {nullptr, Timing::on}));
    while (timed.is_learning()) {
        unwrap(timed.try_launch(stream));
        check(timed.outputs());
    }
    CHECK_FALSE(timed.is_stale());
    check(unwrap(model.try_run("run", inputs(), stream)));
    CHECK(timed.is_stale());

    // On a caller's state: what kernels write there is not the model's own.
    auto state = unwrap(model.try_make_state());
    const float own = cache(model);
    std::uint32_t launches = 0;
    {
        auto of_caller = unwrap(model.try_capture("run", inputs(), stream, {&state, Timing::on}));
        for (; of_caller.is_learning(); ++launches) {
            unwrap(of_caller.try_launch(stream));
            check(of_caller.outputs());
        }
    }
    CHECK(launches > 0);
    CHECK(cache(model) == own);
    CHECK(*static_cast<const float*>(unwrap(model.try_mutable("cache", state)).data) == float(launches));
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "where eager runs take less time, they go on by the plan that they were timed with") {
    using std::chrono::microseconds;
    eager_time = microseconds{20};
    graph_time = microseconds{400};
    const Exported exported;
    Model model = open(exported, "0");
    Model::RepeatedRun run{"run", inputs()};
    Schedule eager, graph;
    for (std::uint32_t i = 0; i < 4 * aoti::GraphChoice::most_runs && !run.is_settled(); ++i) {
        check(unwrap(model.try_run(run, stream)));
        Schedule& seen = run.is_graph() ? graph : eager;
        if (!run.is_graph() || run.is_settled()) { seen = model.weights().schedule(); }
    }
    REQUIRE(run.is_settled());
    CHECK_FALSE(eager == graph);  // that was in force when graphs were timed
    for (int i = 0; i < 2; ++i) {
        check(unwrap(model.try_run(run, stream)));
        CHECK_FALSE(run.is_graph());
        CHECK(model.weights().schedule() == eager);
        check(unwrap(model.try_run("again", inputs(), stream)));  // another method
    }
    check(unwrap(model.try_run(run, stream)));
    CHECK(model.weights().schedule() == eager);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "runs in turns that end each other's timing settle all the same") {
    using std::chrono::microseconds;
    eager_time = microseconds{400};
    graph_time = microseconds{20};
    const Exported exported;
    Model model = open(exported, "0");
    Model::RepeatedRun one{"run", inputs()}, other{"run", inputs()};
    const auto are_settled = [&] { return one.is_settled() && other.is_settled(); };
    for (std::uint32_t i = 0; i < 2 * aoti::GraphChoice::most_runs && !are_settled(); ++i) {
        for (auto* run : {&one, &other}) { check(unwrap(model.try_run(*run, stream))); }
    }
    CHECK(are_settled());
    for (const auto* run : {&one, &other}) { CHECK(run->is_graph()); }
    for (const auto& step : model.weights().schedule()) { CHECK(step.compute < 5 * graph_time); }

    // Eager runs of the same method between the launches.
    unwrap(model.weights().try_set_budget(Budget::parse("67%")));
    for (std::uint32_t i = 0; i < 2 * aoti::GraphChoice::most_runs && !one.is_settled(); ++i) {
        check(unwrap(model.try_run(one, stream)));
        check(unwrap(model.try_run("run", inputs(), stream)));
    }
    CHECK(one.is_settled());
    CHECK(one.is_graph());
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "a program of one's own repeats a run") {
    const Exported exported;
    Model model = open(exported, "67%");
    Model::RepeatedRun decode{"run", inputs()};  // inputs stay where they are
    for (int token = 0; token < 30; ++token) {
        const auto outputs = unwrap(model.try_run(decode, stream));  // eagerly, or as a graph; valid until the next run
        check(outputs);
    }
    CHECK(cache(model) == 30);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Captures, "runs of two methods by turns are eager, and so is what cannot be captured") {
    const Exported exported, without{"WITHOUT_POOLS"};
    Model model = open(exported, "0");
    auto state = unwrap(model.try_make_state());
    Model::RepeatedRun run{"run", inputs()}, again{"again", inputs(), {&state}};
    for (std::uint32_t i = 0; i < aoti::GraphChoice::most_runs; ++i) {
        for (auto* each : {&run, &again}) {
            check(unwrap(model.try_run(*each, stream)));
            CHECK_FALSE(each->is_graph());
        }
    }
    CHECK(cache(model) == float(aoti::GraphChoice::most_runs));
    CHECK(live_pools == 0);

    Model older = open(without, "0");
    Model::RepeatedRun eager{"run", inputs()};
    for (std::uint32_t i = 0; i < 2 * aoti::GraphChoice::most_runs && !eager.is_settled(); ++i) {
        check(unwrap(older.try_run(eager, stream)));
        CHECK_FALSE(eager.is_graph());
    }
    CHECK(eager.is_settled());
    REQUIRE(eager.refusal());
    CHECK(contains(eager.refusal()->message(), "cannot be captured"));
    CHECK(device.report_count() == 0);
}

TEST_CASE("the way that took less time is chosen, once both are known") {
    using aoti::GraphChoice;
    using Way = GraphChoice::Way;
    using std::chrono::nanoseconds;
    const auto run = [](GraphChoice& choice, std::int64_t eager, std::int64_t graph) {
        std::uint32_t captures = 0;
        for (std::uint32_t i = 0; i < 4 * GraphChoice::most_runs && !choice.is_settled(); ++i) {
            if (choice.way() == Way::capture_timed || choice.way() == Way::capture) {
                ++captures;
                choice.captured();
            }
            const auto time = [](std::int64_t value) {
                return value > 0 ? GraphChoice::Time{nanoseconds{value}} : GraphChoice::Time{};
            };
            if (choice.way() == Way::timed_graph) {
                choice.learned();
            } else if (choice.way() == Way::graph) {
                choice.launched(time(graph));
            } else {
                choice.ran_eagerly(false, time(eager));
            }
        }
        CHECK(choice.is_settled());
        return captures;
    };
    GraphChoice faster, slower, unknown;
    CHECK(run(faster, 200, 100) == 2);
    CHECK(faster.way() == Way::graph);
    CHECK(run(slower, 100, 200) == 2);
    CHECK(slower.way() == Way::eager);
    slower.interrupted();
    CHECK(slower.is_settled());
    CHECK(run(unknown, 0, 0) == 2);  // no time is ever known
    CHECK(unknown.way() == Way::graph);

    // Where times come late, as from a host that is far ahead, both are waited for.
    GraphChoice late;
    for (std::uint32_t i = 0; i < 3 * GraphChoice::timed_runs + GraphChoice::untimed_runs; ++i) {
        CHECK(late.way() == Way::eager);
        late.ran_eagerly(false, {});
    }
    late.ran_eagerly(false, nanoseconds{100});
    CHECK(late.way() == Way::capture_timed);
    late.captured();
    CHECK(late.way() == Way::timed_graph);
    late.interrupted();  // by another method: everything again, except what one launch has said
    CHECK(late.way() == Way::eager);
    CHECK(run(late, 200, 100) == 1);
    CHECK(late.way() == Way::graph);

    // A graph that was lost is captured again, behind runs that follow each other, and is not measured again.
    faster.lost_graph();
    for (std::uint32_t i = 0; i < 10 * GraphChoice::untimed_runs; ++i) {
        CHECK(faster.way() == Way::eager);
        CHECK_FALSE(faster.is_settled());
        if (i % (GraphChoice::untimed_runs - 1) == 0) { faster.interrupted(); }
        faster.ran_eagerly(false, nanoseconds{1});
    }
    faster.interrupted();
    for (std::uint32_t i = 0; i < GraphChoice::untimed_runs; ++i) { faster.ran_eagerly(false, nanoseconds{1}); }
    CHECK(faster.way() == Way::capture);
    faster.captured();
    CHECK(faster.is_settled());
    faster.launched(nanoseconds{1000});
    CHECK(faster.way() == Way::graph);

    // Runs that learn are not timed, and do not go on for ever.
    GraphChoice learning;
    for (std::uint32_t i = 0; i < GraphChoice::most_runs; ++i) { learning.ran_eagerly(true, nanoseconds{1}); }
    for (std::uint32_t i = 0; i < GraphChoice::untimed_runs + GraphChoice::timed_runs; ++i) {
        CHECK(learning.way() == Way::eager);
        learning.ran_eagerly(true, nanoseconds{300});
    }
    CHECK(learning.way() == Way::capture_timed);
    learning.learned();  // nothing streams: no step has to be timed
    CHECK(learning.way() == Way::capture);
    CHECK(run(learning, 300, 200) == 1);
    CHECK(learning.way() == Way::graph);

    GraphChoice refused;
    refused.refused();
    CHECK(refused.is_settled());
    CHECK(refused.way() == Way::eager);
}

TEST_CASE("each run has its own time, and what was read once is not read again") {
    SimulatedDevice device;
    {
        const SimulatedDevice::Stream stream = unwrap(device.create_stream());
        aoti::RunTimer<SimulatedDevice> timer{device};
        const auto run = [&](bool is_graph, std::chrono::microseconds time) {
            timer.start(stream);
            SimulatedDevice::Kernel kernel;
            kernel.duration = time;
            unwrap(device.launch(stream, std::move(kernel)));
            timer.stop(stream, is_graph);
        };
        using std::chrono::microseconds;
        CHECK_FALSE(timer.read(false));
        run(false, microseconds{300});
        CHECK_FALSE(timer.read(false));  // not complete yet
        run(false, microseconds{200});
        unwrap(device.synchronize(stream));
        const auto eager = timer.read(false);
        REQUIRE(eager);
        CHECK(*eager >= microseconds{200});
        CHECK(*eager < microseconds{300});
        CHECK_FALSE(timer.read(false));
        run(false, microseconds{100});
        run(true, microseconds{500});
        unwrap(device.synchronize(stream));
        const auto graph = timer.read(true);  // not that of the eager run
        REQUIRE(graph);
        CHECK(*graph >= microseconds{500});
        CHECK_FALSE(timer.read(false));
        // The host is ahead: as many as there is room for are timed, and the others run all the same.
        for (int i = 0; i < 40; ++i) { run(false, microseconds{i == 30 ? 1 : 50}); }
        unwrap(device.synchronize(stream));
        const auto first = timer.read(false);
        REQUIRE(first);
        CHECK(*first >= microseconds{50});
        run(true, microseconds{10});
        unwrap(device.synchronize(stream));
        CHECK(timer.read(true).has_value());
        // A call that fails costs the time alone.
        device.fail(simulation::CallKind::record, 1);
        run(true, microseconds{10});
        unwrap(device.synchronize(stream));
        CHECK_FALSE(timer.read(true));
        unwrap(device.destroy_stream(stream));
    }
    CHECK(device.report_count() == 0);
    CHECK(device.leaks().empty());
}

}  // namespace capture_test
