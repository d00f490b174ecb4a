// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/aoti/aoti.hpp"
#include "residency/broker/broker.hpp"
#include "residency/broker/model_group.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/format/program.hpp"
#include "residency/model/ids.hpp"
#include "residency/plan/held_between_passes.hpp"
#include "residency/planned.hpp"
#include "residency/residency.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/compiled/exported.hpp"
#include "tests/support/files.hpp"
#include "tests/support/zip_archive.hpp"

namespace aoti_test {

using namespace residency;
using test::elements;
using test::Exported;
using test::stand_in_folder;

namespace {

using Weights = Planned<SimulatedDevice>;
using Model = aoti::CompiledModel<Weights>;

struct Fixture {
    SimulatedDevice device;
    SimulatedDevice::Stream stream = unwrap(device.create_stream());
    float factor = 2;

    [[nodiscard]] Result<Model> try_open(const Exported& exported, const char* budget = nullptr) {
        Model::Options options;
        if (budget != nullptr) { options.budget = Budget::parse(budget); }
        options.package.torch_folder = stand_in_folder;
        return Model::try_open(device, exported.path(), std::move(options));
    }
    [[nodiscard]] std::vector<aoti::TensorView> inputs() { return {{&factor, dtype::f32, {1}}}; }
    [[nodiscard]] std::string refusal(const Exported& exported) {
        Model model = unwrap(try_open(exported));
        const auto ran = model.try_run("run", inputs(), stream);
        REQUIRE_FALSE(ran);
        return ran.error().message();
    }
    void check_outputs(const std::vector<aoti::Tensor>& outputs) const {
        REQUIRE(outputs.size() == 1);
        CHECK(outputs[0].dtype() == dtype::f32);
        REQUIRE(outputs[0].shape() == Shape{3});
        const auto* values = static_cast<const float*>(outputs[0].data());
        CHECK(values[0] == factor * float(elements));
        CHECK(values[1] == factor * 2 * float(elements) + 1);
        CHECK(values[2] == factor * 3 * float(elements));
    }
};

std::int64_t live_tensors() {
    void* library = ::dlopen((stand_in_folder + "/libtorch_cpu.so").c_str(), RTLD_NOW);
    REQUIRE(library != nullptr);
    const auto count = reinterpret_cast<std::int64_t (*)()>(::dlsym(library, "stand_in_live_tensors"))();
    ::dlclose(library);
    return count;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a compiled model runs at every budget, and its methods follow each other") {
    const Exported exported;
    for (const char* budget : {"100%", "67%", "0"}) {
        CAPTURE(budget);
        Model model = unwrap(try_open(exported, budget));
        for (const char* method : {"run", "run", "again", "run"}) {
            const auto ran = model.try_run(method, inputs(), stream);
            REQUIRE_MESSAGE(ran.has_value(), ran.error().message());
            check_outputs(*ran);
            CHECK(model.last_run().steps_not_called.empty());
            CHECK(model.last_run().weights_not_reached.empty());
        }
        const Statistics statistics = model.weights().statistics();
        CHECK(statistics.held_bytes <= statistics.budget_bytes);
        CHECK(statistics.streaming == (std::string_view{budget} != "100%"));
        CHECK(statistics.last_pass.divergences == 0);
        const aoti::TensorView cache = unwrap(model.try_mutable("cache"));
        CHECK(static_cast<const float*>(cache.data)[0] == 4);  // what kernels write stays from run to run
    }
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "tensors are given back, also by runs that fail") {
    const std::int64_t before = live_tensors();
    {
        const Exported exported, failing{"FAILS"};
        Model model = unwrap(try_open(exported, "0"));
        {
            auto outputs = unwrap(model.try_run("run", inputs(), stream));
            auto moved = std::move(outputs);
            check_outputs(moved);
        }
        CHECK(live_tensors() == before + 4);  // the constants
        Model other = unwrap(try_open(failing, "0"));
        CHECK_FALSE(other.try_run("run", inputs(), stream));
        CHECK(live_tensors() == before + 8);
        REQUIRE(model.try_release("run"));
        CHECK(live_tensors() == before + 4);
        check_outputs(unwrap(model.try_run("run", inputs(), stream)));  // it is loaded again
    }
    CHECK(live_tensors() == before);
}

TEST_CASE_FIXTURE(Fixture, "a program of one's own runs a compiled model") {
    const Exported exported;
    const std::string folder = exported.path(), torch = stand_in_folder;
    const std::vector<aoti::TensorView> arguments = inputs();
    using CompiledModel = aoti::CompiledModel<Planned<SimulatedDevice>>;  // on a GPU: Planned<CudaDevice>

    auto model = unwrap(
        CompiledModel::try_open(device, folder, {.budget = Budget::parse("67%"), .package = {.torch_folder = torch}}));
    for (int token = 0; token < 3; ++token) {
        const auto outputs = unwrap(model.try_run("run", arguments, stream));  // enqueued on the stream
        unwrap(device.synchronize(stream));
        check_outputs(outputs);
    }
    const aoti::RunReport& left_out = model.last_run();  // empty where the package did all that its program says
    unwrap(model.weights().try_set_budget(Budget::parse("100%")));  // between runs
    CHECK(left_out.steps_not_called.empty());
}

TEST_CASE_FIXTURE(Fixture, "the budget of a compiled model changes between runs") {
    const Exported exported;
    Model model = unwrap(try_open(exported, "0"));
    for (const char* budget : {"100%", "0", "67%", "100%"}) {
        CAPTURE(budget);
        unwrap(model.weights().try_set_budget(Budget::parse(budget)));
        check_outputs(unwrap(model.try_run("run", inputs(), stream)));
        check_outputs(unwrap(model.try_run("again", inputs(), stream)));
        const Statistics statistics = model.weights().statistics();
        CHECK(statistics.held_bytes <= statistics.budget_bytes);
    }
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "several compiled models share one total, which changes between runs without a reload") {
    const Exported first, second;
    auto& gpu = device;
    using CompiledModel = Model;
    const aoti::PackageOptions torch{.torch_folder = stand_in_folder};
    BudgetBroker broker = BudgetBroker::create(gpu, "16MiB");
    const auto open = [&](const char* name, const std::string& folder) {
        auto sizes = unwrap(CompiledModel::try_resolve_budget(gpu, folder, {.budget = Budget::bytes(0)}));
        auto client = broker.add_model(
            {.name = name, .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
        auto model = unwrap(CompiledModel::try_open(gpu, folder, {.budget = client.budget(), .package = torch}));
        return std::pair{std::move(client), std::move(model)};
    };
    auto [chat_share, chat] = open("chat", first.path());
    auto [code_share, code] = open("code", second.path());
    for (const char* total : {"16MiB", "12MiB", "24MiB", "13MiB"}) {
        CAPTURE(total);
        unwrap(broker.try_set_total(gpu, total));  // from any thread
        for (int run = 0; run < 3; ++run) {
            check_outputs(unwrap(chat.try_run("run", inputs(), stream)));
            chat_share.at_pass_end(chat.weights());
            check_outputs(unwrap(code.try_run(run == 1 ? "again" : "run", inputs(), stream)));
            code_share.at_pass_end(code.weights());
        }
        const auto sums = broker.statistics();
        CHECK(sums.granted_bytes <= sums.total_bytes);
        CHECK(chat.weights().budget().bytes + code.weights().budget().bytes <= sums.total_bytes);
        for (const Model* each : {&chat, &code}) {  // equal shares, of no more than there is to hold
            const auto& budget = each->weights().budget();
            CHECK(budget.bytes + (std::uint64_t{1} << 20) >=
                  (std::min)(sums.total_bytes / 2, budget.resident_from_bytes));
        }
    }
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "compiled models take turns in one part of a total") {
    const Exported first, second;
    BudgetBroker broker = BudgetBroker::create(device, "14MiB");
    ModelGroup<SimulatedDevice> group{device, broker};
    const auto open = [&](const std::string& folder) {
        Model::Options options;
        options.budget = Budget::parse("100%");
        options.package.torch_folder = stand_in_folder;
        options.weights.policies.pool.stock = &group.stock();
        group.make_room(unwrap(Model::try_resolve_budget(device, folder, options)).total_bytes);
        return unwrap(Model::try_open(device, folder, std::move(options)));
    };
    Model chat = open(first.path());
    auto chat_member = group.add(chat.weights(), {.name = "chat"});
    Model code = open(second.path());
    auto code_member = group.add(code.weights(), {.name = "code"});
    for (int turn = 0; turn < 3; ++turn) {
        {
            const auto use = group.activate(chat_member);
            check_outputs(unwrap(chat.try_run("run", inputs(), stream)));
            CHECK(code.weights().is_suspended());
        }
        const auto use = group.activate(code_member);
        check_outputs(unwrap(code.try_run("again", inputs(), stream)));
        CHECK(chat.weights().is_suspended());
    }
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "methods are loaded and released in any order, and the last gives the device's bytes back") {
    const Exported exported;
    const std::uint64_t free_bytes = unwrap(device.memory()).free_bytes;
    Model model = unwrap(try_open(exported, "0"));
    for (const auto& [first, second] : {std::pair{"run", "again"}, {"again", "run"}}) {
        CAPTURE(first);
        const auto before = *static_cast<const float*>(unwrap(model.try_mutable("cache")).data);
        unwrap(model.try_load("again"));
        unwrap(model.try_load("run"));
        check_outputs(unwrap(model.try_run("run", inputs(), stream)));
        unwrap(model.try_release(first));
        CHECK_FALSE(model.weights().is_suspended());
        check_outputs(unwrap(model.try_run(second, inputs(), stream)));
        unwrap(model.try_release(first));  // it is not loaded
        unwrap(model.try_release(second));
        CHECK(model.weights().is_suspended());
        CHECK(unwrap(device.memory()).free_bytes == free_bytes);
        const auto nowhere = model.try_mutable("cache");
        REQUIRE_FALSE(nowhere);
        CHECK(nowhere.error().kind() == ErrorKind::wrong_state);
        // What kernels wrote is still there.
        unwrap(model.try_load(first));
        CHECK(*static_cast<const float*>(unwrap(model.try_mutable("cache")).data) == before + 2);
    }
    check_outputs(unwrap(model.try_run("again", inputs(), stream)));
    unwrap(model.weights().try_suspend());
    check_outputs(unwrap(model.try_run("run", inputs(), stream)));  // which takes the memory again
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "several callers share the weights, each with its own state") {
    const Exported exported;
    Model model = unwrap(try_open(exported, "0"));
    const std::uint64_t free_bytes = unwrap(device.memory()).free_bytes;
    {
        auto first = unwrap(model.try_make_state());  // as the model begins
        auto second = unwrap(model.try_make_state());
        auto of_first = unwrap(model.try_run("run", inputs(), stream, {&first}));
        auto of_second = unwrap(model.try_run("again", inputs(), stream, {&second}));
        check_outputs(of_first);
        check_outputs(of_second);
        CHECK(first.bytes() == 16 * sizeof(float));
        const auto cache_of = [&](const auto&... state) {
            const aoti::TensorView view = unwrap(model.try_mutable("cache", state...));
            CHECK(view.shape == Shape{16});
            return *static_cast<const float*>(view.data);
        };
        check_outputs(unwrap(model.try_run("run", inputs(), stream, {&first})));
        check_outputs(unwrap(model.try_run("run", inputs(), stream)));
        check_outputs(unwrap(model.try_run("run", inputs(), stream, {&first})));
        unwrap(model.weights().try_set_budget(Budget::parse("100%")));
        check_outputs(unwrap(model.try_run("again", inputs(), stream, {&second})));
        CHECK(cache_of(first) == 3);
        CHECK(cache_of(second) == 2);
        CHECK(cache_of() == 1);
        unwrap(model.weights().try_suspend());  // a caller's state is the caller's
        CHECK(cache_of(first) == 3);

        unwrap(model.try_reset(first));
        CHECK(cache_of(first) == 0);
        auto moved = std::move(first);
        check_outputs(unwrap(model.try_run("run", inputs(), stream, {&moved})));
        moved = std::move(second);
        check_outputs(unwrap(model.try_run("run", inputs(), stream, {&moved})));
        CHECK(cache_of(moved) == 3);
        CHECK(cache_of() == 1);
        unwrap(model.weights().try_set_budget(Budget::parse("0")));
    }
    CHECK(unwrap(device.memory()).free_bytes == free_bytes);
    CHECK(device.report_count() == 0);

    Model other = unwrap(try_open(exported, "0"));
    auto state = unwrap(other.try_make_state());
    device.fail(simulation::CallKind::allocate, 1, ErrorKind::out_of_memory);
    const auto refused = other.try_make_state();
    device.clear_failures();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::out_of_memory);
    check_outputs(unwrap(model.try_run("run", inputs(), stream, {&state})));  // the same weights
    CHECK(*static_cast<const float*>(unwrap(other.try_mutable("cache", state)).data) == 1);
}

TEST_CASE_FIXTURE(Fixture, "the budget: set by whoever runs it, stored in the program, automatic") {
    const Exported stored{"good", "67%"};
    CHECK(unwrap(try_open(stored)).weights().statistics().streaming);
    CHECK_FALSE(unwrap(try_open(stored, "100%")).weights().statistics().streaming);
    const Exported automatic;
    CHECK_FALSE(unwrap(try_open(automatic)).weights().statistics().streaming);
    const auto below = try_open(stored, "1%");
    REQUIRE_FALSE(below);
    CHECK(below.error().kind() == ErrorKind::budget);
    const Exported nonsense{"good", "much"};
    const auto refused = try_open(nonsense);
    REQUIRE_FALSE(refused);
    CHECK(contains(refused.error().message(), "the budget stored in"));
}

TEST_CASE_FIXTURE(Fixture, "packages and programs that do not belong together are refused, with what differs") {
    CHECK(contains(refusal(Exported{"ANOTHER_NAME"}),
                   "the constant \"w_1\" is \"v.1\" to the package and \"w.1\" to the program"));
    CHECK(contains(refusal(Exported{"CONSTANT_MISSING"}), "the program has a constant \"w.2\" that the package lacks"));
    CHECK(contains(refusal(Exported{"CONSTANT_MORE"}), "the package has a constant \"w.3\" that the program lacks"));
    CHECK(contains(refusal(Exported{"FOLDED"}), "export it with aot_inductor.use_runtime_constant_folding = False"));
    CHECK(contains(refusal(Exported{"OTHER_ARCHITECTURE"}), "compiled for another device or architecture"));
    CHECK(contains(refusal(Exported{"SYMBOL_MISSING"}),
                   "the symbol AOTInductorModelContainerGetConstantDataSize is missing"));
    CHECK(contains(refusal(Exported{"INTERFACE_MISSING"}),
                   "compiled by a PyTorch that is not known; export it with 2.11: the symbol "
                   "AOTInductorModelContainerGetNumOutputs is missing"));
    CHECK(contains(refusal(Exported{"WITHOUT_HOOKS"}), "it has no markers; export it with residency_export"));
    CHECK(contains(refusal(Exported{"HOOK_VERSION"}), "its markers are of version 2"));
    CHECK(contains(refusal(Exported{"UNMARKED"}), "the package called no marker"));

    const Exported probed;
    format::Program program = probed.program();
    program.methods[1].steps[0].live_until = 2;
    probed.save(program);
    const auto refused = try_open(probed);
    REQUIRE_FALSE(refused);
    CHECK(contains(refused.error().message(),
                   "method \"again\": its step \"first\" is no probe of one weight, and others are"));
    program.methods[1].steps[0].kernels = "probe 0";
    probed.save(program);
    const auto mixed = try_open(probed);
    REQUIRE_FALSE(mixed);
    CHECK(contains(mixed.error().message(), "its step \"second\" is no probe of one weight"));

    // Programs and packages of the other kind.
    Exported markers{"PROBES"}, probes;
    const format::Program of_probes = markers.program();
    markers.save(probes.program());
    CHECK(contains(refusal(markers), "probe 2 came where the end belongs"));
    probes.save(of_probes);
    CHECK(contains(refusal(probes), "the package has markers, and its program has probes"));
    program = of_probes;
    std::swap(program.methods[0].steps[0].kernels, program.methods[0].steps[1].kernels);
    markers.save(program);
    CHECK(contains(refusal(markers), "probe 2 came where probe 0 belongs"));
    program = of_probes;
    program.methods[0].steps[2].weights = {WeightId{3}};
    markers.save(program);
    const auto written = try_open(markers);
    REQUIRE_FALSE(written);
    CHECK(contains(
        written.error().message(),
        "its step \"probe 1\" is a probe of \"cache\", which kernels write, and what they write to a probe is lost"));
}

TEST_CASE_FIXTURE(Fixture, "everything resident: a run is one lease, and makes hardly a call of the device") {
    using Kind = simulation::CallKind;
    const Exported exported;
    Model model = unwrap(try_open(exported, "100%"));
    for (int i = 0; i < 20; ++i) {
        check_outputs(unwrap(model.try_run("run", inputs(), stream)));
    }  // the first are timed
    const std::uint64_t acquires = model.weights().statistics().total.acquires;
    const auto before = device.statistics();
    constexpr int runs = 16;
    for (int i = 0; i < runs; ++i) { check_outputs(unwrap(model.try_run("run", inputs(), stream))); }
    const auto after = device.statistics();
    CHECK(model.weights().statistics().total.acquires - acquires == runs);
    CHECK(model.weights().statistics().last_pass.divergences == 0);
    std::uint64_t calls = 0;
    for (std::size_t kind = 0; kind < static_cast<std::size_t>(Kind::any); ++kind) {
        calls += after.of(static_cast<Kind>(kind)) - before.of(static_cast<Kind>(kind));
    }
    // Each run asks whether its stream is captured, and again where it waits, since a CPU's kernels do. One of them is timed: two
    // events are recorded, and later found complete and read.
    CHECK(after.of(Kind::is_capturing) - before.of(Kind::is_capturing) == 2 * runs);
    CHECK(after.of(Kind::synchronize_stream) - before.of(Kind::synchronize_stream) == runs);
    CHECK(after.of(Kind::record) - before.of(Kind::record) == 2);
    CHECK(after.of(Kind::elapsed) - before.of(Kind::elapsed) == 2);
    CHECK(calls == 3 * runs + 6);
}

TEST_CASE_FIXTURE(Fixture, "steps between which nothing has to come share a lease") {
    const Exported exported;
    Model model = unwrap(try_open(exported, "67%"));
    for (int i = 0; i < 3; ++i) { check_outputs(unwrap(model.try_run("run", inputs(), stream))); }
    const Statistics before = model.weights().statistics();
    check_outputs(unwrap(model.try_run("run", inputs(), stream)));
    CHECK(model.weights().statistics().total.acquires - before.total.acquires == model.weights().ranges().size());
    CHECK(model.weights().ranges().size() < 4);
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a switch of methods plans nothing, and brings only what the one before did not hold") {
    const Exported exported;
    format::Program program = exported.program();
    std::swap(program.methods[1].steps[0].compute, program.methods[1].steps[2].compute);
    program.methods[1].steps[0].compute = std::chrono::milliseconds{3};
    exported.save(program);
    for (const char* budget : {"100%", "89%", "67%", "0"}) {
        CAPTURE(budget);
        Model::Options options;
        options.budget = Budget::parse(budget);
        options.package.torch_folder = stand_in_folder;
        options.weights.learn = false;
        Model model = unwrap(Model::try_open(device, exported.path(), std::move(options)));
        const auto run = [&](const char* method) {
            check_outputs(unwrap(model.try_run(method, inputs(), stream)));
            return model.weights().statistics().last_pass.fetched_bytes;
        };
        for (const char* method : {"run", "again", "run", "again"}) { run(method); }
        for (const char* next : {"run", "again", "run"}) {
            CAPTURE(next);
            const std::vector<bool> held = plan::held_between_passes(model.weights().plan());
            const std::uint64_t plans = model.weights().statistics().total.plans_made;
            const std::uint64_t first = run(next), steady = run(next);
            const plan::Plan& plan = model.weights().plan();
            const std::vector<bool> wanted = plan::held_between_passes(plan);
            std::uint64_t difference = 0;
            for (std::size_t chunk = 0; chunk < wanted.size(); ++chunk) {
                difference += wanted[chunk] && !held[chunk] ? plan.chunk_bytes() : 0;
            }
            CHECK(model.weights().statistics().total.plans_made == plans);
            CHECK(first <= steady + difference);
            if (!model.weights().statistics().streaming) { CHECK(first == 0); }
        }
    }
    CHECK(device.report_count() == 0);
}

namespace {

/// A model whose methods have probes, in one composition.
template <class AnyWeights>
void run_probed(Fixture& fixture, std::initializer_list<const char*> budgets, bool is_streamed = true) {
    using Probed = aoti::CompiledModel<AnyWeights>;
    const Exported exported{"PROBES"};
    for (const char* budget : budgets) {
        CAPTURE(budget);
        typename Probed::Options options;
        options.budget = Budget::parse(budget);
        options.package.torch_folder = stand_in_folder;
        Probed model = unwrap(Probed::try_open(fixture.device, exported.path(), std::move(options)));
        auto state = unwrap(model.try_make_state());
        for (const char* method : {"run", "again", "run"}) {
            const auto ran = model.try_run(method, fixture.inputs(), fixture.stream);
            REQUIRE_MESSAGE(ran.has_value(), ran.error().message());
            fixture.check_outputs(*ran);
            CHECK(model.last_run().steps_not_called.empty());
            fixture.check_outputs(unwrap(model.try_run(method, fixture.inputs(), fixture.stream, {&state})));
        }
        const auto cache = [&](const auto&... of) {
            return *static_cast<const float*>(unwrap(model.try_mutable("cache", of...)).data);
        };
        CHECK(cache() == 3);
        CHECK(cache(state) == 3);
        const Statistics statistics = model.weights().statistics();
        CHECK(statistics.last_pass.divergences == 0);
        if (std::string_view{budget} != "100%" && is_streamed) { CHECK(statistics.streaming); }
        CHECK(statistics.held_bytes <= statistics.budget_bytes);
        for (const char* method : {"run", "again"}) { unwrap(model.try_release(method)); }
        fixture.check_outputs(unwrap(model.try_run("again", fixture.inputs(), fixture.stream)));
        CHECK(cache() == 4);
        CHECK(unwrap(model.weights().try_set_budget(Budget::parse("100%"))).is_complete());
        fixture.check_outputs(unwrap(model.try_run("run", fixture.inputs(), fixture.stream)));
    }
    CHECK(fixture.device.report_count() == 0);
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a model with probes runs in any composition") {
    const std::int64_t before = live_tensors();
    SUBCASE("planned") { run_probed<Planned<SimulatedDevice>>(*this, {"100%", "90%", "0"}); }
    SUBCASE("equal slots") {
        using Slots = Residency<evict::Lru, prefetch::Lookahead<1>, pool::Slab<SimulatedDevice>>;
        run_probed<Slots>(*this, {"100%", "0"});
    }
    // All of it fits into what a stream-ordered pool takes at once.
    SUBCASE("stream-ordered") { run_probed<Scheduled<SimulatedDevice>>(*this, {"100%", "0"}, false); }
    CHECK(live_tensors() == before);
}

TEST_CASE_FIXTURE(Fixture, "markers need a composition in which addresses stay") {
    using Moving = aoti::CompiledModel<Scheduled<SimulatedDevice>>;
    const Exported exported;
    const auto refused = Moving::try_open(device, exported.path(), {});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::unsupported);
    CHECK(contains(refused.error().message(), "take Planned, or export it with probes=True"));
}

TEST_CASE_FIXTURE(Fixture, "markers that are not the program's stop a run, and the next run works") {
    for (const char* variant : {"MARKER_REMOVED", "MARKERS_SWAPPED"}) {
        const Exported exported{variant}, good;
        Model model = unwrap(try_open(exported, "0"));
        for (int i = 0; i < 2; ++i) {
            const auto ran = model.try_run("run", inputs(), stream);
            REQUIRE_FALSE(ran);
            CHECK(ran.error().kind() == ErrorKind::mismatch);
            CHECK(contains(ran.error().message(), std::string_view{variant} == "MARKER_REMOVED"
                                                      ? "marker 2 came where marker 1 belongs"
                                                      : "marker 1 came where marker 0 belongs"));
        }
        support::write_all(exported.path() + "/run.pt2", support::read_all(good.path() + "/run.pt2"));
        REQUIRE(model.try_release("run"));
        check_outputs(unwrap(model.try_run("run", inputs(), stream)));
    }
}

TEST_CASE_FIXTURE(Fixture, "a run that skips steps says which, and what they would have read") {
    const Exported exported{"ENDS_EARLY"};
    Model model = unwrap(try_open(exported, "0"));
    REQUIRE(model.try_run("run", inputs(), stream));
    CHECK(model.last_run().steps_not_called == std::vector<std::uint32_t>{2, 3});
    CHECK(model.last_run().weights_not_reached == std::vector{WeightId{2}, WeightId{3}});

    // A run that does not begin is no longer that one.
    auto pass = unwrap(model.weights().try_begin(stream));
    const auto refused = model.try_run("again", inputs(), stream);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::wrong_state);
    CHECK(model.last_run().steps_not_called.size() == 4);
    REQUIRE(pass.try_end());
}

TEST_CASE_FIXTURE(Fixture, "an observer sees each step wait, run and end, and the weights are leased in between") {
    using Kind = aoti::StepEvent::Kind;
    const Exported exported;
    std::vector<std::string> seen;
    const Weights* weights = nullptr;
    Model::Options options;
    options.budget = Budget::parse("0");
    options.package.torch_folder = stand_in_folder;
    options.observer = [&](const aoti::StepEvent& event) {
        const char* const kinds[] = {"wait", "run", "end"};
        seen.push_back(event.method->name + (event.step ? " " + event.method->steps[*event.step].kernels : "") + " " +
                       kinds[static_cast<int>(event.kind)]);
        if (!event.step || event.kind == Kind::wait) { return; }
        const WeightId id = event.method->steps[*event.step].weights.front();
        if (id != WeightId{3}) { CHECK(static_cast<const float*>(weights->address(id))[0] == float(index(id) + 1)); }
    };
    Model model = unwrap(Model::try_open(device, exported.path(), std::move(options)));
    weights = &model.weights();
    check_outputs(unwrap(model.try_run("again", inputs(), stream)));
    CHECK(seen == std::vector<std::string>{"again first wait", "again first run", "again first end",
                                           "again second wait", "again second run", "again second end", "again run",
                                           "again end", "again third wait", "again third run", "again third end",
                                           "again add wait", "again add run", "again add end"});

    seen.clear();
    const auto refused = model.try_run("again", {}, stream);
    REQUIRE_FALSE(refused);
    CHECK(seen.empty());
}

TEST_CASE_FIXTURE(Fixture, "what cannot be run is refused in words") {
    const Exported exported;
    Model model = unwrap(try_open(exported, "0"));
    const auto unknown = model.try_run("fly", inputs(), stream);
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().message() == "the model has no method \"fly\"; it has run, again");
    const auto none = model.try_run("run", {}, stream);
    REQUIRE_FALSE(none);
    CHECK(contains(none.error().message(), "takes 1 inputs, not 0"));
    const auto captured = model.try_capture("run", inputs(), stream);
    REQUIRE_FALSE(captured);
    CHECK(contains(captured.error().message(), "it was compiled for the CPU, whose kernels run at once"));
    CHECK(contains(model.try_mutable("w.0").error().message(), "\"w.0\" is not written by kernels"));
    CHECK(contains(model.try_mutable("w.9").error().message(), "no weight \"w.9\""));
    check_outputs(unwrap(model.try_run("run", inputs(), stream)));

    format::Program program = exported.program();
    program.device = "cuda:sm_90";
    Exported other;
    other.save(program);
    const auto elsewhere = try_open(other);
    REQUIRE_FALSE(elsewhere);
    CHECK(contains(elsewhere.error().message(), "was compiled for cuda:sm_90"));

    Exported smaller;
    smaller.write_weights(elements - 1);
    const auto weights = try_open(smaller);
    REQUIRE_FALSE(weights);
    CHECK(contains(weights.error().message(), "these are the weights of another model"));

    support::write_all(exported.path() + "/run.pt2", "no package");
    Model again = unwrap(try_open(exported, "0"));
    const auto torn = again.try_run("run", inputs(), stream);
    REQUIRE_FALSE(torn);
    CHECK(contains(torn.error().message(), "run.pt2"));
    support::write_all(exported.path() + "/run.pt2", support::zip_archive({{"model/data/notes.txt", "text"}}));
    const auto empty = again.try_run("run", inputs(), stream);
    REQUIRE_FALSE(empty);
    CHECK(contains(empty.error().message(), "it is no package of AOTInductor"));
}

}  // namespace aoti_test
