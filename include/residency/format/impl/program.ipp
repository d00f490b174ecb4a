// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "residency/format/executorch.hpp"
#include "residency/format/program.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/file.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

inline constexpr std::uint32_t program_no_step = UINT32_MAX;

/// Limits of a program, beside those of its catalog and its schedules.
struct ProgramLimits {
    static constexpr std::uint64_t text_bytes = CatalogBuilder::max_name_bytes;
    static constexpr std::uint64_t items = std::uint64_t{1} << 24;  // of any list
    static constexpr std::uint64_t extents = 64;
    static constexpr std::uint64_t methods = 4096;
};

/// Whether a program may name this file: one beside it, and no other.
[[nodiscard]] inline bool is_file_beside(std::string_view name) noexcept {
    return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
           name.find('\0') == std::string_view::npos;
}

/// Reads the sections of a program in their order.
class ProgramReader {
public:
    explicit ProgramReader(const ContainerReader& container) : container_{container} {}

    [[nodiscard]] Result<Program> try_read() {
        for (const auto part :
             {&ProgramReader::read_head, &ProgramReader::read_storages, &ProgramReader::read_weights,
              &ProgramReader::read_aliases, &ProgramReader::read_pins, &ProgramReader::read_methods}) {
            if (const Status read = (this->*part)(); !read) { return read.error(); }
        }
        return std::move(program_);
    }

private:
    [[nodiscard]] Status read_head() {
        SectionReader head = container_.section(section_tag("HEAD"));
        program_.compiler = head.text(ProgramLimits::text_bytes);
        program_.device = head.text(ProgramLimits::text_bytes);
        program_.weights_file = head.text(ProgramLimits::text_bytes);
        program_.budget = head.text(ProgramLimits::text_bytes);
        if (head.ok()) {
            head.require(is_file_beside(program_.weights_file),
                         "the weights file " + residency::detail::quoted(program_.weights_file),
                         "the name of a file beside the program");
        }
        return head.finish();
    }

    [[nodiscard]] Status read_storages() {
        SectionReader section = container_.section(section_tag("STOR"));
        const std::uint64_t count = section.count(ProgramLimits::items, 8 + 8 + 1 + 8);
        for (std::uint64_t i = 0; i < count && section.ok(); ++i) {
            const std::uint64_t bytes = section.u64();
            const std::uint64_t alignment = section.u64();
            const std::uint8_t is_mutable = section.u8();
            section.require(is_mutable <= 1, std::to_string(is_mutable), "0 or 1 (mutable)");
            program_.tensors.push_back(section.text(ProgramLimits::text_bytes));
            if (!section.ok()) { break; }
            static_cast<void>(
                builder_.add_storage(bytes, {.is_mutable = is_mutable == 1, .alignment_bytes = alignment}));
            if (!builder_.status()) { section.require(false, builder_.status().error().message(), "a storage"); }
        }
        return section.finish();
    }

    [[nodiscard]] Status read_weights() {
        SectionReader section = container_.section(section_tag("WGTS"));
        const std::uint64_t count = section.count(ProgramLimits::items, 8 + 8 + 8 + 8 + 4 + 8 + 1);
        for (std::uint64_t i = 0; i < count && section.ok(); ++i) {
            const std::string name = section.text(ProgramLimits::text_bytes);
            const std::string type_name = section.text(DType::max_name_bytes);
            Shape shape = section.array<std::uint64_t>(ProgramLimits::extents);
            Strides strides = section.array<std::uint64_t>(ProgramLimits::extents);
            const std::uint32_t storage = section.u32();
            const std::uint64_t offset = section.u64();
            const std::uint8_t kind = section.u8();
            section.require(kind <= 1, "kind " + std::to_string(kind), "0 (parameter) or 1 (buffer)");
            const DType type = dtype_named(section, type_name);
            section.require(storage < program_.tensors.size(), "storage " + std::to_string(storage),
                            "one of " + std::to_string(program_.tensors.size()));
            section.require(shape.size() == strides.size(), std::to_string(strides.size()) + " strides",
                            std::to_string(shape.size()));
            if (!section.ok()) { break; }
            program_.kinds.push_back(static_cast<ProgramWeightKind>(kind));
            static_cast<void>(
                builder_.add_weight(name, type, std::move(shape), StorageId{storage}, offset, std::move(strides)));
            if (!builder_.status()) { section.require(false, builder_.status().error().message(), "a weight"); }
        }
        if (const Status read = section.finish(); !read) { return read.error(); }
        auto catalog = builder_.try_build();
        if (!catalog) { return catalog.error(); }
        program_.catalog = std::move(*catalog);
        return container_.expect(ContainerKind::program, program_file_version, program_.catalog.hash());
    }

