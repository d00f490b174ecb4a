// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::ordered_json;
namespace plan = residency::plan;

const Json& member(const Json& object, const char* name, const std::string& where) {
    if (!object.is_object()) { throw Refused{where + ": expected an object"}; }
    const auto found = object.find(name);
    if (found == object.end()) { throw Refused{where + ": \"" + name + "\" is missing"}; }
    return *found;
}

std::uint64_t whole(const Json& value, const std::string& where) {
    if (value.is_number_unsigned()) { return value.get<std::uint64_t>(); }
    if (value.is_number_float()) {
        const double x = value.get<double>();
        if (x >= 0 && x <= 9007199254740992.0 && x == std::floor(x)) { return static_cast<std::uint64_t>(x); }
    }
    throw Refused{where + ": expected a whole number that is not negative, found " + value.dump().substr(0, 40)};
}

double real(const Json& value, const std::string& where) {
    if (!value.is_number()) { throw Refused{where + ": expected a number, found " + value.dump().substr(0, 40)}; }
    return value.get<double>();
}

plan::Problem problem_of(const Json& in, bool has_budget) {
    plan::Problem problem;
    problem.alignment_bytes = 1;
    const Json& link = member(in, "link", "the problem");
    problem.link.bytes_per_second = real(member(link, "bytes_per_second", "link"), "link.bytes_per_second");
    problem.link.latency_seconds = real(member(link, "latency_seconds", "link"), "link.latency_seconds");
    if (!has_budget || in.contains("budget_bytes")) {
        problem.budget_bytes = whole(member(in, "budget_bytes", "the problem"), "budget_bytes");
    }
    problem.chunk_bytes = whole(member(in, "chunk_bytes", "the problem"), "chunk_bytes");
    const Json& cyclic = member(in, "cyclic", "the problem");
    if (!cyclic.is_boolean()) { throw Refused{"cyclic: expected true or false"}; }
    problem.cyclic = cyclic.get<bool>();
    const Json& storages = member(in, "storages", "the problem");
    if (!storages.is_array()) { throw Refused{"storages: expected an array"}; }
    for (std::size_t s = 0; s < storages.size(); ++s) {
        const std::string where = "storages[" + std::to_string(s) + "]";
        if (!member(storages[s], "name", where).is_string()) { throw Refused{where + ".name: expected a text"}; }
        problem.storage_bytes.push_back(whole(member(storages[s], "bytes", where), where + ".bytes"));
    }
    const Json& steps = member(in, "steps", "the problem");
    if (!steps.is_array()) { throw Refused{"steps: expected an array"}; }
    std::size_t timed = 0;
    std::vector<std::uint32_t> reads;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::string where = "steps[" + std::to_string(i) + "]";
        const Json& list = member(steps[i], "storages", where);
        if (!list.is_array()) { throw Refused{where + ".storages: expected an array"}; }
        reads.clear();
        for (const Json& entry : list) {
            const std::uint64_t s = whole(entry, where + ".storages");
            if (s >= problem.storage_bytes.size()) {
                throw Refused{where + ".storages: " + std::to_string(s) + " is not one of the " +
                              std::to_string(problem.storage_bytes.size()) + " storages"};
            }
            reads.push_back(static_cast<std::uint32_t>(s));
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
    const Ranges ranges{plan};
    for (const plan::Copy& copy : plan.residents()) {
        ranges.each_storage(copy, "at",
                            [&](std::uint32_t, Json entry) { out["resident"].push_back(std::move(entry)); });
    }
    for (std::size_t k = 0; k < plan.calls().size(); ++k) {
        const plan::Call& call = plan.calls()[k];
        for (const plan::Copy& copy : plan.copies(call)) {
            ranges.each_storage(copy, "to", [&](std::uint32_t storage, Json entry) {
                entry["call"] = k;
                entry["waits_for"] =
                    call.wait.exists() ? Json{{"pass", call.wait.pass}, {"step", call.wait.step}} : Json(nullptr);
                entry["needed_by"] = first_reader(storage, plan.is_cyclic() ? 0 : copy.needed_by);
                out["copies"].push_back(std::move(entry));
            });
        }
    }
    return out;
}

}  // namespace

plan::Problem read_problem(const std::string& text, bool has_budget) {
    try {
        // A duplicate key would silently win over the first one.
        std::vector<std::set<std::string>> keys;
        const auto no_duplicates = [&](int, Json::parse_event_t event, Json& parsed) {
            if (event == Json::parse_event_t::object_start) { keys.emplace_back(); }
            if (event == Json::parse_event_t::object_end) { keys.pop_back(); }
            if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
                throw Refused{"\"" + parsed.get<std::string>() + "\" is there twice"};
            }
            return true;
        };
        return problem_of(Json::parse(text, no_duplicates), has_budget);
    } catch (const Json::exception& error) { throw Refused{std::string{"not JSON: "} + error.what()}; }
}

std::string text_of(const plan::Problem& problem, const plan::Plan& plan) { return json_of(problem, plan).dump(1); }
