// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include <optional>

#include "kernels.hpp"
#include "residency/device/cuda.hpp"
#include "residency/residency.hpp"
#include "residency/trace/perfetto.hpp"

namespace encoder {
namespace {

using residency::unwrap;

/// Runs operations as kernels of a GPU.
class CudaBackend {
public:
    using Device = residency::CudaDevice;

    CudaBackend() : device_{0}, stream_{unwrap(device_.create_stream())} {}
    ~CudaBackend() {
        static_cast<void>(device_.synchronize().has_value());
        for (void* at : memory_) { static_cast<void>(device_.deallocate(at).has_value()); }
        for (void* at : pinned_) { static_cast<void>(device_.deallocate_host(at).has_value()); }
        for (const Timed& each : timed_) {
            static_cast<void>(device_.destroy_event(each.begin).has_value());
            static_cast<void>(device_.destroy_event(each.end).has_value());
        }
        static_cast<void>(device_.destroy_stream(stream_).has_value());
    }
    CudaBackend(const CudaBackend&) = delete;
    CudaBackend& operator=(const CudaBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    template <class T>
    [[nodiscard]] T* allocate_host(std::size_t count) {
        return static_cast<T*>(pinned_.emplace_back(unwrap(device_.allocate_host(count * sizeof(T)))));
    }
    [[nodiscard]] float* allocate_device(std::size_t count) {
        return static_cast<float*>(memory_.emplace_back(unwrap(device_.allocate(count * sizeof(float)))));
    }
    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        if (recording_) { begin(name); }
        if (const cudaError_t code = encoder::launch(operation, stream_); code != cudaSuccess) {
            residency::throw_error(
                {residency::ErrorKind::device, std::string{"the kernel "} + name + ": " + cudaGetErrorString(code)});
        }
        if (recording_) { unwrap(device_.record(timed_.back().end, stream_)); }
    }
    void read_back(const float* from, float* to, std::size_t count) {
        const residency::Copy copy{to, from, count * sizeof(float)};
        unwrap(device_.copy({&copy, 1}, stream_));
        unwrap(device_.synchronize(stream_));
    }

    void begin_timeline() { recording_ = true; }
    void end_timeline() { recording_ = false; }
    [[nodiscard]] std::string save_timeline(const std::string& path) {
        residency::trace::Perfetto timeline;
        for (const Timed& each : timed_) {
            timeline.event("compute", each.name, unwrap(device_.elapsed(timed_.front().begin, each.begin)),
                           unwrap(device_.elapsed(timed_.front().begin, each.end)));
        }
        timeline.save(path);
        return "kernels of the last streamed pass; what lies between them is waiting for copies";
    }
    [[nodiscard]] static std::vector<std::string> reports() { return {}; }

private:
    struct Timed {
        const char* name;
        Device::Event begin, end;
    };
    void begin(const char* name) {
        timed_.push_back({name, unwrap(device_.create_event(residency::Timing::on)),
                          unwrap(device_.create_event(residency::Timing::on))});
        unwrap(device_.record(timed_.back().begin, stream_));
    }

    Device device_;
    Device::Stream stream_;
    std::vector<void*> memory_, pinned_;
    std::vector<Timed> timed_;
    bool recording_ = false;
};

}  // namespace

Results run_cuda(const Job& job) {
    CudaBackend backend;
    return run_all(backend, job);
}

bool has_gpu(std::string& why_not) {
    const auto device = residency::CudaDevice::try_open(0);
    if (!device) { why_not = device.error().message(); }
    return device.has_value();
}

}  // namespace encoder
