// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "Residency needs C++20 or later: compile with -std=c++20"
#endif

#include <cstdio>
#include <cstdlib>

#include "residency/version.hpp"

// Every macro of the library is defined here or in version.hpp.

// RESIDENCY_ASSERTIONS: 1 checks preconditions and aborts with a message. Defaults to the opposite of NDEBUG.
#ifndef RESIDENCY_ASSERTIONS
#ifdef NDEBUG
#define RESIDENCY_ASSERTIONS 0
#else
#define RESIDENCY_ASSERTIONS 1
#endif
#endif

// RESIDENCY_EXCEPTIONS: 1 where the throwing wrappers exist. Follows the compiler's setting.
#ifndef RESIDENCY_EXCEPTIONS
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define RESIDENCY_EXCEPTIONS 1
#else
#define RESIDENCY_EXCEPTIONS 0
#endif
#endif

// RESIDENCY_HEADER_ONLY: 0 where the program links residency::compiled: the non-template code and the presets are compiled once, in
// that library, and a header has declarations only. Defaults to 1: a header includes its definitions (impl/*.ipp), all of them inline.
#ifndef RESIDENCY_HEADER_ONLY
#define RESIDENCY_HEADER_ONLY 1
#endif
#if RESIDENCY_HEADER_ONLY
#define RESIDENCY_INLINE inline
#else
#define RESIDENCY_INLINE
#endif

// [[nodiscard]] for a type. nvcc's front end takes even the reference that an assignment returns for a discarded value.
#ifdef __CUDACC__
#define RESIDENCY_DETAIL_NODISCARD_TYPE
#else
#define RESIDENCY_DETAIL_NODISCARD_TYPE [[nodiscard]]
#endif

// A function that makes errors: out of the way of those that succeed.
#if defined(__GNUC__)
#define RESIDENCY_DETAIL_COLD __attribute__((cold))
#else
#define RESIDENCY_DETAIL_COLD
#endif

// An inline function that kernels call too, as part of them.
#ifdef __CUDACC__
#define RESIDENCY_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define RESIDENCY_HOST_DEVICE inline
#endif
// Before a loop that kernels do not unroll: a kernel that runs for microseconds waits longest for its own code.
#ifdef __CUDA_ARCH__
#define RESIDENCY_ROLLED _Pragma("unroll 1")
#else
#define RESIDENCY_ROLLED
#endif

// The inline namespace names the version and every setting that changes a definition, so that translation units built
// differently may be linked into one program: they see different types.
#define RESIDENCY_DETAIL_PASTE(a, b, c, d, e, f, g) a##b##_##c##d##e##f##g
#define RESIDENCY_DETAIL_PASTE_EXPANDED(a, b, c, d, e, f, g) RESIDENCY_DETAIL_PASTE(a, b, c, d, e, f, g)
#if RESIDENCY_ASSERTIONS
#define RESIDENCY_DETAIL_ABI_ASSERTIONS _checked
#else
#define RESIDENCY_DETAIL_ABI_ASSERTIONS
#endif
#if RESIDENCY_EXCEPTIONS
#define RESIDENCY_DETAIL_ABI_EXCEPTIONS
#else
#define RESIDENCY_DETAIL_ABI_EXCEPTIONS _nothrow
#endif
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define RESIDENCY_DETAIL_ABI_STREAMS _ptds
#else
#define RESIDENCY_DETAIL_ABI_STREAMS
#endif
#if RESIDENCY_HEADER_ONLY
#define RESIDENCY_DETAIL_ABI_COMPILED
#else
#define RESIDENCY_DETAIL_ABI_COMPILED _compiled
#endif
#define RESIDENCY_ABI                                                                                                  \
    RESIDENCY_DETAIL_PASTE_EXPANDED(v, RESIDENCY_VERSION_MAJOR, RESIDENCY_VERSION_MINOR,                               \
                                    RESIDENCY_DETAIL_ABI_ASSERTIONS, RESIDENCY_DETAIL_ABI_EXCEPTIONS,                  \
                                    RESIDENCY_DETAIL_ABI_STREAMS, RESIDENCY_DETAIL_ABI_COMPILED)

// nvcc's pass for the device compiles no host code: it reads declarations, in the same namespace.
#ifdef __CUDA_ARCH__
#undef RESIDENCY_HEADER_ONLY
#define RESIDENCY_HEADER_ONLY 0
#undef RESIDENCY_INLINE
#define RESIDENCY_INLINE
#endif

// RESIDENCY_ASSERT(condition, message): a precondition of the caller. `message` is a string literal that says what to do.
#if RESIDENCY_ASSERTIONS
#define RESIDENCY_ASSERT(condition, message)                                                                           \
    ((condition) ? static_cast<void>(0)                                                                                \
                 : ::residency::detail::assertion_failed(#condition, message, __FILE__, __LINE__))
#else
#define RESIDENCY_ASSERT(condition, message) static_cast<void>(0)
#endif

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

[[noreturn]] inline void assertion_failed(const char* condition, const char* message, const char* file,
                                          int line) noexcept {
    std::fprintf(stderr, "%s:%d: residency: assertion failed: %s: %s\n", file, line, condition, message);
    std::abort();
}

}}}  // namespace residency::RESIDENCY_ABI::detail
