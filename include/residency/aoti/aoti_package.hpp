// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace aoti {

/// A tensor of memory that the caller owns.
struct TensorView {
    void* data = nullptr;               ///< its first element
    DType dtype;                        ///< of its elements
    Shape shape;                        ///< dense, outermost extent first
    Strides strides{};                  ///< elements; empty: dense
    std::uint64_t offset_elements = 0;  ///< from `data` to the first element
};

class Torch;

/// A tensor that PyTorch owns. Movable; gives the memory back to PyTorch's allocator when destroyed.
class Tensor {
public:
    Tensor() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    Tensor(Tensor&& other) noexcept;
    Tensor& operator=(Tensor&& other) noexcept;
    /// @}
    ~Tensor();

    /// Address of the first element.
    [[nodiscard]] void* data() const noexcept { return data_; }
    /// The type of its elements.
    [[nodiscard]] const DType& dtype() const noexcept { return dtype_; }
    /// Outermost extent first.
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    /// Elements.
    [[nodiscard]] const Strides& strides() const noexcept { return strides_; }
    [[nodiscard]] std::uint64_t elements() const noexcept;  ///< how many

private:
    friend class Package;

    const Torch* torch_ = nullptr;
    void* handle_ = nullptr;  // AtenTensorHandle
    void* data_ = nullptr;
    DType dtype_;
    Shape shape_;
    Strides strides_;
};

/// A constant of a package, as its library describes it.
struct PackageConstant {
    std::string name;              ///< in the generated code
    std::string original;          ///< in the module that was compiled
    std::int32_t dtype_code = 0;   ///< PyTorch's number
    std::uint64_t data_bytes = 0;  ///< may be padded
    bool is_folded = false;        ///< made by the package itself, from others
};

/// A constant and the tensor that the package is to read in its place.
struct ConstantBinding {
    std::string name;   ///< PackageConstant::name
    TensorView tensor;  ///< owned by the caller
};

/// How a package is opened.
struct PackageOptions {
    bool is_cuda = true;            ///< false: compiled for the CPU
    std::int32_t device_index = 0;  ///< of CUDA
    /// Folder of PyTorch's libraries (libtorch.so, …), such as site-packages/torch/lib. Empty: where the dynamic linker looks. They are
    /// loaded once a process; the first folder counts.
    std::string torch_folder{};
    /// ExecuTorch's library of PyTorch's C interface (libaoti_cuda_shims.so), which is used in place of PyTorch's libraries. Empty: those.
    std::string executorch_shims{};
};

/// What a package calls while it runs: 0 for success. Set by whoever streams its weights.
struct PackageHooks {
    void* context = nullptr;  ///< of the functions
    /// Before the kernels of a step; −1: kernels that read no streamed weight. Null: none.
    std::int32_t (*step)(void* context, std::int64_t step) = nullptr;
    /// Between a weight (AtenTensorHandle) and a kernel that reads it: sets `result` to the tensor that the kernel reads instead, which the
    /// package deletes after its last use. Null: the kernel reads the constant.
    std::int32_t (*probe)(void* context, void* weight, std::int64_t probe, void** result) = nullptr;
};

/// A library of one method that another runtime has loaded, with the container that it made, such as what ExecuTorch's CUDA backend
/// keeps for a delegate (AOTIDelegateHandle). Both stay that runtime's.
struct LentPackage {
    std::string name;           ///< for messages
    void* library = nullptr;    ///< of dlopen: so_handle
    void* container = nullptr;  ///< AOTInductorModelContainerHandle: container_handle
};

/// While it exists, CUDA delegates of ExecuTorch that this thread runs take that stream (a cudaStream_t; one of a green context, too), as
/// executorch::extension::cuda::CallerStreamGuard makes them. Does nothing where ExecuTorch's libextension_cuda is not among the libraries
/// whose symbols all see: then there is no such choice.
class CallerStream {
public:
    /// Sets it.
    RESIDENCY_INLINE explicit CallerStream(void* stream) noexcept;
    CallerStream(const CallerStream&) = delete;
    CallerStream& operator=(const CallerStream&) = delete;
    RESIDENCY_INLINE ~CallerStream();

private:
    alignas(void*) std::array<std::byte, 2 * sizeof(void*)> guard_{};  // holds a std::optional<cudaStream_t>
    void (*end_)(void*) = nullptr;
};

