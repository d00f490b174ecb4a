// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The functions of c.h are all that the library exports: everything else is compiled with hidden visibility.
#pragma GCC visibility push(default)
#include "residency/c.h"
#pragma GCC visibility pop

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/error.hpp"
#include "residency/format/open.hpp"
#include "residency/impl/c/model.hpp"
#include "residency/impl/c/models.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/version.hpp"

using namespace residency;
using namespace residency::c;

namespace {

using Kind = HandleBits::Kind;

// The only state of the library that lives longer than a model. Handles are looked up here, so that a stale one is noticed. What is not
// closed when the process ends is left to the system: the driver may be gone by then.
ModelPlaces& all_places = *new ModelPlaces;
// Its address stands for the thread; it holds the text of its last error.
thread_local std::string last_error_text;

const std::string version_text = std::to_string(RESIDENCY_VERSION_MAJOR) + '.' +
                                 std::to_string(RESIDENCY_VERSION_MINOR) + '.' +
                                 std::to_string(RESIDENCY_VERSION_PATCH);

// ---- Errors ---------------------------------------------------------------------------------------------------------

residency_status number_of(ErrorKind kind) noexcept {
    switch (kind) {
        case ErrorKind::invalid_argument: return RESIDENCY_INVALID_ARGUMENT;
        case ErrorKind::malformed: return RESIDENCY_MALFORMED;
        case ErrorKind::mismatch: return RESIDENCY_MISMATCH;
        case ErrorKind::budget: return RESIDENCY_BUDGET;
        case ErrorKind::out_of_memory: return RESIDENCY_OUT_OF_MEMORY;
        case ErrorKind::device: return RESIDENCY_DEVICE;
        case ErrorKind::unsupported: return RESIDENCY_UNSUPPORTED;
        case ErrorKind::divergence: return RESIDENCY_DIVERGENCE;
        case ErrorKind::stale: return RESIDENCY_STALE;
        case ErrorKind::io: return RESIDENCY_IO;
        case ErrorKind::cancelled: return RESIDENCY_CANCELLED;
        case ErrorKind::wrong_state: return RESIDENCY_WRONG_STATE;
    }
    return RESIDENCY_INTERNAL;
}

residency_status refuse(residency_status status, std::string_view text) noexcept {
    try {
        last_error_text = text;
    } catch (...) {
        last_error_text.clear();  // no memory for it
    }
    return status;
}
residency_status answer(const Status& done) noexcept {
    return done ? RESIDENCY_OK : refuse(number_of(done.error().kind()), done.error().message());
}

/// Runs what may throw, and turns what it throws into a status.
template <class Call>
residency_status without_exceptions(Call&& call) noexcept {
    try {
        return call();
    } catch (const Exception& error) {
        return refuse(number_of(error.kind()), error.what());
    } catch (const std::bad_alloc&) {
        return refuse(RESIDENCY_OUT_OF_MEMORY, "the host has no memory for this call");
    } catch (const std::exception& error) { return refuse(RESIDENCY_INTERNAL, error.what()); } catch (...) {
        return refuse(RESIDENCY_INTERNAL, "an unknown exception");
    }
}

Error null_pointer(const char* what) { return {ErrorKind::invalid_argument, std::string{"`"} + what + "` is null"}; }

// ---- Handles --------------------------------------------------------------------------------------------------------

/// Which calls the body of a capture may make.
enum class InBody : bool { refused, allowed };

residency_status invalid_handle(const void* handle, const char* what) noexcept {
    return without_exceptions([&] {
        return refuse(RESIDENCY_INVALID_HANDLE, std::string{handle == nullptr ? "a null pointer" : "this handle"} +
                                                    " names no open " + what +
                                                    ": it was released, or is the handle of something else");
    });
}

/// Calls `call(place, bits)` in the model that a handle belongs to, if it is one of that kind and of a model that is open.
template <class Call>
residency_status in_model_of(const void* handle, Kind kind, const char* what, InBody in_body, Call&& call) noexcept {
    return without_exceptions([&]() -> residency_status {
        const HandleBits bits = HandleBits::of(handle);
        if (bits.kind != kind) { return invalid_handle(handle, what); }
        const ModelVisit visit{all_places.places[bits.place], &last_error_text};
        if (!visit.is_in()) {
            return refuse(RESIDENCY_WRONG_STATE,
                          "another thread is in a call of this model: one thread at a time uses it");
        }
        ModelPlace& place = visit.place();
        const std::uint64_t mask = kind == Kind::model ? HandleBits::model_mask : HandleBits::item_mask;
        if (place.model == nullptr || (place.generation & mask) != bits.place_generation) {
            return invalid_handle(handle, what);
        }
        if (place.in_body && in_body == InBody::refused) {
            return refuse(RESIDENCY_WRONG_STATE, "the body of a capture only acquires, reads of, and releases leases");
        }
        return call(place, bits);
    });
}
/// Calls `call(place)`, which returns a Status.
template <class Call>
residency_status in_model(residency_model* model, InBody in_body, Call&& call) noexcept {
    return in_model_of(model, Kind::model, "model", in_body,
                       [&](ModelPlace& place, const HandleBits&) { return answer(call(place)); });
}
/// Calls `call(model, lease)`, which returns a Status.
template <class Call>
residency_status in_lease(residency_lease* lease, Call&& call) noexcept {
    return in_model_of(lease, Kind::lease, "lease", InBody::allowed, [&](ModelPlace& place, const HandleBits& bits) {
        const LeaseHandle handle{bits.index + 1, bits.generation, place.model.get()};
        if (!place.model->has_lease(handle)) { return invalid_handle(lease, "lease"); }
        return answer(call(place, handle));
    });
}
/// Calls `call(model, graph)`, which returns a Status.
template <class Call>
residency_status in_graph(residency_graph* graph, Call&& call) noexcept {
    return in_model_of(graph, Kind::graph, "graph", InBody::refused, [&](ModelPlace& place, const HandleBits& bits) {
        const GraphHandle handle{bits.index + 1, bits.generation, place.model.get()};
        if (!place.model->has_graph(handle)) { return invalid_handle(graph, "graph"); }
        return answer(call(*place.model, handle));
    });
}

/// While it lives, calls of this model come from the body of a capture.
class BodyScope {
public:
    explicit BodyScope(ModelPlace& place) noexcept : place_{&place} { place.in_body = true; }
    BodyScope(const BodyScope&) = delete;
    BodyScope& operator=(const BodyScope&) = delete;
    ~BodyScope() { place_->in_body = false; }

private:
    ModelPlace* place_;
};

/// The pointer that names something that a model has made.
template <class Pointer, class Handle>
Pointer* pointer_of(const ModelPlace& place, Kind kind, const Handle& handle) noexcept {
    const auto number = static_cast<std::uint32_t>(&place - all_places.places.data());
    return HandleBits{kind, number, place.generation, handle.index - 1, handle.generation}.template pointer<Pointer>();
}

// ---- Structs that grow ----------------------------------------------------------------------------------------------

// What version 0.1 has of them: no caller says less.
template <class T>
constexpr std::size_t first_bytes = 0;
template <>
constexpr std::size_t first_bytes<residency_options> = 56;
template <>
constexpr std::size_t first_bytes<residency_weight> = 72;
template <>
constexpr std::size_t first_bytes<residency_statistics> = 104;
template <>
constexpr std::size_t first_bytes<residency_counters> = 128;
static_assert(sizeof(residency_options) == first_bytes<residency_options>);
static_assert(sizeof(residency_weight) == first_bytes<residency_weight>);
static_assert(sizeof(residency_statistics) == first_bytes<residency_statistics>);
static_assert(sizeof(residency_counters) == first_bytes<residency_counters>);
static_assert(sizeof(residency_step) == 32, "an array of these cannot grow");
constexpr std::size_t most_bytes = 4096;  // above it, a size is no size

template <class T>
Status check_size(const T* of, const char* name) {
    if (of == nullptr) { return null_pointer(name); }
    if (of->size >= first_bytes<T> && of->size <= most_bytes) { return {}; }
    return Error{ErrorKind::invalid_argument, std::string{"set `"} + name + "->size` to the size of the struct, " +
                                                  std::to_string(sizeof(T)) + " in this version; it is " +
                                                  std::to_string(of->size)};
}
/// Writes as much of a result as the caller's struct has; what the library does not know becomes zero.
template <class T>
Status write(T* to, T value) {
    if (Status checked = check_size(to, "result"); !checked) { return checked; }
    value.size = to->size;
    std::memcpy(to, &value, (std::min)(value.size, sizeof value));
    if (value.size > sizeof value) {
        std::memset(reinterpret_cast<std::byte*>(to) + sizeof value, 0, value.size - sizeof value);
    }
    return {};
}
/// What a caller asks for; what their struct does not have is zero. Error unsupported: they ask for something that is not known here.
Result<residency_options> read(const residency_options* from) {
    residency_options options{};
    if (from == nullptr) { return options; }
    if (Status checked = check_size(from, "options"); !checked) { return checked.error(); }
    std::memcpy(&options, from, (std::min)(from->size, sizeof options));
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    for (std::size_t i = sizeof options; i < from->size; ++i) {
        if (bytes[i] != std::byte{}) {
            return Error{ErrorKind::unsupported, "an option is set that version " + version_text + " does not have"};
        }
    }
    return options;
}

// ---- What a model is opened with ------------------------------------------------------------------------------------

Result<Schedule> schedule_of(const Catalog& catalog, const residency_step* steps, std::size_t count) {
    if (steps == nullptr && count > 0) { return null_pointer("steps"); }
    ScheduleBuilder builder{catalog};
    std::vector<std::string_view> names;
    for (const residency_step& step : std::span{steps, count}) {
        if (step.weights == nullptr && step.weight_count > 0) { return null_pointer("steps[…].weights"); }
        names.clear();
        for (const char* name : std::span{step.weights, step.weight_count}) {
            if (name == nullptr) { return null_pointer("steps[…].weights[…]"); }
            names.emplace_back(name);
        }
        if (step.compute_ns < 0) {
            return Error{ErrorKind::invalid_argument, "a compute time is " + std::to_string(step.compute_ns) + " ns"};
        }
        ScheduleBuilder::Compute compute;
        if (step.compute_ns > 0) { compute = std::chrono::nanoseconds{step.compute_ns}; }
        builder.step(std::span<const std::string_view>{names}, compute, step.name == nullptr ? "" : step.name);
    }
    return builder.try_build();
}

Result<host::Tier> tier_of(const char* text) {
    if (text == nullptr) { return host::Tier::automatic; }
    for (const host::Tier tier : {host::Tier::pinned, host::Tier::pageable, host::Tier::file}) {
        if (std::string_view{text} == host::name(tier)) { return tier; }
    }
    return Error{ErrorKind::invalid_argument,
                 std::string{"the tier is \"pinned\", \"pageable\" or \"file\", not \""} + text + '"'};
}

Result<std::unique_ptr<Model>> open_on(const char* device, OpenRequest request) {
    const std::string_view text = device != nullptr ? device : has_cuda() ? "cuda" : "simulated";
    if (text == "simulated") { return open_simulated(std::move(request)); }
    if (text == "cuda") { return open_cuda(0, std::move(request)); }
    if (text.starts_with("cuda:")) {
        int ordinal = -1;
        const char* const end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data() + std::string_view{"cuda:"}.size(), end, ordinal);
        if (parsed.ec == std::errc{} && parsed.ptr == end && ordinal >= 0) {
            return open_cuda(ordinal, std::move(request));
        }
    }
    return Error{ErrorKind::invalid_argument,
                 "the device is \"cuda\", \"cuda:0\" or \"simulated\", not \"" + std::string{text} + '"'};
}

