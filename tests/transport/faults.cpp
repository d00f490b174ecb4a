// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The conformance suite of transports asks for no more than the concept says, and notices transports that break it.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "residency/conformance/transport_policy.hpp"
#include "tests/support/allocation_count.hpp"
#include "tests/support/archetypes.hpp"
#include "tests/support/watched_device.hpp"

// The suite asks nothing of a transport, or of its device, beyond the concepts.
template void residency::conformance::check_transport_policy<archetype::Transport, archetype::Device>(
    archetype::Device&, const residency::conformance::TransportSuite<archetype::Device>&,
    const std::function<std::unique_ptr<archetype::Transport>()>&);

namespace faults_test {

namespace conformance = residency::conformance;
namespace transport = residency::transport;
using residency::Status;
using residency::StorageId;
using Watched = support::WatchedDevice;
using Suite = conformance::TransportSuite<Watched>;

namespace {

struct NeverCloses : archetype::Transport {
    using archetype::Transport::Transport;
    void close() = delete;
};
struct MayThrow : archetype::Transport {
    using archetype::Transport::Transport;
    void close() {}
};
struct SaysNothing : archetype::Transport {
    using archetype::Transport::Transport;
    void enqueue(std::span<const transport::Fetch>, archetype::Device::Stream) {}
};
template <class T>
inline constexpr bool is_transport = transport::TransportPolicy<T, archetype::Device>;
static_assert(!is_transport<NeverCloses> && !is_transport<MayThrow> && !is_transport<SaysNothing>);
static_assert(!transport::TransportPolicy<archetype::Transport, Watched>, "a transport of another device");
static_assert(!transport::TransportPolicy<archetype::Transport, int>);

enum class Fault {
    none,
    opens_anything,
    keeps_no_catalog,
    forgets_the_offset,
    takes_another_stream,
    blocks,
    allocates,
    goes_on_after_a_failure,
    is_not_captured,
    keeps_what_was_announced,
    hides_its_failures,
};

bool is_spoilt = false;

/// A transport that copies piece by piece, straight from pinned memory, and has one fault.
class Faulty {
public:
    struct Config {
        Fault fault = Fault::none;
    };
    static constexpr bool capturable = true;

    explicit Faulty(Config config) : fault_{config.fault} {}
    Status open(Watched& device, const residency::Catalog& catalog) {
        hosts_.clear();
        for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
            hosts_.push_back(catalog.host_bytes(StorageId{i}));
            if (hosts_.back() == nullptr && fault_ != Fault::opens_anything) {
                return residency::Error{residency::ErrorKind::unsupported, "no bytes"};
            }
        }
        auto stream = device.create_stream();
        if (!stream) { return stream.error(); }
        other_ = *stream;
        if (fault_ != Fault::keeps_no_catalog) { catalog_ = catalog; }
        device_ = &device;
        return {};
    }
    Status enqueue(std::span<const transport::Fetch> fetches, Watched::Stream stream) {
        if (!status() || is_spoilt) { return residency::Error{residency::ErrorKind::io, "spoilt"}; }
        if (fault_ == Fault::allocates) { static_cast<void>(std::make_unique<int>(1)); }
        if (fault_ == Fault::blocks) { static_cast<void>(device_->synchronize(stream).has_value()); }
        if (fault_ == Fault::takes_another_stream) { stream = other_; }
        if (fault_ == Fault::keeps_what_was_announced && !announced_.empty()) {
            const std::vector<transport::Fetch> announced = std::exchange(announced_, {});
            return send(announced, stream);
        }
        const Status sent = send(fetches, stream);
        if (sent) { return {}; }
        if (fault_ == Fault::goes_on_after_a_failure) { static_cast<void>(send(fetches, other_).has_value()); }
        return residency::Error{residency::ErrorKind::device, "a copy failed"};
    }
    bool read_ahead(std::span<const transport::Fetch> fetches) {
        if (announced_.empty()) { announced_.assign(fetches.begin(), fetches.end()); }
        return true;
    }
    void forget_ahead() {}
    [[nodiscard]] Status status() const {
        if (is_spoilt && fault_ != Fault::hides_its_failures) {
            return residency::Error{residency::ErrorKind::io, "spoilt"};
        }
        return {};
    }
    void close() noexcept {
        static_cast<void>(device_->destroy_stream(other_).has_value());
        catalog_ = {};
    }

private:
    Status send(std::span<const transport::Fetch> fetches, Watched::Stream stream) {
        if (fault_ == Fault::is_not_captured) {
            const auto capturing = device_->is_capturing(stream);
            if (capturing && *capturing) { return {}; }
        }
        for (const transport::Fetch& fetch : fetches) {
            const std::uint64_t offset = fault_ == Fault::forgets_the_offset ? 0 : fetch.offset_bytes;
            const residency::Copy piece{fetch.to, hosts_[index(fetch.storage)] + offset, fetch.bytes};
            if (Status sent = device_->copy({&piece, 1}, stream); !sent) { return sent; }
        }
        return {};
    }

    Fault fault_;
    Watched* device_ = nullptr;
    Watched::Stream other_{};
    residency::Catalog catalog_;
    std::vector<const std::byte*> hosts_;
    std::vector<transport::Fetch> announced_;
};

void check_faulty(Fault fault) {
    Watched device;
    Suite suite{.runs = 6, .patience = std::chrono::milliseconds{200}, .allocations = test::allocations_here};
    suite.spoil = [] { is_spoilt = true; };
    suite.model = [](Watched& on, std::uint32_t seed) {
        is_spoilt = false;
        return conformance::host_model(on, seed, residency::HostMemory::pinned);
    };
    conformance::check_transport_policy<Faulty>(device, suite,
                                                [fault] { return std::make_unique<Faulty>(Faulty::Config{fault}); });
}

}  // namespace

TEST_CASE("the suite accepts a simple transport") { check_faulty(Fault::none); }
TEST_CASE("the suite notices a storage without bytes" * doctest::should_fail()) { check_faulty(Fault::opens_anything); }
TEST_CASE("the suite notices bytes that nobody keeps" * doctest::should_fail()) {
    check_faulty(Fault::keeps_no_catalog);
}
TEST_CASE("the suite notices bytes from another place" * doctest::should_fail()) {
    check_faulty(Fault::forgets_the_offset);
}
TEST_CASE("the suite notices copies out of order" * doctest::should_fail()) {
    check_faulty(Fault::takes_another_stream);
}
TEST_CASE("the suite notices who waits for the stream" * doctest::should_fail()) { check_faulty(Fault::blocks); }
TEST_CASE("the suite notices an allocation" * doctest::should_fail()) { check_faulty(Fault::allocates); }
TEST_CASE("the suite notices what comes after a failure" * doctest::should_fail()) {
    check_faulty(Fault::goes_on_after_a_failure);
}
TEST_CASE("the suite notices copies that a graph lacks" * doctest::should_fail()) {
    check_faulty(Fault::is_not_captured);
}
TEST_CASE("the suite notices what was forgotten and comes" * doctest::should_fail()) {
    check_faulty(Fault::keeps_what_was_announced);
}
TEST_CASE("the suite notices failures that nobody is told" * doctest::should_fail()) {
    check_faulty(Fault::hides_its_failures);
}

}  // namespace faults_test
