// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/c.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "../support/fuzz.hpp"
#include "../support/temporary_folder.hpp"

namespace {

using support::fuzz_failed;

constexpr std::uint32_t weights = 5;
constexpr std::uint64_t weight_bytes = std::uint64_t{1} << 19;  // two chunks in all
constexpr std::array<const char*, weights> names{"a", "b", "c", "d", "e"};

/// The models: one that streams, and one without weights.
struct Files {
    test::TemporaryFolder folder;
    std::string model = folder.path("model.safetensors"), empty = folder.path("empty.safetensors");
    std::string content;

    Files() {
        std::string header = "{";
        for (std::uint32_t i = 0; i < weights; ++i) {
            const std::uint64_t begin = i * weight_bytes, end = begin + weight_bytes;
            header += (i == 0 ? "\"" : ",\"") + std::string{names[i]} + "\":{\"dtype\":\"U8\",\"shape\":[" +
                      std::to_string(weight_bytes) + "],\"data_offsets\":[" + std::to_string(begin) + "," +
                      std::to_string(end) + "]}";
            for (std::uint64_t at = 0; at < weight_bytes; ++at) {
                content += static_cast<char>(at * 31 + (at >> 8) * 7 + i * 101 + 1);
            }
        }
        write(model, header + "}", content);
        write(empty, "{}", "");
    }
    static void write(const std::string& path, const std::string& header, const std::string& content) {
        std::ofstream file{path, std::ios::binary};
        for (int shift = 0; shift < 64; shift += 8) {
            file.put(static_cast<char>(std::uint64_t{header.size()} >> shift));
        }
        file << header << content;
    }
};

/// A program of calls. A handle that is in use is never refused as one that is not, and the other way round; what a call that fails
/// would have written is not written; nothing behind the size of a struct is.
class Program {
public:
    Program(const std::uint8_t* data, std::size_t bytes, const Files& files)
        : at_{data}, end_{data + bytes}, files_{&files} {}

    void run() {
        for (int calls = 0; calls < most_calls && at_ != end_; ++calls) { call(); }
        while (!models_.empty()) {
            residency_model* const model = *models_.begin();
            if (residency_close(model) != RESIDENCY_OK) {
                fuzz_failed("a model cannot be closed", residency_error_text());
            }
            closed(model);
        }
    }

private:
    static constexpr int most_calls = 100;
    static constexpr std::size_t most_models = 3;
    static constexpr char untouched = 0x5A;

    // ---- What the bytes say

    std::uint8_t next() { return at_ == end_ ? 0 : *at_++; }
    template <class T, std::size_t n>
    const T& pick(const std::array<T, n>& from) {
        return from[next() % n];
    }
    /// A handle: of those that were given out, or what is none.
    template <class Handle>
    Handle* handle(const std::vector<Handle*>& given) {
        const std::uint8_t which = next();
        if (which == '-' || given.empty()) { return nullptr; }
        if (which == '?') { return reinterpret_cast<Handle*>(all_.empty() ? 0 : all_[next() % all_.size()]); }
        Handle* const one =
            given[given.size() - 1 - (which < '0' ? which : which - '0') % given.size()];  // '0': the last
        if (which != '!') { return one; }
        return reinterpret_cast<Handle*>(reinterpret_cast<std::uintptr_t>(one) ^ std::uintptr_t{1} << next() % 64);
    }
    residency_model* model() { return handle(given_models_); }
    residency_lease* lease() { return handle(given_leases_); }
    residency_graph* graph() { return handle(given_graphs_); }
    void* stream() {
        const std::uint8_t which = next();
        if (which == '!') { return reinterpret_cast<void*>(std::uintptr_t{1} << next() % 64); }
        return which % 2 == 0 || streams_.empty() ? nullptr : streams_[which % streams_.size()];
    }
    std::uint32_t number() {
        static constexpr std::array<std::uint32_t, 9> numbers{0, 1, 2, 3, 4, 5, 6, 0x7FFFFFFF, UINT32_MAX};
        return pick(numbers);
    }
    std::uint64_t size() {
        static constexpr std::array<std::uint64_t, 9> sizes{
            0, 1, 100, 4096, weight_bytes - 1, weight_bytes, weight_bytes + 1, std::uint64_t{1} << 63, UINT64_MAX};
        return pick(sizes);
    }
    const char* text() {
        static constexpr std::array<const char*, 18> texts{
            nullptr, "",       "auto",     "0",    "75%", "100%", "50%free", "6MiB", "2097152", "18446744073709551615",
            "1e9",   "pinned", "pageable", "file", "a",   "e",    "nope",    "\xff"};
        return pick(texts);
    }

    // ---- What every call must do

