// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The unit for nvcc: one header of Thrust.
#include <thrust/device_vector.h>

int main() {}
