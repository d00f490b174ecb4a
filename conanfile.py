# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The recipe for Conan 2: `conan create .` in a clone. Consumers get the package's own CMake configuration, with its components."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm


class Residency(ConanFile):
    name = "residency"
    description = "Streams weights to NVIDIA GPUs inside a hard byte budget"
    license = "Apache-2.0"
    topics = ("cuda", "inference", "offloading", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"formats": [True, False]}  # the component that reads model files
    default_options = {"formats": True}
    exports_sources = "CMakeLists.txt", "LICENSE", "include/*"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "residency", "version.hpp"))
        self.version = ".".join(re.findall(r"^#define RESIDENCY_VERSION_\w+ (\d+)$", text, re.M))

    def requirements(self):
        if self.options.formats:
            self.requires("nlohmann_json/[>=3.11.2 <4]", transitive_headers=True)

    def package_id(self):
        self.info.settings.clear()  # headers only

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("TESTS", "BENCHMARKS", "EXAMPLES"):
            toolchain.cache_variables[f"RESIDENCY_BUILD_{option}"] = False
        toolchain.cache_variables["RESIDENCY_CUDA"] = False  # the consumer's toolkit counts: its configuration looks for it
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rm(self, "*.pc", os.path.join(self.package_folder, "share", "pkgconfig"))  # Conan makes its own

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "residency")]
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has a configuration of its own
        self.cpp_info.set_property("pkg_config_name", "residency")
