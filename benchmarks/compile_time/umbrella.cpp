// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The umbrella header and nothing else.
#include "residency/residency.hpp"

int main() {}
