// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "examples/support/json.hpp"
#include "residency/packed/bound.hpp"
#include "residency/plan/bounds.hpp"

namespace {

using Json = nlohmann::ordered_json;
namespace plan = residency::plan;
namespace packed = residency::packed;

/// The members that a problem lacks, by their places.
class Missing {
public:
    /// A member of an object. Null where it is missing, which is noted; what is there may be of any kind.
    const Json* member(const Json& object, const char* name, const std::string& where, const std::string& prefix) {
        if (!object.is_object()) { throw Refused{where + ": expected an object"}; }
        const auto found = object.find(name);
        if (found != object.end()) { return &*found; }
        if (count_++ < most_said) { names_ += (names_.empty() ? "\"" : ", \"") + prefix + name + "\""; }
        return nullptr;
    }
    /// Throws where something is missing.
    void check() const {
        if (count_ == 0) { return; }
        const std::string others = count_ > most_said ? " and " + std::to_string(count_ - most_said) + " more" : "";
        throw Refused{names_ + others + (count_ == 1 ? " is" : " are") +
                      " missing; --example prints a problem that has everything"};
    }

private:
    static constexpr std::size_t most_said = 12;
    std::string names_;
    std::size_t count_ = 0;
};

std::uint64_t whole(const Json& value, const std::string& where) {
    if (value.is_number_unsigned()) { return value.get<std::uint64_t>(); }
    if (value.is_number_float()) {
        const double x = value.get<double>();
        if (x >= 0 && x <= 9007199254740992.0 && x == std::floor(x)) { return static_cast<std::uint64_t>(x); }
    }
    throw Refused{where + ": expected a whole number that is not negative, found " + examples::shown_json(value)};
}

double real(const Json& value, const std::string& where) {
    if (!value.is_number()) { throw Refused{where + ": expected a number, found " + examples::shown_json(value)}; }
    return value.get<double>();
}

const Json& array(const Json& value, const std::string& where) {
    if (!value.is_array()) { throw Refused{where + ": expected an array"}; }
    return value;
}

std::string place(const char* list, std::size_t i) { return std::string{list} + "[" + std::to_string(i) + "]"; }

/// Throws one message that names all that is missing.
void check_members(const Json& in, bool has_budget) {
    Missing missing;
    if (const Json* link = missing.member(in, "link", "the problem", "")) {
        missing.member(*link, "bytes_per_second", "link", "link.");
        missing.member(*link, "latency_seconds", "link", "link.");
    }
    if (!has_budget) { missing.member(in, "budget_bytes", "the problem", ""); }
    missing.member(in, "chunk_bytes", "the problem", "");
    missing.member(in, "cyclic", "the problem", "");
    const auto check_each = [&](const char* list, std::initializer_list<const char*> names) {
        const Json* all = missing.member(in, list, "the problem", "");
        if (all == nullptr) { return; }
        array(*all, list);
        for (std::size_t i = 0; i < all->size(); ++i) {
            const std::string where = place(list, i);
            for (const char* name : names) { missing.member((*all)[i], name, where, where + "."); }
        }
    };
    check_each("storages", {"name", "bytes"});
    check_each("steps", {"storages"});
    if (const auto unpacker = in.find("unpacker"); unpacker != in.end()) {
        missing.member(*unpacker, "bytes_per_second", "unpacker", "unpacker.");
        missing.member(*unpacker, "launch_seconds", "unpacker", "unpacker.");
    }
    missing.check();
}

/// The last step that has what a step reads: itself, unless it says otherwise.
std::uint64_t live_until(const Json& steps, std::size_t step) {
    if (!steps[step].contains("live_until")) { return step; }
    const std::string where = place("steps", step) + ".live_until";
    const std::uint64_t until = whole(steps[step]["live_until"], where);
    if (until < step) {
        throw Refused{where + ": " + std::to_string(until) + " lies before the step itself; name the last step, from " +
                      std::to_string(step) + " on, during which its storages are used"};
    }
    if (until >= steps.size()) {
        throw Refused{where + ": " + std::to_string(until) + " is not one of the " + std::to_string(steps.size()) +
                      " steps, which are counted from 0"};
    }
    return until;
}

/// What steps keep for later ones.
class LiveRanges {
public:
    explicit LiveRanges(std::size_t storages) : last_(storages, 0) {}

