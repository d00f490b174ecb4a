# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# An overlay port for vcpkg that packages the clone it lies in: vcpkg install residency --overlay-ports=CLONE/.vcpkg/ports
set(VCPKG_BUILD_TYPE release)  # headers only
cmake_path(SET SOURCE_PATH NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../..")

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DRESIDENCY_BUILD_TESTS=OFF
        -DRESIDENCY_BUILD_BENCHMARKS=OFF
        -DRESIDENCY_BUILD_EXAMPLES=OFF
        -DRESIDENCY_INSTALL_CMAKEDIR=share/residency
)
vcpkg_cmake_install()
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
