# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0

# What tests, benchmarks and examples need beyond the standard library. Programs that need something that is not there are left out.
include(FetchContent)

# residency_need(name TARGET t [VERSION v] [HEADER h [LIBRARY l …]] [URL u SHA256 hash]): makes the target t available everywhere and says
# where it came from: the system's package; else, with RESIDENCY_FETCH, the pinned release at the URL; else header and library, wherever
# CMAKE_PREFIX_PATH has them.
function(residency_need name)
    cmake_parse_arguments(PARSE_ARGV 1 need "" "TARGET;VERSION;HEADER;URL;SHA256" "LIBRARY")
    if(TARGET ${need_TARGET})
        return()
    endif()
    find_package(${name} ${need_VERSION} QUIET GLOBAL)
    if(${name}_FOUND)
        message(STATUS "residency: ${name} ${${name}_VERSION} from ${${name}_DIR}")
    elseif(need_URL AND RESIDENCY_FETCH)
        # A fetched dependency brings neither its tests nor its installation.
        set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
        set(BENCHMARK_ENABLE_TESTING OFF)
        set(BENCHMARK_ENABLE_INSTALL OFF)
        set(CLI11_INSTALL OFF)
        set(DOCTEST_WITH_TESTS OFF)
        set(DOCTEST_NO_INSTALL ON)
        set(JSON_BuildTests OFF)
        set(JSON_Install OFF)
        FetchContent_Declare(${name} URL ${need_URL} URL_HASH SHA256=${need_SHA256} DOWNLOAD_EXTRACT_TIMESTAMP TRUE)
        FetchContent_MakeAvailable(${name})
        message(STATUS "residency: ${name} from ${need_URL}")
    else()
        find_path(${name}_INCLUDE_DIR ${need_HEADER})
        set(needed ${name}_INCLUDE_DIR)
        if(need_LIBRARY)
            find_library(${name}_LIBRARY NAMES ${need_LIBRARY})
            list(APPEND needed ${name}_LIBRARY)
        endif()
        foreach(variable IN LISTS needed)
            if(NOT ${variable})
                message(STATUS "residency: no ${name}: what needs it is left out")
                return()
            endif()
        endforeach()
        add_library(${need_TARGET} INTERFACE IMPORTED GLOBAL)
        target_include_directories(${need_TARGET} INTERFACE "${${name}_INCLUDE_DIR}")
        if(need_LIBRARY)
            target_link_libraries(${need_TARGET} INTERFACE "${${name}_LIBRARY}")
        endif()
        message(STATUS "residency: ${name} from ${${name}_INCLUDE_DIR}")
    endif()
endfunction()

residency_need(nlohmann_json TARGET nlohmann_json::nlohmann_json VERSION 3.11.2 HEADER nlohmann/json.hpp
    URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
    SHA256 d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
residency_need(CLI11 TARGET CLI11::CLI11 VERSION 2.1.2 HEADER CLI/CLI.hpp
    URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    SHA256 f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a)
if(RESIDENCY_BUILD_TESTS)
    residency_need(doctest TARGET doctest::doctest VERSION 2.4.9 HEADER doctest/doctest.h
        URL https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz
        SHA256 632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186)
    residency_need(glpk TARGET glpk::glpk HEADER glpk.h LIBRARY glpk)
endif()
if(RESIDENCY_BUILD_BENCHMARKS)
    residency_need(benchmark TARGET benchmark::benchmark VERSION 1.7.1 HEADER benchmark/benchmark.h LIBRARY benchmark
        URL https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
        SHA256 6bc180a57d23d4d9515519f92b0c83d61b05b5bab188961f08a9d7047293e6ce)
endif()
if(RESIDENCY_BUILD_EXAMPLES)
    residency_need(utf8proc TARGET utf8proc::utf8proc HEADER utf8proc.h LIBRARY utf8proc)
    if(TARGET CUDA::cudart)  # NVIDIA's and Debian's libnccl-dev, or PyPI's nvidia-nccl-cu13, which has no libnccl.so
        residency_need(NCCL TARGET NCCL::NCCL HEADER nccl.h LIBRARY nccl libnccl.so.2)
    endif()
endif()
