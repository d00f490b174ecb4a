// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/interop/dlpack.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/model/catalog_builder.hpp"
#include "tests/core/compositions.hpp"

namespace dlpack_test {

using namespace streaming;
using namespace std::chrono_literals;
namespace dlpack = residency::dlpack;
namespace dtype = residency::dtype;
using residency::DType;
using residency::ErrorKind;
using residency::Placement;
using residency::Shape;
using residency::Strides;
using residency::WeightId;
using Exporter = dlpack::Exporter<Device>;

TEST_SUITE_BEGIN("dlpack");

namespace {

/// A budget that has room for two of the four weights.
struct Rig {
    CheckedDevice device;
    Model model = uniform_model(device, 4, 4096);
    Stream stream = must(device.create_stream("own"));
    Stream other = must(device.create_stream("other"));
    OnDemand weights = make<OnDemand>(device, model, 2 * 4096);
    Rig() = default;
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;
    ~Rig() {
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
        must(device.destroy_stream(stream));
        must(device.destroy_stream(other));
    }
    [[nodiscard]] bool matches(const dlpack::Tensor& tensor, WeightId id) const {
        return std::memcmp(tensor.data, model.catalog.host_bytes(model.catalog.weight(id).storage), 4096) == 0;
    }
};

struct Special {
    std::string name;
    DType dtype;
    Shape shape;
    std::optional<Strides> strides;
    residency::StorageOptions storage;
    std::uint64_t bytes;
};

}  // namespace

TEST_CASE("dlpack: a tensor says where a weight is, and what it is") {
    CheckedDevice device;
    residency::CatalogBuilder builder;
    residency::StorageOptions writable, on_host;
    writable.is_mutable = true;
    on_host.placement = Placement::host;
    const std::vector<Special> specials{
        {"matrix", dtype::bf16, {3, 5}, std::nullopt, {}, 30},
        {"transposed", dtype::f32, {3, 5}, Strides{1, 3}, {}, 60},
        {"scalar", dtype::f64, {}, std::nullopt, {}, 8},
        {"nothing", dtype::i32, {4, 0, 2}, std::nullopt, {}, 0},
        {"cache", dtype::f16, {2, 2, 2}, std::nullopt, writable, 16},
        {"table", dtype::u8, {7}, std::nullopt, on_host, 7},
        {"half a byte", dtype::i4, {8}, std::nullopt, {}, 4},
        {"blocks", DType::block("Q4_0", 18, 32), {32}, std::nullopt, {}, 18},
    };
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(4096)));
    for (int i = 0; i < 4096; ++i) { at[i] = static_cast<std::byte>(i * 7); }
    const auto host = residency::HostBytes::adopt(at, 4096, residency::HostMemory::pinned, [&device](std::byte* bytes) {
        static_cast<void>(device.deallocate_host(bytes).has_value());
    });
    std::uint64_t offset = 0;
    for (const Special& special : specials) {
        residency::StorageOptions options = special.storage;
        options.source = residency::HostSource{host, offset};
        const auto storage = builder.add_storage(special.bytes, options);
        builder.add_weight(special.name, special.dtype, special.shape, storage, 0, special.strides);
        offset += 256;
    }
    const auto catalog = must(builder.try_build());
    const Stream stream = must(device.create_stream());
    {
        OnDemand::Options options;
        options.budget = residency::Budget::percent_of_weights(100);
        auto weights = must(OnDemand::try_create(device, catalog, std::move(options)));
        Exporter exporter;
        auto pass = must(weights.try_begin(stream));
        std::vector<WeightId> all;
        for (std::uint32_t w = 0; w < specials.size(); ++w) { all.push_back(weight(w)); }
        auto lease = exporter.share(must(pass.try_acquire(all)));
        must(device.synchronize(stream));

        const auto matrix = lease.tensor(weight(0));
        CHECK(matrix->version.major == 1);
        CHECK(matrix->flags == dlpack::VersionedTensor::read_only);
        const dlpack::Tensor& tensor = matrix->tensor;
        CHECK(tensor.data == lease.lease().data(weight(0)));
        CHECK(tensor.device == dlpack::TensorDevice{dlpack::DeviceType::cpu, 0});
        CHECK(tensor.dimensions == 2);
        CHECK(tensor.dtype == dlpack::DataType{dlpack::TypeCode::bfloat, 16, 1});
        CHECK(std::vector(tensor.shape, tensor.shape + 2) == std::vector<std::int64_t>{3, 5});
        CHECK(std::vector(tensor.strides, tensor.strides + 2) == std::vector<std::int64_t>{5, 1});
        CHECK(tensor.byte_offset == 0);
        CHECK(std::memcmp(tensor.data, at, 30) == 0);

        const auto transposed = lease.tensor(weight(1));
        CHECK(std::vector(transposed->tensor.strides, transposed->tensor.strides + 2) ==
              std::vector<std::int64_t>{1, 3});
        const auto scalar = lease.tensor(weight(2));
        CHECK(scalar->tensor.dimensions == 0);
        CHECK(scalar->tensor.shape == nullptr);
        CHECK(std::memcmp(scalar->tensor.data, at + 2 * 256, 8) == 0);
        const auto nothing = lease.tensor(weight(3));
        CHECK(nothing->tensor.data == nullptr);
        CHECK(std::vector(nothing->tensor.shape, nothing->tensor.shape + 3) == std::vector<std::int64_t>{4, 0, 2});
        CHECK(nothing->tensor.strides != nullptr);
        CHECK(lease.tensor(weight(4))->flags == 0);
        const auto table = lease.tensor(weight(5));
        CHECK(table->tensor.data == at + 5 * 256);  // the host's own address
        CHECK(table->tensor.device == dlpack::TensorDevice{dlpack::DeviceType::cpu, 0});

        const auto unversioned = lease.unversioned_tensor(weight(1));
        CHECK(unversioned->tensor.data == lease.lease().data(weight(1)));
        CHECK(unversioned->tensor.dtype == dlpack::DataType{dlpack::TypeCode::ieee_float, 32, 1});

        const auto refused = lease.try_tensor(weight(6));
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::unsupported);
        CHECK(refused.error().message().find("half a byte") != std::string::npos);
        CHECK(refused.error().message().find("\"i4\"") != std::string::npos);
        const auto blocks = lease.try_unversioned_tensor(weight(7));
        REQUIRE_FALSE(blocks);
        CHECK(blocks.error().message().find("\"Q4_0\"") != std::string::npos);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("dlpack: every dtype has its code and its bits, or is refused by name") {
    std::size_t known = 0;
    for (const DType& each : dtype::all) {
        const auto type = dlpack::data_type(each);
        if (type) {
            ++known;
            CHECK(type->bits == each.block_bits());
            CHECK(type->lanes == 1);
        } else {
            CHECK(each.block_bits() < 8);
            CHECK(type.error().kind() == ErrorKind::unsupported);
            CHECK(type.error().message().find('"' + std::string{each.name()} + '"') != std::string::npos);
        }
    }
    CHECK(known == dtype::all.size() - 5);
    CHECK_FALSE(dlpack::data_type(DType{}));
    CHECK_FALSE(dlpack::data_type(DType::plain("f32", 16, 4)));  // another type of that name
    CHECK(dlpack::data_type(dtype::boolean)->code == dlpack::TypeCode::boolean);
    CHECK(dlpack::data_type(dtype::f8_e4m3fn)->code == dlpack::TypeCode::f8_e4m3fn);
    CHECK(dlpack::data_type(dtype::complex64)->code == dlpack::TypeCode::complex);
    CHECK(dlpack::data_type(dtype::u16)->code == dlpack::TypeCode::unsigned_integer);
    CHECK(dlpack::data_type(dtype::i8)->code == dlpack::TypeCode::signed_integer);
}

