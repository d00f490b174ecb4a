// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The codecs' device code: kernels pack and unpack what the host does, byte for byte, and a kernel that reads packed weights has the
// results of one that reads plain ones.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "examples/60_packed/matvec.cuh"
#include "residency/codec/bf16_tiles.cuh"
#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/tiers.cuh"
#include "residency/codec/tiers.hpp"
#include "residency/conformance/codec.hpp"

using namespace residency;
using Bytes = std::vector<std::byte>;

namespace {

void must(cudaError_t code) {
    if (code != cudaSuccess) { FAIL(cudaGetErrorString(code)); }
}

/// Device memory that a test fills and reads.
class DeviceBytes {
public:
    explicit DeviceBytes(std::size_t bytes) : bytes_{bytes} {
        must(cudaMalloc(&at_, bytes + 512));
        must(cudaMemset(at_, 0xEE, bytes + 512));
    }
    explicit DeviceBytes(std::span<const std::byte> from) : DeviceBytes{from.size()} {
        must(cudaMemcpy(at_, from.data(), from.size(), cudaMemcpyHostToDevice));
    }
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;
    ~DeviceBytes() { static_cast<void>(cudaFree(at_)); }

    template <class T = std::byte>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(at_);
    }
    [[nodiscard]] Bytes read(std::size_t bytes) const {
        Bytes host(bytes);
        must(cudaMemcpy(host.data(), at_, bytes, cudaMemcpyDeviceToHost));
        return host;
    }
    /// Whether nothing was written behind the bytes.
    [[nodiscard]] bool is_intact() const {
        Bytes behind(512);
        must(cudaMemcpy(behind.data(), as() + bytes_, behind.size(), cudaMemcpyDeviceToHost));
        for (const std::byte byte : behind) {
            if (byte != std::byte{0xEE}) { return false; }
        }
        return true;
    }

private:
    void* at_ = nullptr;
    std::size_t bytes_;
};

/// codec::Tiers, whose work kernels do, with bytes that check() accepted on the host.
template <class F>
class TiersOnGpu {
public:
    static constexpr PackedForm form = F::form;
    static constexpr codec::PackingUnit unit = codec::Tiers<F>::unit;

    [[nodiscard]] bool takes(const DType& dtype) const noexcept { return codec::Tiers<F>{}.takes(dtype); }
    [[nodiscard]] std::size_t pack(const codec::Extents&, std::span<const std::byte> raw,
                                   std::span<std::byte> packed) const noexcept {
        namespace tiers = codec::tiers;
        const DeviceBytes from{raw}, to{packed.size()};
        const tiers::PackTask task{from.as(), to.as(), static_cast<std::uint32_t>(raw.size()),
                                   static_cast<std::uint32_t>(packed.size()), form};
        const DeviceBytes tasks{std::as_bytes(std::span{&task, 1})}, sizes{4};
        must(tiers::enqueue_pack<F>(tasks.as<tiers::PackTask>(), 1, sizes.as<std::uint32_t>(), 1, nullptr));
        std::uint32_t bytes = 0;
        must(cudaMemcpy(&bytes, sizes.as(), 4, cudaMemcpyDeviceToHost));
        CHECK(to.is_intact());
        const Bytes made = to.read(bytes);
        std::memcpy(packed.data(), made.data(), made.size());
        return bytes;
    }
    [[nodiscard]] Status unpack(const codec::Extents& extents, std::span<const std::byte> packed,
                                std::span<std::byte> raw) const {
        namespace tiers = codec::tiers;
        if (Status checked = check(extents, packed, raw.size()); !checked) { return checked; }
        if (Status unpacked = codec::Tiers<F>{}.unpack(extents, packed, raw); !unpacked) { return unpacked; }
        const DeviceBytes from{packed}, to{raw.size()}, differing{8};
        const tiers::UnpackTask task{from.as(), to.as()};
        const DeviceBytes tasks{std::as_bytes(std::span{&task, 1})};
        must(cudaMemset(differing.as(), 0, 8));
        const auto values = static_cast<std::uint32_t>(raw.size() / sizeof(typename F::Value));
        must(tiers::enqueue_unpack<F>(tasks.as<tiers::UnpackTask>(), 1, values, 3, nullptr));
        must(tiers::enqueue_compare<F>(tasks.as<tiers::UnpackTask>(), 1, values, 3, differing.as<unsigned long long>(),
                                       nullptr));
        const Bytes made = to.read(raw.size());
        CHECK_MESSAGE(std::equal(made.begin(), made.end(), raw.begin(), raw.end()), "host and device unpack the same");
        CHECK(to.is_intact());
        unsigned long long count = 0;
        must(cudaMemcpy(&count, differing.as(), 8, cudaMemcpyDeviceToHost));
        CHECK(count == 0);
        if (!raw.empty()) {  // the comparison can fail
            must(cudaMemset(to.as() + raw.size() / 2, std::to_integer<int>(made[raw.size() / 2]) ^ 1, 1));
            must(tiers::enqueue_compare<F>(tasks.as<tiers::UnpackTask>(), 1, values, 3,
                                           differing.as<unsigned long long>(), nullptr));
            must(cudaMemcpy(&count, differing.as(), 8, cudaMemcpyDeviceToHost));
            CHECK(count == 1);
        }
        return {};
    }
    [[nodiscard]] Status check(const codec::Extents& extents, std::span<const std::byte> packed,
                               std::uint64_t raw_bytes) const {
        return codec::Tiers<F>{}.check(extents, packed, raw_bytes);
    }
};

