// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Packing on a GPU while weights are read: the bytes that threads of the host make, of every kind of tensor, from memory and from a file.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/packed_part.hpp"
#include "residency/conformance/codec.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/packed.hpp"
#include "tests/gpu/support.hpp"
#include "tests/gpu/unpacker.hpp"
#include "tests/support/files.hpp"

namespace pack_on_gpu {

namespace {

using gpu::must;
using residency::Catalog;
using residency::CudaDevice;
using residency::StorageId;
using residency::packed::PackedModel;
using Bytes = std::vector<std::byte>;

constexpr std::size_t part = std::size_t{2} << 20;

/// Tensors of all kinds of bytes, of sizes around lanes, groups and parts, and many small ones.
std::vector<Bytes> tensors() {
    std::mt19937 random{38};
    std::vector<Bytes> all;
    for (const std::size_t bytes : {std::size_t{2}, std::size_t{32}, std::size_t{8190}, std::size_t{8192},
                                    std::size_t{8194}, part - 2, part, part + 2, 3 * part, 70 * part + 1000}) {
        all.push_back(residency::conformance::detail::codec_input(random, 0, bytes));
    }
    for (std::uint32_t kind = 0; kind < 32; ++kind) {  // 6: all of the 65,536 values; 7: NaNs with payloads
        const std::size_t bytes = kind % 8 == 6 ? std::size_t{1} << 17 : 2 * (1 + random() % 500'000);
        all.push_back(residency::conformance::detail::codec_input(random, kind, bytes));
    }
    Bytes mixed = residency::conformance::detail::codec_input(random, 0, 3 * part + 10);
    for (std::size_t i = part; i < 2 * part; ++i) { mixed[i] = static_cast<std::byte>(random()); }
    all.push_back(std::move(mixed));
    while (all.size() % 4 != 2) { all.push_back(residency::conformance::detail::codec_input(random, 0, part)); }
    for (const std::size_t bytes : {5 * part + 4, 5 * part + 4}) {  // as fp8 and as f32
        Bytes same(bytes);
        for (std::byte& byte : same) { byte = static_cast<std::byte>(0x38 | (random() & 7U)); }
        all.push_back(std::move(same));
    }
    for (int i = 0; i < 600; ++i) {
        all.push_back(
            residency::conformance::detail::codec_input(random, i % 7 == 0 ? 1 : 0, 2 + 2 * (random() % 3000)));
    }
    return all;
}

/// bf16, and fp8 and f32 among it, in batches that have all of them.
residency::DType type_of(std::size_t i, std::size_t bytes) {
    return i % 4 == 3 && bytes % 4 == 0 ? residency::dtype::f32
           : i % 4 == 2                 ? residency::dtype::f8_e4m3fn
                                        : residency::dtype::bf16;
}

void check_same(const PackedModel& model, const PackedModel& expected, const std::vector<Bytes>& raw) {
    CHECK(model.raw_bytes == expected.raw_bytes);
    CHECK(model.packed_bytes == expected.packed_bytes);
    CHECK(model.kept_raw.size() == expected.kept_raw.size());
    for (std::uint32_t s = 0; s < raw.size(); ++s) {
        CAPTURE(s);
        const auto* const ours = std::get_if<residency::PackedHostSource>(&model.catalog.storages()[s].source);
        const auto* const theirs = std::get_if<residency::PackedHostSource>(&expected.catalog.storages()[s].source);
        REQUIRE((ours == nullptr) == (theirs == nullptr));
        if (ours == nullptr) {
            CHECK(std::memcmp(model.catalog.host_bytes(StorageId{s}), raw[s].data(), raw[s].size()) == 0);
            continue;
        }
        CHECK(*ours->parts == *theirs->parts);
        REQUIRE(ours->bytes == theirs->bytes);
        CHECK(std::memcmp(ours->host->data() + ours->offset_bytes, theirs->host->data() + theirs->offset_bytes,
                          static_cast<std::size_t>(ours->bytes)) == 0);
        for (const residency::PackedPart& one : *ours->parts) {
            must(residency::codec::check_part(one, {ours->host->data() + ours->offset_bytes + one.offset_bytes,
                                                    static_cast<std::size_t>(one.packed_bytes)}));
        }
    }
}

}  // namespace

TEST_CASE("packed on the GPU: the bytes of the host, of all kinds of tensors, from memory and from a file") {
    CudaDevice device{0};
    const std::vector<Bytes> raw = tensors();
    const support::TemporaryFolder folder;
    std::string whole;
    for (const Bytes& bytes : raw) { whole.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }
    const std::string path = folder.write("weights", whole);
    residency::CatalogBuilder in_memory, in_file;
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
        const std::string name = "t" + std::to_string(i);
        const residency::DType type = type_of(i, raw[i].size());
        in_memory.add(name, type, {raw[i].size() * 8 / type.block_bits()}, raw[i]);
        in_file.add(name, type, {raw[i].size() * 8 / type.block_bits()}, path, at);
        at += raw[i].size();
    }
    const Catalog memory = must(in_memory.try_build()), file = must(in_file.try_build());
    const PackedModel expected = must(residency::packed::try_pack(device, memory));
    CHECK(expected.packed_bytes < expected.raw_bytes * 9 / 10);
    for (const residency::PackedForm form :
         {residency::PackedForm::bf16_tiers, residency::PackedForm::f8_e4m3_tiers, residency::PackedForm::f32_tiers}) {
        std::size_t parts = 0;
        for (const auto& storage : expected.catalog.storages()) {
            const auto* const source = std::get_if<residency::PackedHostSource>(&storage.source);
            if (source == nullptr) { continue; }
            parts += static_cast<std::size_t>(std::count_if(source->parts->begin(), source->parts->end(),
                                                            [&](const auto& one) { return one.form == form; }));
        }
        CHECK(parts >= 5);
    }
    std::uint64_t used = 0;
    for (int turn = 0; turn < 3; ++turn) {
        const PackedModel model =
            must(residency::packed::try_pack(device, turn == 1 ? file : memory, {}, &gpu::packer()));
        INFO(model.why_host);
        CHECK(model.why_host.empty());
        CHECK(model.device_raw_bytes >= model.raw_bytes);
        check_same(model, expected, raw);
        const auto now = must(device.memory());
        if (turn == 0) { used = now.total_bytes - now.free_bytes; }  // kernels are loaded when they are first called
        CHECK(now.total_bytes - now.free_bytes <= used + gpu::driver_own_bytes);
    }
}

}  // namespace pack_on_gpu
