// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one place that states the version. CMake and Meson read these three lines.
#define RESIDENCY_VERSION_MAJOR 0
#define RESIDENCY_VERSION_MINOR 1
#define RESIDENCY_VERSION_PATCH 0