Result<std::unique_ptr<Model>> open(const char* path, const residency_options* asked) {
    auto options = read(asked);
    if (!options) { return options.error(); }
    OpenRequest request;
    request.strict = options->strict != 0;
    auto tier = tier_of(options->tier);
    if (!tier) { return tier.error(); }
    request.tier = *tier;
    if (options->budget != nullptr) {
        auto budget = Budget::try_parse(options->budget);
        if (!budget) { return budget.error(); }
        request.budget = *budget;
    }
    auto file = format::try_read_model(path);
    if (!file) { return file.error(); }
    auto catalog = file->try_catalog();
    if (!catalog) { return catalog.error(); }
    request.catalog = std::move(*catalog);
    if (options->step_count > 0) {
        auto schedule = schedule_of(request.catalog, options->steps, options->step_count);
        if (!schedule) { return schedule.error(); }
        request.schedule = std::move(*schedule);
    }
    return open_on(options->device, std::move(request));
}

// ---- Results --------------------------------------------------------------------------------------------------------

residency_weight weight_of(const ModelPlace& place, WeightId id, void* data) {
    const Catalog& catalog = place.model->catalog();
    const Weight& weight = catalog.weight(id);
    residency_weight result{};
    result.name = weight.name.c_str();
    result.dtype = place.dtype_names[index(id)].c_str();
    result.block_bits = weight.dtype.block_bits();
    result.block_elements = weight.dtype.block_elements();
    result.rank = static_cast<std::uint32_t>(weight.shape.size());
    result.is_mutable = catalog.storage(weight.storage).is_mutable ? 1 : 0;
    result.shape = weight.shape.data();
    result.strides = weight.strides.data();
    result.bytes = weight.bytes;
    result.data = data;
    return result;
}

