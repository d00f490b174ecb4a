// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Built in place of a fuzzer's own main: FOLDER... [--mutations N] [--seed S]. Runs a fuzz target on every file of the folders,
// in order of name, and then on N mutated ones (10,000 unless told), the same for the same seed on every platform.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

using Bytes = std::vector<char>;

/// Changes inputs by a few steps each: bits, bytes, numbers at the edges of their types, pieces moved, tokens of text formats.
class Mutator {
public:
    explicit Mutator(std::uint64_t seed) : random_{seed} {}

    Bytes mutate(const std::vector<Bytes>& corpus) {
        Bytes bytes = corpus[below(corpus.size())];
        for (std::uint64_t step = 0, steps = 1 + below(1 + below(8)); step < steps; ++step) { change(bytes, corpus); }
        return bytes;
    }

private:
    std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
    std::size_t place(const Bytes& bytes) {
        // The front, where headers and counts are, more often.
        const std::size_t limit = below(2) == 0 ? std::min<std::size_t>(bytes.size(), 64) : bytes.size();
        return static_cast<std::size_t>(below(limit + 1));
    }
    void insert(Bytes& bytes, std::size_t at, std::string_view text) {
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), text.begin(), text.end());
    }

    void change(Bytes& bytes, const std::vector<Bytes>& corpus) {
        static constexpr std::array<std::uint64_t, 16> numbers{0,
                                                               1,
                                                               2,
                                                               7,
                                                               64,
                                                               255,
                                                               65535,
                                                               65536,
                                                               0x7fffffff,
                                                               0x80000000,
                                                               0xffffffff,
                                                               0x100000000,
                                                               0x7fffffffffffffff,
                                                               0x8000000000000000,
                                                               0xfffffffffffffff8,
                                                               0xffffffffffffffff};
        static constexpr std::array<std::string_view, 24> tokens{"[",
                                                                 "]",
                                                                 "{",
                                                                 "}",
                                                                 ",",
                                                                 ":",
                                                                 "\"",
                                                                 "\\",
                                                                 "null",
                                                                 "true",
                                                                 "-1",
                                                                 "0",
                                                                 "1.5",
                                                                 "1e400",
                                                                 "18446744073709551615",
                                                                 "18446744073709551616",
                                                                 "\\ud800",
                                                                 "\xff",
                                                                 "\xc0\x80",
                                                                 "../",
                                                                 "\"a\":",
                                                                 "[[[[[[[[",
                                                                 "{\"a\":{\"a\":",
                                                                 "9223372036854775807"};
        const std::size_t at = place(bytes);
        const std::size_t left = bytes.size() - at;
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        const auto piece = static_cast<std::size_t>(left == 0 ? 0 : below(std::min<std::size_t>(left, 64)) + 1);
        switch (below(11)) {
            case 0:
                if (left != 0) { bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); }
                break;
            case 1:
                if (left != 0) { bytes[at] = static_cast<char>(below(256)); }
                break;
            case 2: {  // a number in place of another
                const std::uint64_t number = numbers[below(numbers.size())];
                const std::size_t width = std::size_t{1} << below(4);
                for (std::size_t i = 0; i < width && i < left; ++i) {
                    bytes[at + i] = static_cast<char>(number >> (8 * i) & 255);
                }
                break;
            }
            case 3:  // a small change of a number
                if (left != 0) { bytes[at] = static_cast<char>(bytes[at] + (below(2) == 0 ? 1 : -1)); }
                break;
            case 4: bytes.resize(at); break;
            case 5: bytes.erase(first, first + static_cast<std::ptrdiff_t>(piece)); break;
            case 6: {  // the same piece twice
                const std::string copy{first, first + static_cast<std::ptrdiff_t>(piece)};
                insert(bytes, at, copy);
                break;
            }
            case 7: insert(bytes, at, tokens[below(tokens.size())]); break;
            case 8: {  // a token in place of what is there
                const std::string_view token = tokens[below(tokens.size())];
                bytes.erase(first, first + static_cast<std::ptrdiff_t>(std::min(left, token.size())));
                insert(bytes, at, token);
                break;
            }
            case 9: {  // a piece of another input
                const Bytes& other = corpus[below(corpus.size())];
                if (!other.empty()) {
                    const std::size_t from = static_cast<std::size_t>(below(other.size()));
                    const std::size_t count = std::min<std::size_t>(other.size() - from, below(256) + 1);
                    insert(bytes, at, {other.data() + from, count});
                }
                break;
            }
            default:  // another digit
                for (std::size_t i = at; i < bytes.size(); ++i) {
                    if (bytes[i] >= '0' && bytes[i] <= '9') {
                        bytes[i] = static_cast<char>('0' + below(10));
                        break;
                    }
                }
                break;
        }
    }

    std::mt19937_64 random_;
};

void run(const Bytes& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t mutations = 10'000;
    std::uint64_t seed = 1;
    std::vector<std::filesystem::path> files;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if ((argument == "--mutations" || argument == "--seed") && i + 1 < argc) {
            (argument == "--seed" ? seed : mutations) = std::strtoull(argv[++i], nullptr, 10);
            continue;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator{argv[i]}) {
            if (entry.is_regular_file()) { files.push_back(entry.path()); }
        }
    }
    std::sort(files.begin(), files.end());
    std::vector<Bytes> corpus;
    for (const auto& file : files) {
        std::fprintf(stderr, "%s\n", file.c_str());
        std::ifstream stream{file, std::ios::binary};
        corpus.emplace_back(std::istreambuf_iterator<char>{stream}, std::istreambuf_iterator<char>{});
        run(corpus.back());
    }
    if (corpus.empty()) {
        std::fprintf(stderr, "no inputs\n");
        return 1;
    }
    std::fprintf(stderr, "%llu mutations from seed %llu\n", static_cast<unsigned long long>(mutations),
                 static_cast<unsigned long long>(seed));
    Mutator mutator{seed};
    for (std::uint64_t i = 0; i < mutations; ++i) { run(mutator.mutate(corpus)); }
    std::printf("%zu inputs, %llu mutations\n", corpus.size(), static_cast<unsigned long long>(mutations));
    return 0;
}
