// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Stands in for libtorch.so, which holds nothing but the names of other libraries; and for a library that is not ExecuTorch's.