    [[nodiscard]] static DType dtype_named(SectionReader& section, const std::string& name) {
        const auto found = dtype::find(name);
        section.require(found.has_value(), "type " + residency::detail::quoted(name), "a type of the library");
        return found.value_or(DType{});
    }
    /// Reads the index of a weight.
    [[nodiscard]] WeightId weight(SectionReader& section) {
        const WeightId id{section.u32()};
        check(section, id);
        return id;
    }
    void check(SectionReader& section, WeightId id) const {
        if (!program_.catalog.contains(id)) {
            section.require(false, "weight " + std::to_string(index(id)),
                            "one of " + std::to_string(program_.catalog.weights().size()));
        }
    }

    [[nodiscard]] Status read_aliases() {
        SectionReader section = container_.section(section_tag("ALIA"));
        const std::uint64_t count = section.count(ProgramLimits::items, 8 + 4);
        for (std::uint64_t i = 0; i < count && section.ok(); ++i) {
            ProgramAlias alias;
            alias.name = section.text(ProgramLimits::text_bytes);
            alias.weight = weight(section);
            if (!section.ok()) { break; }
            // In ascending order, so that one name cannot come twice.
            section.require(!program_.catalog.find(alias.name) && (i == 0 || program_.aliases.back().name < alias.name),
                            "the alias " + residency::detail::quoted(alias.name),
                            "names in ascending order that no weight has");
            program_.aliases.push_back(std::move(alias));
        }
        return section.finish();
    }

    [[nodiscard]] Status read_pins() {
        SectionReader section = container_.section(section_tag("PINS"));
        program_.pins = section.array<WeightId>(ProgramLimits::items);
        for (std::size_t i = 0; i < program_.pins.size() && section.ok(); ++i) {
            check(section, program_.pins[i]);
            section.require(i == 0 || program_.pins[i - 1] < program_.pins[i], "pins out of order",
                            "ascending weights");
        }
        if (const Status read = section.finish(); !read) { return read.error(); }
        auto placed =
            program_.catalog.try_with_placement(std::span<const WeightId>{program_.pins}, Placement::resident);
        if (!placed) { return placed.error(); }
        program_.catalog = std::move(*placed);
        return {};
    }

    [[nodiscard]] Status read_methods() {
        SectionReader section = container_.section(section_tag("METH"));
        const std::uint64_t count = section.count(ProgramLimits::methods, std::uint64_t{4} * 8);
        section.require(count != 0, "no methods", "at least one");
        for (std::uint64_t i = 0; i < count && section.ok(); ++i) {
            ProgramMethod method = read_method(section);
            if (!section.ok()) { break; }
            section.require(program_.find_method(method.name) == nullptr,
                            "the method " + residency::detail::quoted(method.name) + " twice", "each name once");
            program_.methods.push_back(std::move(method));
        }
        return section.finish();
    }

    [[nodiscard]] ProgramMethod read_method(SectionReader& section) {
        ProgramMethod method;
        method.name = section.text(ProgramLimits::text_bytes);
        method.package = section.text(ProgramLimits::text_bytes);
        section.require(!method.name.empty(), "a method without a name", "a name");
        section.require(is_file_beside(method.package), "the package " + residency::detail::quoted(method.package),
                        "the name of a file beside the program");
        const std::uint64_t inputs = section.count(ProgramLimits::items, 8 + 8);
        for (std::uint64_t i = 0; i < inputs && section.ok(); ++i) {
            const DType type = dtype_named(section, section.text(DType::max_name_bytes));
            method.inputs.push_back({type, section.array<std::uint64_t>(ProgramLimits::extents)});
        }
        const std::uint64_t constants = section.count(ProgramLimits::items, 8 + 8 + 4);
        for (std::uint64_t i = 0; i < constants && section.ok(); ++i) {
            ProgramConstant constant;
            constant.name = section.text(ProgramLimits::text_bytes);
            constant.original = section.text(ProgramLimits::text_bytes);
            constant.weight = weight(section);
            section.require(i == 0 || method.constants.back().name < constant.name,
                            "the constant " + residency::detail::quoted(constant.name), "names in ascending order");
            method.constants.push_back(std::move(constant));
        }
        seen_in_.assign(program_.catalog.weights().size(), UINT64_MAX);
        const std::uint64_t steps = section.count(Schedule::max_steps, 8 + 4 + 8 + 8 + 8);
        section.require(steps != 0, "no steps", "at least one");
        for (std::uint64_t i = 0; i < steps && section.ok(); ++i) {
            ProgramStep step;
            step.weights = section.array<WeightId>(ProgramLimits::items);
            for (const WeightId id : step.weights) {
                check(section, id);
                if (section.ok() && std::exchange(seen_in_[index(id)], i) == i) {
                    section.require(false,
                                    "weight " + std::to_string(index(id)) + " twice in step " + std::to_string(i),
                                    "each once");
                }
            }
            const std::uint32_t until = section.u32();
            section.require(until == program_no_step || (until >= i && until < steps),
                            "live until " + std::to_string(until),
                            "a step from this one (" + std::to_string(i) + ") on");
            if (until != program_no_step) { step.live_until = until; }
            const std::int64_t compute_ns = section.i64();
            section.require(compute_ns >= -1, "a negative duration", "nanoseconds, or -1 for unknown");
            if (compute_ns >= 0) { step.compute = std::chrono::nanoseconds{compute_ns}; }
            step.kernels = section.text(ProgramLimits::text_bytes);
            step.module = section.text(ProgramLimits::text_bytes);
            method.steps.push_back(std::move(step));
        }
        return method;
    }