Bytes weights(std::size_t values, std::uint32_t seed) {
    std::mt19937 random{seed};
    return conformance::detail::normal_weights(random, 2 * values, 0.02F);
}
float to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
template <class T>
T element(const Bytes& bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes.data() + sizeof(T) * index, sizeof value);
    return value;
}

/// The packed form with its values stored as they are.
Bytes plain_tiles(const codec::Extents& extents, const Bytes& raw) {
    namespace tiles = codec::bf16_tiles;
    Bytes plain(static_cast<std::size_t>(*codec::Bf16Tiles::plain_bytes(extents)));
    tiles::Header header;
    header.packed = {static_cast<std::uint32_t>(codec::Bf16Tiles::form), tiles::version, raw.size(), plain.size()};
    header.rows = static_cast<std::uint32_t>(extents.rows);
    header.columns = static_cast<std::uint32_t>(extents.columns);
    header.row_groups = (header.rows + 15) / 16;
    header.tiles_across = (header.columns + 127) / 128 * 2;
    header.words = tiles::plain_words;
    header.escapes_at = plain.size();
    std::memcpy(plain.data(), &header, sizeof header);
    for (std::uint32_t row = 0; row < header.rows; ++row) {
        for (std::uint32_t column = 0; column < header.columns; ++column) {
            const std::uint32_t tile = row / 16 * header.tiles_across + column / 64, in_row = row % 16,
                                in_column = column % 64;
            const std::uint32_t lane = in_row % 8 * 4 + in_column / 16, pair = in_row / 8 * 8 + in_column % 16 / 2;
            std::memcpy(plain.data() + codec::packed_header_bytes +
                            std::size_t{tile} * tiles::tile_bytes(tiles::plain_words) +
                            2 * tiles::place_of(lane, pair, column % 2),
                        raw.data() + 2 * (std::size_t{row} * header.columns + column), 2);
        }
    }
    return plain;
}

/// A packed matrix on the device.
struct Uploaded {
    DeviceBytes bytes;
    codec::bf16_tiles::DeviceMatrix matrix;

    explicit Uploaded(const Bytes& packed) : bytes{packed} {
        codec::bf16_tiles::Header header;
        std::memcpy(&header, packed.data(), sizeof header);
        matrix = codec::bf16_tiles::device_matrix(header, bytes.as());
    }
};

