// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// One policy and nothing else.
#include "residency/evict/queues.hpp"

int main() {}