    /// `reads` is what step `step` names, and keeps until the end of step `until`: appends what earlier steps keep for it.
    void add_to(std::vector<std::uint32_t>& reads, std::size_t step, std::uint64_t until) {
        const std::size_t own = reads.size();
        std::erase_if(live_, [&](std::uint32_t s) { return last_[s] < step; });
        reads.insert(reads.end(), live_.begin(), live_.end());
        for (std::size_t k = 0; k < own && until > step; ++k) {
            const std::uint32_t s = reads[k];
            if (last_[s] < step || last_[s] == 0) { live_.push_back(s); }
            last_[s] = std::max(last_[s], until);
        }
    }

private:
    std::vector<std::uint32_t> live_;  // each once
    std::vector<std::uint64_t> last_;  // by storage: the step that it is kept for; 0: none
};

/// Of all steps together.
constexpr std::size_t most_reads = std::size_t{1} << 28;

plan::Problem problem_of(const Json& in, bool has_budget) {
    check_members(in, has_budget);
    plan::Problem problem;
    problem.alignment_bytes = 1;
    problem.link.bytes_per_second = real(in["link"]["bytes_per_second"], "link.bytes_per_second");
    problem.link.latency_seconds = real(in["link"]["latency_seconds"], "link.latency_seconds");
    if (const auto plausible = plan::check_given(problem.link, "link"); !plausible) {
        throw Refused{plausible.error().message()};
    }
    if (in.contains("budget_bytes")) { problem.budget_bytes = whole(in["budget_bytes"], "budget_bytes"); }
    problem.chunk_bytes = whole(in["chunk_bytes"], "chunk_bytes");
    if (!in["cyclic"].is_boolean()) { throw Refused{"cyclic: expected true or false"}; }
    problem.cyclic = in["cyclic"].get<bool>();
    const Json& storages = in["storages"];
    for (std::size_t s = 0; s < storages.size(); ++s) {
        const std::string where = place("storages", s);
        if (!storages[s]["name"].is_string()) { throw Refused{where + ".name: expected a text"}; }
        problem.storage_bytes.push_back(whole(storages[s]["bytes"], where + ".bytes"));
    }
    const Json& steps = in["steps"];
    std::size_t timed = 0;
    std::vector<std::uint32_t> reads;
    LiveRanges live{problem.storage_bytes.size()};
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::string where = place("steps", i);
        reads.clear();
        const std::string list = where + ".storages";
        for (const Json& entry : array(steps[i]["storages"], list)) {
            const std::uint64_t s = whole(entry, where + ".storages");
            if (s >= problem.storage_bytes.size()) {
                throw Refused{where + ".storages: " + std::to_string(s) + " is not one of the " +
                              std::to_string(problem.storage_bytes.size()) + " storages"};
            }
            reads.push_back(static_cast<std::uint32_t>(s));
        }
        live.add_to(reads, i, live_until(steps, i));
        if (problem.step_storages.size() + reads.size() > most_reads) {
            throw Refused{where + ": with what stays for it, the steps have more than " + std::to_string(most_reads) +
                          " storages in all"};
        }
        problem.add_step(reads);
        if (steps[i].contains("compute_seconds")) {
            problem.compute_seconds.resize(i, 0.0);
            problem.compute_seconds.push_back(real(steps[i]["compute_seconds"], where + ".compute_seconds"));
            ++timed;
        }
    }
    if (timed != 0) { problem.compute_seconds.resize(steps.size(), 0.0); }
    return problem;
}

packed::UnpackProblem unpack_problem_of(const Json& in, bool has_budget) {
    packed::UnpackProblem problem;
    problem.travels = problem_of(in, has_budget);
    const plan::Problem& travels = problem.travels;
    problem.granule_bytes = travels.chunk_bytes;
    problem.must_stay.resize(travels.storages());
    problem.step_offsets = travels.step_offsets;
    problem.step_storages = travels.step_storages;
    bool is_any_packed = false;
    const Json& storages = in["storages"];
    for (std::uint32_t s = 0; s < travels.storages(); ++s) {
        problem.unpacked_bytes.push_back(0);
        if (!storages[s].contains("unpacked_bytes")) { continue; }
        const std::string where = place("storages", s) + ".unpacked_bytes";
        const std::uint64_t bytes = whole(storages[s]["unpacked_bytes"], where);
        if (bytes <= travels.storage_bytes[s] || bytes > std::uint64_t{1} << 50) {
            throw Refused{where + ": " + std::to_string(bytes) + " is not above the " +
                          std::to_string(travels.storage_bytes[s]) +
                          " bytes in which the storage travels, or too many"};
        }
        problem.unpacked_bytes.back() = bytes;
        is_any_packed = true;
    }
    if (!is_any_packed) { return problem; }
    if (travels.chunk_bytes == 0) { throw Refused{"chunk_bytes: expected a power of two, found 0"}; }
    if (!in.contains("unpacker")) { throw Refused{"\"unpacker\" is missing, and storages have unpacked_bytes"}; }
    const std::string where = "unpacker.bytes_per_second";
    problem.unpacked_bytes_per_second = real(in["unpacker"]["bytes_per_second"], where);
    problem.launch_seconds = real(in["unpacker"]["launch_seconds"], "unpacker.launch_seconds");
    if (!(problem.unpacked_bytes_per_second > 0)) { throw Refused{where + ": expected a rate above 0"}; }
    if (!(problem.launch_seconds >= 0)) {
        throw Refused{"unpacker.launch_seconds: expected a time that is not negative"};
    }
    for (std::size_t i = 0; i < in["steps"].size(); ++i) {
        if (live_until(in["steps"], i) == i) { continue; }
        throw Refused{place("steps", i) + ".live_until: not where storages are packed; name them in each step"};
    }
    return problem;
}

