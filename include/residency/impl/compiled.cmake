# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0

# residency::compiled and what goes with it: static libraries of the definitions that RESIDENCY_HEADER_ONLY=0 leaves out of the headers.
# They are compiled in the build that uses them, with its settings; in a build that does not, they are not. What links one of them is
# compiled with RESIDENCY_HEADER_ONLY=0.

# residency_add_compiled(name SOURCES source … LIBRARIES library …): residency::<name>, from these sources of this folder, and the libraries
# that it uses.
function(residency_add_compiled name)
    cmake_parse_arguments(PARSE_ARGV 1 compiled "" "" "SOURCES;LIBRARIES")
    list(TRANSFORM compiled_SOURCES PREPEND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/")
    add_library(residency_${name} STATIC EXCLUDE_FROM_ALL ${compiled_SOURCES})
    add_library(residency::${name} ALIAS residency_${name})
    target_compile_definitions(residency_${name} PUBLIC RESIDENCY_HEADER_ONLY=0)
    target_link_libraries(residency_${name} PUBLIC ${compiled_LIBRARIES})
    set_target_properties(residency_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

if(NOT TARGET residency::compiled)
    residency_add_compiled(compiled SOURCES src_plain.cpp src_simulated.cpp LIBRARIES residency::residency)
endif()
if(TARGET residency::cuda AND NOT TARGET residency::compiled_cuda)
    residency_add_compiled(compiled_cuda SOURCES src_cuda.cpp LIBRARIES residency::cuda residency::compiled)
endif()
if(TARGET residency::formats AND NOT TARGET residency::compiled_formats)
    residency_add_compiled(compiled_formats SOURCES src_formats.cpp LIBRARIES residency::formats residency::compiled)
endif()
