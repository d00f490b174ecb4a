// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "residency/aoti/aoti_package.hpp"
#include "residency/format/executorch.hpp"
#include "residency/format/input.hpp"
#include "residency/format/torch_dtype.hpp"
#include "residency/format/zip.hpp"
#include "residency/model/file.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace aoti {

namespace detail {

/// A library that was loaded at run time. Movable; unloads it, unless it is one that stays for the process, or was lent.
class DynamicLibrary {
public:
    DynamicLibrary() noexcept = default;
    DynamicLibrary(DynamicLibrary&& other) noexcept
        : handle_{std::exchange(other.handle_, nullptr)}, is_lent_{other.is_lent_} {}
    DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(is_lent_, other.is_lent_);
        return *this;
    }
    ~DynamicLibrary() {
        if (handle_ != nullptr && !is_lent_) { static_cast<void>(::dlclose(handle_)); }
    }
    /// A library that someone else has loaded, and keeps.
    [[nodiscard]] static DynamicLibrary borrow(void* handle) noexcept {
        DynamicLibrary library;
        library.handle_ = handle;
        library.is_lent_ = true;
        return library;
    }

    /// Blocks. Error unsupported, with the linker's words.
    [[nodiscard]] static Result<DynamicLibrary> try_open(const std::string& path, int flags) {
        DynamicLibrary library;
        library.handle_ = ::dlopen(path.c_str(), flags);
        if (library.handle_ == nullptr) {
            const char* why = ::dlerror();
            return Error{ErrorKind::unsupported, residency::detail::quoted(path) +
                                                     " cannot be loaded: " + (why != nullptr ? why : "unknown reason")};
        }
        return library;
    }
    /// Keeps it loaded until the end of the process.
    void leak() noexcept { handle_ = nullptr; }

    /// The address of a symbol, or null.
    [[nodiscard]] void* find(const char* name) const noexcept { return ::dlsym(handle_, name); }
    /// Sets `function` to the symbol, or `missing` to the name of the first that is not there.
    template <class Function>
    void find(const char* name, Function*& function, std::string& missing) const {
        function = reinterpret_cast<Function*>(find(name));
        if (function == nullptr && missing.empty()) { missing = name; }
    }

private:
    void* handle_ = nullptr;
    bool is_lent_ = false;
};

/// A temporary folder. Movable; removed with everything in it.
class TemporaryFolder {
public:
    TemporaryFolder() noexcept = default;
    TemporaryFolder(TemporaryFolder&& other) noexcept : path_{std::exchange(other.path_, {})} {}
    TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
        std::swap(path_, other.path_);
        return *this;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        if (!path_.empty()) { std::filesystem::remove_all(path_, ignored); }
    }

    /// Blocks. Makes one in $TMPDIR or /tmp. Error io.
    [[nodiscard]] static Result<TemporaryFolder> try_make() {
        const char* parent = std::getenv("TMPDIR");
        TemporaryFolder folder;
        std::string name = std::string{parent != nullptr && *parent != '\0' ? parent : "/tmp"} + "/residency-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) {
            return Error{ErrorKind::io, "no folder can be made at " + residency::detail::quoted(name)};
        }
        folder.path_ = std::move(name);
        return folder;
    }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
    std::string path_;
};

using TensorHandle = void*;     // AtenTensorHandle
using ContainerHandle = void*;  // AOTInductorModelContainerHandle

}  // namespace detail

/// PyTorch's C interface in this process, as far as packages need it.
class Torch {
public:
    /// Blocks. Loads PyTorch's libraries when called first; they stay loaded. Error unsupported: they are not found, or too old.
    [[nodiscard]] static RESIDENCY_INLINE Result<const Torch*> try_get(const PackageOptions& options);

    /// PyTorch's number of a type. Error unsupported.
    [[nodiscard]] RESIDENCY_INLINE Result<std::int32_t> try_code(const DType& dtype) const;
    /// The library's type of PyTorch's number, or DType{}.
    [[nodiscard]] RESIDENCY_INLINE DType dtype_of(std::int32_t code) const noexcept;
    /// A tensor over memory of the caller.
    [[nodiscard]] RESIDENCY_INLINE Result<detail::TensorHandle> try_wrap(const TensorView& view, bool is_cuda,
                                                                         std::int32_t device_index) const;

