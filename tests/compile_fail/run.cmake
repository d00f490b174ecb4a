# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# One compile-fail case: cmake -D CASE=name.cpp -D CXX=… -D FLAGS=… -P run.cmake
# The file must compile as it is, and must not compile with -DSHOULD_FAIL: then every line `// expect: text` of it must
# appear in what the compiler says. With a line `// lines: N` the compiler says no more than N lines.
cmake_policy(VERSION 3.24)
file(STRINGS "${CASE}" expected REGEX "^// expect: ")
if(NOT expected)
    message(FATAL_ERROR "${CASE} has no line `// expect: …`")
endif()
set(compile "${CXX}" -fsyntax-only ${FLAGS} "${CASE}")

execute_process(COMMAND ${compile} RESULT_VARIABLE status ERROR_VARIABLE output)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "the positive twin does not compile:\n${output}")
endif()
execute_process(COMMAND ${compile} -DSHOULD_FAIL RESULT_VARIABLE status ERROR_VARIABLE output)
if(status EQUAL 0)
    message(FATAL_ERROR "it compiles, and should not")
endif()
foreach(line IN LISTS expected)
    string(REGEX REPLACE "^// expect: " "" text "${line}")
    string(FIND "${output}" "${text}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "it does not compile, but the diagnostic \"${text}\" is missing:\n${output}")
    endif()
endforeach()
file(STRINGS "${CASE}" limit REGEX "^// lines: ")
if(limit)
    string(REGEX REPLACE "^// lines: " "" limit "${limit}")
    string(REGEX REPLACE "[0-9]+ errors? generated\\.\n" "" output "${output}")  # clang's last line
    string(REGEX REPLACE "In file included from [^\n]*/compile_fail/headers\\.hpp:[^\n]*\n" "" output "${output}")  # precompiled
    string(REGEX MATCHALL "\n" lines "${output}")
    list(LENGTH lines count)
    if(count GREATER limit)
        message(FATAL_ERROR "the diagnostic has ${count} lines, more than ${limit}:\n${output}")
    endif()
endif()