    void done(residency_status status, const void* handle, bool is_known) {
        if (std::string_view{residency_status_name(status)} == "unknown") {
            fuzz_failed("a status without a name", std::to_string(status));
        }
        const std::string_view why = residency_error_text();
        if (status == RESIDENCY_INTERNAL) { fuzz_failed("an error that nobody expected", std::string{why}); }
        if (status != RESIDENCY_OK && (why.empty() || why.find('\n') != std::string_view::npos)) {
            fuzz_failed("a text is not one line", std::string{why});
        }
        if ((status == RESIDENCY_INVALID_HANDLE) == is_known) {
            fuzz_failed(is_known ? "a handle is refused" : "what is no handle is taken",
                        handle == nullptr ? "null" : std::string{why});
        }
    }
    bool done(residency_status status, residency_model* on) {
        done(status, on, models_.contains(on));
        return status == RESIDENCY_OK;
    }
    bool done(residency_status status, residency_lease* on) {
        done(status, on, leases_.contains(on));
        return status == RESIDENCY_OK;
    }
    bool done(residency_status status, residency_graph* on) {
        done(status, on, graphs_.contains(on));
        return status == RESIDENCY_OK;
    }
    /// What a call gave out, or left as it was.
    template <class Handle, class On>
    void gave(residency_status status, On* on, Handle* given, Handle* before, std::vector<Handle*>& all,
              std::set<Handle*>& open) {
        const bool is_done = done(status, on);
        if (!is_done && given != before) { fuzz_failed("a call that failed has written", residency_error_text()); }
        if (!is_done) { return; }
        if (!open.insert(given).second) { fuzz_failed("a handle was given out twice", ""); }
        all.push_back(given);
        all_.push_back(reinterpret_cast<std::uintptr_t>(given));
    }
    /// Runs `get` on a struct of some size.
    template <class T, class Get, class On>
    void read_struct(const Get& get, On* on) {
        static constexpr std::array<std::size_t, 7> sizes{sizeof(T), 0,    sizeof(T) - 1, sizeof(T) + 8,
                                                          4096,      4097, SIZE_MAX};
        alignas(T) std::array<char, 4200> room;
        room.fill(untouched);
        const std::size_t size = pick(sizes);
        std::memcpy(room.data(), &size, sizeof size);
        const bool is_null = next() == '-';
        const bool is_done = done(get(is_null ? nullptr : reinterpret_cast<T*>(room.data())), on);
        if (is_done && (is_null || size < sizeof(T) || size > 4096)) {
            fuzz_failed("a struct of no size is taken", std::to_string(size));
        }
        for (std::size_t i = is_done ? size : sizeof size; i < room.size(); ++i) {
            if (room[i] != untouched) {
                fuzz_failed("written behind a struct, or in one that was refused", std::to_string(i));
            }
        }
    }

    void closed(residency_model* model) {
        models_.erase(model);
        std::erase_if(leases_, [&](residency_lease* each) { return is_of(each, model); });
        std::erase_if(graphs_, [&](residency_graph* each) { return is_of(each, model); });
    }
    /// By the places that handles have.
    static bool is_of(const void* item, const residency_model* model) {
        return (reinterpret_cast<std::uintptr_t>(item) ^ reinterpret_cast<std::uintptr_t>(model)) << 2 >> 56 == 0;
    }

    // ---- The calls

    /// Steps with their names, which live as long as this.
    struct Steps {
        std::array<std::array<const char*, 4>, 4> names{};
        std::array<residency_step, 4> steps{};
        const residency_step* first = nullptr;
        std::size_t count = 0;
    };
    void read(Steps& steps) {
        steps.count = next() % 5;
        steps.first = next() == '-' ? nullptr : steps.steps.data();
        static constexpr std::array<std::int64_t, 6> times{0, 1, 1000000, -1, INT64_MAX, INT64_MIN};
        for (std::size_t i = 0; i < steps.count; ++i) {
            residency_step& step = steps.steps[i];
            step.weight_count = next() % 5;
            for (std::size_t k = 0; k < step.weight_count; ++k) {
                steps.names[i][k] = next() % 8 == 7 ? text() : pick(names);
            }
            step.weights = next() == '-' ? nullptr : steps.names[i].data();
            step.compute_ns = pick(times);
            step.name = next() % 4 == 3 ? text() : nullptr;
        }
    }