    std::int32_t (*create_tensor_from_blob)(void*, std::int64_t, const std::int64_t*, const std::int64_t*, std::int64_t,
                                            std::int32_t, std::int32_t, std::int32_t, detail::TensorHandle*,
                                            std::int32_t, const std::uint8_t*, std::int64_t) = nullptr;
    std::int32_t (*delete_tensor)(detail::TensorHandle) = nullptr;
    std::int32_t (*get_data_ptr)(detail::TensorHandle, void**) = nullptr;
    std::int32_t (*get_dim)(detail::TensorHandle, std::int64_t*) = nullptr;
    std::int32_t (*get_sizes)(detail::TensorHandle, std::int64_t**) = nullptr;
    std::int32_t (*get_strides)(detail::TensorHandle, std::int64_t**) = nullptr;
    std::int32_t (*get_dtype)(detail::TensorHandle, std::int32_t*) = nullptr;

private:
    struct Type {
        DType dtype;
        std::int32_t code;
    };
    [[nodiscard]] RESIDENCY_INLINE Status try_load(const PackageOptions& options);

    std::vector<Type> types_;
    std::int32_t cpu_ = 0, cuda_ = 0, strided_ = 0;
};

namespace detail {

/// The dense strides of a shape, in elements.
[[nodiscard]] inline std::vector<std::int64_t> strides_of(const TensorView& view) {
    std::vector<std::int64_t> strides(view.shape.size());
    std::int64_t next = 1;
    for (std::size_t i = view.shape.size(); i-- > 0;) {
        strides[i] = view.strides.empty() ? next : static_cast<std::int64_t>(view.strides[i]);
        next *= static_cast<std::int64_t>(view.shape[i]);
    }
    return strides;
}

/// Blocks. Writes the entries of a package below data/aotinductor into a folder, without their path. Returns the library's path.
/// Entries with names that leave the folder are refused, since names lose their path.
[[nodiscard]] inline Result<std::string> unpack(const format::Input& input, const std::string& folder) {
    const std::string& path = input.path();
    const auto archive = format::detail::ZipDirectory::try_read(input, 0, input.bytes());
    if (!archive) { return archive.error().in(residency::detail::quoted(path)); }
    std::string library;
    for (const auto& entry : archive->entries()) {
        const std::size_t below = entry.name.find("data/aotinductor/");
        if (below == std::string::npos || entry.name.back() == '/' || entry.name.ends_with(".cpp")) { continue; }
        const std::string name = entry.name.substr(entry.name.rfind('/') + 1);
        const auto range = archive->try_locate(input, entry);
        if (!range) { return range.error(); }
        const auto text = input.try_text(range->offset, range->bytes);
        if (!text) { return text.error(); }
        const std::string target = folder + "/" + name;
        if (std::filesystem::exists(target)) {
            return Error{ErrorKind::unsupported,
                         residency::detail::quoted(path) + " holds several models; export one method a package"};
        }
        if (const Status written =
                residency::detail::write_file(target, std::as_bytes(std::span{text->data(), text->size()}));
            !written) {
            return written.error();
        }
        if (name.ends_with(".so")) {
            if (!library.empty()) {
                return Error{ErrorKind::unsupported,
                             residency::detail::quoted(path) + " holds several libraries; export one method a package"};
            }
            library = target;
        }
    }
    if (library.empty()) {
        return Error{ErrorKind::unsupported,
                     residency::detail::quoted(path) + " holds no compiled library; it is no package of AOTInductor"};
    }
    return library;
}

/// Blocks. Writes the library that a program of ExecuTorch has for a method into a folder. Returns its path.
[[nodiscard]] inline Result<std::string> unpack_executorch(const format::Input& program, std::string_view method,
                                                           const std::string& folder) {
    const auto file = format::try_read_executorch_file(program);
    if (!file) { return file.error(); }
    const auto refused = [&](const std::string& what) {
        return Error{ErrorKind::unsupported, residency::detail::quoted(program.path()) + ": " + what};
    };
    const format::ExecutorchMethod* found = nullptr;
    for (const format::ExecutorchMethod& each : file->methods) {
        if (each.name == method) { found = &each; }
    }
    if (found == nullptr) { return refused("it has no method " + residency::detail::quoted(method)); }
    if (found->delegates.size() != 1) {
        return refused("the method " + residency::detail::quoted(method) + " has " +
                       std::to_string(found->delegates.size()) +
                       " delegates; export it as one, with export_executorch");
    }
    const auto described = format::try_read_executorch_cuda(program, found->delegates.front());
    if (!described) { return described.error().in("method " + residency::detail::quoted(method)); }
    const format::ExecutorchData* library = file->find(described->library);
    if (library == nullptr) {
        return refused("the library of the method " + residency::detail::quoted(method) + ", " +
                       residency::detail::quoted(described->library) + ", is not in it");
    }
    const auto text = program.try_text(library->offset_bytes, library->bytes);
    if (!text) { return text.error(); }
    std::string target = folder + "/method.so";
    const Status written = residency::detail::write_file(target, std::as_bytes(std::span{text->data(), text->size()}));
    return written ? Result<std::string>{std::move(target)} : written.error();
}

}  // namespace detail

