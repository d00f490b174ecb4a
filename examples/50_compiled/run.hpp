// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "examples/support/load.hpp"
#include "examples/support/memory.hpp"
#include "examples/support/recorded.hpp"
#include "job.hpp"
#include "residency/aoti/aoti.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/format/program.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/loading.hpp"
#include "residency/plan/held_between_passes.hpp"
#include "residency/plan/plan.hpp"
#include "residency/planned.hpp"
#include "residency/timeline/timeline_recorder.hpp"
#include "step_recorder.hpp"
#include "waits.hpp"

namespace compiled {

namespace aoti = residency::aoti;

/// Runs the methods of a model at one budget after the other, and compares what they return with what the packages return by themselves.
template <class Device>
class Runner {
public:
    using Weights = residency::Planned<Device>;
    using Model = aoti::CompiledModel<Weights>;
    using Outputs = std::vector<std::vector<std::byte>>;

    Runner(Device& device, const Job& job, bool is_cuda)
        : device_{device},
          job_{job},
          is_cuda_{is_cuda},
          memory_{device},
          stream_{residency::unwrap(device.create_stream())},
          program_{residency::format::load_program_folder(job.model)} {
        if (job_.methods.empty()) {
            for (const auto& method : program_.methods) { job_.methods.push_back(method.name); }
        }
        for (const std::string& name : job_.methods) { read_inputs(name); }
    }
    ~Runner() { static_cast<void>(device_.destroy_stream(stream_).has_value()); }
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    [[nodiscard]] Results run() {
        results_.compiler = program_.compiler + ", " + program_.device;
        results_.weight_bytes = program_.catalog.total_bytes();
        if (job_.first) {
            results_.first = first_run();
            return std::move(results_);
        }
        load_alone();
        for (const std::string& method : job_.methods) {
            results_.rows.push_back({"none", method, {}, time(method, alone(), [] { return true; }), 0, 0, true});
            results_.rows.back().statistics.held_bytes = program_.catalog.total_bytes();
        }
        // What the driver allocates for the streams of a first model and keeps is none of a budget's bytes.
        if (is_cuda_) { static_cast<void>(open(budget_of(job_.budgets.front())).has_value()); }
        for (const std::string& budget : job_.budgets) {
            run_at(budget);
            explain(budget);
        }
        if (!job_.timeline.empty() || !job_.report.empty()) {
            if (!drawn_at_) {
                residency::throw_error({residency::ErrorKind::budget, "no budget works: there is no timeline"});
            }
            draw(*drawn_at_);
        }
        return std::move(results_);
    }