class CapturePool;

/// A library that AOTInductor made of one method (.pt2), or that a program of ExecuTorch has for it (.pte), loaded, with its constants
/// outside: it runs once every constant is bound. Uses PyTorch's C interface only, looked up when the first package is opened. Movable; one
/// call at a time.
class Package {
public:
    /// Blocks. Unpacks the package into a temporary folder, which is removed with it, and loads its library. Errors: malformed or
    /// unsupported for what is no such package, or has no such method; unsupported for one of another platform or device, one that needs
    /// PyTorch's dispatcher, and one without hooks; io.
    /// `method`: of a program of ExecuTorch, which method; packages are of one.
    [[nodiscard]] static RESIDENCY_INLINE Result<Package> try_open(const std::string& path,
                                                                   const PackageOptions& options = {},
                                                                   std::string_view method = {});

    /// Blocks. Binds and follows what another runtime has loaded and runs: try_run is not for it. Library and container outlive this, and
    /// are not run afterwards, since their constants are gone. Errors: as above.
    [[nodiscard]] static RESIDENCY_INLINE Result<Package> try_attach(const LentPackage& lent,
                                                                     const PackageOptions& options = {});

    /// The source is empty afterwards.
    /// @{
    Package(Package&&) noexcept;
    Package& operator=(Package&&) noexcept;
    /// @}
    ~Package();

    [[nodiscard]] const std::string& path() const noexcept;  ///< of the package, or the name of what was lent
    [[nodiscard]] bool is_lent() const noexcept;             ///< try_attach made it
    [[nodiscard]] std::span<const PackageConstant> constants() const noexcept;  ///< of its generated code
    [[nodiscard]] std::size_t inputs() const noexcept;                          ///< tensors that a call takes
    [[nodiscard]] std::size_t outputs() const noexcept;                         ///< tensors that a call gives

    /// Binds constants to memory that stays valid until the next call or the end of the package. `all`: refuse to leave one unbound.
    /// Errors: unsupported where PyTorch lacks the type; mismatch where the package refuses them.
    [[nodiscard]] RESIDENCY_INLINE Status try_bind(std::span<const ConstantBinding> bindings, bool all = true);

    /// Hooks are called by run() from now on.
    RESIDENCY_INLINE void set_hooks(const PackageHooks& hooks) noexcept;
    /// A tensor over memory of the caller, for a probe to return: an AtenTensorHandle, which whoever gets it deletes. Error unsupported where
    /// PyTorch lacks the type.
    [[nodiscard]] RESIDENCY_INLINE Result<void*> try_wrap(const TensorView& view) const;

    /// Enqueues the method on a stream (cudaStream_t; null for the CPU, where it has run on return). Errors: invalid_argument for a
    /// wrong number of inputs; device where the package failed, whose own words are on the standard error.
    [[nodiscard]] RESIDENCY_INLINE Result<std::vector<Tensor>> try_run(std::span<const TensorView> inputs,
                                                                       void* stream = nullptr);

    /// From here until CapturePool::end, what PyTorch allocates on the stream (cudaStream_t) comes from memory of its own, so that a graph
    /// that is captured meanwhile keeps what it writes between its kernels. Errors: unsupported for a package that cannot; device.
    [[nodiscard]] RESIDENCY_INLINE Result<CapturePool> try_begin_capture(void* stream);

private:
    friend class CapturePool;
    struct State;
    explicit Package(std::shared_ptr<State> state) noexcept;

    std::shared_ptr<State> state_;
};

/// Memory of PyTorch that belongs to one graph. It keeps the library of its package loaded. Movable; given back when destroyed, after the
/// graph.
class CapturePool {
public:
    CapturePool() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    CapturePool(CapturePool&& other) noexcept;
    CapturePool& operator=(CapturePool&& other) noexcept;
    /// @}
    ~CapturePool();

    /// The capture is over: allocations come from where they came from before. Error device.
    [[nodiscard]] RESIDENCY_INLINE Status end();

private:
    friend class Package;

    std::shared_ptr<Package::State> state_;
    std::array<std::uint64_t, 2> id_{};
    bool is_open_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::aoti

#if RESIDENCY_HEADER_ONLY
#include "residency/aoti/impl/aoti_package.ipp"
#endif