RESIDENCY_INLINE Status Torch::try_load(const PackageOptions& options) {
    detail::DynamicLibrary library;
    const auto open = [&](const char* name) -> Status {
        const std::string path = options.torch_folder.empty() ? name : options.torch_folder + "/" + name;
        auto opened = detail::DynamicLibrary::try_open(path, RTLD_NOW | RTLD_GLOBAL);
        if (!opened) {
            return opened.error().in(
                "PyTorch's libraries (give their folder, torch/lib in site-packages, as torch_folder)");
        }
        library.leak();
        library = std::move(*opened);
        return {};
    };
    if (!options.executorch_shims.empty()) {
        auto opened = detail::DynamicLibrary::try_open(options.executorch_shims, RTLD_NOW | RTLD_GLOBAL);
        if (!opened) { return opened.error().in("ExecuTorch's library of PyTorch's C interface, executorch_shims"); }
        library = std::move(*opened);
    } else {
        if (options.is_cuda) {
            if (const Status loaded = open("libtorch_cuda.so"); !loaded) { return loaded.error(); }
        }
        if (const Status loaded = open("libtorch_cpu.so"); !loaded) { return loaded.error(); }
        if (const Status loaded = open("libtorch.so"); !loaded) { return loaded.error(); }
    }

    std::int32_t (*device_cpu)() = nullptr;
    std::int32_t (*device_cuda)() = nullptr;
    std::int32_t (*layout_strided)() = nullptr;
    const auto find = [&](const char* name, auto*& function, std::string& lacking) {
        library.find(name, function, lacking);
    };
    std::string missing;
    find("aoti_torch_create_tensor_from_blob_v2", create_tensor_from_blob, missing);
    find("aoti_torch_delete_tensor_object", delete_tensor, missing);
    find("aoti_torch_get_data_ptr", get_data_ptr, missing);
    find("aoti_torch_get_dim", get_dim, missing);
    find("aoti_torch_get_sizes", get_sizes, missing);
    find("aoti_torch_get_strides", get_strides, missing);
    find("aoti_torch_get_dtype", get_dtype, missing);
    find("aoti_torch_device_type_cpu", device_cpu, missing);
    find("aoti_torch_device_type_cuda", device_cuda, missing);
    find("aoti_torch_layout_strided", layout_strided, missing);
    if (!missing.empty()) {
        return Error{ErrorKind::unsupported,
                     (options.executorch_shims.empty()
                          ? std::string{"PyTorch's libraries are not those of 2.11 or later"}
                          : residency::detail::quoted(options.executorch_shims) + " is not that of ExecuTorch 1.5") +
                         ": the symbol " + missing + " is missing"};
    }
    cpu_ = device_cpu();
    cuda_ = device_cuda();
    strided_ = layout_strided();

    for (const format::TorchDType& known : format::torch_dtypes) {
        std::int32_t (*code)() = nullptr;
        std::string lacking;
        library.find(("aoti_torch_dtype_" + std::string{known.name}).c_str(), code, lacking);
        if (code != nullptr) { types_.push_back({known.type, code()}); }
    }
    library.leak();
    return {};
}

