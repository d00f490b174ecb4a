// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: static assertion failed
#include "residency/error.hpp"

#ifdef SHOULD_FAIL
residency::Result<residency::Error> ambiguous{residency::Error{residency::ErrorKind::io, "an error or a value?"}};
#else
residency::Result<int> clear{residency::Error{residency::ErrorKind::io, "an error"}};
#endif