// One entry for each storage that a copy holds bytes of, with the device ranges that they come to.
class Ranges {
public:
    explicit Ranges(const plan::Plan& plan) : plan_{plan} {
        for (std::uint32_t s = 0; s < plan.storages(); ++s) {
            if (plan.storage_bytes(s) != 0) { by_offset_.emplace_back(plan.storage_offset(s), s); }
        }
        std::sort(by_offset_.begin(), by_offset_.end());
    }

    template <class Each>
    void each_storage(const plan::Copy& copy, const char* key, Each&& each) const {
        auto at = std::upper_bound(by_offset_.begin(), by_offset_.end(), std::pair{copy.image_begin, plan::none});
        if (at != by_offset_.begin()) { --at; }
        for (; at != by_offset_.end() && at->first < copy.image_end; ++at) {
            const auto [offset, storage] = *at;
            const std::uint64_t begin = std::max(copy.image_begin, offset);
            const std::uint64_t end = std::min(copy.image_end, offset + plan_.storage_bytes(storage));
            if (begin >= end) { continue; }
            Json entry{{"storage", storage}, {"begin", begin - offset}, {"end", end - offset}};
            entry[key] = device(begin, end);
            each(storage, std::move(entry));
        }
    }

private:
    Json device(std::uint64_t begin, std::uint64_t end) const {
        Json ranges = Json::array();
        const auto add = [&](std::uint64_t from, std::uint64_t to) {
            if (!ranges.empty() && ranges.back()[1] == from) {
                ranges.back()[1] = to;
            } else {
                ranges.push_back({from, to});
            }
        };
        const std::uint64_t g = plan_.chunk_bytes();
        while (begin < end) {
            const std::uint64_t stop = std::min(end, (begin / g + 1) * g);
            const std::uint64_t slot = plan_.slot_of_chunk(static_cast<std::uint32_t>(begin / g));
            add(slot * g + begin % g, slot * g + begin % g + (stop - begin));
            begin = stop;
        }
        return ranges;
    }

    const plan::Plan& plan_;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> by_offset_;
};

/// By copy, in the order of the calls: the first step for which a later copy of the pass brings some of its bytes again; the number of
/// steps where none does. The copies of a cyclic plan bring their bytes once a pass.
std::vector<std::uint32_t> brought_again(const plan::Plan& plan) {
    std::vector<const plan::Copy*> copies;
    for (const plan::Call& call : plan.calls()) {
        for (const plan::Copy& copy : plan.copies(call)) { copies.push_back(&copy); }
    }
    std::vector<std::uint32_t> result(copies.size());
    std::vector<std::uint32_t> next(plan.chunks(), plan.steps());
    for (std::size_t k = copies.size(); k-- > 0;) {
        result[k] = plan.steps();
        for (const std::uint32_t chunk : plan.chunks_of_copy(*copies[k])) {
            result[k] = std::min(result[k], next[chunk]);
            next[chunk] = copies[k]->needed_by;
        }
    }
    return result;
}