RESIDENCY_INLINE Result<const Torch*> Torch::try_get(const PackageOptions& options) {
    const auto get = [&](Torch& torch, const Status& loaded) -> Result<const Torch*> {
        return loaded ? Result<const Torch*>{&torch} : loaded.error();
    };
    if (!options.executorch_shims.empty()) {
        static Torch shims;
        static const Status loaded = shims.try_load(options);
        return get(shims, loaded);
    }
    static Torch torch;
    static const Status loaded = torch.try_load(options);
    return get(torch, loaded);
}

RESIDENCY_INLINE Result<std::int32_t> Torch::try_code(const DType& dtype) const {
    for (const Type& type : types_) {
        if (type.dtype == dtype) { return type.code; }
    }
    return Error{ErrorKind::unsupported, "PyTorch has no type " + std::string{dtype.name()}};
}

RESIDENCY_INLINE DType Torch::dtype_of(std::int32_t code) const noexcept {
    for (const Type& type : types_) {
        if (type.code == code) { return type.dtype; }
    }
    return {};
}

RESIDENCY_INLINE Result<detail::TensorHandle> Torch::try_wrap(const TensorView& view, bool is_cuda,
                                                              std::int32_t device_index) const {
    const auto code = try_code(view.dtype);
    if (!code) { return code.error(); }
    if (!view.strides.empty() && view.strides.size() != view.shape.size()) {
        return Error{ErrorKind::invalid_argument, "a tensor of " + std::to_string(view.shape.size()) +
                                                      " extents with " + std::to_string(view.strides.size()) +
                                                      " strides"};
    }
    const std::vector<std::int64_t> sizes{view.shape.begin(), view.shape.end()};
    const std::vector<std::int64_t> strides = detail::strides_of(view);
    detail::TensorHandle handle = nullptr;
    if (create_tensor_from_blob(view.data, static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(),
                                static_cast<std::int64_t>(view.offset_elements), *code, is_cuda ? cuda_ : cpu_,
                                is_cuda ? device_index : -1, &handle, strided_, nullptr, 0) != 0) {
        return Error{ErrorKind::invalid_argument,
                     "PyTorch refuses this memory as a tensor; its words are on the standard error"};
    }
    return handle;
}

RESIDENCY_INLINE Tensor::Tensor(Tensor&& other) noexcept
    : torch_{other.torch_},
      handle_{std::exchange(other.handle_, nullptr)},
      data_{std::exchange(other.data_, nullptr)},
      dtype_{other.dtype_},
      shape_{std::move(other.shape_)},
      strides_{std::move(other.strides_)} {}

RESIDENCY_INLINE Tensor& Tensor::operator=(Tensor&& other) noexcept {
    std::swap(torch_, other.torch_);
    std::swap(handle_, other.handle_);
    std::swap(data_, other.data_);
    std::swap(dtype_, other.dtype_);
    std::swap(shape_, other.shape_);
    std::swap(strides_, other.strides_);
    return *this;
}

RESIDENCY_INLINE Tensor::~Tensor() {
    if (handle_ != nullptr) { static_cast<void>(torch_->delete_tensor(handle_)); }
}

RESIDENCY_INLINE std::uint64_t Tensor::elements() const noexcept {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape_) { count *= extent; }
    return count;
}

/// What a package is made of, in the order in which it is taken down from the end.
struct Package::State {
    /// AOTInductorConstantMapEntry.
    struct Entry {
        const char* name;
        detail::TensorHandle handle;
    };