Bytes product(const codec::bf16_tiles::DeviceMatrix& matrix, const DeviceBytes& x, std::uint32_t vectors,
              std::uint32_t multiprocessors) {
    const matvec::Cut cut = matvec::cut_of(matrix, vectors, multiprocessors);
    const DeviceBytes y{std::size_t{4} * vectors * matrix.rows};
    const DeviceBytes workspace{matvec::workspace_bytes(matrix, vectors, cut)};
    must(cudaMemset(workspace.as(), 0, matvec::counter_bytes));
    Bytes first;
    for (int turn = 0; turn < 3; ++turn) {
        must(matvec::enqueue(
            {matrix, x.as<std::uint16_t>(), y.as<float>(), vectors, workspace.as(), cut, matrix.scale()}, turn == 2,
            nullptr));
        must(cudaDeviceSynchronize());
        const Bytes here = y.read(std::size_t{4} * vectors * matrix.rows);
        if (turn == 0) { first = here; }
        CHECK_MESSAGE(here == first, "the same product has the same bits");
        CHECK(y.is_intact());
        CHECK(workspace.is_intact());
        must(cudaMemset(y.as(), 0xEE, here.size()));
    }
    return first;
}

/// The same product with a bias, rounded to bf16.
Bytes rounded_product(const codec::bf16_tiles::DeviceMatrix& matrix, const DeviceBytes& x, const DeviceBytes& bias,
                      std::uint32_t vectors, std::uint32_t multiprocessors) {
    matvec::Operands operands;
    operands.matrix = matrix;
    operands.x = x.as<std::uint16_t>();
    operands.vectors = vectors;
    operands.cut = matvec::cut_of(matrix, vectors, multiprocessors);
    operands.scale = matrix.scale();
    operands.bias = bias.as<std::uint16_t>();
    const DeviceBytes out{std::size_t{2} * vectors * matrix.rows};
    operands.rounded = out.as<std::uint16_t>();
    const DeviceBytes workspace{matvec::workspace_bytes(matrix, vectors, operands.cut)};
    must(cudaMemset(workspace.as(), 0, matvec::counter_bytes));
    operands.workspace = workspace.as();
    must(matvec::enqueue(operands, false, nullptr));
    must(cudaDeviceSynchronize());
    CHECK(out.is_intact());
    CHECK(workspace.is_intact());
    return out.read(std::size_t{2} * vectors * matrix.rows);
}

}  // namespace

TEST_CASE_TEMPLATE("tiers on the GPU keep the codec's contract", F, codec::tiers::Bf16, codec::tiers::F8E4m3,
                   codec::tiers::F32) {
    conformance::check_codec<TiersOnGpu<F>>({.runs = 40, .mutations = 200});
}

TEST_CASE_TEMPLATE("tiers: the GPU packs the host's bytes, many chunks in a launch", F, codec::tiers::Bf16,
                   codec::tiers::F8E4m3, codec::tiers::F32) {
    namespace tiers = codec::tiers;
    std::mt19937 random{5};
    std::vector<Bytes> raw;
    for (std::uint32_t i = 0; i < 12; ++i) {
        const std::size_t bytes = i < 3 ? std::size_t{2} << 20 : random() % 300000;
        raw.push_back(conformance::detail::codec_input(random, i < 3 ? 0 : i, bytes));
    }
    std::vector<DeviceBytes*> from, to;
    std::vector<tiers::PackTask> tasks;
    for (const Bytes& each : raw) {
        from.push_back(new DeviceBytes{each});
        to.push_back(new DeviceBytes{each.size() * 2 + 65536});
        tasks.push_back({from.back()->as(), to.back()->as(), static_cast<std::uint32_t>(each.size()),
                         static_cast<std::uint32_t>(each.size() * 2 + 65536), F::form});
    }
    tasks.push_back({from[0]->as(), nullptr, 8, 0, PackedForm::bf16_tiles});  // of another form: left alone
    const DeviceBytes on_device{std::as_bytes(std::span{tasks})}, sizes{4 * tasks.size()};
    must(tiers::enqueue_pack<F>(on_device.as<tiers::PackTask>(), static_cast<std::uint32_t>(tasks.size()),
                                sizes.as<std::uint32_t>(), 5, nullptr));
    const Bytes packed_bytes = sizes.read(4 * tasks.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
        Bytes expected(raw[i].size() * 2 + 65536);
        expected.resize(codec::Tiers<F>{}.pack({}, raw[i], expected));
        REQUIRE(element<std::uint32_t>(packed_bytes, i) == expected.size());
        CHECK(to[i]->read(expected.size()) == expected);
        delete from[i];
        delete to[i];
    }
    CHECK(element<std::uint32_t>(packed_bytes, raw.size()) == 0xEEEEEEEEU);
}