    void open() {
        if (models_.size() == most_models) { return; }
        static const std::string nowhere = "/nonexistent";
        const std::array<const char*, 4> paths{files_->model.c_str(), files_->empty.c_str(), nowhere.c_str(), nullptr};
        const char* const path = pick(paths);
        Steps steps;
        struct Larger {
            residency_options known{};
            std::array<unsigned char, 8> rest{};
        } options;
        static constexpr std::array<std::size_t, 6> sizes{sizeof(residency_options),     sizeof(Larger), 0,
                                                          sizeof(residency_options) - 1, 4097,           SIZE_MAX};
        options.known.size = pick(sizes);
        const std::uint8_t how = next();
        static constexpr std::array<const char*, 5> devices{"", "cuda:99999999999", "cuda:-1", "Simulated", "\xff"};
        options.known.device = how % 8 == 7 ? pick(devices) : "simulated";
        if (how & 8U) { options.known.budget = text(); }
        if (how & 16U) { options.known.tier = text(); }
        if (how & 32U) {
            read(steps);
            options.known.steps = steps.first;
            options.known.step_count = steps.count;
        }
        options.known.strict = how & 64U;
        options.rest[0] = how == 0xFF ? 1 : 0;
        const bool is_default = how == '-' && (path == nullptr || path == nowhere.c_str());  // which may be a GPU
        auto* const before = reinterpret_cast<residency_model*>(std::uintptr_t{untouched});
        residency_model* model = before;
        const residency_status status =
            residency_open(path, is_default ? nullptr : &options.known, next() == '-' ? nullptr : &model);
        if (status == RESIDENCY_OK) {
            models_.insert(model);
            given_models_.push_back(model);
            all_.push_back(reinterpret_cast<std::uintptr_t>(model));
        } else if (model != before) {
            fuzz_failed("a call that failed has written", residency_error_text());
        }
        done(status, model, true);
    }

    void acquire() {
        residency_model* const on = model();
        auto* const before = reinterpret_cast<residency_lease*>(std::uintptr_t{untouched});
        residency_lease* lease = before;
        const std::uint8_t how = next();
        residency_lease** const to = how == '-' ? nullptr : &lease;
        if (how % 2 == 0) {
            const std::uint32_t step = number();
            const residency_status status = residency_acquire_step(on, step, stream(), to);
            gave(status, on, lease, before, given_leases_, leases_);
        } else {
            std::array<std::uint32_t, 4> ids{};
            const std::size_t count = next() % 5;
            for (std::size_t i = 0; i < count; ++i) { ids[i] = number(); }
            const bool is_null = next() == '-';
            const residency_status status =
                residency_acquire_weights(on, is_null ? nullptr : ids.data(), count, stream(), to);
            gave(status, on, lease, before, given_leases_, leases_);
        }
    }

    void read_bytes() {
        residency_lease* const on = lease();
        const std::uint32_t weight = number();
        const std::uint64_t offset = size(), bytes = size();
        static std::vector<char> room(weight_bytes + 1);
        const std::uint64_t may_write = offset <= weight_bytes && bytes <= weight_bytes - offset ? bytes : 0;
        room[0] = room[may_write] = untouched;
        const bool is_null = next() == '-';
        const bool is_done =
            done(residency_read_leased_weight(on, weight, offset, bytes, is_null ? nullptr : room.data()), on);
        if (is_done && (may_write != bytes || (is_null && bytes > 0))) {
            fuzz_failed("more is read than there is", std::to_string(offset) + ", " + std::to_string(bytes));
        }
        if (is_done && bytes > 0 &&
            std::memcmp(room.data(), files_->content.data() + weight * weight_bytes + offset, bytes) != 0) {
            fuzz_failed("a wrong byte", names[weight]);
        }
        if (room[is_done ? bytes : 0] != untouched) {
            fuzz_failed("a byte is written behind what was read", std::to_string(bytes));
        }
    }

    static int body(void* context) {
        auto& program = *static_cast<Program*>(context);
        ++program.depth_;
        for (int calls = 0; calls < most_calls && program.at_ != program.end_; ++calls) {
            const std::uint8_t letter = *program.at_;
            if (letter == 'x' || letter == 'X') { break; }
            program.call();
        }
        --program.depth_;
        return program.next() == 'X' ? 1 : 0;
    }
    void capture() {
        residency_model* const on = model();
        auto* const before = reinterpret_cast<residency_graph*>(std::uintptr_t{untouched});
        residency_graph* graph = before;
        void* const where = stream();
        const std::uint8_t how = next();
        const std::set<residency_lease*> leases = leases_;
        const residency_status status =
            residency_capture(on, where, how == '?' ? nullptr : body, this, how == '-' ? nullptr : &graph);
        std::erase_if(leases_, [&](residency_lease* each) { return is_of(each, on) && !leases.contains(each); });
        gave(status, on, graph, before, given_graphs_, graphs_);
    }