    ~State() {
        for (const detail::TensorHandle each : bound) { static_cast<void>(torch->delete_tensor(each)); }
        if (is_lent) {
            if (is_hooked) {
                *hook_context = nullptr;
                *step_hook = nullptr;
                *probe_hook = nullptr;
            }
        } else if (container != nullptr) {
            static_cast<void>(delete_container(container));
        }
    }
    [[nodiscard]] Status try_load(const std::string& library_path);
    /// Looks up what the library offers.
    [[nodiscard]] Status try_connect();
    /// Asks the container what it takes, gives and reads.
    [[nodiscard]] Status try_describe();
    [[nodiscard]] Status try_read_constants();

    std::string path;
    PackageOptions options;
    const Torch* torch = nullptr;
    detail::TemporaryFolder folder;
    detail::DynamicLibrary library;
    detail::ContainerHandle container = nullptr;
    bool is_lent = false;    // another runtime has the library and the container
    bool is_hooked = false;  // its hooks are those of this package
    std::vector<PackageConstant> constants;
    std::vector<detail::TensorHandle> bound;  // what the container reads
    std::size_t inputs = 0, outputs = 0;

    std::int32_t (*create)(detail::ContainerHandle*, std::size_t, const char*, const char*) = nullptr;
    std::int32_t (*delete_container)(detail::ContainerHandle) = nullptr;
    std::int32_t (*count_inputs)(detail::ContainerHandle, std::size_t*) = nullptr;
    std::int32_t (*count_outputs)(detail::ContainerHandle, std::size_t*) = nullptr;
    std::int32_t (*update_constants)(detail::ContainerHandle, const void*, std::size_t, bool, bool) = nullptr;
    std::int32_t (*run)(detail::ContainerHandle, detail::TensorHandle*, std::size_t, detail::TensorHandle*, std::size_t,
                        void*, void*) = nullptr;
    std::int32_t (**step_hook)(void*, std::int64_t) = nullptr;
    std::int32_t (**probe_hook)(void*, detail::TensorHandle, std::int64_t, detail::TensorHandle*) = nullptr;
    void** hook_context = nullptr;
    // Null in a package that was compiled for the CPU.
    std::int32_t (*begin_pool)(std::int32_t device, void* stream, std::uint64_t* pool) = nullptr;
    std::int32_t (*end_pool)(std::int32_t device, const std::uint64_t* pool) = nullptr;
    std::int32_t (*release_pool)(std::int32_t device, const std::uint64_t* pool) = nullptr;
};

RESIDENCY_INLINE Status Package::State::try_load(const std::string& library_path) {
    // Local: each package has hooks of its own.
    auto opened = detail::DynamicLibrary::try_open(library_path, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        return opened.error().in(
            "the package was compiled for another PyTorch or another platform; export it again here");
    }
    library = std::move(*opened);
    if (const Status connected = try_connect(); !connected) { return connected.error(); }
    const std::string device = options.is_cuda ? "cuda:" + std::to_string(options.device_index) : "cpu";
    if (create(&container, 1, device.c_str(), folder.path().c_str()) != 0) {
        container = nullptr;
        return Error{ErrorKind::unsupported,
                     "its model cannot be made on " + device +
                         ": it was compiled for another device or architecture (PyTorch's words are on the "
                         "standard error); export it again for this one"};
    }
    return try_describe();
}

RESIDENCY_INLINE Status Package::State::try_connect() {
    const auto* version = static_cast<const std::int32_t*>(library.find("residency_hook_version"));
    if (version == nullptr || *version != 1) {
        return Error{ErrorKind::unsupported,
                     version == nullptr
                         ? "it has no markers; export it with residency_export"
                         : "its markers are of version " + std::to_string(*version) +
                               ", this library knows 1; export it again with the export of this version"};
    }
    const auto find = [&](const char* name, auto*& function, std::string& lacking) {
        library.find(name, function, lacking);
    };
    std::string missing;
    find("residency_step_hook", step_hook, missing);
    find("residency_probe_hook", probe_hook, missing);
    find("residency_hook_context", hook_context, missing);
    find("AOTInductorModelContainerCreateWithDevice", create, missing);
    find("AOTInductorModelContainerDelete", delete_container, missing);
    find("AOTInductorModelContainerUpdateUserManagedConstantBufferPairs", update_constants, missing);
    find("AOTInductorModelContainerRunSingleThreaded", run, missing);
    find("AOTInductorModelContainerGetNumInputs", count_inputs, missing);
    find("AOTInductorModelContainerGetNumOutputs", count_outputs, missing);
    if (!missing.empty()) {
        return Error{ErrorKind::unsupported,
                     "the package was compiled by a PyTorch that is not known; export it with 2.11: "
                     "the symbol " +
                         missing + " is missing"};
    }
    std::string without_pools;
    find("residency_pool_begin", begin_pool, without_pools);
    find("residency_pool_end", end_pool, without_pools);
    find("residency_pool_release", release_pool, without_pools);
    if (!without_pools.empty()) { begin_pool = nullptr; }
    return {};
}