residency_statistics statistics_of(const Model& model, const Statistics& got) {
    residency_statistics result{};
    result.budget_bytes = got.budget_bytes;
    result.floor_bytes = got.floor_bytes;
    result.held_bytes = got.held_bytes;
    result.pending_bytes = got.pending_bytes;
    result.requested_bytes = got.requested_bytes;
    result.peak_requested_bytes = got.peak_requested_bytes;
    result.resident_bytes = got.resident_bytes;
    result.weight_bytes = model.catalog().total_bytes();
    result.steps = model.steps();
    result.pass_steps = got.pass_steps;
    result.is_streaming = got.streaming ? 1 : 0;
    result.open_leases = model.open_leases();
    result.pass_ns = got.pass_time ? got.pass_time->count() : -1;
    result.bound_ns = got.bound ? got.bound->count() : -1;
    return result;
}

residency_counters counters_of(const Counters& got) {
    residency_counters result{};
    result.passes = got.passes;
    result.acquires = got.acquires;
    result.hits = got.hits;
    result.prefetch_hits = got.prefetch_hits;
    result.demand_misses = got.demand_misses;
    result.hit_bytes = got.hit_bytes;
    result.prefetch_hit_bytes = got.prefetch_hit_bytes;
    result.missed_bytes = got.missed_bytes;
    result.calls = got.calls;
    result.fetched_bytes = got.fetched_bytes;
    result.evictions = got.evictions;
    result.evicted_bytes = got.evicted_bytes;
    result.divergences = got.divergences;
    result.host_waits = got.host_waits;
    result.plans_made = got.plans_made;
    return result;
}