    /// One round: each method once, as a model runs it. Returns their outputs. `state`: what kernels write.
    [[nodiscard]] std::vector<std::vector<aoti::Tensor>> run_round(Model& model,
                                                                   const aoti::CallerState<Device>& state) {
        std::vector<std::vector<aoti::Tensor>> outputs;
        for (const std::string& method : job_.methods) {
            outputs.push_back(residency::unwrap(model.try_run(method, inputs_.at(method), stream_, {&state})));
        }
        residency::unwrap(device_.synchronize(stream_));
        return outputs;
    }
    /// The bytes of tensors on the device.
    [[nodiscard]] Outputs bytes_of(std::span<const aoti::Tensor> tensors) {
        residency::unwrap(device_.synchronize(stream_));
        Outputs result;
        for (const aoti::Tensor& tensor : tensors) {
            std::uint64_t last = 0;  // element
            if (tensor.elements() == 0) {
                result.emplace_back();
                continue;
            }
            for (std::size_t i = 0; i < tensor.shape().size(); ++i) {
                last += (tensor.shape()[i] - 1) * tensor.strides()[i];
            }
            const std::size_t bytes = (last + 1) * tensor.dtype().block_bits() / 8;
            std::vector<std::byte>& to = result.emplace_back(bytes);
            if (is_cuda_) {
                memory_.copy(static_cast<const std::byte*>(tensor.data()), to.data(), bytes, stream_);
            } else {
                std::memcpy(to.data(), tensor.data(), bytes);
            }
        }
        return result;
    }
    /// With that budget; unset: the program's. `time_stalls`: for reports of what steps wait for.
    [[nodiscard]] residency::Result<Model> open(std::optional<residency::Budget> budget, bool time_stalls = false,
                                                std::function<void(const aoti::StepEvent&)> observer = {}) {
        typename Model::Options options;
        options.weights.time_stalls = time_stalls;
        options.budget = std::move(budget);
        options.package = package_options();
        options.observer = std::move(observer);
        examples::Progress bar{"loading"};
        options.load = examples::pinned_options(bar);
        return Model::try_open(device_, job_.model, std::move(options));
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr double most_over_least = 1.02;  // rows above are explained

    [[nodiscard]] aoti::PackageOptions package_options() const {
        return {.is_cuda = is_cuda_, .torch_folder = job_.torch_folder, .executorch_shims = job_.executorch_shims};
    }
    /// What the command line calls a budget.
    [[nodiscard]] static std::optional<residency::Budget> budget_of(const std::string& text) {
        if (text == "stored") { return std::nullopt; }
        return residency::Budget::parse(text);
    }
    [[nodiscard]] static double milliseconds_since(Clock::time_point begin) {
        return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    }

    void read_inputs(const std::string& method) {
        if (program_.find_method(method) == nullptr) {
            residency::throw_error(
                {residency::ErrorKind::invalid_argument, "the program has no method \"" + method + "\""});
        }
        const auto file = residency::format::read_safetensors(job_.model + "/" + method + ".inputs.safetensors");
        const residency::Catalog host = examples::load_pinned(device_, file.catalog());
        auto& views = inputs_[method];
        for (std::size_t i = 0; i < host.weights().size(); ++i) {
            const residency::Weight& weight =
                host.weight(residency::unwrap(host.try_find("input" + std::to_string(i))));
            const std::size_t bytes = host.storage(weight.storage).bytes;
            auto* at = memory_.template on_device<std::byte>(std::max<std::size_t>(bytes, 1));
            memory_.copy(host.host_bytes(weight.storage), at, bytes, stream_);
            views.push_back({at, weight.dtype, weight.shape});
        }
    }

    /// One round: the first outputs of each method. Mutable weights have their values of the file before it.
    template <class Run>
    [[nodiscard]] std::map<std::string, Outputs> round(Run&& run) {
        std::map<std::string, Outputs> outputs;
        for (const std::string& method : job_.methods) { outputs[method] = bytes_of(run(method)); }
        return outputs;
    }
    /// The median milliseconds of a method over the rounds. `is_settled`: nothing more is learned of the times of its steps.
    template <class Run, class IsSettled>
    [[nodiscard]] double time(const std::string& method, Run&& run, IsSettled&& is_settled) {
        warm_up(method, run, is_settled);
        examples::Progress bar{method};
        std::vector<double> times;
        for (std::uint32_t i = 0; i < job_.rounds; ++i) {
            times.push_back(time_once(method, run));
            bar.show((i + 1) * results_.weight_bytes, job_.rounds * results_.weight_bytes);
        }
        return median(times);
    }
    /// The same of two that take turns, so that what else the host does is the same for both.
    template <class First, class Second, class IsSettled>
    [[nodiscard]] std::pair<double, double> time_by_turns(const std::string& method, First&& first, Second&& second,
                                                          IsSettled&& is_settled) {
        warm_up(method, first, is_settled);
        warm_up(method, second, is_settled);
        std::vector<double> of_first, of_second;
        for (std::uint32_t i = 0; i < job_.rounds; ++i) {
            of_first.push_back(time_once(method, first));
            of_second.push_back(time_once(method, second));
        }
        return {median(of_first), median(of_second)};
    }
    /// The same beside the package alone: by turns where everything is resident.
    template <class Run, class IsSettled>
    [[nodiscard]] std::pair<double, double> time_beside_alone(const std::string& method, Model& model, Run&& run,
                                                              IsSettled&& is_settled) {
        if (model.weights().statistics().streaming) {
            return {time(method, run, is_settled), alone_milliseconds(method)};
        }
        std::uint32_t runs = 0;  // the library times resident passes less often after the first
        const auto is_warm = [&] { return ++runs > 20 && is_settled(); };
        const auto times = time_by_turns(method, run, alone(), is_warm);
        static_cast<void>(run(method));  // what is asked of the model is of its last run
        return times;
    }
    template <class Run, class IsSettled>
    void warm_up(const std::string& method, Run&& run, IsSettled&& is_settled) {
        constexpr std::uint32_t longest = 2 * aoti::GraphChoice::most_runs;
        for (std::uint32_t i = 0; i < 2 || (i < longest && !is_settled()); ++i) {
            static_cast<void>(run(method));
            residency::unwrap(device_.synchronize(stream_));
        }
    }
    template <class Run>
    [[nodiscard]] double time_once(const std::string& method, Run&& run) {
        const auto begin = Clock::now();
        [[maybe_unused]] const auto kept = run(method);  // its outputs are in use until it is complete
        residency::unwrap(device_.synchronize(stream_));
        return milliseconds_since(begin);
    }
    [[nodiscard]] static double median(std::vector<double>& times) {
        std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
        return times[times.size() / 2];
    }

    /// Loads the packages by themselves, every weight in memory of ours and no hook set, and runs a round of them.
    void load_alone() {
        const residency::Catalog bound = residency::format::bind_program_folder(program_, job_.model);
        const residency::Catalog host = examples::load_pinned(device_, bound);
        std::vector<std::byte*> storages;
        const auto restore = [&](residency::StorageId id) {
            memory_.copy(host.host_bytes(id), storages[residency::index(id)], host.storage(id).bytes, stream_);
        };
        for (std::uint32_t i = 0; i < host.storages().size(); ++i) {
            storages.push_back(
                memory_.template on_device<std::byte>(std::max<std::size_t>(host.storages()[i].bytes, 1)));
            restore(residency::StorageId{i});
        }
        for (const std::string& name : job_.methods) {
            const auto* method = program_.find_method(name);
            auto package =
                residency::unwrap(aoti::Package::try_open(job_.model + "/" + method->package, package_options(), name));
            std::vector<aoti::ConstantBinding> bindings;
            for (const auto& constant : method->constants) {
                const residency::Weight& weight = program_.catalog.weight(constant.weight);
                bindings.push_back({constant.name,
                                    {storages[residency::index(weight.storage)] + weight.offset_bytes, weight.dtype,
                                     weight.shape, weight.strides}});
            }
            residency::unwrap(package.try_bind(bindings));
            packages_.emplace(name, std::move(package));
        }
        reference_ = round(alone());
    }
    /// Runs a package by itself.
    [[nodiscard]] auto alone() {
        return [this](const std::string& method) {
            return residency::unwrap(packages_.at(method).try_run(inputs_.at(method), native()));
        };
    }
    [[nodiscard]] double alone_milliseconds(const std::string& method) const {
        return std::find_if(results_.rows.begin(), results_.rows.end(),
                            [&](const Row& row) { return row.method == method; })
            ->milliseconds;
    }

    [[nodiscard]] std::uint64_t free_bytes() { return residency::unwrap(device_.memory()).free_bytes; }

    void note_left_out(const Model& model, const std::string& method) {
        const auto& steps = program_.find_method(method)->steps;
        for (const std::uint32_t step : model.last_run().steps_not_called) {
            results_.left_out.push_back(method + ": step " + std::to_string(step) + " (" + steps[step].kernels +
                                        ") was never called");
        }
        for (const residency::WeightId id : model.last_run().weights_not_reached) {
            results_.left_out.push_back(method + ": the weight " + program_.catalog.weight(id).name +
                                        " was never reached");
        }
    }

    void run_at(const std::string& budget) {
        const std::uint64_t free_before = free_bytes();
        auto opened = open(budget_of(budget));
        if (!opened) {
            if (opened.error().kind() != residency::ErrorKind::budget) { residency::throw_error(opened.error()); }
            results_.refused.push_back(opened.error().message());
            return;
        }
        drawn_at_ = budget;
        Model& model = *opened;
        const std::uint64_t driver_bytes = free_before - (std::min)(free_before, free_bytes());
        results_.budgets.push_back(budget + ": " + model.weights().budget().text);
        const auto run = [&](const std::string& method) {
            return residency::unwrap(model.try_run(method, inputs_.at(method), stream_));
        };
        const auto is_settled = [&] {
            return model.weights().statistics().learning.state != residency::LearningState::measuring;
        };
        const bool is_first_right = round(run) == reference_;
        for (const std::string& method : job_.methods) {
            static_cast<void>(run(method));
            if (job_.eager) {
                const auto [milliseconds, by_itself] = time_beside_alone(method, model, run, is_settled);
                add_row(
                    {budget, method, {}, milliseconds, by_itself, 0, is_first_right, false, driver_bytes, Way::eager},
                    model);
            } else {
                warm_up(method, run, is_settled);
            }
            if (budget == job_.budgets.front()) { note_left_out(model, method); }
        }
        measure_switches(budget, model);
        for (const std::string& method : job_.methods) {
            run_repeatedly(budget, method, model, is_first_right, driver_bytes);
        }
        if (job_.graph) {
            for (const std::string& method : job_.methods) { run_graph(budget, method, model, driver_bytes); }
        }
        model.weights().drain();
    }

    /// From each method to the next, and from the last to the first.
    void measure_switches(const std::string& budget, Model& model) {
        if (job_.methods.size() < 2) { return; }
        const auto run = [&](const std::string& method) {
            const double milliseconds = time_once(method, [&](const std::string& each) {
                return residency::unwrap(model.try_run(each, inputs_.at(each), stream_));
            });
            return std::pair{milliseconds, model.weights().statistics().last_pass.fetched_bytes};
        };
        const auto plans_made = [&] { return model.weights().statistics().total.plans_made; };
        // Nothing is learned any more, and the plans are known in the image that is in force.
        for (int i = 0; i < 2; ++i) {
            for (const std::string& method : job_.methods) { run(method); }
        }
        for (std::size_t i = 0; i < job_.methods.size(); ++i) {
            const std::string &from = job_.methods[i], &to = job_.methods[(i + 1) % job_.methods.size()];
            run(from);
            run(from);
            const std::vector<bool> held = residency::plan::held_between_passes(model.weights().plan());
            const std::uint64_t plans = plans_made();
            const auto [milliseconds, copied_bytes] = run(to);
            const std::uint64_t plans_for_it = plans_made() - plans;
            const residency::plan::Plan& plan = model.weights().plan();
            const std::vector<bool> wanted = residency::plan::held_between_passes(plan);
            std::uint64_t difference = 0;
            for (std::size_t chunk = 0; chunk < wanted.size(); ++chunk) {
                difference += wanted[chunk] && !held[chunk] ? plan.chunk_bytes() : 0;
            }
            results_.switches.push_back(
                {budget, from, to, plans_for_it, copied_bytes, run(to).second, difference, milliseconds});
        }
    }

    void add_row(Row row, const Model& model) {
        row.statistics = model.weights().statistics();
        if (is_cuda_ && row.statistics.streaming) {
            const residency::plan::Plan& plan = model.weights().plan();
            row.bound_milliseconds = 1e3 * (std::max)(plan.bound_seconds(), plan.latency_floor_seconds());
            row.planned_milliseconds = 1e3 * plan.predicted_seconds();
        }
        results_.rows.push_back(std::move(row));
    }

    /// Copies what kernels write to the host, or back.
    void copy_mutable(const Model& model, std::vector<std::vector<std::byte>>& values, bool to_host) {
        std::size_t next = 0;
        const residency::Catalog& catalog = model.weights().catalog();
        for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
            const residency::StorageId id{i};
            if (!catalog.storage(id).is_mutable || catalog.weights_of(id).empty()) { continue; }
            const residency::WeightId weight = catalog.weights_of(id).front();
            auto* at = static_cast<std::byte*>(model.weights().address(weight)) - catalog.weight(weight).offset_bytes;
            if (values.size() == next) { values.emplace_back(catalog.storage(id).bytes); }
            std::vector<std::byte>& value = values[next++];
            memory_.copy(to_host ? at : value.data(), to_host ? value.data() : at, value.size(), stream_);
        }
    }