RESIDENCY_INLINE Status Package::State::try_describe() {
    if (count_inputs(container, &inputs) != 0 || count_outputs(container, &outputs) != 0) {
        return Error{ErrorKind::unsupported, "it does not tell its inputs and outputs"};
    }
    return try_read_constants();
}

RESIDENCY_INLINE Status Package::State::try_read_constants() {
    std::int32_t (*count)(detail::ContainerHandle, std::size_t*) = nullptr;
    std::int32_t (*name_of)(detail::ContainerHandle, std::size_t, const char**) = nullptr;
    std::int32_t (*original_of)(detail::ContainerHandle, std::size_t, const char**) = nullptr;
    std::int32_t (*folded_of)(detail::ContainerHandle, std::size_t, bool*) = nullptr;
    std::int32_t (*dtype_of)(detail::ContainerHandle, std::size_t, std::int32_t*) = nullptr;
    std::int32_t (*bytes_of)(detail::ContainerHandle, std::size_t, std::size_t*) = nullptr;
    const auto find = [&](const char* name, auto*& function, std::string& lacking) {
        library.find((std::string{"AOTInductorModelContainerGet"} + name).c_str(), function, lacking);
    };
    std::string missing;
    find("NumConstants", count, missing);
    find("ConstantName", name_of, missing);
    find("ConstantOriginalFQN", original_of, missing);
    find("ConstantFromFolded", folded_of, missing);
    find("ConstantDtype", dtype_of, missing);
    find("ConstantDataSize", bytes_of, missing);
    if (!missing.empty()) {
        return Error{ErrorKind::unsupported,
                     "the package does not describe its constants: "
                     "the symbol " +
                         missing + " is missing"};
    }
    std::size_t constants_count = 0;
    bool ok = count(container, &constants_count) == 0;
    for (std::size_t i = 0; i < constants_count && ok; ++i) {
        const char* name = nullptr;
        const char* original = nullptr;
        PackageConstant constant;
        std::size_t bytes = 0;
        ok = name_of(container, i, &name) == 0 && original_of(container, i, &original) == 0 &&
             folded_of(container, i, &constant.is_folded) == 0 && dtype_of(container, i, &constant.dtype_code) == 0 &&
             bytes_of(container, i, &bytes) == 0 && name != nullptr && original != nullptr;
        if (!ok) { break; }
        constant.name = name;
        constant.original = original;
        constant.data_bytes = bytes;
        constants.push_back(std::move(constant));
    }
    if (!ok) { return Error{ErrorKind::unsupported, "it does not describe its constants"}; }
    return {};
}

