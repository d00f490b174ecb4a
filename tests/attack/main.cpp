// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Attacks the public API with random programs on the simulated device, as an outsider would: every composition, several faults in flight
// at once, budgets that change under leases. The same arguments make the same programs.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "tests/attack/failed.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/run.hpp"

namespace attack {
namespace {

struct Position {
    std::uint64_t seed = 0;
    Mode mode = Mode::calm;
    int operation = 0;
    std::string_view what, kind;
    bool is_traced = false;
};
Position position;  // of the program, for failed()

void print_position() {
    std::fprintf(stderr, "seed %llu, mode %s, operation %d: %.*s %.*s\n",
                 static_cast<unsigned long long>(position.seed),
                 mode_names[static_cast<std::size_t>(position.mode)].data(), position.operation,
                 static_cast<int>(position.what.size()), position.what.data(), static_cast<int>(position.kind.size()),
                 position.kind.data());
}

}  // namespace

Tally& tally() {
    static Tally all;
    return all;
}
void now_at(std::uint64_t seed, Mode mode) {
    position.seed = seed;
    position.mode = mode;
}
void now_at(int operation, std::string_view what, std::string_view kind) {
    position.operation = operation;
    position.what = what;
    position.kind = kind;
    if (position.is_traced) { print_position(); }
}
void trace_operations() { position.is_traced = true; }

void failed(std::string_view rule, std::string_view detail) {
    std::fprintf(stderr, "FAILED: %.*s: %.*s\n  ", static_cast<int>(rule.size()), rule.data(),
                 static_cast<int>(detail.size()), detail.data());
    print_position();
    std::abort();
}

std::vector<Kind> kinds() {
    std::vector<Kind> all;
    add_planned(all);
    add_by_schedule(all);
    add_by_value(all);
    add_by_history(all);
    add_staged(all);
    return all;
}

}  // namespace attack

namespace {

constexpr const char* usage =
    "attack [--mode calm|faults|lies|lost|sources] [--first SEED] [--cases N] [--threads N] [--kind NAME] [--trace]\n"
    "  without --mode: all of them. --threads N: N threads, nothing fails. --kind: only compositions whose name holds "
    "NAME\n";

void hangs(int) {
    constexpr std::string_view text = "FAILED: a case hangs\n";
    if (::write(2, text.data(), text.size()) < 0) { std::abort(); }
    attack::print_position();
    std::abort();
}

struct Arguments {
    std::optional<attack::Mode> mode;
    std::uint64_t first = 1, cases = 100;
    unsigned threads = 0;
    std::string kind;
};

std::optional<Arguments> parse(int count, char** values) {
    Arguments arguments;
    for (int i = 1; i < count; ++i) {
        const std::string_view name = values[i];
        if (name == "--trace") {
            attack::trace_operations();
            continue;
        }
        if (i + 1 == count) { return std::nullopt; }
        const char* const value = values[++i];
        if (name == "--first") {
            arguments.first = std::strtoull(value, nullptr, 10);
        } else if (name == "--cases") {
            arguments.cases = std::strtoull(value, nullptr, 10);
        } else if (name == "--threads") {
            arguments.threads = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
        } else if (name == "--kind") {
            arguments.kind = value;
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
    const auto until = arguments->first + arguments->cases;
    for (std::size_t i = 0; i < attack::mode_names.size(); ++i) {
        const auto mode = static_cast<attack::Mode>(i);
        if (arguments->mode ? mode != *arguments->mode : arguments->threads > 0 && mode != attack::Mode::calm) {
            continue;
        }
        const bool has_files = std::ranges::any_of(kinds, &attack::Kind::is_staged);
        if (mode == attack::Mode::sources && !has_files) { continue; }
        for (std::uint64_t seed = arguments->first; seed < until; ++seed) {
            ::alarm(120);
            if (arguments->threads > 0) {
                attack::run_threads(kinds, seed, arguments->threads);
            } else {
                attack::run_case(kinds, seed, mode);
            }
        }
    }
    const attack::Tally& tally = attack::tally();
    const auto number = [](const std::atomic<std::uint64_t>& value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "%llu cases, %llu operations, %llu acquired, %llu refused, %llu faults, %llu kernels checked, %llu captures, "
        "%llu "
        "launches, %llu budgets, %llu constructed, %llu not, %llu recovered, %llu kernels that read ones and said so\n",
        number(tally.cases), number(tally.operations), number(tally.acquired), number(tally.refused),
        number(tally.faults), number(tally.kernels), number(tally.captures), number(tally.launches),
        number(tally.budgets), number(tally.constructed), number(tally.not_constructed), number(tally.recovered),
        number(tally.all_ones));
    if (tally.acquired == 0 || tally.kernels == 0) {
        std::fputs("FAILED: no kernel checked anything: take other compositions, another mode or more cases\n", stderr);
        return 1;
    }
    return 0;
}