TEST_CASE("tiers: tasks that go with the launch unpack the same, of all formats, however many launches they take") {
    constexpr std::size_t count = 2 * codec::tiers::most_given_tasks + 20;
    std::vector<Bytes> raw;
    std::vector<std::unique_ptr<DeviceBytes>> from, to;
    std::vector<codec::UnpackTask> tasks;
    std::uint32_t most_values = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t values = 1 + i * 37 % 20000;
        raw.push_back(weights(values, static_cast<std::uint32_t>(i)));
        Bytes packed(raw[i].size() * 2 + 65536);
        std::size_t format_number = 0;
        codec::tiers::for_each_format([&](auto format) {  // in turns
            if (format_number++ != i % 3) { return; }
            packed.resize(codec::Tiers<decltype(format)>{}.pack({}, raw[i], packed));
            most_values = std::max(
                most_values, static_cast<std::uint32_t>(raw[i].size() / sizeof(typename decltype(format)::Value)));
        });
        REQUIRE(!packed.empty());
        from.push_back(std::make_unique<DeviceBytes>(packed));
        to.push_back(std::make_unique<DeviceBytes>(raw[i].size()));
        tasks.push_back({from[i]->as(), to[i]->as()});
    }
    codec::tiers::for_each_format(
        [&](auto format) { must(codec::tiers::enqueue_unpack<decltype(format)>(tasks, most_values, 7, nullptr)); });
    tasks.assign(count, {});  // they are not read any more
    for (std::size_t i = 0; i < count; ++i) {
        CAPTURE(i);
        CHECK(to[i]->read(raw[i].size()) == raw[i]);
        CHECK(to[i]->is_intact());
    }
    must(codec::tiers::enqueue_unpack<codec::tiers::Bf16>(std::span<const codec::UnpackTask>{}, 1, 7, nullptr));
}

TEST_CASE("bf16 tiles: unpacked on the GPU, bit for bit, for every shape") {
    for (const codec::Extents extents :
         {codec::Extents{1, 1}, {16, 64}, {17, 65}, {100, 700}, {512, 1024}, {33, 4096}, {3, 128}}) {
        CAPTURE(extents.rows);
        CAPTURE(extents.columns);
        const auto values = static_cast<std::size_t>(extents.rows * extents.columns);
        for (std::uint32_t kind : {0U, 3U, 7U, 6U}) {
            std::mt19937 random{kind};
            const Bytes raw = conformance::detail::codec_input(random, kind, 2 * values);
            Bytes packed(2 * raw.size() + (std::size_t{1} << 20));
            packed.resize(codec::Bf16Tiles{}.pack(extents, raw, packed));
            REQUIRE(!packed.empty());
            const Uploaded uploaded{packed};
            for (const unsigned blocks : {1U, 7U}) {
                CAPTURE(kind);
                CAPTURE(blocks);
                CAPTURE(uploaded.matrix.words);
                const DeviceBytes out{raw.size()};
                must(codec::bf16_tiles::enqueue_unpack(uploaded.matrix, out.as(), blocks, nullptr));
                const Bytes made = out.read(raw.size());
                const auto differs = std::mismatch(made.begin(), made.end(), raw.begin()).first - made.begin();
                CHECK_MESSAGE(made == raw, "from byte ", differs);
                CHECK(out.is_intact());
            }
        }
    }
}