nlohmann::ordered_json json_of(const residency_counters& counters) {
    return {{"passes", counters.passes},
            {"acquires", counters.acquires},
            {"hits", counters.hits},
            {"prefetch_hits", counters.prefetch_hits},
            {"demand_misses", counters.demand_misses},
            {"hit_bytes", counters.hit_bytes},
            {"prefetch_hit_bytes", counters.prefetch_hit_bytes},
            {"missed_bytes", counters.missed_bytes},
            {"calls", counters.calls},
            {"fetched_bytes", counters.fetched_bytes},
            {"evictions", counters.evictions},
            {"evicted_bytes", counters.evicted_bytes},
            {"divergences", counters.divergences},
            {"host_waits", counters.host_waits},
            {"plans_made", counters.plans_made}};
}

std::string json_of(const Model& model) {
    const Statistics got = model.statistics();
    const residency_statistics state = statistics_of(model, got);
    nlohmann::ordered_json json{{"version", version_text},
                                {"device", model.device_name()},
                                {"budget", model.budget().text},
                                {"learning", describe(got.learning)},
                                {"budget_bytes", state.budget_bytes},
                                {"floor_bytes", state.floor_bytes},
                                {"held_bytes", state.held_bytes},
                                {"pending_bytes", state.pending_bytes},
                                {"requested_bytes", state.requested_bytes},
                                {"peak_requested_bytes", state.peak_requested_bytes},
                                {"resident_bytes", state.resident_bytes},
                                {"weight_bytes", state.weight_bytes},
                                {"steps", state.steps},
                                {"pass_steps", state.pass_steps},
                                {"is_streaming", state.is_streaming != 0},
                                {"open_leases", state.open_leases},
                                {"since_open", json_of(counters_of(got.total))},
                                {"last_pass", json_of(counters_of(got.last_pass))}};
    json["pass_ns"] = state.pass_ns < 0 ? nlohmann::ordered_json{} : nlohmann::ordered_json(state.pass_ns);
    json["bound_ns"] = state.bound_ns < 0 ? nlohmann::ordered_json{} : nlohmann::ordered_json(state.bound_ns);
    if (const auto reports = model.report_count()) { json["reports"] = *reports; }
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Puts a model into a free place. Null: there is none.
ModelPlace* place_for(std::unique_ptr<Model>& model) {
    std::vector<std::string> dtype_names;
    for (const Weight& weight : model->catalog().weights()) { dtype_names.emplace_back(weight.dtype.name()); }
    const std::uint32_t first = all_places.next.fetch_add(1, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < all_places.places.size(); ++i) {
        ModelPlace& place = all_places.places[(first + i) % all_places.places.size()];
        if (place.is_taken.exchange(true, std::memory_order_relaxed)) { continue; }
        for (;;) {
            const ModelVisit visit{place, &last_error_text};
            if (visit.is_in()) {
                place.dtype_names = std::move(dtype_names);
                place.model = std::move(model);
                return &place;
            }
            std::this_thread::yield();  // a call with a handle of the model that was here before
        }
    }
    return nullptr;
}

}  // namespace

