// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compositions.hpp"

template class residency::pool::StreamOrdered<residency::SimulatedDevice>;
template class residency::pool::Slab<residency::SimulatedDevice>;
template class residency::pool::Virtual<residency::SimulatedDevice>;
template class residency::transport::Pinned<residency::SimulatedDevice>;
template class residency::core::Executor<residency::SimulatedDevice, compositions::Pinned>;
template class residency::core::StepClock<residency::SimulatedDevice>;