    const ContainerReader& container_;
    CatalogBuilder builder_;
    std::vector<std::uint64_t> seen_in_;  // by weight: the last step of the method that names it
    Program program_;
};

}  // namespace detail

RESIDENCY_INLINE const ProgramMethod* Program::find_method(std::string_view name) const noexcept {
    const auto found =
        std::find_if(methods.begin(), methods.end(), [&](const ProgramMethod& each) { return each.name == name; });
    return found == methods.end() ? nullptr : &*found;
}

RESIDENCY_INLINE std::optional<WeightId> Program::find(std::string_view name) const noexcept {
    if (const auto id = catalog.find(name)) { return id; }
    const auto alias =
        std::lower_bound(aliases.begin(), aliases.end(), name,
                         [](const ProgramAlias& each, std::string_view text) { return each.name < text; });
    return alias != aliases.end() && alias->name == name ? std::optional{alias->weight} : std::nullopt;
}

RESIDENCY_INLINE Result<Schedule> Program::try_schedule(const ProgramMethod& method) const {
    ScheduleBuilder builder{catalog};
    for (const ProgramStep& step : method.steps) {
        builder.step(std::span<const WeightId>{step.weights}, step.compute,
                     step.module.empty() ? step.kernels : step.kernels + " (" + step.module + ")");
        if (!step.live_until) { continue; }
        for (const WeightId id : step.weights) { builder.live_until(id, *step.live_until); }
    }
    auto schedule = builder.try_build();
    if (!schedule) { return schedule.error().in("method " + residency::detail::quoted(method.name)); }
    return schedule;
}

RESIDENCY_INLINE Result<Catalog> Program::try_bind(const Catalog& weights) const {
    std::vector<StorageSource> sources;
    sources.reserve(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto id = weights.try_find(tensors[i]);
        if (!id) { return id.error().in("the weights of the program"); }
        const Weight& weight = weights.weight(*id);
        const Storage& storage = weights.storage(weight.storage);
        const std::uint64_t expected = catalog.storage(StorageId{static_cast<std::uint32_t>(i)}).bytes;
        if (storage.bytes != expected || weight.offset_bytes != 0) {
            return Error{ErrorKind::mismatch,
                         "the tensor " + residency::detail::quoted(tensors[i]) + " has " +
                             residency::detail::in_bytes(storage.bytes) + " where the program was compiled for " +
                             residency::detail::in_bytes(expected) + ": these are the weights of another model"};
        }
        sources.push_back(storage.source);
    }
    return catalog.try_with_sources(std::move(sources));
}

