// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Of libtorch.so, which holds nothing but the names of the others.
