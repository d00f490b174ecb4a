// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The evictors on real traces: the miss counts that libCacheSim published, and those of naive references.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/trace/replay.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/model/file.hpp"
#include "residency/model/use_order.hpp"
#include "tests/evict/references.hpp"
#include "tests/support/sanitized.hpp"

namespace cache_test {

using namespace residency;

namespace {

/// A file of the recorded traces; empty, with a message, where it is not there.
std::string recorded(const std::string& name) {
    const char* folder = std::getenv("RESIDENCY_TRACES");
    if (folder == nullptr) {
        MESSAGE("SKIPPED: needs " << name << "; set RESIDENCY_TRACES to a folder of recorded traces");
        return {};
    }
    const std::string path = folder + ("/" + name);
    if (std::filesystem::exists(path)) { return path; }
    MESSAGE("SKIPPED: there is no " << path << " in RESIDENCY_TRACES");
    return {};
}

/// The numbers of an array `"key": [ … ]` in a JSON text, the first after `from`.
std::vector<std::uint64_t> numbers(std::string_view text, std::string_view key, std::size_t from = 0) {
    std::vector<std::uint64_t> values;
    std::size_t at = text.find("\"" + std::string{key} + "\"", from);
    REQUIRE(at != std::string_view::npos);
    at = text.find('[', at);
    for (const std::size_t end = text.find(']', at); at < end; ++at) {
        if (text[at] < '0' || text[at] > '9') { continue; }
        std::uint64_t value = 0;
        for (; text[at] >= '0' && text[at] <= '9'; ++at) {
            value = 10 * value + static_cast<std::uint64_t>(text[at] - '0');
        }
        values.push_back(value);
    }
    return values;
}

template <class E>
reference::Counts replay(const lab::trace::Trace& trace, std::uint64_t capacity, const UseOrder* future = nullptr) {
    E evictor;
    const auto counts =
        lab::trace::replay_cache(trace.accesses, {trace.bytes, capacity, future, trace.groups}, evictor);
    REQUIRE(counts);
    return {counts->misses, counts->missed_bytes};
}

void check_all_against_references(const lab::trace::Trace& trace, std::uint64_t capacity) {
    CAPTURE(capacity);
    std::vector<reference::Request> requests;
    for (const StorageId id : trace.accesses) { requests.push_back({index(id), trace.bytes[index(id)]}); }
    const auto future = trace.try_access_order();
    REQUIRE(future);
    CHECK(replay<evict::Lru>(trace, capacity) == reference::lru(requests, capacity));
    CHECK(replay<evict::Fifo>(trace, capacity) == reference::fifo(requests, capacity));
    CHECK(replay<evict::Lfu>(trace, capacity) == reference::lfu(requests, capacity));
    CHECK(replay<evict::Sieve>(trace, capacity) == reference::sieve(requests, capacity));
    CHECK(replay<evict::S3Fifo>(trace, capacity) == reference::s3_fifo(requests, capacity));
    CHECK(replay<evict::Gdsf>(trace, capacity) == reference::gdsf(requests, capacity));
    CHECK(replay<evict::Belady>(trace, capacity, &*future) == reference::belady(requests, capacity));
}

/// The first accesses of a trace.
lab::trace::Trace beginning(lab::trace::Trace trace, std::size_t accesses) {
    trace.accesses.resize(std::min(accesses, trace.accesses.size()));
    return trace;
}

}  // namespace

TEST_CASE("LRU, FIFO, LFU and SIEVE miss what libCacheSim says they miss") {
    const std::string path = recorded("block/cloudPhysicsIO.oracleGeneral.bin.gz");
    const std::string goldens = recorded("block/goldens.json");
    if (path.empty() || goldens.empty()) { return; }
    const auto trace = lab::read_trace(path, "oracle");
    REQUIRE_MESSAGE(trace, trace.error().message());
    const auto bytes = detail::read_file(goldens, 1 << 20);
    REQUIRE(bytes);
    const std::string_view text{reinterpret_cast<const char*>(bytes->data()), bytes->size()};
    const std::vector<std::uint64_t> sizes = numbers(text, "cache_size_mib");
    REQUIRE(sizes.size() == 8);
    const std::size_t in_bytes = text.find("\"miss_bytes\"");
    const std::map<std::string, std::function<reference::Counts(std::uint64_t)>> runs{
        {"LRU", [&](std::uint64_t capacity) { return replay<evict::Lru>(*trace, capacity); }},
        {"FIFO", [&](std::uint64_t capacity) { return replay<evict::Fifo>(*trace, capacity); }},
        {"LFU", [&](std::uint64_t capacity) { return replay<evict::Lfu>(*trace, capacity); }}};
    const auto sieve = [&](std::uint64_t capacity) { return replay<evict::Sieve>(*trace, capacity); };
    for (std::size_t i = 0; i < sizes.size(); ++i) {  // on this trace what is published for SIEVE is what is for LFU
        CHECK(sieve(sizes[i] << 20).misses == numbers(text, "LFU")[i]);
        CHECK(sieve(sizes[i] << 20).missed_bytes == numbers(text, "LFU", in_bytes)[i]);
    }
    for (const auto& [name, run] : runs) {
        const auto misses = numbers(text, name);
        const auto missed_bytes = numbers(text, name, in_bytes);
        REQUIRE(misses.size() == sizes.size());
        REQUIRE(missed_bytes.size() == sizes.size());
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            CAPTURE(name);
            CAPTURE(sizes[i]);
            const auto counts = run(sizes[i] << 20);
            CHECK(counts.misses == misses[i]);
            CHECK(counts.missed_bytes == missed_bytes[i]);
        }
    }
}

TEST_CASE("on block requests of uneven size every evictor is its reference") {
    const std::string path = recorded("block/cloudPhysicsIO.oracleGeneral.bin.gz");
    if (path.empty()) { return; }
    const auto trace = lab::read_trace(path, "oracle");
    REQUIRE(trace);
    // The references take the time.
    check_all_against_references(beginning(*trace, support::is_sanitized ? 6000 : SIZE_MAX), 1 << 20);
    check_all_against_references(beginning(*trace, 6000), 4 << 20);
    check_all_against_references(beginning(*trace, 6000), 24 << 20);
}

TEST_CASE("on a router's choices every evictor is its reference") {
    const std::string path = recorded("router/qwen.route.csv.gz");
    if (path.empty()) { return; }
    const auto trace = lab::read_trace(path, "route");
    REQUIRE_MESSAGE(trace, trace.error().message());
    CHECK(trace->accesses.size() == 39526);
    CHECK(trace->steps() == 129 * 48);
    CHECK(trace->bytes.size() == 48 * 128);
    std::uint64_t requested = 0;
    for (const StorageId id : trace->accesses) { requested += trace->bytes[index(id)]; }
    CHECK(requested == 112947314688);
    for (const std::uint64_t mebibytes : {900U, 1900U}) {
        check_all_against_references(beginning(*trace, support::is_sanitized ? 9000 : SIZE_MAX), mebibytes << 20);
    }
}

}  // namespace cache_test