RESIDENCY_INLINE std::vector<std::byte> save(const Program& program) {
    RESIDENCY_ASSERT(!program.methods.empty(), "a program has at least one method");
    ContainerWriter writer{ContainerKind::program, program_file_version, program.catalog.hash()};
    SectionWriter& head = writer.section(section_tag("HEAD"));
    head.text(program.compiler);
    head.text(program.device);
    head.text(program.weights_file);
    head.text(program.budget);

    SectionWriter& storages = writer.section(section_tag("STOR"));
    storages.u64(program.catalog.storages().size());
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
        const Storage& storage = program.catalog.storages()[i];
        storages.u64(storage.bytes);
        storages.u64(storage.alignment_bytes);
        storages.u8(storage.is_mutable ? 1 : 0);
        storages.text(program.tensors[i]);
    }
    SectionWriter& weights = writer.section(section_tag("WGTS"));
    weights.u64(program.catalog.weights().size());
    for (std::size_t i = 0; i < program.kinds.size(); ++i) {
        const Weight& weight = program.catalog.weights()[i];
        weights.text(weight.name);
        weights.text(weight.dtype.name());
        weights.array(weight.shape);
        weights.array(weight.strides);
        weights.u32(index(weight.storage));
        weights.u64(weight.offset_bytes);
        weights.u8(static_cast<std::uint8_t>(program.kinds[i]));
    }
    SectionWriter& aliases = writer.section(section_tag("ALIA"));
    aliases.u64(program.aliases.size());
    for (const ProgramAlias& alias : program.aliases) {
        aliases.text(alias.name);
        aliases.u32(index(alias.weight));
    }
    writer.section(section_tag("PINS")).array(program.pins);

    SectionWriter& methods = writer.section(section_tag("METH"));
    methods.u64(program.methods.size());
    for (const ProgramMethod& method : program.methods) {
        methods.text(method.name);
        methods.text(method.package);
        methods.u64(method.inputs.size());
        for (const ProgramInput& input : method.inputs) {
            methods.text(input.dtype.name());
            methods.array(input.shape);
        }
        methods.u64(method.constants.size());
        for (const ProgramConstant& constant : method.constants) {
            methods.text(constant.name);
            methods.text(constant.original);
            methods.u32(index(constant.weight));
        }
        methods.u64(method.steps.size());
        for (const ProgramStep& step : method.steps) {
            methods.array(step.weights);
            methods.u32(step.live_until.value_or(detail::program_no_step));
            methods.i64(step.compute ? step.compute->count() : -1);
            methods.text(step.kernels);
            methods.text(step.module);
        }
    }
    return writer.finish();
}

RESIDENCY_INLINE Status try_save_file(const Program& program, const std::string& path) {
    return residency::detail::write_file(path, save(program));
}

RESIDENCY_INLINE Result<Program> try_load_program(std::span<const std::byte> bytes, std::string source) {
    const auto container = ContainerReader::try_open(bytes, std::move(source));
    if (!container) { return container.error(); }
    // The hash is checked once the catalog has been read.
    if (const Status fits = container->expect(ContainerKind::program, program_file_version, container->catalog_hash());
        !fits) {
        return fits.error();
    }
    return detail::ProgramReader{*container}.try_read();
}

RESIDENCY_INLINE Result<Program> try_load_program_file(const std::string& path) {
    constexpr std::uint64_t longest = std::uint64_t{1} << 32;
    const auto bytes = residency::detail::read_file(path, longest);
    if (!bytes) { return bytes.error(); }
    return try_load_program(*bytes, residency::detail::quoted(path));
}

RESIDENCY_INLINE Result<Program> try_load_carried_program(const Input& executorch) {
    const auto file = try_read_executorch_file(executorch);
    if (!file) { return file.error(); }
    const ExecutorchData* carried = file->find(detail::executorch_program_key);
    if (carried == nullptr) {
        return detail::unsupported(
            executorch.path(), 0,
            "it carries no program of residency_export, which says what each step reads; export it "
            "with export_executorch");
    }
    const auto text = executorch.try_text(carried->offset_bytes, carried->bytes);
    if (!text) { return text.error(); }
    return try_load_program(std::as_bytes(std::span{*text}),
                            residency::detail::quoted(executorch.path()) + ", " + detail::shown(carried->key));
}

RESIDENCY_INLINE Result<Program> try_load_program_folder(const std::string& folder) {
    const std::string program = folder + "/" + executorch_program_file;
    if (Input::exists(folder + "/program.residency") || !Input::exists(program)) {
        return try_load_program_file(folder + "/program.residency");
    }
    const auto input = Input::try_open(program);
    if (!input) { return input.error(); }
    return try_load_carried_program(*input);
}

RESIDENCY_INLINE Result<Catalog> try_bind_program_folder(const Program& program, const std::string& folder) {
    const std::string path = folder + "/" + program.weights_file;
    const auto file = path.ends_with(".ptd") ? try_read_executorch(path) : try_read_safetensors(path);
    if (!file) { return file.error(); }
    const auto saved = file->try_catalog();
    if (!saved) { return saved.error(); }
    auto bound = program.try_bind(*saved);
    return bound ? std::move(bound) : Result<Catalog>{bound.error().in(residency::detail::quoted(folder))};
}

}}}  // namespace residency::RESIDENCY_ABI::format