TEST_CASE("dlpack: tensors keep their lease open, and the last one ends it") {
    Rig rig;
    auto& device = rig.device;
    Exporter exporter;
    auto pass = must(rig.weights.try_begin(rig.stream));
    auto lease = exporter.share(must(pass.try_acquire({weight(0), weight(1)})));
    auto first = lease.tensor(weight(0));
    auto again = lease.unversioned_tensor(weight(0));
    auto second = lease.tensor(weight(1));
    must(device.synchronize(rig.stream));
    CHECK(rig.matches(first->tensor, weight(0)));
    CHECK(rig.matches(second->tensor, weight(1)));
    lease.drop();
    lease.drop();
    CHECK_FALSE(static_cast<bool>(lease));
    CHECK(lease.try_tensor(weight(0)).error().kind() == ErrorKind::wrong_state);
    first.reset();
    CHECK(pass.try_acquire(weight(2)).error().kind() == ErrorKind::budget);
    again.reset();
    CHECK(exporter.open_leases() == 1);
    CHECK(pass.try_acquire(weight(2)).error().kind() == ErrorKind::budget);
    CHECK(rig.matches(second->tensor, weight(1)));  // still there
    second.reset();
    CHECK(exporter.open_leases() == 0);
    static_cast<void>(must(pass.try_acquire({weight(2), weight(3)})));
    exporter.collect();

    // A handle that is dropped after its tensors, and one that another takes the place of.
    lease = exporter.share(must(pass.try_acquire({weight(0), weight(1)})));
    static_cast<void>(lease.tensor(weight(0)));
    CHECK(exporter.open_leases() == 1);
    lease = dlpack::ExportedLease<Device>{};
    CHECK(exporter.open_leases() == 0);
    static_cast<void>(must(pass.try_acquire({weight(2), weight(3)})));
}