// ---- The functions of c.h -------------------------------------------------------------------------------------------

const char* residency_version(void) { return version_text.c_str(); }

const char* residency_status_name(residency_status status) {
    switch (status) {
        case RESIDENCY_OK: return "ok";
        case RESIDENCY_INVALID_ARGUMENT: return "invalid_argument";
        case RESIDENCY_MALFORMED: return "malformed";
        case RESIDENCY_MISMATCH: return "mismatch";
        case RESIDENCY_BUDGET: return "budget";
        case RESIDENCY_OUT_OF_MEMORY: return "out_of_memory";
        case RESIDENCY_DEVICE: return "device";
        case RESIDENCY_UNSUPPORTED: return "unsupported";
        case RESIDENCY_DIVERGENCE: return "divergence";
        case RESIDENCY_STALE: return "stale";
        case RESIDENCY_IO: return "io";
        case RESIDENCY_CANCELLED: return "cancelled";
        case RESIDENCY_WRONG_STATE: return "wrong_state";
        case RESIDENCY_INVALID_HANDLE: return "invalid_handle";
        case RESIDENCY_INTERNAL: return "internal";
        default: return "unknown";
    }
}

const char* residency_error_text(void) { return last_error_text.c_str(); }

residency_status residency_open(const char* path, const residency_options* options, residency_model** model) {
    return without_exceptions([&]() -> residency_status {
        if (path == nullptr) { return answer(null_pointer("path")); }
        if (model == nullptr) { return answer(null_pointer("model")); }
        auto opened = open(path, options);
        if (!opened) { return answer(opened.error()); }
        ModelPlace* const place = place_for(*opened);
        if (place == nullptr) {
            return refuse(RESIDENCY_WRONG_STATE,
                          std::to_string(all_places.places.size()) + " models are open already: close one");
        }
        const auto number = static_cast<std::uint32_t>(place - all_places.places.data());
        *model = HandleBits{Kind::model, number, place->generation, 0, 0}.pointer<residency_model>();
        return RESIDENCY_OK;
    });
}

