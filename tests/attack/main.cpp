// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Attacks the public API with random programs on the simulated device, as an outsider would: every composition, several faults in flight
// at once, budgets that change under leases, models that take turns. The same arguments make the same programs.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/attack/failed.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/run.hpp"

namespace attack {
namespace {

/// Where the program is, in memory that a process shares with the one that watches it.
struct Position {
    std::uint64_t seed = 0, operation = 0;
    Mode mode = Mode::calm;
    std::array<char, 64> what{}, kind{};
    bool is_traced = false, is_quiet = false;
};
Position* const position = static_cast<Position*>(
    ::mmap(nullptr, sizeof(Position), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

void keep(std::array<char, 64>& text, std::string_view value) {
    const std::size_t size = std::min(value.size(), text.size() - 1);
    std::copy_n(value.begin(), size, text.begin());
    text[size] = 0;
}

void print_position() {
    std::fprintf(stderr, "seed %llu, mode %s, ", static_cast<unsigned long long>(position->seed),
                 mode_names[static_cast<std::size_t>(position->mode)].data());
    if (position->operation == no_operation) {
        std::fputs("before or after all operations", stderr);
    } else {
        std::fprintf(stderr, "operation %llu", static_cast<unsigned long long>(position->operation));
    }
    std::fprintf(stderr, ": %s %s\n", position->what.data(), position->kind.data());
}

}  // namespace

Tally& tally() {
    static Tally all;
    return all;
}
void now_at(std::uint64_t seed, Mode mode) {
    position->seed = seed;
    position->mode = mode;
    position->operation = no_operation;
}
void now_at(std::uint64_t operation) { position->operation = operation; }
void now_at(std::string_view what, std::string_view kind) {
    keep(position->what, what);
    keep(position->kind, kind);
    if (position->is_traced) { print_position(); }
}

void failed(std::string_view rule, std::string_view detail) {
    if (!position->is_quiet) {
        std::fprintf(stderr, "FAILED: %.*s: %.*s\n  ", static_cast<int>(rule.size()), rule.data(),
                     static_cast<int>(detail.size()), detail.data());
        print_position();
    }
    std::abort();
}

std::vector<Kind> kinds() {
    std::vector<Kind> all;
    add_planned(all);
    add_by_schedule(all);
    add_by_value(all);
    add_by_history(all);
    add_staged(all);
    add_packed(all);
    add_packed_online(all);
    return all;
}

}  // namespace attack

namespace {

constexpr const char* usage =
    "attack [--mode calm|faults|lies|lost|sources] [--first SEED] [--cases N] [--operations N] [--threads N] "
    "[--passes N]\n"
    "       [--kind NAME] [--skip LIST] [--trace]\n"
    "  without --mode: all of them in turn, N cases each. --operations N: no further case after so many operations.\n"
    "  --threads N: N threads, nothing fails. --kind: only compositions whose name holds NAME.\n"
    "  --passes N: N passes of each composition, in which nothing fails: what lives on the host and the device does "
    "not "
    "grow.\n"
    "  --skip 3,7-9: without these operations. Where a case fails, the fewest operations are looked for with which it "
    "does, and the\n"
    "  command that runs them is printed.\n";

void hangs(int) {
    constexpr std::string_view text = "FAILED: a case hangs\n";
    if (!attack::position->is_quiet) {
        if (::write(2, text.data(), text.size()) < 0) { std::abort(); }
        attack::print_position();
    }
    std::abort();
}

struct Arguments {
    std::optional<attack::Mode> mode;
    std::uint64_t first = 1, cases = 100, operations = UINT64_MAX, passes = 0;
    unsigned threads = 0;
    std::string kind;
    attack::Skipped skipped;
    bool is_traced = false;
};

/// Numbers and ranges of them, as "3,7-9".
std::optional<attack::Skipped> parse_list(std::string_view text) {
    attack::Skipped numbers;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        std::uint64_t first = 0, last = 0;
        const char* const end = item.data() + item.size();
        auto parsed = std::from_chars(item.data(), end, first);
        last = first;
        if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '-') {
            parsed = std::from_chars(parsed.ptr + 1, end, last);
        }
        if (parsed.ec != std::errc{} || parsed.ptr != end || last < first || last - first > 100000) {
            return std::nullopt;
        }
        for (std::uint64_t i = first; i <= last; ++i) { numbers.insert(i); }
    }
    return numbers;
}
std::string text_of(const attack::Skipped& numbers) {
    std::string text;
    for (auto at = numbers.begin(); at != numbers.end();) {
        const std::uint64_t first = *at;
        std::uint64_t last = first;
        while (++at != numbers.end() && *at == last + 1) { last = *at; }
        text += (text.empty() ? "" : ",") + std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
    }
    return text;
}

std::optional<Arguments> parse(int count, char** values) {
    Arguments arguments;
    for (int i = 1; i < count; ++i) {
        const std::string_view name = values[i];
        if (name == "--trace") {
            arguments.is_traced = true;
            continue;
        }
        if (i + 1 == count) { return std::nullopt; }
        const char* const value = values[++i];
        if (name == "--first") {
            arguments.first = std::strtoull(value, nullptr, 10);
        } else if (name == "--cases") {
            arguments.cases = std::strtoull(value, nullptr, 10);
        } else if (name == "--operations") {
            arguments.operations = std::strtoull(value, nullptr, 10);
        } else if (name == "--passes") {
            arguments.passes = std::strtoull(value, nullptr, 10);
        } else if (name == "--threads") {
            arguments.threads = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
        } else if (name == "--kind") {
            arguments.kind = value;
        } else if (name == "--skip") {
            const auto skipped = parse_list(value);
            if (!skipped) { return std::nullopt; }
            arguments.skipped = *skipped;
        } else if (name == "--mode") {
            for (std::size_t mode = 0; mode < attack::mode_names.size(); ++mode) {
                if (attack::mode_names[mode] == value) { arguments.mode = static_cast<attack::Mode>(mode); }
            }
            if (!arguments.mode) { return std::nullopt; }
        } else {
            return std::nullopt;
        }
    }
    return arguments;
}

/// All cases, one mode after the other; 1: they did not check anything.
int run_all(const Arguments& arguments, std::span<const attack::Kind> kinds) {
    const bool has_files = std::ranges::any_of(kinds, &attack::Kind::is_staged);
    const auto is_tried = [&](attack::Mode mode) {
        if (arguments.mode ? mode != *arguments.mode : arguments.threads > 0 && mode != attack::Mode::calm) {
            return false;
        }
        return mode != attack::Mode::sources || has_files;
    };
    const attack::Tally& tally = attack::tally();
    // Seed by seed, so that a run that is ended early has tried all modes.
    for (std::uint64_t seed = arguments.first; seed < arguments.first + arguments.cases; ++seed) {
        if (tally.operations >= arguments.operations) { break; }
        for (std::size_t i = 0; i < attack::mode_names.size(); ++i) {
            const auto mode = static_cast<attack::Mode>(i);
            if (!is_tried(mode)) { continue; }
            ::alarm(120);
            if (arguments.threads > 0) {
                attack::run_threads(kinds, seed, arguments.threads);
            } else {
                attack::run_case(kinds, seed, mode, arguments.skipped);
            }
        }
    }
    const auto number = [](const std::atomic<std::uint64_t>& value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "%llu cases, %llu operations, %llu acquired, %llu refused, %llu faults, %llu kernels checked, %llu captures, "
        "%llu launches, %llu budgets, %llu constructed, %llu not, %llu recovered, %llu refreshed, %llu written, %llu "
        "wakes, %llu kernels that read what was lost and said so\n",
        number(tally.cases), number(tally.operations), number(tally.acquired), number(tally.refused),
        number(tally.faults), number(tally.kernels), number(tally.captures), number(tally.launches),
        number(tally.budgets), number(tally.constructed), number(tally.not_constructed), number(tally.recovered),
        number(tally.refreshed), number(tally.written), number(tally.wakes), number(tally.lost));
    if (arguments.cases > 1 && (tally.acquired == 0 || tally.kernels == 0)) {
        std::fputs("FAILED: no kernel checked anything: take other compositions, another mode or more cases\n", stderr);
        return 1;
    }
    return 0;
}

/// Runs it in a process of its own. Whether it came to an end.
template <class Run>
bool comes_to_an_end(const Run& run) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) {
        std::perror("fork");
        std::exit(2);
    }
    if (child == 0) {
        const int result = run();
        std::fflush(nullptr);
        std::_Exit(result);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {}
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The fewest operations with which a case fails, as a command.
void shrink(const Arguments& arguments, std::span<const attack::Kind> kinds) {
    const std::uint64_t seed = attack::position->seed, last = attack::position->operation;
    const attack::Mode mode = attack::position->mode;
    const auto fails = [&](const attack::Skipped& skipped) {
        return !comes_to_an_end([&] {
            ::alarm(20);
            attack::run_case(kinds, seed, mode, skipped);
            return 0;
        });
    };
    attack::position->is_quiet = true;
    attack::position->is_traced = false;
    constexpr std::uint64_t most_operations = 240;
    attack::Skipped skipped = arguments.skipped;
    if (last != attack::no_operation) {
        attack::Skipped all = skipped;
        for (std::uint64_t i = last + 1; i < most_operations; ++i) { all.insert(i); }
        if (fails(all)) { skipped = std::move(all); }
    }
    for (std::uint64_t size = most_operations / 2; size > 0; size /= 2) {
        for (std::uint64_t at = 0; at < most_operations; at += size) {
            attack::Skipped more = skipped;
            for (std::uint64_t i = at; i < at + size; ++i) { more.insert(i); }
            if (more.size() > skipped.size() && fails(more)) { skipped = std::move(more); }
        }
    }
    attack::position->is_quiet = false;
    attack::position->is_traced = true;
    std::fputs("the same with the fewest operations:\n", stderr);
    const bool is_reproduced = fails(skipped);
    std::fprintf(stderr, "%s: attack --mode %s --first %llu --cases 1%s%s%s\n",
                 is_reproduced ? "reproduce it with" : "it does not fail again, so it depends on threads",
                 attack::mode_names[static_cast<std::size_t>(mode)].data(), static_cast<unsigned long long>(seed),
                 arguments.kind.empty() ? "" : (" --kind \"" + arguments.kind + "\"").c_str(),
                 skipped.empty() ? "" : " --skip ", text_of(skipped).c_str());
}

}  // namespace

int main(int count, char** values) {
    const auto arguments = parse(count, values);
    if (!arguments) {
        std::fputs(usage, stderr);
        return 2;
    }
    std::vector<attack::Kind> kinds = attack::kinds();
    std::erase_if(kinds,
                  [&](const attack::Kind& kind) { return std::strstr(kind.name, arguments->kind.c_str()) == nullptr; });
    if (kinds.empty()) {
        std::fputs("no composition has that name\n", stderr);
        return 2;
    }
    std::signal(SIGALRM, hangs);
    attack::position->is_traced = arguments->is_traced;
    if (arguments->passes > 0) {
        for (const attack::Kind& kind : kinds) { attack::run_soak(kind, arguments->first, arguments->passes); }
        return 0;
    }
    if (arguments->threads > 0) { return run_all(*arguments, kinds); }
    if (comes_to_an_end([&] { return run_all(*arguments, kinds); })) { return 0; }
    shrink(*arguments, kinds);
    return 1;
}
