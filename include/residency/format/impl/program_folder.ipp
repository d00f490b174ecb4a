// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/executorch.hpp"
#include "residency/format/input.hpp"
#include "residency/format/program.hpp"
#include "residency/format/program_folder.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/text.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

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
