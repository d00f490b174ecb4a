// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "examples/support/load.hpp"
#include "examples/support/memory.hpp"
#include "job.hpp"
#include "residency/budget/budget.hpp"
#include "residency/format/program.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/loading.hpp"
#include "residency/interop/aoti.hpp"
#include "residency/plan/plan.hpp"
#include "residency/planned.hpp"

namespace compiled {

namespace aoti = residency::aoti;

/// Runs the methods of a model at one budget after the other, and compares what they return with what the packages return by themselves.
template <class Device>
class Runner {
    using Weights = residency::Planned<Device>;
    using Model = aoti::CompiledModel<Weights>;
    using Outputs = std::vector<std::vector<std::byte>>;

public:
    Runner(Device& device, const Job& job, bool is_cuda)
        : device_{device},
          job_{job},
          is_cuda_{is_cuda},
          memory_{device},
          stream_{residency::unwrap(device.create_stream())},
          program_{residency::format::load_program_file(job.model + "/program.residency")} {
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
        run_alone();
        for (const std::string& budget : job_.budgets) { run_at(budget); }
        return std::move(results_);
    }

private:
    using Clock = std::chrono::steady_clock;

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

    [[nodiscard]] Outputs bytes_of(const std::vector<aoti::Tensor>& tensors) {
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

    /// One round: the first outputs of each method. Mutable weights have their values of the file before it.
    template <class Run>
    [[nodiscard]] std::map<std::string, Outputs> round(Run&& run) {
        std::map<std::string, Outputs> outputs;
        for (const std::string& method : job_.methods) { outputs[method] = bytes_of(run(method)); }
        return outputs;
    }
    /// The median milliseconds of each method over the rounds.
    template <class Run>
    [[nodiscard]] std::map<std::string, double> time(Run&& run) {
        std::map<std::string, double> medians;
        for (const std::string& method : job_.methods) {
            std::vector<double> times;
            for (std::uint32_t i = 0; i < job_.rounds + 2; ++i) {  // two to get there
                residency::unwrap(device_.synchronize(stream_));
                const auto begin = Clock::now();
                const auto kept = run(method);
                residency::unwrap(device_.synchronize(stream_));
                if (i >= 2) {
                    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
                }
            }
            std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
            medians[method] = times[times.size() / 2];
        }
        return medians;
    }

    /// The packages by themselves: every weight in memory of ours, no hook set.
    void run_alone() {
        const auto file = residency::format::read_safetensors(job_.model + "/" + program_.weights_file);
        const residency::Catalog bound = residency::unwrap(program_.try_bind(file.catalog()));
        const residency::Catalog host = examples::load_pinned(device_, bound);
        examples::Memory<Device> memory{device_};
        std::vector<std::byte*> storages;
        const auto restore = [&](residency::StorageId id) {
            memory.copy(host.host_bytes(id), storages[residency::index(id)], host.storage(id).bytes, stream_);
        };
        for (std::uint32_t i = 0; i < host.storages().size(); ++i) {
            storages.push_back(
                memory.template on_device<std::byte>(std::max<std::size_t>(host.storages()[i].bytes, 1)));
            restore(residency::StorageId{i});
        }
        std::map<std::string, aoti::Package> packages;
        for (const std::string& name : job_.methods) {
            const auto* method = program_.find_method(name);
            auto package = residency::unwrap(aoti::Package::try_open(
                job_.model + "/" + method->package, {.is_cuda = is_cuda_, .torch_folder = job_.torch_folder}));
            std::vector<aoti::ConstantBinding> bindings;
            for (const auto& constant : method->constants) {
                const residency::Weight& weight = program_.catalog.weight(constant.weight);
                bindings.push_back({constant.name,
                                    {storages[residency::index(weight.storage)] + weight.offset_bytes, weight.dtype,
                                     weight.shape, weight.strides}});
            }
            residency::unwrap(package.try_bind(bindings));
            packages.emplace(name, std::move(package));
        }
        const auto run = [&](const std::string& method) {
            return residency::unwrap(packages.at(method).try_run(inputs_.at(method), native()));
        };
        reference_ = round(run);
        const auto times = time(run);
        for (const std::string& method : job_.methods) {
            results_.rows.push_back({"none", method, {}, times.at(method), 0, true});
            results_.rows.back().statistics.held_bytes = program_.catalog.total_bytes();
        }
    }

    void run_at(const std::string& budget) {
        typename Model::Options options;
        options.budget = residency::Budget::parse(budget);
        options.package.torch_folder = job_.torch_folder;
        examples::Progress bar{"loading"};
        options.load = examples::pinned_options(bar);
        auto opened = Model::try_open(device_, job_.model, std::move(options));
        if (!opened) {
            if (opened.error().kind() != residency::ErrorKind::budget) { residency::throw_error(opened.error()); }
            results_.refused.push_back(opened.error().message());
            return;
        }
        Model& model = *opened;
        const auto run = [&](const std::string& method) {
            return residency::unwrap(model.try_run(method, inputs_.at(method), stream_));
        };
        const auto outputs = round(run);
        const bool is_first_right = outputs == reference_;
        std::vector<Row> rows;
        const auto times = time(run);
        for (const std::string& method : job_.methods) {
            static_cast<void>(run(method));
            residency::unwrap(device_.synchronize(stream_));
            Row row{budget, method, model.weights().statistics(), times.at(method), 0, is_first_right};
            if (is_cuda_ && row.statistics.streaming) {
                const residency::plan::Plan& plan = model.weights().plan();
                row.bound_milliseconds = 1e3 * (std::max)(plan.bound_seconds(), plan.latency_floor_seconds());
            }
            results_.rows.push_back(std::move(row));
        }
        model.weights().drain();
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
    std::map<std::string, Outputs> reference_;
    Results results_;
};

}  // namespace compiled
