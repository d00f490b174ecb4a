# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# Builds and runs one consumer as a stranger would: cmake -D KIND=… -D SOURCE=… -D BINARY=… -D CXX=… -D VERSION=… -P run.cmake
cmake_policy(VERSION 3.24)
set(here "${CMAKE_CURRENT_LIST_DIR}")
set(greeting "consumer of residency ${VERSION} works")
file(REMOVE_RECURSE "${BINARY}")
file(MAKE_DIRECTORY "${BINARY}")

# Runs a command that must succeed.
function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status EQUAL 0)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\n${output}")
    endif()
    set(output "${output}" PARENT_SCOPE)
endfunction()

# Runs a command that must fail with `expected` in its output.
function(run_refused expected)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")
    if(status EQUAL 0 OR NOT output MATCHES "${expected}")
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "expected a refusal that says \"${expected}\": ${command}\n${output}")
    endif()
endfunction()

# Runs the program, which must print the greeting with the library's version.
function(run_consumer program)
    run("${program}")
    if(NOT output MATCHES "${greeting}")
        message(FATAL_ERROR "expected \"${greeting}\", got: ${output}")
    endif()
endfunction()

set(configure "${CMAKE_COMMAND}" -G Ninja "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")

if(KIND STREQUAL "include_path")
    run("${CXX}" -std=c++20 -Wall -Wextra -Werror "-I${SOURCE}/include" "${here}/main.cpp" -o "${BINARY}/consumer")
    run_consumer("${BINARY}/consumer")

elseif(KIND STREQUAL "no_exceptions")
    # Everything but the components that need a library, in one file, without exceptions and run-time types.
    run("${CXX}" -std=c++20 -Wall -Wextra -Werror -fno-exceptions -fno-rtti "-I${SOURCE}/include" -include
        "${ALL_HEADERS}" "${here}/main.cpp" -o "${BINARY}/consumer")
    run_consumer("${BINARY}/consumer")

elseif(KIND STREQUAL "add_subdirectory" OR KIND STREQUAL "fetch_content")
    run(${configure} -S "${here}/${KIND}" -B "${BINARY}" "-DRESIDENCY_SOURCE_DIR=${SOURCE}"
        "-DFETCHCONTENT_SOURCE_DIR_RESIDENCY=${SOURCE}" -DFETCHCONTENT_FULLY_DISCONNECTED=ON)
    run("${CMAKE_COMMAND}" --build "${BINARY}")
    run_consumer("${BINARY}/consumer")
    if(EXISTS "${BINARY}/consumer_cuda")
        run("${BINARY}/consumer_cuda")
    endif()
    file(GLOB_RECURSE installs "${BINARY}/residency*/*-config.cmake")
    if(installs)
        message(FATAL_ERROR "the subproject would install: ${installs}")
    endif()

elseif(KIND STREQUAL "find_package")
    set(prefix "${BINARY}/prefix")
    run(${configure} -S "${SOURCE}" -B "${BINARY}/library" "-DCMAKE_INSTALL_PREFIX=${prefix}"
        -DRESIDENCY_BUILD_TESTS=OFF -DRESIDENCY_BUILD_BENCHMARKS=OFF -DRESIDENCY_BUILD_EXAMPLES=OFF)
    run("${CMAKE_COMMAND}" --install "${BINARY}/library")
    set(find ${configure} -S "${here}/find_package" -B "${BINARY}/consumer" "-DCMAKE_PREFIX_PATH=${prefix}" --fresh)

    run(${find} "-DRESIDENCY_VERSION_WANTED=${VERSION}" "-DRESIDENCY_COMPONENTS_WANTED=formats")
    if(HAS_CUDA)
        run(${find} "-DRESIDENCY_VERSION_WANTED=${VERSION}" "-DRESIDENCY_COMPONENTS_WANTED=cuda;formats")
    endif()
    run("${CMAKE_COMMAND}" --build "${BINARY}/consumer")
    run_consumer("${BINARY}/consumer/consumer")
    if(HAS_CUDA)
        run("${BINARY}/consumer/consumer_cuda")
    endif()

    # Versions that this is not, and a component that does not exist, are refused.
    run_refused("no version is compatible|compatible with requested version" ${find} -DRESIDENCY_VERSION_WANTED=99.0)
    run_refused("no version is compatible|compatible with requested version" ${find} -DRESIDENCY_VERSION_WANTED=0.0.1)
    run_refused("components cuda and formats, not colours" ${find} -DRESIDENCY_COMPONENTS_WANTED=colours)

    # The installed tree may move, and pkg-config finds it.
    file(RENAME "${prefix}" "${BINARY}/moved")
    find_program(pkg_config NAMES pkg-config pkgconf)
    if(pkg_config)
        set(ENV{PKG_CONFIG_PATH} "${BINARY}/moved/share/pkgconfig")
        run("${pkg_config}" --cflags residency)
        separate_arguments(flags UNIX_COMMAND "${output}")
        run("${CXX}" -std=c++20 ${flags} "${here}/main.cpp" -o "${BINARY}/consumer_pc")
        run_consumer("${BINARY}/consumer_pc")
        run("${pkg_config}" --modversion residency)
        string(STRIP "${output}" version)
        if(NOT version STREQUAL VERSION)
            message(FATAL_ERROR "pkg-config says ${version}, not ${VERSION}")
        endif()
    else()
        message("no pkg-config: its part is left out")
    endif()

elseif(KIND STREQUAL "meson")
    find_program(meson NAMES meson)
    if(NOT meson)
        # The pattern that makes the test count as skipped.
        message("SKIPPED: no meson")
        return()
    endif()
    file(COPY "${here}/meson/" DESTINATION "${BINARY}/project")
    file(COPY "${here}/main.cpp" DESTINATION "${BINARY}/project")
    file(MAKE_DIRECTORY "${BINARY}/project/subprojects")
    file(CREATE_LINK "${SOURCE}" "${BINARY}/project/subprojects/residency" SYMBOLIC)
    file(WRITE "${BINARY}/project/subprojects/residency.wrap"
        "[wrap-file]\ndirectory = residency\n\n[provide]\ndependency_names = residency\n")
    set(ENV{CXX} "${CXX}")
    run("${meson}" setup "${BINARY}/build" "${BINARY}/project" "-Dwanted=${VERSION}")
    run("${meson}" compile -C "${BINARY}/build")
    run_consumer("${BINARY}/build/consumer")
    run_refused("found .* but need|version" "${meson}" setup "${BINARY}/refused" "${BINARY}/project" -Dwanted=99.0)
else()
    message(FATAL_ERROR "no such kind of consumer: ${KIND}")
endif()
message("${KIND}: built and run")