residency_status residency_close(residency_model* model) {
    return in_model(model, InBody::refused, [](ModelPlace& place) -> Status {
        ++place.generation;
        place.model.reset();
        place.is_taken.store(false, std::memory_order_relaxed);
        return {};
    });
}

residency_status residency_get_weight_count(residency_model* model, uint32_t* count) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        if (count == nullptr) { return null_pointer("count"); }
        *count = static_cast<std::uint32_t>(place.model->catalog().weights().size());
        return {};
    });
}

residency_status residency_find_weight(residency_model* model, const char* name, uint32_t* weight) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        if (name == nullptr) { return null_pointer("name"); }
        if (weight == nullptr) { return null_pointer("weight"); }
        const auto found = place.model->catalog().try_find(name);
        if (!found) { return found.error(); }
        *weight = index(*found);
        return {};
    });
}

residency_status residency_get_weight(residency_model* model, uint32_t weight, residency_weight* result) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        const Catalog& catalog = place.model->catalog();
        if (!catalog.contains(WeightId{weight})) {
            return Error{ErrorKind::invalid_argument, "there is no weight " + std::to_string(weight) +
                                                          ": the model has " +
                                                          std::to_string(catalog.weights().size())};
        }
        return write(result, weight_of(place, WeightId{weight}, nullptr));
    });
}

residency_status residency_create_stream(residency_model* model, void** stream) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) -> Status {
        if (stream == nullptr) { return null_pointer("stream"); }
        const auto made = place.model->create_stream();
        if (!made) { return made.error(); }
        *stream = *made;
        return {};
    });
}

residency_status residency_destroy_stream(residency_model* model, void* stream) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) { return place.model->destroy_stream(stream); });
}

residency_status residency_synchronize_stream(residency_model* model, void* stream) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) { return place.model->synchronize(stream); });
}

residency_status residency_begin_pass(residency_model* model, void* stream) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) { return place.model->begin_pass(stream); });
}

residency_status residency_end_pass(residency_model* model) {
    return in_model(model, InBody::refused, [](ModelPlace& place) { return place.model->end_pass(); });
}

residency_status residency_acquire_step(residency_model* model, uint32_t step, void* stream, residency_lease** lease) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        if (lease == nullptr) { return null_pointer("lease"); }
        const auto acquired = place.model->acquire_step(step, stream);
        if (!acquired) { return acquired.error(); }
        *lease = pointer_of<residency_lease>(place, Kind::lease, *acquired);
        return {};
    });
}

residency_status residency_acquire_weights(residency_model* model, const uint32_t* weights, size_t weight_count,
                                           void* stream, residency_lease** lease) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        if (weights == nullptr) { return null_pointer("weights"); }
        if (lease == nullptr) { return null_pointer("lease"); }
        place.acquired.clear();
        for (const std::uint32_t weight : std::span{weights, weight_count}) {
            place.acquired.push_back(WeightId{weight});
        }
        const auto acquired = place.model->acquire_weights(place.acquired, stream);
        if (!acquired) { return acquired.error(); }
        *lease = pointer_of<residency_lease>(place, Kind::lease, *acquired);
        return {};
    });
}

residency_status residency_use_on(residency_lease* lease, void* stream) {
    return in_lease(lease, [&](ModelPlace& place, LeaseHandle handle) { return place.model->use_on(handle, stream); });
}

