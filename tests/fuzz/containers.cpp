// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/model/container.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "../support/fuzz_format.hpp"
#include "benchmarks/lab/trace/reader.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/program.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/schedule_file.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/plan/plan_file.hpp"

namespace {

using namespace residency;
using support::fuzz_failed;
using Bytes = std::vector<std::byte>;

Catalog small_catalog() {
    CatalogBuilder builder;
    for (const char* name : {"a", "b", "c"}) { builder.add(name, dtype::u8, {100}); }
    return builder.build();
}

/// What the bytes say of sections: tags of four bytes, lengths of two, and their bytes.
class Sections {
public:
    explicit Sections(std::span<const std::byte> bytes) : rest_{bytes} {}

    /// A container with the next of them, up to one with the tag "next".
    [[nodiscard]] Bytes container(ContainerKind kind, std::uint32_t version, std::uint64_t catalog_hash) {
        constexpr std::size_t most = 64;
        ContainerWriter writer{kind, version, catalog_hash};
        std::set<std::uint32_t> tags;
        while (rest_.size() >= head) {
            const auto tag = detail::load_little_endian<std::uint32_t>(rest_.data());
            const auto size = detail::load_little_endian<std::uint16_t>(rest_.data() + 4);
            rest_ = rest_.subspan(head);
            if (tag == section_tag("next")) { break; }
            const auto content = rest_.first(std::min<std::size_t>(size, rest_.size()));
            rest_ = rest_.subspan(content.size());
            if (tags.size() == most || !tags.insert(tag).second) { continue; }
            SectionWriter& section = writer.section(tag);
            for (const std::byte byte : content) { section.u8(std::to_integer<std::uint8_t>(byte)); }
        }
        return writer.finish();
    }
    [[nodiscard]] bool is_empty() const noexcept { return rest_.size() < head; }

private:
    static constexpr std::size_t head = 6;
    std::span<const std::byte> rest_;
};

/// Whether something was read; otherwise the refusal is one of those that files may have.
template <class T>
bool is_read(const Result<T>& read) {
    if (read) { return true; }
    if (read.error().kind() == ErrorKind::mismatch) {
        support::check_message(read.error());
    } else {
        support::check_refusal(read.error());
    }
    return false;
}

void read_schedule(Sections& sections, std::uint32_t version) {
    static const Catalog catalog = small_catalog();
    const Bytes bytes = sections.container(ContainerKind::schedule, version, catalog.hash());
    const auto schedule = try_load_schedule(bytes, catalog);
    // One way to write given contents; but sections that nothing reads may be there.
    if (is_read(schedule) && save(*schedule).size() > bytes.size()) { fuzz_failed("a schedule of other bytes", ""); }
}

void read_plan(Sections& sections, std::uint32_t version) {
    const Bytes bytes = sections.container(ContainerKind::plan, version, 7);
    const auto plan = plan::load(bytes, {7, 8192, 4096}, "input");
    if (!is_read(plan)) { return; }
    const auto again = plan::load(plan::save(*plan), {7, 8192, 4096}, "again");
    if (!again || plan::hash(*again) != plan::hash(*plan)) { fuzz_failed("a plan does not come back", ""); }
}

void read_program(Sections& sections, std::uint32_t version) {
    const auto program = format::try_load_program(sections.container(ContainerKind::program, version, 0));
    if (!is_read(program)) { return; }
    for (const format::ProgramMethod& method : program->methods) { is_read(program->try_schedule(method)); }
    const auto again = format::try_load_program(format::save(*program));
    if (!again || format::save(*again) != format::save(*program)) { fuzz_failed("a program does not come back", ""); }
}

void read_trace(Sections& sections, std::uint32_t version) {
    Bytes file;
    do {
        const Bytes block = sections.container(ContainerKind::trace, version, 7);
        file.insert(file.end(), block.begin(), block.end());
    } while (!sections.is_empty());
    auto reader = lab::trace::Reader::try_from(detail::FileHandle{fmemopen(file.data(), file.size(), "rb")}, "input");
    if (!is_read(reader)) { return; }
    const auto trace = lab::trace::try_load(std::move(*reader), "input");
    if (is_read(trace) && trace->steps() != 0 && !trace->try_order()) { fuzz_failed("a trace without an order", ""); }
}

void read_packed(Sections& sections, std::uint32_t version) {
    constexpr std::size_t front_bytes = 4096, parts_bytes = 512;
    const Bytes index = sections.container(ContainerKind::packed, version, 0);
    Bytes file;
    const auto put = [&](std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) { file.push_back(static_cast<std::byte>(value >> (8 * i))); }
    };
    for (const char c : format::detail::packed_magic) { file.push_back(static_cast<std::byte>(c)); }
    put(format::detail::packed_version, 8);
    put(front_bytes + parts_bytes, 8);
    put(index.size(), 8);
    put(front_bytes + parts_bytes + index.size(), 8);
    StableHash hash;
    hash.bytes(file);
    put(hash.value(), 8);
    file.resize(front_bytes + parts_bytes);
    file.insert(file.end(), index.begin(), index.end());
    support::check_model(format::try_read_packed(format::Input::over(file, "input")));
}

}  // namespace

/// The kind of the contents and their version, in decimal digits, then sections: the frames around them are always right, checksums too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    if (bytes < 2) { return 0; }
    const std::uint32_t version = data[1] - std::uint32_t{'0'};
    support::with_copy(data + 2, bytes - 2, [&](std::span<const std::byte> copy) {
        Sections sections{copy};
        switch (static_cast<ContainerKind>(data[0] - '0')) {
            case ContainerKind::schedule: return read_schedule(sections, version);
            case ContainerKind::plan: return read_plan(sections, version);
            case ContainerKind::trace: return read_trace(sections, version);
            case ContainerKind::packed: return read_packed(sections, version);
            case ContainerKind::program: return read_program(sections, version);
        }
    });
    return 0;
}
