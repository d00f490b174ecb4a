// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/number.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// The elements of what is packed, row by row. A weight of shape [a, …, z] has z columns and the product of the others as rows.
struct Extents {
    std::uint64_t rows = 1;     ///< 1 where there is no matrix
    std::uint64_t columns = 0;  ///< elements of a row
};

/// How much of a weight a codec packs at once.
enum class PackingUnit : std::uint8_t {
    chunk,   ///< any range of its bytes, so that parts of it can be unpacked alone
    weight,  ///< a whole weight, since the packed form follows its rows and columns
};

/// Turns weights into fewer bytes and back, bit for bit. Makes no device call: kernels that do the same on a GPU are in headers of
/// device code (codec/*.cuh) beside the codec.
///
/// Required expressions, with `c` a constant codec, `extents` the elements of what is packed, `raw` and `packed` spans of bytes.
/// All are thread safe.
///  1. `C::form`, `C::unit`                constants: the name of the packed form in files and descriptors; what is packed at once
///  2. `c.takes(dtype)`                    noexcept; whether weights of that type are worth an attempt
///  3. `c.pack(extents, raw, packed)`      noexcept; writes the packed form to the front of `packed` and returns its bytes, or 0
///                                         where it does not fit there or the form cannot hold these values: the weight stays raw
///  4. `c.unpack(extents, packed, raw)`    writes raw.size() bytes, or returns why not: malformed for bytes that pack() did not
///                                         write, mismatch for those of other extents or sizes, unsupported for another form or version
///  5. `c.check(extents, packed, raw_bytes)`  what unpack() to `raw_bytes` bytes would return, in a fraction of its time
///
/// Semantic rules; the conformance suite cites them.
///  K1 What was packed and unpacked is the same bit for bit, for bytes of every pattern and of every length.
///  K2 pack() writes inside the bytes that it returned, unpack() inside `raw`. Neither reads outside its input.
///  K3 The same bytes give the same packed form, on every machine, by the host or by a GPU.
///  K4 Whatever `packed` holds, unpack() ends with an error or with raw.size() bytes. It allocates only for an error.
///  K5 The packed form says what it is: bytes of another form, another version, another size or other extents are refused.
///  K6 Codecs are values: default constructible, nothrow movable, with an aggregate `Config` where they have parameters.
///  K7 check() gives the error that unpack() gives, or none. Kernels check nothing: with bytes that check() accepts they stay inside those
///     bytes and the raw ones.
template <class C>
concept Codec = std::default_initializable<C> && std::is_nothrow_move_constructible_v<C> &&
                requires(const C c, const DType& dtype, const Extents& extents, std::span<const std::byte> in,
                         std::span<std::byte> out, std::uint64_t raw_bytes) {
                    { C::form } -> std::convertible_to<PackedForm>;
                    { C::unit } -> std::convertible_to<PackingUnit>;
                    { c.takes(dtype) } noexcept -> std::same_as<bool>;
                    { c.pack(extents, in, out) } noexcept -> std::same_as<std::size_t>;
                    { c.unpack(extents, in, out) } -> std::same_as<Status>;
                    { c.check(extents, in, raw_bytes) } -> std::same_as<Status>;
                };

/// Keeps the bytes as they are: the packed form is the raw bytes, without a header.
class Identity {
public:
    /// What Codec asks for.
    /// @{
    static constexpr PackedForm form = PackedForm::raw;
    static constexpr PackingUnit unit = PackingUnit::chunk;

    [[nodiscard]] bool takes(const DType&) const noexcept { return true; }
    [[nodiscard]] std::size_t pack(const Extents&, std::span<const std::byte> raw,
                                   std::span<std::byte> packed) const noexcept {
        if (packed.size() < raw.size()) { return 0; }
        std::copy(raw.begin(), raw.end(), packed.begin());
        return raw.size();
    }
    [[nodiscard]] Status unpack(const Extents& extents, std::span<const std::byte> packed,
                                std::span<std::byte> raw) const {
        if (Status checked = check(extents, packed, raw.size()); !checked) { return checked; }
        std::copy(packed.begin(), packed.end(), raw.begin());
        return {};
    }
    [[nodiscard]] Status check(const Extents&, std::span<const std::byte> packed, std::uint64_t raw_bytes) const {
        if (packed.size() == raw_bytes) { return {}; }
        return Error{ErrorKind::mismatch, "raw bytes: " + residency::detail::in_bytes(packed.size()) +
                                              " are given for " + residency::detail::in_bytes(raw_bytes)};
    }
    /// @}
};
static_assert(Codec<Identity>);

}}}  // namespace residency::RESIDENCY_ABI::codec
