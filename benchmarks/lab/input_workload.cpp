// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/input_workload.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/lab/generators.hpp"
#include "benchmarks/lab/input.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/format/open.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/quoted.hpp"

namespace lab {

namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;

constexpr std::uint64_t sample_bytes = std::uint64_t{256} << 10;  // of each storage

/// Packed bytes over raw ones of what lies in the middle of a storage; 1 where it cannot be read. `form`: of its type.
double measured_share(const residency::format::ModelFile& model, std::size_t storage, residency::PackedForm form) {
    const auto& entry = model.storages[storage];
    if (entry.parts != nullptr) {
        std::uint64_t packed = 0;
        for (const residency::PackedPart& part : *entry.parts) { packed += part.packed_bytes; }
        return entry.bytes == 0 ? 1 : static_cast<double>(packed) / static_cast<double>(entry.bytes);
    }
    const std::uint64_t bytes = std::min(entry.bytes, sample_bytes) / 4 * 4;
    if (form == residency::PackedForm::raw || bytes == 0 || entry.is_mutable) { return 1; }
    std::vector<std::byte> raw(static_cast<std::size_t>(bytes)), packed, scratch;
    std::ifstream file{model.files[entry.file].path, std::ios::binary};
    file.seekg(static_cast<std::streamoff>(entry.offset_bytes + (entry.bytes - bytes) / 8 * 4));
    if (!file.read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(bytes))) { return 1; }
    const auto part = residency::codec::try_pack_part(form, {}, raw, packed, scratch);
    return part ? static_cast<double>(part->packed_bytes) / static_cast<double>(bytes) : 1;
}

}  // namespace

residency::Result<Workload> workload_of_file(const std::string& path, bool packs) {
    const auto model = residency::format::try_read_model(path);
    if (!model) { return model.error(); }
    Workload work;
    work.name = residency::detail::escaped(std::filesystem::path{path}.filename().string());
    std::vector<std::string> names(model->storages.size());
    std::vector<std::optional<residency::PackedForm>> forms(names.size());
    for (const auto& weight : model->weights) {
        const std::size_t s = weight.storage;
        if (names[s].empty()) { names[s] = weight.name; }
        const residency::PackedForm form = residency::codec::chunk_form(weight.type);
        forms[s] = !forms[s] || forms[s] == form ? form : residency::PackedForm::raw;
    }
    for (std::size_t i = 0; i < model->storages.size(); ++i) {
        const std::string name = names[i].empty() ? "storage " + std::to_string(i) : names[i];
        const auto id =
            work.add(name, model->storages[i].bytes, static_cast<std::uint32_t>(i), model->storages[i].is_mutable);
        work.steps.push_back({{id}, static_cast<double>(model->storages[i].bytes)});
        if (packs) {
            work.packed_shares.push_back(measured_share(*model, i, forms[i].value_or(residency::PackedForm::raw)));
        }
    }
    generate::end_pass(work);
    return work;
}

residency::Result<Workload> workload_of_trace(const std::string& path, const std::string& format) {
    const auto trace = read_trace(path, format);
    if (!trace) { return trace.error(); }
    const auto refused = [&](const std::string& found, const std::string& expected) {
        return residency::Error{residency::ErrorKind::malformed,
                                residency::detail::quoted(path) + ": found " + found + ", expected " + expected,
                                residency::FileLocation{path, 0, found, expected}};
    };
    if (trace->accesses.empty()) { return refused("no accesses", "at least one to run"); }
    if (trace->total_bytes() > most_bytes || trace->bytes.size() > most_bytes / 256) {
        return refused("storages of " + std::to_string(trace->total_bytes()) + " bytes",
                       "at most " + std::to_string(most_bytes) + " to run");
    }
    Workload work;
    work.name = residency::detail::escaped(std::filesystem::path{path}.filename().string());
    work.is_known = false;
    work.passes_end = trace->groups.empty() ? "after 64 steps, as the trace names no layers"
                                            : "where the layers of the trace begin again";
    for (std::size_t i = 0; i < trace->bytes.size(); ++i) {
        work.add(std::to_string(i), trace->bytes[i], trace->groups.empty() ? 0 : trace->groups[i]);
    }
    std::uint32_t layer = 0;
    for (std::size_t i = 0; i < trace->steps(); ++i) {
        const auto step = trace->step(i);
        const std::uint32_t next = trace->groups.empty() || step.empty() ? layer : trace->groups[index(step.front())];
        const bool begins = trace->groups.empty() ? i % 64 == 0 : next < layer;
        if (begins && !work.steps.empty()) { generate::end_pass(work); }
        layer = next;
        // Layers mean a router: what it chooses is known one layer after the other.
        work.steps.push_back({{step.begin(), step.end()}, 0, !trace->groups.empty()});
    }
    generate::end_pass(work);
    return work;
}

}  // namespace lab
