# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0

# residency::c: the C API, residency/c.h. A shared library that exports the functions of that header and nothing else, or a static one where
# BUILD_SHARED_LIBS is off. It has everything that it needs of the library in it, and the GPU where CUDA is there.
set(c_folder "${CMAKE_CURRENT_LIST_DIR}")
set(c_parts residency_compiled residency_compiled_formats)
set(c_device no_cuda)
if(TARGET residency_compiled_cuda)
    list(APPEND c_parts residency_compiled_cuda)
    set(c_device cuda)
endif()
add_library(residency_c_objects OBJECT EXCLUDE_FROM_ALL "${c_folder}/api.cpp" "${c_folder}/simulated.cpp" "${c_folder}/${c_device}.cpp")
target_link_libraries(residency_c_objects PRIVATE ${c_parts})
set_target_properties(residency_c_objects PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

# residency_add_c(name kind): the library, SHARED or STATIC.
function(residency_add_c name kind)
    add_library(${name} ${kind} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:residency_c_objects>)
    foreach(part IN LISTS c_parts)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:${part}>)
    endforeach()
    if(c_device STREQUAL "cuda")
        target_link_libraries(${name} PRIVATE CUDA::cudart)
    endif()
    target_include_directories(${name} ${include_kind} INTERFACE
        "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    # Before 1.0 a minor version may change the interface.
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME residency_c EXPORT_NAME c
        VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}" INSTALL_RPATH_USE_LINK_PATH ON)
    if(kind STREQUAL "SHARED")
        target_link_options(${name} PRIVATE "LINKER:--version-script=${c_folder}/exports.map")
        set_target_properties(${name} PROPERTIES LINK_DEPENDS "${c_folder}/exports.map")
    endif()
endfunction()

set(c_kind SHARED)
if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
    set(c_kind STATIC)
endif()
residency_add_c(residency_c ${c_kind})
add_library(residency::c ALIAS residency_c)
