# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# Every header, compiled for C++17: the first error says which standard is needed. cmake -D INCLUDE=… -D CXX=… -P old_standard.cmake
cmake_policy(VERSION 3.24)
file(GLOB_RECURSE headers RELATIVE "${INCLUDE}" "${INCLUDE}/residency/*.hpp")
list(FILTER headers EXCLUDE REGEX "/impl/|/version.hpp|/conformance/|interop/thrust")
list(LENGTH headers count)
if(count LESS 50)
    message(FATAL_ERROR "only ${count} headers in ${INCLUDE}")
endif()
# What includes CUDA's headers itself says that they are missing, where they are.
execute_process(COMMAND "${CXX}" -fsyntax-only -x c++ - INPUT_FILE "${CMAKE_CURRENT_LIST_DIR}/cuda_header.hpp" RESULT_VARIABLE without_cuda
    ERROR_QUIET)
foreach(header IN LISTS headers)
    file(STRINGS "${INCLUDE}/${header}" of_cuda REGEX "^#include <(cuda|nvtx3)")
    if(without_cuda AND of_cuda)
        message("SKIPPED: no CUDA headers: ${header}")
        continue()
    endif()
    # Stops at the first error.
    execute_process(COMMAND "${CXX}" -std=c++17 -fsyntax-only -Wfatal-errors "-I${INCLUDE}" -x c++ "${INCLUDE}/${header}"
        RESULT_VARIABLE status ERROR_VARIABLE output)
    string(REGEX MATCH "error: [^\n]*" first "${output}")
    if(status EQUAL 0 OR NOT first MATCHES "Residency needs C\\+\\+20")
        message(FATAL_ERROR "${header}, as C++17: ${first}\n${output}")
    endif()
endforeach()