    /// Runs that follow each other, as they come out of the box: the last has the bits of an eager run that begins with the same mutable weights.
    void run_repeatedly(const std::string& budget, const std::string& method, Model& model, bool is_first_right,
                        std::uint64_t driver_bytes) {
        typename Model::RepeatedRun repeated{method, inputs_.at(method)};
        const auto run = [&](const std::string&) { return residency::unwrap(model.try_run(repeated, stream_)); };
        const auto [milliseconds, by_itself] =
            time_beside_alone(method, model, run, [&] { return repeated.is_settled(); });
        const bool is_graph = repeated.is_graph();
        std::vector<std::vector<std::byte>> values;
        copy_mutable(model, values, true);
        const Outputs eager = bytes_of(residency::unwrap(model.try_run(method, inputs_.at(method), stream_)));
        copy_mutable(model, values, false);
        const bool is_right = is_first_right && bytes_of(run(method)) == eager;
        Row row{budget, method, {}, milliseconds, by_itself, 0, is_right, is_graph, driver_bytes};
        if (repeated.refusal()) {
            row.choice = repeated.refusal()->message();
        } else if (const auto& choice = repeated.choice(); choice.eager_time() && choice.graph_time()) {
            row.choice = examples::text_of(*choice.eager_time()) + " on the device eagerly, " +
                         examples::text_of(*choice.graph_time()) + " as a graph";
        }
        add_row(std::move(row), model);
    }

