// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Every header after macros that other people's headers define: any use of one of these names does not compile.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include "others.hpp"

// windows.h
#define min(a, b) @
#define max(a, b) @
#define small @
#define near @
#define far @
#define hyper @
#define interface @
#define IN @
#define OUT @
#define OPTIONAL @
#define CONST @
#define VOID @
#define TRUE @
#define FALSE @
#define ERROR @
#define DELETE @
#define STRICT @
#define GetObject @
#define Yield @
// complex.h, termios.h, and what programs call their sizes
#define I @
#define N @
#define M @
#define K @
#define B0 @
#define ECHO @
// sys/sysmacros.h, older compilers, kernels
#undef major
#undef minor
#undef unix
#undef linux
#define major(device) @
#define minor(device) @
#define unix @
#define linux @
#define likely(x) @
#define unlikely(x) @
#define ARRAY_SIZE(x) @
#define DEBUG @
#define INFO @
#define WARNING @
#define CHECK(x) @
#define ASSERT(x) @

#ifndef HOSTILE_MACRO_TRIPS
#include "all_headers.hpp"
static_assert(sizeof(residency::Error) > 0);
#else
int small = 0;  // the check must be able to fail
#endif
