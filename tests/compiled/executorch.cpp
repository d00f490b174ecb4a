// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The runtime half of a program of ExecuTorch, against stand-ins for the C interface of its CUDA backend and for a compiled library.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "residency/aoti/aoti.hpp"
#include "residency/format/program.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/compiled/exported.hpp"
#include "tests/support/child.hpp"
#include "tests/support/executorch_files.hpp"
#include "tests/support/files.hpp"
#include "tests/support/temporary_folder.hpp"

struct CUstream_st;  // as CUDA names it

namespace executorch_test {

using namespace residency;
using test::elements;

namespace {

using Weights = Planned<SimulatedDevice>;
using Model = aoti::CompiledModel<Weights>;

const std::string shims = test::stand_in_folder + "/libaoti_cuda_shims.so";
const std::string stand_in_library = test::stand_in_folder + "/EXECUTORCH.so";
constexpr const char* weight_names[] = {"w.0", "w.1", "w.2"};

std::string key_of(const std::string& name) { return "cuda_fqn_weight:cuda:" + name; }
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string bytes_of(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// A folder as export_executorch writes it: the methods "run" and "again", of one stand-in for a library.
class Exported {
public:
    explicit Exported(std::uint64_t count = elements) {
        const test::Exported of_packages;  // the same program, of packages
        program = of_packages.program();
        program.weights_file = "aoti_cuda_blob.ptd";
        for (std::string& tensor : program.tensors) { tensor = key_of(tensor); }
        for (auto& method : program.methods) { method.package = "model.pte"; }
        std::vector<support::ExecutorchBytes> data;
        for (std::size_t i = 0; i < 3; ++i) {
            const std::string bytes = bytes_of(std::vector<float>(count, float(i + 1)));
            records.push_back(
                {weight_names[i], key_of(weight_names[i]), bytes.size(), 6, 1, 0, {std::int64_t(count)}, {1}});
            data.push_back({key_of(weight_names[i]), bytes});
        }
        records.push_back({"cache", key_of("cache"), 16 * sizeof(float), 6, 1, 0, {16}, {1}});
        data.push_back({key_of("cache"), bytes_of(std::vector<float>(16))});
        support::write_all(path() + "/aoti_cuda_blob.ptd", support::executorch_file({}, data, true));
        const support::ExecutorchPart part{"CudaBackend", support::executorch_cuda("a_so_blob", records)};
        write({{"run", {part}}, {"again", {part}}}, true);
    }
    void write(const std::vector<support::ExecutorchPlan>& plans, bool has_library, bool carries = true) const {
        std::vector<support::ExecutorchBytes> data;
        if (has_library) { data.push_back({"a_so_blob", support::read_all(stand_in_library)}); }
        const auto saved = format::save(program);
        if (carries) {
            data.push_back({"residency_program", {reinterpret_cast<const char*>(saved.data()), saved.size()}});
        }
        support::write_all(path() + "/model.pte", support::executorch_file(plans, data));
    }
    [[nodiscard]] std::string path() const { return folder_.path(""); }

    format::Program program;
    std::vector<support::ExecutorchRecord> records;

private:
    test::TemporaryFolder folder_;
};

/// What ExecuTorch's CUDA backend keeps for a delegate, and how it runs it, as far as this needs it.
class Delegate {
public:
    Delegate() {
        so_handle = ::dlopen(stand_in_library.c_str(), RTLD_NOW | RTLD_LOCAL);
        REQUIRE(so_handle != nullptr);
        std::int32_t (*create)(void**, std::size_t, const char*, const char*) = nullptr;
        find(create, "AOTInductorModelContainerCreateWithDevice");
        find(run_, "AOTInductorModelContainerRunSingleThreaded");
        find(delete_, "AOTInductorModelContainerDelete");
        void* symbol = ::dlsym(RTLD_DEFAULT, "aoti_torch_create_tensor_from_blob_v2");
        REQUIRE(symbol != nullptr);  // the shims are there already
        wrap_ = reinterpret_cast<decltype(wrap_)>(symbol);
        delete_tensor_ =
            reinterpret_cast<decltype(delete_tensor_)>(::dlsym(RTLD_DEFAULT, "aoti_torch_delete_tensor_object"));
        data_of_ = reinterpret_cast<decltype(data_of_)>(::dlsym(RTLD_DEFAULT, "aoti_torch_get_data_ptr"));
        REQUIRE(create(&container_handle, 1, "cpu", nullptr) == 0);
    }
    ~Delegate() {
        static_cast<void>(delete_(container_handle));
        ::dlclose(so_handle);
    }
    Delegate(const Delegate&) = delete;
    Delegate& operator=(const Delegate&) = delete;

    /// One execution; `replays`: of a graph that was captured before, which does not come to the library.
    Status execute(float factor, std::array<float, 3>& output, bool replays = false) const {
        if (replays) { return {}; }
        const std::int64_t one = 1;
        void *input = nullptr, *result = nullptr;
        REQUIRE(wrap_(&factor, 1, &one, &one, 0, 6, 0, -1, &input, 0, nullptr, 0) == 0);
        if (run_(container_handle, &input, 1, &result, 1, nullptr, nullptr) != 0) {
            return Error{ErrorKind::device, "the delegate failed"};
        }
        void* data = nullptr;
        REQUIRE(data_of_(result, &data) == 0);
        for (std::size_t i = 0; i < output.size(); ++i) { output[i] = static_cast<float*>(data)[i]; }
        static_cast<void>(delete_tensor_(result));
        return {};
    }

    void *so_handle = nullptr, *container_handle = nullptr;

private:
    template <class Function>
    void find(Function*& function, const char* name) const {
        function = reinterpret_cast<Function*>(::dlsym(so_handle, name));
        REQUIRE((function != nullptr));
    }

    std::int32_t (*run_)(void*, void**, std::size_t, void**, std::size_t, void*, void*) = nullptr;
    std::int32_t (*delete_)(void*) = nullptr;
    std::int32_t (*wrap_)(void*, std::int64_t, const std::int64_t*, const std::int64_t*, std::int64_t, std::int32_t,
                          std::int32_t, std::int32_t, void**, std::int32_t, const std::uint8_t*,
                          std::int64_t) = nullptr;
    std::int32_t (*delete_tensor_)(void*) = nullptr;
    std::int32_t (*data_of_)(void*, void**) = nullptr;
};

struct Fixture {
    SimulatedDevice device;
    SimulatedDevice::Stream stream = unwrap(device.create_stream());
    float factor = 2;

    [[nodiscard]] Result<Model> try_open(const Exported& exported, const char* budget,
                                         const std::string& library = shims) {
        Model::Options options;
        options.budget = Budget::parse(budget);
        options.package.executorch_shims = library;
        return Model::try_open(device, exported.path(), std::move(options));
    }
    [[nodiscard]] std::vector<aoti::TensorView> inputs() { return {{&factor, dtype::f32, {1}}}; }
    [[nodiscard]] std::string refusal(const Exported& exported) {
        Model model = unwrap(try_open(exported, "0"));
        const auto ran = model.try_run("run", inputs(), stream);
        REQUIRE_FALSE(ran);
        return ran.error().message();
    }
    void check(const float* values) const {
        CHECK(values[0] == factor * float(elements));
        CHECK(values[1] == factor * 2 * float(elements) + 1);
        CHECK(values[2] == factor * 3 * float(elements));
    }
    void check(const std::vector<aoti::Tensor>& outputs) const {
        REQUIRE(outputs.size() == 1);
        REQUIRE(outputs[0].shape() == Shape{3});
        check(static_cast<const float*>(outputs[0].data()));
    }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "executorch: shims that are not there are named") {  // first, since a process loads them once
    const Exported exported;
    const std::string none = test::stand_in_folder + "/none.so", other = test::stand_in_folder + "/libwithout_shims.so";
    for (const auto& [library, expected] :
         {std::pair{none, "ExecuTorch's library of PyTorch's C interface, executorch_shims"},
          std::pair{other, "is not that of ExecuTorch 1.5: the symbol aoti_torch_"}}) {
        const child::Outcome outcome = child::run([&, path = library] {
            Model model = unwrap(try_open(exported, "0", path));
            const auto ran = model.try_run("run", inputs(), stream);
            std::fputs(ran ? "it ran" : ran.error().message().c_str(), stderr);
        });
        CAPTURE(outcome.text);
        CHECK(contains(outcome.text, expected));
    }
}

TEST_CASE_FIXTURE(Fixture, "executorch: a program runs at every budget, with its methods and callers") {
    const Exported exported;
    for (const char* budget : {"100%", "67%", "0"}) {
        CAPTURE(budget);
        Model model = unwrap(try_open(exported, budget));
        for (const char* method : {"run", "again", "run"}) {
            const auto ran = model.try_run(method, inputs(), stream);
            REQUIRE_MESSAGE(ran.has_value(), ran.error().message());
            check(*ran);
            CHECK(model.last_run().steps_not_called.empty());
        }
        const Statistics statistics = model.weights().statistics();
        CHECK(statistics.held_bytes <= statistics.budget_bytes);
        CHECK(statistics.streaming == (std::string_view{budget} != "100%"));
        CHECK(static_cast<const float*>(unwrap(model.try_mutable("cache")).data)[0] == 3);
        const auto state = unwrap(model.try_make_state());
        check(unwrap(model.try_run("run", inputs(), stream, {&state})));
        CHECK(static_cast<const float*>(unwrap(model.try_mutable("cache", state)).data)[0] == 1);
        REQUIRE(model.try_release("run"));
        REQUIRE(model.try_release("again"));
        CHECK(model.weights().is_suspended());
    }
    CHECK(device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "executorch: what a program lacks is named") {
    const Exported exported;
    const support::ExecutorchPart part{"CudaBackend", support::executorch_cuda("a_so_blob", exported.records)};
    exported.write({{"other", {part}}}, true);
    CHECK(contains(refusal(exported), "it has no method \"run\""));
    exported.write({{"run", {part, part}}}, true);
    CHECK(contains(refusal(exported), "the method \"run\" has 2 delegates"));
    exported.write({{"run", {{"XnnpackBackend", ""}}}}, true);
    CHECK(contains(refusal(exported), "a delegate of another backend"));
    exported.write({{"run", {part}}}, false);
    CHECK(contains(refusal(exported), "\"a_so_blob\", is not in it"));
    exported.write({{"run", {part}}}, true, false);
    CHECK(contains(try_open(exported, "0").error().message(), "it carries no program of residency_export"));
    const Exported smaller{elements - 1};
    CHECK(contains(try_open(smaller, "0").error().message(), "these are the weights of another model"));
    support::write_all(exported.path() + "/model.pte", "no program");
    CHECK(contains(try_open(exported, "0").error().message(), "neither a program nor data of ExecuTorch"));
}

TEST_CASE_FIXTURE(Fixture, "executorch: a delegate that another runtime runs is followed, and nothing but it") {
    const Exported exported;
    Model model = unwrap(try_open(exported, "0"));
    check(unwrap(model.try_run("run", inputs(), stream)));  // which loads the shims
    const Delegate delegate;
    std::array<float, 3> output{};
    const auto execute = [&] { return delegate.execute(factor, output); };

    CHECK(contains(model.try_run_attached("again", stream, execute).error().message(), "call try_attach"));
    REQUIRE(model.try_attach("again", {"again", delegate.so_handle, delegate.container_handle}));
    for (int i = 0; i < 2; ++i) {
        output = {};
        const Status ran = model.try_run_attached("again", stream, execute);
        REQUIRE_MESSAGE(ran.has_value(), ran.error().message());
        check(output.data());
        check(unwrap(model.try_run("run", inputs(), stream)));  // the other method is the model's own
    }
    CHECK(static_cast<const float*>(unwrap(model.try_mutable("cache")).data)[0] == 5);
    const auto state = unwrap(model.try_make_state());
    REQUIRE(model.try_run_attached("again", stream, execute, {&state}));
    CHECK(static_cast<const float*>(unwrap(model.try_mutable("cache", state)).data)[0] == 1);
    unwrap(model.weights().try_set_budget(Budget::parse("100%")));
    REQUIRE(model.try_run_attached("again", stream, execute));
    check(output.data());
    CHECK(device.report_count() == 0);

    CHECK_FALSE(execute());  // without the model: its weights may not be there
    const Status replayed =
        model.try_run_attached("again", stream, [&] { return delegate.execute(factor, output, true); });
    REQUIRE_FALSE(replayed);
    CHECK(replayed.error().kind() == ErrorKind::mismatch);
    CHECK(contains(replayed.error().message(), "leave enable_cuda_graph_for_method off"));
    CHECK(model.last_run().steps_not_called.size() == 4);
    const Status failed =
        model.try_run_attached("again", stream, [] { return Status{Error{ErrorKind::device, "no luck"}}; });
    CHECK(contains(failed.error().message(), "no luck"));
    CHECK(contains(model.try_run("again", inputs(), stream).error().message(), "call try_run_attached"));

    // A second run at the same time, or a change of what runs.
    output = {};
    const Status nested = model.try_run_attached("again", stream, [&]() -> Status {
        const auto is_refused = [](const auto& result) {
            return !result && result.error().kind() == ErrorKind::wrong_state &&
                   contains(result.error().message(), "a run of this model is under way");
        };
        CHECK(is_refused(model.try_run("run", inputs(), stream)));
        CHECK(is_refused(model.try_run_attached("again", stream, execute)));
        CHECK(is_refused(model.try_release("run")));
        CHECK(is_refused(model.try_attach("again", {"again", delegate.so_handle, delegate.container_handle})));
        return execute();
    });
    REQUIRE_MESSAGE(nested.has_value(), nested.error().message());
    check(output.data());

    // A model that it is not of leaves it alone.
    format::Program other = exported.program;
    other.methods[1].constants[1].original = "another";
    Exported different;
    different.program = other;
    const support::ExecutorchPart part{"CudaBackend", support::executorch_cuda("a_so_blob", exported.records)};
    different.write({{"run", {part}}, {"again", {part}}}, true);
    Model mistaken = unwrap(try_open(different, "0"));
    CHECK(contains(
        mistaken.try_attach("again", {"lent", delegate.so_handle, delegate.container_handle}).error().message(),
        "is \"w.0\" to the package and \"another\" to the program"));
    output = {};
    REQUIRE(model.try_run_attached("again", stream, execute));  // after all of that
    check(output.data());

    // Given back, it runs from the folder again.
    REQUIRE(model.try_release("again"));
    CHECK(contains(model.try_run_attached("again", stream, execute).error().message(), "call try_attach"));
    check(unwrap(model.try_run("again", inputs(), stream)));
}

TEST_CASE("executorch: delegates take the caller's stream, where there is that choice, and as long as it stands") {
    int first = 0, second = 0;
    const child::Outcome without = child::run([&] {
        const aoti::CallerStream nothing{&first};  // ExecuTorch is not there
        std::fputs("nothing happened", stderr);
    });
    CHECK(without.text == "nothing happened");
    REQUIRE(::dlopen((test::stand_in_folder + "/libextension_cuda.so").c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
    using Get = std::optional<CUstream_st*> (*)();
    const auto chosen =
        reinterpret_cast<Get>(::dlsym(RTLD_DEFAULT, "_ZN10executorch9extension4cuda15getCallerStreamEv"));
    REQUIRE((chosen != nullptr));
    const auto is = [&](void* stream) { return chosen() && static_cast<void*>(*chosen()) == stream; };
    CHECK_FALSE(chosen());
    {
        const aoti::CallerStream outer{&first};
        CHECK(is(&first));
        {
            const aoti::CallerStream inner{&second};
            CHECK(is(&second));
        }
        CHECK(is(&first));
        std::thread{[&] { CHECK_FALSE(chosen()); }}.join();
        const aoti::CallerStream null{nullptr};  // the default stream is a choice, too
        CHECK(is(nullptr));
    }
    CHECK_FALSE(chosen());
}

}  // namespace executorch_test
