// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Weights as views and arrays of other libraries, by description: what a GPU is needed for is in tests/gpu/connect.cpp.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/interop/cuda_array_interface.hpp"
#include "residency/interop/mdspan.hpp"
#include "residency/model/catalog_builder.hpp"
#include "tests/core/compositions.hpp"

#if __has_include(<cuda/std/mdspan>)
#include <cuda/std/mdspan>
#endif

namespace views_test {

using namespace streaming;
namespace dtype = residency::dtype;
using residency::CudaArrayInterface;
using residency::ErrorKind;
using residency::Weight;

TEST_SUITE_BEGIN("views");

namespace {

Weight array(const residency::DType& type, residency::Shape shape, residency::Strides strides) {
    Weight result;
    result.name = "w";
    result.dtype = type;
    result.shape = std::move(shape);
    result.strides = std::move(strides);
    return result;
}

}  // namespace

TEST_CASE("CUDA array interface: every member, and null strides for what is dense") {
    auto* const at = reinterpret_cast<void*>(std::uintptr_t{0x7f0000001000});
    const auto dense = must(CudaArrayInterface::try_describe(array(dtype::f32, {3, 5}, {5, 1}), at, true, 2));
    CHECK(dense.typestr == "<f4");
    CHECK(dense.shape == residency::Shape{3, 5});
    CHECK(dense.strides_bytes.empty());
    CHECK(dense.address == 0x7f0000001000);
    CHECK(dense.json() == R"({"version": 3, "typestr": "<f4", "shape": [3, 5], "strides": null, )"
                          R"("data": [139637976731648, true], "stream": 2})");
    const auto transposed = must(CudaArrayInterface::try_describe(array(dtype::f16, {3, 5}, {1, 3}), at, false, 77));
    CHECK(transposed.strides_bytes == std::vector<std::int64_t>{2, 6});
    CHECK(transposed.json() == R"({"version": 3, "typestr": "<f2", "shape": [3, 5], "strides": [2, 6], )"
                               R"("data": [139637976731648, false], "stream": 77})");
    const auto nothing = must(CudaArrayInterface::try_describe(array(dtype::u8, {0, 4}, {4, 1}), at, true, 1));
    CHECK(nothing.address == 0);
    const auto scalar = must(CudaArrayInterface::try_describe(array(dtype::i64, {}, {}), at, true, 1));
    CHECK(scalar.json().find(R"("shape": [], "strides": null)") != std::string::npos);
}

TEST_CASE("CUDA array interface: every dtype has its name with its bytes, or is refused by name") {
    std::size_t known = 0;
    for (const residency::DType& each : dtype::all) {
        const auto described = CudaArrayInterface::try_describe(array(each, {2}, {1}), nullptr, true, 1);
        if (described) {
            ++known;
            CHECK(described->typestr.substr(2) == std::to_string(each.block_bits() / 8));
            CHECK((described->typestr.front() == '|') == (each.block_bits() == 8));
        } else {
            CHECK(described.error().kind() == ErrorKind::unsupported);
            CHECK(described.error().message().find('"' + std::string{each.name()} + '"') != std::string::npos);
        }
    }
    CHECK(known == 13);
    const auto far = CudaArrayInterface::try_describe(array(dtype::f64, {2}, {UINT64_MAX / 8}), nullptr, true, 1);
    CHECK(far.error().kind() == ErrorKind::invalid_argument);
}

#if __has_include(<cuda/std/mdspan>)
namespace {

namespace stl = cuda::std;
template <class T, class... Layout>
using Matrix = stl::mdspan<T, stl::dextents<int, 2>, Layout...>;

/// A view of a temporary lease would be of nothing.
template <class Lease>
constexpr bool takes = requires(Lease&& lease, residency::WeightId id) {
    residency::try_view<Matrix<const float>>(std::forward<Lease>(lease), id);
};
static_assert(takes<const OnDemand::Lease&>);
static_assert(!takes<OnDemand::Lease>);
static_assert(residency::Mdspan<Matrix<const float>>);
static_assert(!residency::Mdspan<std::vector<float>>);

/// A view's refusal, which says this.
template <class View>
void refuses(const OnDemand::Lease& lease, residency::WeightId id, const std::string& why) {
    const auto refused = residency::try_view<View>(lease, id);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    INFO(refused.error().message());
    CHECK(refused.error().message().find(why) != std::string::npos);
}

}  // namespace

TEST_CASE(
    "mdspan: a view has the weight's elements where it has its type, extents and strides, and is refused otherwise") {
    CheckedDevice device;
    residency::CatalogBuilder builder;
    auto* const at = static_cast<float*>(must(device.allocate_host(4096)));
    for (int i = 0; i < 1024; ++i) { at[i] = static_cast<float>(i); }
    const auto host = residency::HostBytes::adopt(
        reinterpret_cast<std::byte*>(at), 4096, residency::HostMemory::pinned,
        [&device](std::byte* bytes) { static_cast<void>(device.deallocate_host(bytes).has_value()); });
    const auto add = [&](const char* name, residency::Shape shape, std::optional<residency::Strides> strides,
                         bool is_mutable) {
        residency::StorageOptions options;
        options.is_mutable = is_mutable;
        options.source = residency::HostSource{host, 0};
        return builder.add_weight(name, dtype::f32, std::move(shape), builder.add_storage(4096, options), 0,
                                  std::move(strides));
    };
    const auto dense = add("dense", {3, 5}, std::nullopt, false);
    const auto transposed = add("transposed", {3, 5}, residency::Strides{1, 3}, false);
    const auto padded = add("padded", {3, 5}, residency::Strides{8, 1}, false);
    const auto cache = add("cache", {3, 5}, std::nullopt, true);
    const auto scalar = add("scalar", {}, std::nullopt, false);
    const auto row = add("row", {1, 5}, residency::Strides{99, 1}, false);
    const auto none = add("none", {0, 5}, residency::Strides{99, 7}, false);
    const auto large = add("large", {200}, std::nullopt, false);
    const auto other = add("other", {2}, std::nullopt, false);
    const auto catalog = must(builder.try_build());
    const Stream stream = must(device.create_stream());
    {
        OnDemand::Options options;
        options.budget = residency::Budget::percent_of_weights(100);
        auto weights = must(OnDemand::try_create(device, catalog, std::move(options)));
        auto pass = must(weights.try_begin(stream));
        const auto lease = must(pass.try_acquire({dense, transposed, padded, cache, scalar, row, none, large}, stream));
        must(device.synchronize(stream));

        const auto right = residency::view<Matrix<const float>>(lease, dense);
        CHECK(right.data_handle() == lease.get<float>(dense));
        CHECK(right.extent(0) == 3);
        CHECK(right.extent(1) == 5);
        CHECK(right(2, 3) == 13);
        const auto left = residency::view<Matrix<const float, stl::layout_left>>(lease, transposed);
        CHECK(left(2, 3) == 2 + 3 * 3);
        using Strided = Matrix<const float, stl::layout_stride>;
        CHECK(residency::view<Strided>(lease, dense)(2, 3) == 13);
        CHECK(residency::view<Strided>(lease, transposed)(2, 3) == 11);
        CHECK(residency::view<Strided>(lease, padded)(2, 3) == 19);
        CHECK(residency::view<Matrix<float>>(lease, cache)(1, 1) == 6);
        CHECK(residency::view<stl::mdspan<const float, stl::extents<int>>>(lease, scalar)() == 0);
        CHECK(residency::view<Matrix<const float>>(lease, row)(0, 4) == 4);
        CHECK(residency::view<Matrix<const float>>(lease, none).empty());
        CHECK(residency::view<stl::mdspan<const float, stl::extents<std::size_t, 3, stl::dynamic_extent>>>(
                  lease, dense)(1, 2) == 7);
        CHECK(residency::view<Matrix<const std::uint32_t>>(lease, dense)(0, 1) == 0x3f800000U);  // the bits

        refuses<Matrix<const double>>(lease, dense, "f32");
        refuses<Matrix<const int>>(lease, dense, "\"dense\"");
        refuses<Matrix<float>>(lease, dense, "const");
        refuses<stl::mdspan<const float, stl::dextents<int, 3>>>(lease, dense, "it has 2");
        refuses<stl::mdspan<const float, stl::extents<int, 3, 6>>>(lease, dense, "extent 1 is 5, and the view's 6");
        refuses<Matrix<const float>>(lease, transposed, "stride of extent 0 is 1");
        refuses<Matrix<const float, stl::layout_left>>(lease, dense, "stride of extent 0 is 5");
        refuses<stl::mdspan<const float, stl::dextents<signed char, 1>>>(lease, large, "no more than 127");
        refuses<stl::mdspan<const float, stl::dextents<int, 1>>>(lease, other, "does not cover");
        CHECK_THROWS_AS(static_cast<void>(residency::view<Matrix<float>>(lease, dense)), residency::InvalidArgument);
    }
    must(device.destroy_stream(stream));
}
#else
TEST_CASE("mdspan") { MESSAGE("SKIPPED: no cuda/std/mdspan of CCCL on the include path"); }
#endif

TEST_SUITE_END();

}  // namespace views_test