residency_status residency_get_leased_weight(residency_lease* lease, uint32_t weight, residency_weight* result) {
    return in_lease(lease, [&](ModelPlace& place, LeaseHandle handle) -> Status {
        const auto data = place.model->address(handle, WeightId{weight});
        if (!data) { return data.error(); }
        return write(result, weight_of(place, WeightId{weight}, *data));
    });
}

residency_status residency_read_leased_weight(residency_lease* lease, uint32_t weight, uint64_t offset, uint64_t bytes,
                                              void* to) {
    return in_lease(lease, [&](ModelPlace& place, LeaseHandle handle) -> Status {
        if (place.in_body) {
            return Error{ErrorKind::wrong_state, "in a capture nothing runs, so that there are no bytes to read"};
        }
        if (to == nullptr && bytes > 0) { return null_pointer("to"); }
        return place.model->read(handle, WeightId{weight}, offset, bytes, to);
    });
}

residency_status residency_release(residency_lease* lease) {
    return in_lease(lease, [](ModelPlace& place, LeaseHandle handle) { return place.model->release(handle); });
}

residency_status residency_set_budget(residency_model* model, const char* budget) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) -> Status {
        if (budget == nullptr) { return null_pointer("budget"); }
        const auto parsed = Budget::try_parse(budget);
        if (!parsed) { return parsed.error(); }
        return place.model->set_budget(*parsed);
    });
}

residency_status residency_get_budget(residency_model* model, uint64_t* bytes, const char** text) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        const ResolvedBudget& budget = place.model->budget();
        if (text != nullptr) {
            place.budget_text = budget.text;
            *text = place.budget_text.c_str();
        }
        if (bytes != nullptr) { *bytes = budget.bytes; }
        return {};
    });
}

residency_status residency_set_schedule(residency_model* model, const residency_step* steps, size_t step_count) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) -> Status {
        auto schedule = schedule_of(place.model->catalog(), steps, step_count);
        if (!schedule) { return schedule.error(); }
        return place.model->set_schedule(std::move(*schedule));
    });
}

residency_status residency_drain(residency_model* model) {
    return in_model(model, InBody::refused, [](ModelPlace& place) { return place.model->drain(); });
}

residency_status residency_get_statistics(residency_model* model, residency_statistics* result) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) {
        return write(result, statistics_of(*place.model, place.model->statistics()));
    });
}

residency_status residency_get_counters(residency_model* model, int32_t over, residency_counters* result) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        if (over != RESIDENCY_SINCE_OPEN && over != RESIDENCY_LAST_PASS) {
            return Error{ErrorKind::invalid_argument,
                         "`over` is RESIDENCY_SINCE_OPEN or RESIDENCY_LAST_PASS, not " + std::to_string(over)};
        }
        const Statistics got = place.model->statistics();
        return write(result, counters_of(over == RESIDENCY_LAST_PASS ? got.last_pass : got.total));
    });
}

residency_status residency_get_statistics_json(residency_model* model, const char** text) {
    return in_model(model, InBody::allowed, [&](ModelPlace& place) -> Status {
        if (text == nullptr) { return null_pointer("text"); }
        place.json = json_of(*place.model);
        *text = place.json.c_str();
        return {};
    });
}

residency_status residency_capture(residency_model* model, void* stream, int (*body)(void* context), void* context,
                                   residency_graph** graph) {
    return in_model(model, InBody::refused, [&](ModelPlace& place) -> Status {
        if (body == nullptr) { return null_pointer("body"); }
        if (graph == nullptr) { return null_pointer("graph"); }
        const BodyScope scope{place};
        const auto captured = place.model->capture(stream, body, context);
        if (!captured) { return captured.error(); }
        *graph = pointer_of<residency_graph>(place, Kind::graph, *captured);
        return {};
    });
}

residency_status residency_launch(residency_graph* graph, void* stream) {
    return in_graph(graph, [&](Model& model, GraphHandle handle) { return model.launch(handle, stream); });
}

residency_status residency_destroy_graph(residency_graph* graph) {
    return in_graph(graph, [](Model& model, GraphHandle handle) -> Status {
        model.destroy(handle);
        return {};
    });
}