Json json_of(const plan::Problem& problem, const plan::Plan& plan) {
    Json out{{"bound_seconds", plan.bound_seconds()},
             {"usual_bound_seconds", plan.usual_bound_seconds()},
             {"floor_bytes", plan.floor_bytes()},
             {"predicted_seconds", plan.predicted_seconds()},
             {"compute_seconds", plan.compute_seconds()},
             {"bytes_per_pass", plan.bytes_per_pass()},
             {"held_bytes", plan.held_bytes()},
             {"resident", Json::array()},
             {"copies", Json::array()}};
    // The first step from `step` on that reads a storage; where none does, the step for which its neighbour comes.
    std::vector<std::vector<std::uint32_t>> readers(problem.storages());
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) { readers[s].push_back(i); }
    }
    const auto first_reader = [&](std::uint32_t storage, std::uint32_t step) {
        const auto& steps = readers[storage];
        const auto found = std::lower_bound(steps.begin(), steps.end(), step);
        return found == steps.end() ? step : *found;
    };
    // The last step that has the bytes of a copy, before they are brought again: `again` is the step for which they are.
    const auto last_reader = [&](std::uint32_t storage, std::uint32_t needed_by, std::uint32_t again) {
        const auto& steps = readers[storage];
        const auto after = std::lower_bound(steps.begin(), steps.end(), again);
        return after == steps.begin() ? needed_by : std::max(needed_by, *std::prev(after));
    };
    // Cyclic: the last step before `needed_by` that reads a storage, of the next pass; none: none does.
    const auto reader_in_next = [&](std::uint32_t storage, std::uint32_t needed_by) {
        const auto& steps = readers[storage];
        const auto after = std::lower_bound(steps.begin(), steps.end(), needed_by);
        return !plan.is_cyclic() || after == steps.begin() ? plan::none : *std::prev(after);
    };
    const auto again = brought_again(plan);
    std::vector<std::uint32_t> brought_for(plan.chunks(), plan::none);  // by chunk: the step
    for (const plan::Copy& copy : plan.copies()) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) { brought_for[chunk] = copy.needed_by; }
    }
    const Ranges ranges{plan};
    for (const plan::Copy& copy : plan.residents()) {
        const std::uint32_t brought = brought_for[*plan.chunks_of_copy(copy).begin()];
        ranges.each_storage(copy, "at", [&](std::uint32_t storage, Json entry) {
            if (plan.is_cyclic() && brought != plan::none) {  // the first pass begins with it
                const std::uint32_t until = reader_in_next(storage, brought);
                if (until == plan::none) { return; }  // it shares a chunk with what is read
                entry["live_until"] = until;
            }
            out["resident"].push_back(std::move(entry));
        });
    }
    std::size_t number = 0;  // of the copy
    for (std::size_t k = 0; k < plan.calls().size(); ++k) {
        const plan::Call& call = plan.calls()[k];
        for (const plan::Copy& copy : plan.copies(call)) {
            const std::uint32_t until = again[number++];
            ranges.each_storage(copy, "to", [&](std::uint32_t storage, Json entry) {
                entry["call"] = k;
                entry["waits_for"] =
                    call.wait.exists() ? Json{{"pass", call.wait.pass}, {"step", call.wait.step}} : Json(nullptr);
                const std::uint32_t needed_by = first_reader(storage, copy.needed_by);
                const std::uint32_t in_next = reader_in_next(storage, copy.needed_by);
                entry["needed_by"] = needed_by;
                entry["live_until"] = in_next == plan::none ? last_reader(storage, needed_by, until) : in_next;
                out["copies"].push_back(std::move(entry));
            });
        }
    }
    return out;
}

/// What each storage is, and what is unpacked when. An unpacking stands for its step's storages, before the step's kernels.
void add_unpacking(const packed::UnpackProblem& problem, const packed::UnpackChoice& choice, std::uint64_t floor_bytes,
                   Json& out) {
    const packed::UnpackLayout& layout = choice.layout;
    const std::uint32_t storages = problem.travels.storages();
    std::vector<bool> is_copied(storages, false), is_read(storages, false);
    for (const std::uint32_t s : problem.step_storages) { is_read[s] = true; }
    for (const Json& copy : out["copies"]) { is_copied[copy["storage"].get<std::size_t>()] = true; }
    const double kernels = plan::total_compute(problem.travels);
    out["compute_seconds"] = kernels;
    out["unpack_seconds"] = plan::total_compute(choice.rest) - kernels;
    out["exact_bound_seconds"] = packed::exact_bound(problem, choice.rest.budget_bytes + layout.bytes);
    out["floor_bytes"] = floor_bytes;
    out["unpacked_bytes"] = layout.bytes;
    out["states"] = Json::array();
    out["unpacks"] = Json::array();
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (!is_read[s]) { continue; }
        const bool is_raw = layout.stays[s], is_unpacked = problem.unpacked_bytes[s] > 0;
        Json entry{{"storage", s}, {"state", is_raw ? "raw" : is_copied[s] ? "streamed" : "resident"}};
        entry["at"] =
            is_unpacked ? Json{layout.offset[s], layout.offset[s] + problem.unpacked_bytes[s]} : Json(nullptr);
        out["states"].push_back(std::move(entry));
    }
    for (const packed::Unpacking& each : choice.unpackings) {
        out["unpacks"].push_back({{"storage", each.storage}, {"step", each.step}, {"live_until", each.live_until}});
    }
}

}  // namespace

