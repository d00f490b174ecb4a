// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "program_report.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "report.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/program.hpp"
#include "residency/model/container.hpp"
#include "residency/model/file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

using residency::WeightId;
using residency::format::Program;
using residency::format::ProgramMethod;
using residency::format::ProgramStep;
using residency::format::ProgramWeightKind;

namespace {

std::string shown(std::string_view text, std::size_t longest = 96) {
    return residency::detail::shortened(text, longest);
}

std::string shape_of(const residency::Shape& shape) {
    std::string text = "[";
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        text += (axis ? ", " : "") + std::to_string(shape[axis]);
    }
    return text + "]";
}

std::string hash_of(const Program& program) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(program.catalog.hash()));
    return text;
}

std::string weights_of(const Program& program, const ProgramStep& step) {
    std::string text;
    for (const WeightId id : step.weights) {
        text += (text.empty() ? "" : ", ") + shown(program.catalog.weight(id).name);
    }
    return text;
}

const char* kind_of(const Program& program, std::size_t weight) {
    return program.kinds[weight] == ProgramWeightKind::parameter ? "parameter" : "buffer";
}

/// Why a weight stays on the device; empty where it comes and goes.
const char* resident_because(const Program& program, WeightId id) {
    const auto& storage = program.catalog.storage(program.catalog.storage_of(id));
    if (storage.is_mutable) { return "kernels write it"; }
    return std::find(program.pins.begin(), program.pins.end(), id) != program.pins.end() ? "pinned" : "";
}

void print_method(const Program& program, const ProgramMethod& method) {
    std::printf("\nmethod    %s, in %s\n", shown(method.name).c_str(), shown(method.package).c_str());
    for (const auto& input : method.inputs) {
        std::printf("  input   %s %s\n", std::string{input.dtype.name()}.c_str(), shape_of(input.shape).c_str());
    }
    const bool has_lives = std::any_of(method.steps.begin(), method.steps.end(),
                                       [](const ProgramStep& step) { return step.live_until.has_value(); });
    const bool has_times = std::any_of(method.steps.begin(), method.steps.end(),
                                       [](const ProgramStep& step) { return step.compute.has_value(); });
    std::printf("  steps   %zu\n\n  %6s%s%s  reads\n", method.steps.size(), "step", has_lives ? "  live until" : "",
                has_times ? "     estimate" : "");
    for (std::size_t i = 0; i < method.steps.size(); ++i) {
        const ProgramStep& step = method.steps[i];
        std::printf("  %6zu", i);
        if (has_lives) { std::printf("  %10s", step.live_until ? std::to_string(*step.live_until).c_str() : ""); }
        if (has_times) {
            char time[24] = "";
            if (step.compute) { std::snprintf(time, sizeof time, "%.2f us", double(step.compute->count()) / 1e3); }
            std::printf("  %11s", time);
        }
        std::printf("  %s\n", weights_of(program, step).c_str());
        const int indent = 10 + (has_lives ? 12 : 0) + (has_times ? 13 : 0);
        if (!step.module.empty()) { std::printf("%*sof %s\n", indent, "", shown(step.module).c_str()); }
        if (!step.kernels.empty()) { std::printf("%*sby %s\n", indent, "", shown(step.kernels).c_str()); }
    }
}

}  // namespace

std::optional<residency::Result<Program>> find_program(const std::string& path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        if (std::filesystem::exists(path + "/program.residency", error)) {
            return residency::format::try_load_program_folder(path);
        }
        const auto executorch =
            residency::format::Input::try_open(path + "/" + residency::format::executorch_program_file);
        if (!executorch) { return std::nullopt; }
        auto carried = residency::format::try_load_carried_program(*executorch);
        if (!carried && carried.error().kind() == residency::ErrorKind::unsupported) { return std::nullopt; }
        return carried;
    }
    const auto file = residency::detail::open_regular_file(path);
    std::array<std::uint8_t, 16> start{};
    if (!file || std::fread(start.data(), 1, start.size(), file->get()) != start.size() ||
        std::memcmp(start.data(), residency::detail::container_magic, 8) != 0 ||
        start[12] != static_cast<std::uint8_t>(residency::ContainerKind::program)) {
        return std::nullopt;
    }
    return residency::format::try_load_program_file(path);
}

