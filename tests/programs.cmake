# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0

# How tests, benchmarks and examples are built.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
endif()
if(NOT CMAKE_RUNTIME_OUTPUT_DIRECTORY)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endif()
find_package(Threads REQUIRED)

# nvcc is needed for .cu files only.
set(residency_has_nvcc FALSE)
if(TARGET residency::cuda AND CUDAToolkit_NVCC_EXECUTABLE)
    set(residency_has_nvcc TRUE)
    if(NOT CMAKE_CUDA_COMPILER)
        set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
    endif()
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES 80)  # binaries for 8.x, and PTX that later architectures compile at load
    endif()
    enable_language(CUDA)
endif()

# Flags of our own files; never those of a user of the library.
add_library(residency_flags INTERFACE)
target_compile_options(residency_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>
    $<$<BOOL:${RESIDENCY_FUZZ}>:-fsanitize=fuzzer-no-link>  # the fuzzers see which way the library went, too
    # CMake 3.25 drops CUDA_STANDARD 20 with this compiler without a word.
    $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20;--expt-relaxed-constexpr>)
foreach(library IN ITEMS compiled compiled_cuda compiled_formats c_objects)
    if(TARGET residency_${library})
        target_link_libraries(residency_${library} PRIVATE residency_flags)
        # Where the tests spend their time: compiled once, run often.
        target_compile_options(residency_${library} PRIVATE $<$<CONFIG:Debug>:-O1>)
    endif()
endforeach()

# All programs have this in common.
add_library(residency_program INTERFACE)
target_link_libraries(residency_program INTERFACE residency_flags residency::compiled Threads::Threads)
target_include_directories(residency_program INTERFACE "${PROJECT_SOURCE_DIR}")

# Kernels that tests and benchmarks share.
if(residency_has_nvcc)
    add_library(gpu_harness STATIC EXCLUDE_FROM_ALL tests/gpu/harness.cu tests/gpu/unpacker.cu)
    target_link_libraries(gpu_harness PUBLIC residency_program residency::compiled_cuda)
endif()

# The programs that use a GPU.
add_custom_target(gpu_programs)
file(GLOB residency_gpus /dev/nvidia[0-9]*)

# The files of a program instantiate the same templates, and are compiled in less than half the time as one unit. So what a file defines
# for itself has a name that no other file of the program has, or lies in a namespace of its own.
set(RESIDENCY_FILES_PER_UNIT 0 CACHE STRING "How many files of a test, benchmark or example are compiled together; 0: all of a program")
function(residency_join_files target)
    if(NOT RESIDENCY_FILES_PER_UNIT EQUAL 1)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${RESIDENCY_FILES_PER_UNIT})
    endif()
endfunction()

# residency_add_program(name SOURCES source … [LIBRARIES target …] [CUDA | WITH_CUDA [CUDA_SOURCES source …] [CUDA_LIBRARIES target …]])
# A program of these sources. Without one of its libraries it is left out, with a message.
#   CUDA            it needs CUDA, and nvcc where a source is a .cu file: without them it is left out
#   WITH_CUDA       it is built without CUDA too; where CUDA is there, and what these sources and libraries need, they are part of it,
#                   and its files see the macro WITH_CUDA
function(residency_add_program name)
    cmake_parse_arguments(PARSE_ARGV 1 program "CUDA;WITH_CUDA" "" "SOURCES;LIBRARIES;CUDA_SOURCES;CUDA_LIBRARIES")
    set(missing "")
    foreach(library IN LISTS program_LIBRARIES)
        if(NOT TARGET ${library})
            list(APPEND missing ${library})
        endif()
    endforeach()
    set(missing_for_cuda "")
    foreach(library IN LISTS program_CUDA_LIBRARIES ITEMS residency::cuda)
        if(NOT TARGET ${library})
            list(APPEND missing_for_cuda ${library})
        endif()
    endforeach()
    if("${program_SOURCES};${program_CUDA_SOURCES}" MATCHES "\\.cu(;|$)" AND NOT residency_has_nvcc)
        list(APPEND missing_for_cuda nvcc)
    endif()
    if(program_CUDA)
        list(APPEND missing ${missing_for_cuda})
    endif()
    if(missing)
        list(JOIN missing ", " missing)
        message(STATUS "residency: no ${missing}: program ${name} is left out")
        return()
    endif()

    add_executable(${name} ${program_SOURCES})
    residency_join_files(${name})
    target_link_libraries(${name} PRIVATE residency_program ${program_LIBRARIES})
    set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
    if(program_CUDA OR (program_WITH_CUDA AND NOT missing_for_cuda))
        if(RESIDENCY_TEST_DEVELOPMENT AND NOT residency_gpus)  # built to see that it builds
            target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
        endif()
        target_sources(${name} PRIVATE ${program_CUDA_SOURCES})
        target_link_libraries(${name} PRIVATE residency::compiled_cuda ${program_CUDA_LIBRARIES})
        add_dependencies(gpu_programs ${name})
        if(program_WITH_CUDA)
            target_compile_definitions(${name} PRIVATE WITH_CUDA)
        endif()
    elseif(program_WITH_CUDA)
        list(JOIN missing_for_cuda ", " missing)
        message(STATUS "residency: no ${missing}: program ${name} has the simulated device only")
    endif()
endfunction()