const char* const json_description = R"(The problem, as JSON:
  link           object
    bytes_per_second  rate of the link from host to device
    latency_seconds   of one call of copies
  budget_bytes   device bytes for weights; 0 is the smallest that works; not needed with --budget
  chunk_bytes    the unit of device memory, a power of two; 2097152 on a GPU
  cyclic         true: the steps repeat, as from token to token; false: they run once
  storages       array of {"name": text, "bytes": size}
    unpacked_bytes    of a storage whose "bytes" are packed: its raw size; may be left out: kernels read it as it is
  unpacker       object, where storages are packed
    bytes_per_second  rate at which raw bytes are made of packed ones
    launch_seconds    in addition, of a step that unpacks
  steps          array, in the order of the pass:
    storages          array of what the step reads together, as numbers of storages from 0
    compute_seconds   how long its kernels run; may be left out: no time
    live_until        the last step during which its storages are used, as a number of a step from 0: they stay until
                      that step ends, with what the steps between read; may be left out: the step itself
  Other keys are ignored. A key that is there twice is an error.

The plan, as JSON:
  bound_seconds        no plan of copies takes less a pass, latency left out
  usual_bound_seconds  the same for plans that keep whole storages or stream them whole, in turns
  floor_bytes          the smallest budget that works
  predicted_seconds    of a pass of this plan
  compute_seconds      of the kernels of a pass
  bytes_per_pass       that are copied
  held_bytes           device bytes that are held; none of them for storages that no step reads
  resident             array of {"storage", "begin", "end", "at"}: bytes of a storage that never leave; with
                       "live_until" too: that the first pass begins with, until that step has ended
  copies               array, in the order of the link: {"storage", "begin", "end", "to", "call", "waits_for",
                       "needed_by", "live_until"}: bytes of a storage, copied with others of the same call once the
                       step of waits_for = {"pass", "step"} has ended (null: at once), before the step needed_by;
                       they stay until the step live_until has ended, of the next pass where that is less than
                       needed_by
  With packed storages too:
  exact_bound_seconds  no choice of states with any plan of copies takes less a pass, latency left out
  unpack_seconds       of unpacking, a pass; steps take so much longer than their kernels
  unpacked_bytes       device bytes for unpacked storages, beside held_bytes
  states               array of {"storage", "state", "at"}, for each storage that a step reads: "raw", unpacked once and
                       never brought again; "resident", as it travels; "streamed", some of it brought each pass. "at" is
                       its range [from, to) of the unpacked bytes; null: it is not packed
  unpacks              array of {"storage", "step", "live_until"}, in the order of the steps: unpacked before the
                       kernels of the step, and left until the step live_until has ended; more than once where
                       later steps find other bytes in its place
  Elsewhere "at" and "to" are arrays of ranges [from, to) of device bytes in [0, held_bytes).
)";

const char* const example_problem = R"({
  "link": {"bytes_per_second": 55.5e9, "latency_seconds": 2.4e-6},
  "budget_bytes": 14680064,
  "chunk_bytes": 2097152,
  "cyclic": true,
  "storages": [
    {"name": "layer.0", "bytes": 6291456},
    {"name": "layer.1", "bytes": 6291456},
    {"name": "head", "bytes": 4194304}
  ],
  "steps": [
    {"storages": [0], "compute_seconds": 60e-6, "live_until": 1},
    {"storages": [1], "compute_seconds": 60e-6},
    {"storages": [2], "compute_seconds": 40e-6}
  ]
}
)";

packed::UnpackProblem read_problem(const std::string& text, bool has_budget) {
    try {
        return unpack_problem_of(examples::parse_json(text), has_budget);
    } catch (const examples::BadJson& wrong) { throw Refused{wrong.what()}; }
}

std::string text_of(const plan::Problem& problem, const plan::Plan& plan) { return json_of(problem, plan).dump(1); }

std::string text_of(const packed::UnpackProblem& problem, const packed::UnpackChoice& choice, const plan::Plan& plan,
                    std::uint64_t floor_bytes) {
    Json out = json_of(choice.rest, plan);
    add_unpacking(problem, choice, floor_bytes, out);
    return out.dump(1);
}
