// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/packed.hpp"

#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

void attack::add_packed(std::vector<Kind>& kinds) {
    kinds.push_back(planned<residency::Packed<Device>>("packed", Source::packed));
}
