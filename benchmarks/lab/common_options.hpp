// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <thread>

namespace lab {

/// What every command takes: how many threads work, and how rows are printed.
struct CommonOptions {
    unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    bool json = false;
    bool csv = false;
};

}  // namespace lab