    /// A run as a graph: what one launch gives has the bits of what a run gives that begins with the same mutable weights.
    void run_graph(const std::string& budget, const std::string& method, Model& model, std::uint64_t driver_bytes) {
        if constexpr (residency::CapturingDevice<Device>) {
            auto captured = residency::unwrap(model.try_capture(method, inputs_.at(method), stream_));
            std::vector<std::vector<std::byte>> values;
            copy_mutable(model, values, true);
            const Outputs eager = bytes_of(residency::unwrap(model.try_run(method, inputs_.at(method), stream_)));
            copy_mutable(model, values, false);
            residency::unwrap(captured.try_launch(stream_));
            const bool is_right = bytes_of(captured.outputs()) == eager;
            const double milliseconds = time(
                method,
                [&](const std::string&) {
                    residency::unwrap(captured.try_launch(stream_));
                    return 0;
                },
                [] { return true; });
            add_row({budget,
                     method,
                     {},
                     milliseconds,
                     alone_milliseconds(method),
                     0,
                     is_right,
                     true,
                     driver_bytes,
                     Way::graph},
                    model);
        }
    }

    /// Which step waited longest in the rows of a budget that take longer than the least, and why: each is run once more.
    void explain(const std::string& budget) {
        const auto is_wanted = [&](const Row& row) {
            return row.budget == budget && row.statistics.streaming &&
                   (job_.waits || (row.bound_milliseconds > 0 && row.milliseconds > most_over_least * row.least()));
        };
        if (std::none_of(results_.rows.begin(), results_.rows.end(), is_wanted)) { return; }
        residency::TimelineRecorder<Device> recorder{device_, {.passes = 1}};  // before the model
        Model model = residency::unwrap(open(budget_of(budget), true));
        for (Row& row : results_.rows) {
            if (!is_wanted(row)) { continue; }
            Explainer<Model> explainer{model, recorder, row.method, inputs_.at(row.method), stream_};
            try {
                if constexpr (residency::CapturingDevice<Device>) {
                    if (row.is_graph) { row.why = explainer.graph(); }
                }
                if (!row.why) { row.why = explainer.pass(); }
            } catch (const residency::Exception& error) {  // what was measured stays
                row.why.emplace().failure = error.what();
            }
        }
    }
    /// PyTorch's libraries, as a program that runs other models of PyTorch has them already. Where it fails, opening a package says why.
    void load_torch() const {
        for (const char* name : {"libtorch_cuda.so", "libtorch_cpu.so", "libtorch.so"}) {
            if (!is_cuda_ && name == std::string_view{"libtorch_cuda.so"}) { continue; }
            const std::string path = job_.torch_folder.empty() ? name : job_.torch_folder + "/" + name;
            static_cast<void>(::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL));
        }
    }
    [[nodiscard]] static std::uint64_t fnv1a(std::span<const std::byte> bytes) noexcept {
        std::uint64_t hash = 0xcbf29ce484222325;
        for (const std::byte byte : bytes) { hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3; }
        return hash;
    }
    /// From the folder to the first outputs of the first method.
    [[nodiscard]] First first_run() {
        load_torch();
        const std::string& method = job_.methods.front();
        residency::unwrap(device_.synchronize(stream_));
        const auto begin = Clock::now();
        Model model = residency::unwrap(open(budget_of(job_.budgets.front())));
        First first{method, milliseconds_since(begin), 0, {}};
        const auto outputs = residency::unwrap(model.try_run(method, inputs_.at(method), stream_));
        residency::unwrap(device_.synchronize(stream_));
        first.run_milliseconds = milliseconds_since(begin) - first.open_milliseconds;
        for (const auto& bytes : bytes_of(outputs)) { first.hashes.push_back(fnv1a(bytes)); }
        model.weights().drain();
        return first;
    }

