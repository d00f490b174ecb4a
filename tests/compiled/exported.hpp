// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/format/program.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/ids.hpp"
#include "tests/support/files.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/zip_archive.hpp"

namespace test {

using namespace residency;

inline constexpr std::uint64_t elements = (3U << 20U) / sizeof(float);
inline const std::string stand_in_folder = RESIDENCY_STAND_IN_DIR;

/// A folder as residency_export writes it, with stand-ins for the compiled libraries: "run" and "again" are the same method.
class Exported {
public:
    explicit Exported(const std::string& variant = "good", const std::string& budget = "") {
        CatalogBuilder builder;
        format::Program program;
        for (const char* name : {"w.0", "w.1", "w.2"}) {
            program.tensors.emplace_back(name);
            builder.add(name, dtype::f32, {elements});
        }
        builder.add("cache", dtype::f32, {16}, {}, true);
        program.tensors.emplace_back("cache");
        program.catalog = unwrap(builder.try_build());
        program.kinds.assign(4, format::ProgramWeightKind::parameter);
        program.kinds[3] = format::ProgramWeightKind::buffer;
        program.compiler = "torch 2.11.0";
        program.device = "cpu";
        program.weights_file = "weights.safetensors";
        program.budget = budget;
        std::vector<format::ProgramStep> steps{{{WeightId{0}}, {}, {}, "first", "a"},
                                               {{WeightId{1}}, {}, {}, "second", "b"},
                                               {{WeightId{2}}, {}, {}, "third", "c"},
                                               {{WeightId{3}}, {}, {}, "add", ""}};
        if (variant == "PROBES") {
            steps = {{{WeightId{0}}, 1, {}, "probe 2", ""},
                     {{WeightId{1}}, 1, {}, "probe 0", ""},
                     {{WeightId{2}}, 2, {}, "probe 1", ""}};
        }
        for (const char* name : {"run", "again"}) {
            program.methods.push_back({name,
                                       std::string{name} + ".pt2",
                                       {{dtype::f32, {1}}},
                                       {{"cache", "cache", WeightId{3}},
                                        {"w_0", "w.0", WeightId{0}},
                                        {"w_1", "w.1", WeightId{1}},
                                        {"w_2", "w.2", WeightId{2}}},
                                       steps});
            support::write_all(path() + "/" + name + ".pt2",
                               support::zip_archive({{std::string{name} + "/data/aotinductor/model/x.wrapper.so",
                                                      support::read_all(stand_in_folder + "/" + variant + ".so")}}));
        }
        save(program);
        write_weights(elements);
    }
    [[nodiscard]] std::string path() const { return folder_.path(""); }
    void save(const format::Program& program) const {
        unwrap(format::try_save_file(program, path() + "/program.residency"));
    }
    [[nodiscard]] format::Program program() const {
        return unwrap(format::try_load_program_file(path() + "/program.residency"));
    }
    /// `reversed`: the weight that is read last comes first in the file.
    void write_weights(std::uint64_t count, bool reversed = false) {
        std::vector<std::vector<float>> values;
        std::vector<format::SafetensorsTensor> tensors;
        for (int i = 0; i < 3; ++i) {
            const int w = reversed ? 2 - i : i;
            values.emplace_back(count, float(w + 1));
            tensors.push_back({"w." + std::to_string(w), dtype::f32, {count}});
        }
        values.emplace_back(16, 0.0F);
        tensors.push_back({"cache", dtype::f32, {16}});
        auto writer = unwrap(format::SafetensorsWriter::try_create(path() + "/weights.safetensors", tensors));
        for (const auto& each : values) { unwrap(writer.try_append(std::as_bytes(std::span{each}))); }
        unwrap(writer.try_finish());
    }

private:
    TemporaryFolder folder_;
};

}  // namespace test