    void call() {
        switch (next()) {
            case 'o':
                if (depth_ == 0) { open(); }
                break;
            case 'q': {
                residency_model* const on = model();
                if (done(residency_close(on), on)) { closed(on); }
                break;
            }
            case 'n': {
                std::uint32_t count = 0;
                residency_model* const on = model();
                done(residency_get_weight_count(on, next() == '-' ? nullptr : &count), on);
                break;
            }
            case 'f': {
                std::uint32_t weight = UINT32_MAX;
                residency_model* const on = model();
                const char* const name = text();
                done(residency_find_weight(on, name, next() == '-' ? nullptr : &weight), on);
                break;
            }
            case 'w': {
                residency_model* const on = model();
                const std::uint32_t weight = number();
                read_struct<residency_weight>([&](auto* to) { return residency_get_weight(on, weight, to); }, on);
                break;
            }
            case 's': {
                residency_model* const on = model();
                void* made = nullptr;
                if (done(residency_create_stream(on, next() == '-' ? nullptr : &made), on)) {
                    streams_.push_back(made);
                }
                break;
            }
            case 'd': {
                residency_model* const on = model();
                done(residency_destroy_stream(on, stream()), on);
                break;
            }
            case 'y': {
                residency_model* const on = model();
                done(residency_synchronize_stream(on, stream()), on);
                break;
            }
            case 'b': {
                residency_model* const on = model();
                done(residency_begin_pass(on, stream()), on);
                break;
            }
            case 'e': {
                residency_model* const on = model();
                done(residency_end_pass(on), on);
                break;
            }
            case 'a': acquire(); break;
            case 'u': {
                residency_lease* const on = lease();
                done(residency_use_on(on, stream()), on);
                break;
            }
            case 'l': {
                residency_lease* const on = lease();
                const std::uint32_t weight = number();
                read_struct<residency_weight>([&](auto* to) { return residency_get_leased_weight(on, weight, to); },
                                              on);
                break;
            }
            case 'r': read_bytes(); break;
            case 'R': {
                residency_lease* const on = lease();
                const residency_status status = residency_release(on);
                done(status, on);
                if (status != RESIDENCY_WRONG_STATE) { leases_.erase(on); }
                break;
            }
            default: call_rarely(at_[-1]); break;
        }
    }
    void call_rarely(std::uint8_t letter) {
        switch (letter) {
            case 'B': {
                residency_model* const on = model();
                done(residency_set_budget(on, text()), on);
                break;
            }
            case 'g': {
                residency_model* const on = model();
                std::uint64_t bytes = 0;
                const char* line = nullptr;
                std::uint64_t* const to = next() == '-' ? nullptr : &bytes;
                const char** const as_text = next() == '-' ? nullptr : &line;
                const bool is_done = done(residency_get_budget(on, to, as_text), on);
                if (is_done && line != nullptr && std::strlen(line) == 0) {
                    fuzz_failed("a budget without a text", "");
                }
                break;
            }
            case 'S': {
                residency_model* const on = model();
                Steps steps;
                read(steps);
                done(residency_set_schedule(on, steps.first, steps.count), on);
                break;
            }
            case 'D': {
                residency_model* const on = model();
                done(residency_drain(on), on);
                break;
            }
            case 't': {
                residency_model* const on = model();
                read_struct<residency_statistics>([&](auto* to) { return residency_get_statistics(on, to); }, on);
                break;
            }
            case 'c': {
                residency_model* const on = model();
                const auto over = static_cast<std::int32_t>(number());
                read_struct<residency_counters>([&](auto* to) { return residency_get_counters(on, over, to); }, on);
                break;
            }
            case 'j': {
                residency_model* const on = model();
                const char* json = nullptr;
                const bool is_null = next() == '-';
                if (done(residency_get_statistics_json(on, is_null ? nullptr : &json), on) && !is_null &&
                    json[0] != '{') {
                    fuzz_failed("statistics are no object", json);
                }
                break;
            }
            case 'k': capture(); break;
            case 'L': {
                residency_graph* const on = graph();
                done(residency_launch(on, stream()), on);
                break;
            }
            case 'G': {
                residency_graph* const on = graph();
                if (done(residency_destroy_graph(on), on)) { graphs_.erase(on); }
                break;
            }
            default: break;
        }
    }

    const std::uint8_t* at_;
    const std::uint8_t* end_;
    const Files* files_;
    int depth_ = 0;                      // of captures, of a model each
    std::set<residency_model*> models_;  // that are open
    std::set<residency_lease*> leases_;
    std::set<residency_graph*> graphs_;
    std::vector<residency_model*> given_models_;  // ever
    std::vector<residency_lease*> given_leases_;
    std::vector<residency_graph*> given_graphs_;
    std::vector<std::uintptr_t> all_;
    std::vector<void*> streams_;
};

}  // namespace

/// Calls of the C API: a letter each, and what it is called with.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    static const Files files;
    Program{data, bytes, files}.run();
    return 0;
}