TEST_CASE("a product with packed weights: near the exact one, and the bits of one with weights that are not packed") {
    int multiprocessors = 0;
    must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    for (const codec::Extents extents :
         {codec::Extents{1024, 4096}, {4096, 1024}, {100, 700}, {16, 14336}, {48, 200}, {50, 1352}, {20000, 64}}) {
        CAPTURE(extents.rows);
        CAPTURE(extents.columns);
        const auto rows = static_cast<std::size_t>(extents.rows), columns = static_cast<std::size_t>(extents.columns);
        Bytes raw = weights(rows * columns, 17);
        std::memset(raw.data() + 2 * columns * (rows / 2), 0, 2 * columns);  // a row of escapes
        Bytes packed(raw.size() * 2 + 65536);
        packed.resize(codec::Bf16Tiles{}.pack(extents, raw, packed));
        REQUIRE(!packed.empty());
        const Uploaded uploaded{packed}, plain{plain_tiles(extents, raw)};
        const DeviceBytes raw_device{raw}, bias{weights(rows, 29)};
        const auto as_rows =
            matvec::matrix_of_rows(raw_device.as<std::uint16_t>(), uploaded.matrix.rows, uploaded.matrix.columns);
        CHECK(as_rows.row_groups == uploaded.matrix.row_groups);
        CHECK(as_rows.tiles_across == uploaded.matrix.tiles_across);
        CHECK(uploaded.matrix.words == codec::bf16_tiles::packed_words);
        for (std::uint32_t vectors = 1; vectors <= matvec::most_vectors; ++vectors) {
            CAPTURE(vectors);
            const Bytes x = weights(columns * vectors, 23 + vectors);
            const DeviceBytes x_device{x};
            const auto processors = static_cast<std::uint32_t>(multiprocessors);
            const Bytes y = product(uploaded.matrix, x_device, vectors, processors);
            CHECK(y == product(plain.matrix, x_device, vectors, processors));
            const Bytes rounded = rounded_product(uploaded.matrix, x_device, bias, vectors, processors);
            if (columns % 8 == 0) {
                CHECK(y == product(as_rows, x_device, vectors, processors));
                CHECK(rounded == rounded_product(as_rows, x_device, bias, vectors, processors));
            }
            std::size_t far_off = 0;
            const Bytes bias_bytes = bias.read(2 * rows);
            for (std::size_t i = 0; i < rows * vectors; ++i) {
                const float exact = element<float>(y, i) + to_float(element<std::uint16_t>(bias_bytes, i % rows));
                const float error = std::fabs(to_float(element<std::uint16_t>(rounded, i)) - exact);
                far_off += error <= std::fabs(exact) / 256 ? 0U : 1U;
            }
            CHECK(far_off == 0);
            double worst = 0;
            for (std::size_t row = 0; row < rows; row += rows > 200 ? 37 : 1) {
                for (std::uint32_t vector = 0; vector < vectors; ++vector) {
                    double exact = 0, absolute = 0;
                    for (std::size_t k = 0; k < columns; ++k) {
                        const double term = double{to_float(element<std::uint16_t>(raw, row * columns + k))} *
                                            to_float(element<std::uint16_t>(x, vector * columns + k));
                        exact += term;
                        absolute += std::fabs(term);
                    }
                    const double error = std::fabs(element<float>(y, vector * rows + row) - exact);
                    worst = std::max(worst, absolute == 0 ? error : error / absolute);
                }
            }
            CHECK(worst < 1e-5);
        }
    }
}