RESIDENCY_INLINE Package::Package(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
RESIDENCY_INLINE Package::Package(Package&&) noexcept = default;
RESIDENCY_INLINE Package& Package::operator=(Package&&) noexcept = default;
RESIDENCY_INLINE Package::~Package() = default;

RESIDENCY_INLINE Result<Package> Package::try_open(const std::string& path, const PackageOptions& options,
                                                   std::string_view method) {
    auto state = std::make_shared<State>();
    state->path = path;
    state->options = options;
    auto folder = detail::TemporaryFolder::try_make();
    if (!folder) { return folder.error(); }
    state->folder = std::move(*folder);
    const auto input = format::Input::try_open(path);
    if (!input) { return input.error(); }
    const auto start = input->try_text(0, (std::min)(input->bytes(), std::uint64_t{8}));
    if (!start) { return start.error(); }
    const auto library = format::detail::is_executorch_program(*start)
                             ? detail::unpack_executorch(*input, method, state->folder.path())
                             : detail::unpack(*input, state->folder.path());
    if (!library) { return library.error(); }
    const auto torch = Torch::try_get(options);
    if (!torch) { return torch.error(); }
    state->torch = *torch;
    if (const Status loaded = state->try_load(*library); !loaded) {
        return loaded.error().in(residency::detail::quoted(path));
    }
    return Package{std::move(state)};
}

RESIDENCY_INLINE Result<Package> Package::try_attach(const LentPackage& lent, const PackageOptions& options) {
    auto state = std::make_shared<State>();
    state->path = lent.name;
    state->options = options;
    state->is_lent = true;
    const auto torch = Torch::try_get(options);
    if (!torch) { return torch.error(); }
    state->torch = *torch;
    state->library = detail::DynamicLibrary::borrow(lent.library);
    state->container = lent.container;
    Status described = state->try_connect();
    if (described) { described = state->try_describe(); }
    if (!described) { return described.error().in(residency::detail::quoted(lent.name)); }
    return Package{std::move(state)};
}

RESIDENCY_INLINE CallerStream::CallerStream(void* stream) noexcept {
    // CallerStreamGuard(cudaStream_t), and its destructor.
    void* const begin = ::dlsym(RTLD_DEFAULT, "_ZN10executorch9extension4cuda17CallerStreamGuardC1EP11CUstream_st");
    void* const end = ::dlsym(RTLD_DEFAULT, "_ZN10executorch9extension4cuda17CallerStreamGuardD1Ev");
    if (begin == nullptr || end == nullptr) { return; }
    reinterpret_cast<void (*)(void*, void*)>(begin)(guard_.data(), stream);
    end_ = reinterpret_cast<void (*)(void*)>(end);
}

RESIDENCY_INLINE CallerStream::~CallerStream() {
    if (end_ != nullptr) { end_(guard_.data()); }
}

RESIDENCY_INLINE bool Package::is_lent() const noexcept { return state_->is_lent; }
RESIDENCY_INLINE const std::string& Package::path() const noexcept { return state_->path; }
RESIDENCY_INLINE std::span<const PackageConstant> Package::constants() const noexcept { return state_->constants; }
RESIDENCY_INLINE std::size_t Package::inputs() const noexcept { return state_->inputs; }
RESIDENCY_INLINE std::size_t Package::outputs() const noexcept { return state_->outputs; }

RESIDENCY_INLINE Status Package::try_bind(std::span<const ConstantBinding> bindings, bool all) {
    std::vector<detail::TensorHandle> handles;
    const auto drop = [&](std::vector<detail::TensorHandle>& of) {
        for (const detail::TensorHandle each : of) { static_cast<void>(state_->torch->delete_tensor(each)); }
        of.clear();
    };
    std::vector<State::Entry> entries;
    for (const ConstantBinding& binding : bindings) {
        const auto handle =
            state_->torch->try_wrap(binding.tensor, state_->options.is_cuda, state_->options.device_index);
        if (!handle) {
            drop(handles);
            return handle.error().in("the constant " + residency::detail::quoted(binding.name));
        }
        handles.push_back(*handle);
        entries.push_back({binding.name.c_str(), *handle});
    }
    if (state_->update_constants(state_->container, entries.data(), entries.size(), false, all) != 0) {
        drop(handles);
        return Error{ErrorKind::mismatch, residency::detail::quoted(state_->path) +
                                              " refuses its constants; its words are on the standard error"};
    }
    drop(state_->bound);
    state_->bound = std::move(handles);
    return {};
}

RESIDENCY_INLINE void Package::set_hooks(const PackageHooks& hooks) noexcept {
    state_->is_hooked = true;
    *state_->hook_context = hooks.context;
    *state_->step_hook = hooks.step;
    *state_->probe_hook = hooks.probe;
}

RESIDENCY_INLINE Result<void*> Package::try_wrap(const TensorView& view) const {
    return state_->torch->try_wrap(view, state_->options.is_cuda, state_->options.device_index);
}

RESIDENCY_INLINE Result<CapturePool> Package::try_begin_capture(void* stream) {
    if (state_->begin_pool == nullptr) {
        return Error{ErrorKind::unsupported,
                     residency::detail::quoted(state_->path) +
                         " cannot be captured: it was compiled for the CPU, or by an older export; export it again"};
    }
    CapturePool pool;
    if (state_->begin_pool(state_->options.device_index, stream, pool.id_.data()) != 0) {
        return Error{ErrorKind::device, "PyTorch refuses memory for a graph; its words are on the standard error"};
    }
    pool.state_ = state_;
    pool.is_open_ = true;
    return pool;
}

RESIDENCY_INLINE CapturePool::CapturePool(CapturePool&& other) noexcept
    : state_{std::move(other.state_)}, id_{other.id_}, is_open_{std::exchange(other.is_open_, false)} {}

RESIDENCY_INLINE CapturePool& CapturePool::operator=(CapturePool&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(id_, other.id_);
    std::swap(is_open_, other.is_open_);
    return *this;
}

RESIDENCY_INLINE CapturePool::~CapturePool() {
    if (state_ == nullptr) { return; }
    static_cast<void>(end().has_value());
    static_cast<void>(state_->release_pool(state_->options.device_index, id_.data()));
}

RESIDENCY_INLINE Status CapturePool::end() {
    if (!std::exchange(is_open_, false)) { return {}; }
    if (state_->end_pool(state_->options.device_index, id_.data()) != 0) {
        return Error{ErrorKind::device,
                     "PyTorch cannot end the memory of a graph; its words are on the standard error"};
    }
    return {};
}

RESIDENCY_INLINE Result<std::vector<Tensor>> Package::try_run(std::span<const TensorView> inputs, void* stream) {
    if (inputs.size() != state_->inputs) {
        return Error{ErrorKind::invalid_argument, residency::detail::quoted(state_->path) + " takes " +
                                                      std::to_string(state_->inputs) + " inputs, not " +
                                                      std::to_string(inputs.size())};
    }
    std::vector<detail::TensorHandle> in;
    for (const TensorView& each : inputs) {
        const auto handle = state_->torch->try_wrap(each, state_->options.is_cuda, state_->options.device_index);
        if (!handle) {
            for (const detail::TensorHandle wrapped : in) { static_cast<void>(state_->torch->delete_tensor(wrapped)); }
            return handle.error().in("input " + std::to_string(in.size()));
        }
        in.push_back(*handle);
    }
    std::vector<detail::TensorHandle> out(state_->outputs, nullptr);
    // The package takes the inputs' handles, also where it fails.
    if (state_->run(state_->container, in.data(), in.size(), out.data(), out.size(), stream, nullptr) != 0) {
        return Error{ErrorKind::device,
                     residency::detail::quoted(state_->path) + " failed; its words are on the standard error"};
    }
    std::vector<Tensor> results(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {  // all are owned before one is asked
        results[i].torch_ = state_->torch;
        results[i].handle_ = out[i];
    }
    for (Tensor& tensor : results) {
        std::int64_t dim = 0;
        std::int64_t* sizes = nullptr;
        std::int64_t* strides = nullptr;
        std::int32_t code = 0;
        if (state_->torch->get_data_ptr(tensor.handle_, &tensor.data_) != 0 ||
            state_->torch->get_dim(tensor.handle_, &dim) != 0 ||
            state_->torch->get_sizes(tensor.handle_, &sizes) != 0 ||
            state_->torch->get_strides(tensor.handle_, &strides) != 0 ||
            state_->torch->get_dtype(tensor.handle_, &code) != 0) {
            return Error{ErrorKind::device,
                         residency::detail::quoted(state_->path) + " gives an output that is no dense tensor"};
        }
        tensor.shape_.assign(sizes, sizes + dim);
        tensor.strides_.assign(strides, strides + dim);
        tensor.dtype_ = state_->torch->dtype_of(code);
    }
    return results;
}

}}}  // namespace residency::RESIDENCY_ABI::aoti