void print_json(const Program& program) {
    using Json = nlohmann::ordered_json;
    Json out;
    out["format"] = "program";
    out["compiler"] = program.compiler;
    out["device"] = program.device;
    out["catalog_hash"] = hash_of(program);
    out["weights_file"] = program.weights_file;
    out["budget"] = program.budget;
    out["total_bytes"] = program.catalog.total_bytes();
    auto& storages = out["storages"] = Json::array();
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
        const auto& storage = program.catalog.storages()[i];
        storages.push_back({{"bytes", storage.bytes}, {"tensor", program.tensors[i]}, {"mutable", storage.is_mutable}});
    }
    auto& weights = out["weights"] = Json::array();
    for (std::size_t i = 0; i < program.kinds.size(); ++i) {
        const auto& weight = program.catalog.weights()[i];
        weights.push_back({{"name", weight.name},
                           {"dtype", weight.dtype.name()},
                           {"shape", weight.shape},
                           {"strides", weight.strides},
                           {"storage", residency::index(weight.storage)},
                           {"offset_bytes", weight.offset_bytes},
                           {"kind", kind_of(program, i)}});
    }
    auto& aliases = out["aliases"] = Json::array();
    for (const auto& alias : program.aliases) {
        aliases.push_back({{"name", alias.name}, {"weight", program.catalog.weight(alias.weight).name}});
    }
    auto& pins = out["pins"] = Json::array();
    for (const WeightId id : program.pins) { pins.push_back(program.catalog.weight(id).name); }
    auto& methods = out["methods"] = Json::array();
    for (const auto& method : program.methods) {
        Json entry{{"name", method.name}, {"package", method.package}};
        auto& inputs = entry["inputs"] = Json::array();
        for (const auto& input : method.inputs) {
            inputs.push_back({{"dtype", input.dtype.name()}, {"shape", input.shape}});
        }
        auto& constants = entry["constants"] = Json::array();
        for (const auto& constant : method.constants) {
            constants.push_back({{"name", constant.name},
                                 {"original", constant.original},
                                 {"weight", program.catalog.weight(constant.weight).name}});
        }
        auto& steps = entry["steps"] = Json::array();
        for (const auto& step : method.steps) {
            Json one{{"weights", Json::array()}};
            for (const WeightId id : step.weights) { one["weights"].push_back(program.catalog.weight(id).name); }
            if (step.live_until) { one["live_until"] = *step.live_until; }
            if (step.compute) { one["compute_ns"] = step.compute->count(); }
            one["kernels"] = step.kernels;
            one["module"] = step.module;
            steps.push_back(std::move(one));
        }
        methods.push_back(std::move(entry));
    }
    const std::string text = out.dump(2, ' ', false, Json::error_handler_t::replace);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
}

void print_table(const Program& program) {
    std::printf("format    program\n");
    std::printf("compiler  %s\n", shown(program.compiler).c_str());
    std::printf("device    %s\n", shown(program.device).c_str());
    std::printf("catalog   %s\n", hash_of(program).c_str());
    std::printf("file      %s\n", shown(program.weights_file).c_str());
    std::printf("budget    %s\n", program.budget.empty() ? "the runtime's own" : shown(program.budget).c_str());
    std::size_t widest = 4;
    for (const auto& weight : program.catalog.weights()) { widest = (std::max)(widest, shown(weight.name, 60).size()); }
    std::printf("\n%-*s  %-9s %-24s %9s %-9s  resident\n", static_cast<int>(widest), "name", "dtype", "shape",
                "storage", "kind");
    for (std::size_t i = 0; i < program.kinds.size(); ++i) {
        const auto& weight = program.catalog.weights()[i];
        std::printf("%-*s  %-9s %-24s %9u %-9s  %s\n", static_cast<int>(widest), shown(weight.name, 60).c_str(),
                    std::string{weight.dtype.name()}.c_str(), shape_of(weight.shape).c_str(),
                    residency::index(weight.storage), kind_of(program, i),
                    resident_because(program, WeightId{static_cast<std::uint32_t>(i)}));
    }
    for (const auto& alias : program.aliases) {
        std::printf("alias     %s of %s\n", shown(alias.name).c_str(),
                    shown(program.catalog.weight(alias.weight).name).c_str());
    }
    for (const auto& method : program.methods) { print_method(program, method); }
    std::printf("\nweights   %zu on %zu storages\n", program.kinds.size(), program.tensors.size());
    std::printf("total     %llu bytes (%s)\n", static_cast<unsigned long long>(program.catalog.total_bytes()),
                human(program.catalog.total_bytes()).c_str());
}