TEST_CASE("dlpack: a tensor that other threads drop ends its lease with the next collect() or share()") {
    Rig rig;
    Exporter exporter;
    auto pass = must(rig.weights.try_begin(rig.stream));
    for (const bool collects : {true, false}) {
        auto tensor = exporter.share(must(pass.try_acquire({weight(0), weight(1)}))).tensor(weight(0));
        std::thread{[dropped = std::move(tensor)]() mutable { dropped.reset(); }}.join();
        CHECK(exporter.open_leases() == 1);
        CHECK(pass.try_acquire(weight(2)).error().kind() == ErrorKind::budget);
        if (collects) {
            exporter.collect();
        } else {
            static_cast<void>(exporter.share({}));
        }
        CHECK(exporter.open_leases() == 0);
        static_cast<void>(must(pass.try_acquire({weight(2), weight(3)})));
    }
    // Many threads that drop tensors of one lease.
    auto lease = exporter.share(must(pass.try_acquire(weight(0))));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        std::vector<dlpack::TensorPointer<dlpack::VersionedTensor>> tensors;
        for (int i = 0; i < 50; ++i) { tensors.push_back(lease.tensor(weight(0))); }
        threads.emplace_back([dropped = std::move(tensors)]() mutable { dropped.clear(); });
    }
    lease.drop();
    for (std::thread& thread : threads) { thread.join(); }
    exporter.collect();
    CHECK(exporter.open_leases() == 0);
}

TEST_CASE("dlpack: the stream that a framework names waits for the bytes, and they stay until it has read them") {
    Rig rig;
    auto& device = rig.device;
    const auto pass_on_other = [&](bool is_named) {
        Exporter exporter;
        auto pass = must(rig.weights.try_begin(rig.stream));
        for (std::uint32_t w = 0; w < 4; ++w) {
            auto lease = exporter.share(must(pass.try_acquire(weight(w))));
            const auto tensor = is_named ? lease.tensor(weight(w), rig.other) : lease.tensor(weight(w));
            verify(device, rig.model, lease.lease(), weight(w), rig.other, 100us);
        }
    };
    pass_on_other(true);
    must(device.synchronize());
    CHECK(device.report_count() == 0);
    CHECK(*rig.model.verified == 4 * 4096);
    CHECK(*rig.model.wrong == 0);
    pass_on_other(false);
    CHECK(device.report_count() > 0);  // the checker sees what is missing
    device.clear_reports();
    must(device.synchronize());
    *rig.model.wrong = 0;
    device.clear_reports();
}

TEST_CASE("dlpack: what cannot be exported is refused, and nothing is held for it") {
    Rig rig;
    Exporter exporter;
    auto pass = must(rig.weights.try_begin(rig.stream));
    auto lease = exporter.share(must(pass.try_acquire(weight(1))));
    for (const std::uint32_t other : {0U, 3U, 4U, UINT32_MAX}) {
        const auto refused = lease.try_tensor(weight(other));
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::invalid_argument);
        CHECK(refused.error().message().find(std::to_string(other)) != std::string::npos);
    }
    CHECK_THROWS_AS(static_cast<void>(lease.unversioned_tensor(weight(0))), residency::InvalidArgument);
    rig.device.fail(Device::CallKind::wait, 1);
    CHECK(lease.try_tensor(weight(1), rig.other).error().kind() == ErrorKind::device);
    lease.drop();
    CHECK(exporter.open_leases() == 0);
    auto ended = exporter.share({});
    CHECK(ended.try_tensor(weight(1)).error().kind() == ErrorKind::wrong_state);
}

TEST_CASE("dlpack: the end of the exporter ends its leases, and deleters that come late do no harm") {
    Rig rig;
    dlpack::TensorPointer<dlpack::VersionedTensor> late;
    dlpack::ExportedLease<Device> handle;
    auto pass = must(rig.weights.try_begin(rig.stream));
    {
        Exporter exporter;
        handle = exporter.share(must(pass.try_acquire({weight(0), weight(1)})));
        late = handle.tensor(weight(0));
    }
    static_cast<void>(must(pass.try_acquire({weight(2), weight(3)})));
    CHECK(handle.try_tensor(weight(0)).error().kind() == ErrorKind::wrong_state);
    late.reset();
}

namespace {

/// A device of which DLPack knows nothing.
class UnknownDevice : public CheckedDevice {};

}  // namespace

TEST_CASE("dlpack: a device that nobody described is refused") {
    UnknownDevice device;
    const Model model = uniform_model(device, 1, 4096);
    using Weights = residency::Residency<residency::evict::Lru, residency::prefetch::None,
                                         residency::pool::StreamOrdered<UnknownDevice>>;
    Weights::Options options;
    options.budget = residency::Budget::bytes(4096);
    auto weights = must(Weights::try_create(device, model.catalog, std::move(options)));
    dlpack::Exporter<UnknownDevice> exporter;
    auto pass = must(weights.try_begin({}));
    auto lease = exporter.share(must(pass.try_acquire(weight(0))));
    const auto refused = lease.try_tensor(weight(0));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::unsupported);
    CHECK(refused.error().message().find("device_type") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace dlpack_test