    /// One more run of each method, drawn.
    void draw(const std::string& budget) {
        // Before the model, and its weights.
        examples::Recorded<Device> recorded{device_, static_cast<std::uint32_t>(job_.methods.size())};
        StepRecorder<Device> steps{device_, stream_, recorded};
        Weights* weights = nullptr;
        Model model =
            residency::unwrap(open(budget_of(budget), !job_.report.empty(),  // for what the page of the run advises
                                   [&](const aoti::StepEvent& event) { steps.add(event, *weights); }));
        weights = &model.weights();
        const auto run = [&](const std::string& method) {
            static_cast<void>(residency::unwrap(model.try_run(method, inputs_.at(method), stream_)));
        };
        for (const std::string& method : job_.methods) {
            run(method);
            model.weights().drain();
            recorded.begin(model.weights());
            run(method);
            recorded.end(model.weights(), job_.methods.size() > 1 ? method : std::string{});
        }
        if (!steps.status()) { residency::throw_error(steps.status().error()); }
        if (!job_.timeline.empty()) { results_.timeline = recorded.save(job_.timeline); }
        recorded.save_report(job_.report, "compiled: " + job_.model, std::string{device_.name()},
                             model.weights().budget().text, model.weights().statistics());
    }

    [[nodiscard]] void* native() const noexcept {
        if constexpr (std::is_convertible_v<typename Device::Stream, const void*>) {
            return stream_;
        } else {
            return nullptr;
        }
    }

    Device& device_;
    Job job_;
    bool is_cuda_;
    examples::Memory<Device> memory_;
    typename Device::Stream stream_;
    residency::format::Program program_;
    std::map<std::string, std::vector<aoti::TensorView>> inputs_;
    std::map<std::string, aoti::Package> packages_;  // by themselves; their weights are in memory_
    std::map<std::string, Outputs> reference_;
    std::optional<std::string> drawn_at_;  // the last budget that works
    Results results_;
};

}  // namespace compiled
