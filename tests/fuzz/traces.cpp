// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/lab/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../support/fuzz.hpp"
#include "benchmarks/lab/trace/csv.hpp"
#include "benchmarks/lab/trace/npy.hpp"
#include "benchmarks/lab/trace/oracle_general.hpp"
#include "benchmarks/lab/trace/route.hpp"
#include "residency/error.hpp"

namespace {

using lab::trace::Trace;
using support::fuzz_failed;

/// Whoever replays a trace needs no further checks.
void check(const residency::Result<Trace>& trace) {
    if (!trace) {
        support::check_message(trace.error());
        if (trace.error().kind() != residency::ErrorKind::malformed) {
            fuzz_failed("an error of the wrong kind", trace.error().message());
        }
        return;
    }
    if (trace->compute_ns.size() != trace->steps() || trace->step_offsets.back() != trace->accesses.size() ||
        !std::is_sorted(trace->step_offsets.begin(), trace->step_offsets.end())) {
        fuzz_failed("the steps are not those of the accesses", trace->name);
    }
    for (const residency::StorageId id : trace->accesses) {
        if (index(id) >= trace->bytes.size()) { fuzz_failed("an access to no storage", trace->name); }
    }
    if (!trace->groups.empty() && trace->groups.size() != trace->bytes.size()) {
        fuzz_failed("a storage without a layer", trace->name);
    }
    if (trace->steps() != 0 && !trace->try_order()) { fuzz_failed("a trace without an order", trace->name); }
}

}  // namespace

/// A line that says the format: route, oracle, npy, or csv, then perhaps a digit each for the columns of objects and bytes, and a separator.
/// Then the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    const auto* const end = std::find(data, data + bytes, std::uint8_t{'\n'});
    if (end == data + bytes) { return 0; }
    const std::string_view head{reinterpret_cast<const char*>(data), static_cast<std::size_t>(end - data)};
    support::with_copy(end + 1, bytes - head.size() - 1, [&](std::span<const std::byte> file) {
        if (head == "npy") { return check(lab::trace::try_parse_npy(file, "input")); }
        if (head == "oracle") { return check(lab::trace::try_parse_oracle_general(file, "input")); }
        if (head == "route") { return check(lab::trace::try_parse_route(support::text_of(file), "input")); }
        if (!head.starts_with("csv")) { return; }
        lab::trace::CsvColumns columns;
        const auto digit = [&](std::size_t at, std::size_t& column) {
            if (head.size() > at && head[at] >= '0' && head[at] <= '9') {
                column = static_cast<std::size_t>(head[at] - '0');
            }
        };
        digit(3, columns.object);
        digit(4, columns.bytes);
        if (head.size() > 5) { columns.separator = head[5]; }
        check(lab::trace::try_parse_csv(support::text_of(file), "input", columns));
    });
    return 0;
}
