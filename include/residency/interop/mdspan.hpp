// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "residency/core/engine/lease.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/interop/check_readable.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// A type of multidimensional views: cuda::std::mdspan of CCCL, std::mdspan of C++23, or the reference implementation, with a pointer to
/// the elements. No header of theirs is included here.
template <class T>
concept Mdspan = requires(const T& view) {
    typename T::element_type;
    typename T::index_type;
    typename T::extents_type;
    typename T::mapping_type;
    requires std::same_as<typename T::data_handle_type, typename T::element_type*>;
    { T::rank() } -> std::convertible_to<std::size_t>;
    { T::static_extent(0) } -> std::convertible_to<std::size_t>;
    { view.mapping() } -> std::convertible_to<typename T::mapping_type>;
};

namespace detail {

/// Why a weight is no such view.
template <Mdspan View>
[[nodiscard]] Error view_refused(const Weight& weight, const std::string& why) {
    return {ErrorKind::invalid_argument, "weight " + detail::quoted(weight.name) + " as a view of " +
                                             std::to_string(View::rank()) + " extents: " + why};
}

/// Whether a weight has the type, the extents and the strides of a view.
template <Mdspan View>
[[nodiscard]] Status check_view(const Weight& weight, bool is_mutable) {
    using Element = typename View::element_type;
    using Index = typename View::index_type;
    if (!matches<std::remove_cv_t<Element>>(weight.dtype)) {
        return view_refused<View>(weight, "its elements are " + std::string{weight.dtype.name()} + ", " +
                                              std::to_string(weight.dtype.block_bits()) +
                                              " bits each, and the view's are " + std::to_string(sizeof(Element) * 8) +
                                              " bits or another type");
    }
    if (!std::is_const_v<Element> && !is_mutable) {
        return view_refused<View>(weight, "kernels do not write to it: the view's elements have to be const");
    }
    if (weight.shape.size() != View::rank()) {
        return view_refused<View>(weight, "it has " + std::to_string(weight.shape.size()));
    }
    constexpr auto most = static_cast<std::uint64_t>((std::numeric_limits<Index>::max)());
    for (std::size_t axis = 0; axis < View::rank(); ++axis) {
        const std::uint64_t extent = weight.shape[axis];
        const auto fixed = static_cast<std::size_t>(View::static_extent(axis));
        if (fixed != SIZE_MAX && fixed != extent) {
            return view_refused<View>(weight, "extent " + std::to_string(axis) + " is " + std::to_string(extent) +
                                                  ", and the view's " + std::to_string(fixed));
        }
        if (extent > most || weight.strides[axis] > most) {
            return view_refused<View>(weight, "the view's index type holds no more than " + std::to_string(most));
        }
    }
    if (weight.elements() > most) {
        return view_refused<View>(weight, "it has " + std::to_string(weight.elements()) +
                                              " elements, and the view's index type holds no more than " +
                                              std::to_string(most));
    }
    return {};
}

template <Mdspan View, std::size_t... axes>
[[nodiscard]] Result<typename View::mapping_type> view_mapping(const Weight& weight,
                                                               std::index_sequence<axes...> /*unused*/) {
    using Index = typename View::index_type;
    using Mapping = typename View::mapping_type;
    const typename View::extents_type extents{static_cast<Index>(weight.shape[axes])...};
    if constexpr (requires(const Mapping& mapping) { mapping.strides(); }) {
        return Mapping{extents,
                       decltype(std::declval<const Mapping&>().strides()){static_cast<Index>(weight.strides[axes])...}};
    } else {
        const Mapping mapping{extents};
        if constexpr (View::rank() > 0) {
            for (std::size_t axis = 0; axis < View::rank(); ++axis) {
                const auto stride = static_cast<std::uint64_t>(mapping.stride(axis));
                if (weight.elements() != 0 && weight.shape[axis] != 1 && stride != weight.strides[axis]) {
                    return view_refused<View>(weight, "the stride of extent " + std::to_string(axis) + " is " +
                                                          std::to_string(weight.strides[axis]) +
                                                          ", and in the view's layout " + std::to_string(stride) +
                                                          ": a view with layout_stride fits");
                }
            }
        }
        return mapping;
    }
}

}  // namespace detail

/// A leased weight as a view for kernels, such as `try_view<cuda::std::mdspan<const float, cuda::std::dextents<int, 2>>>(lease, w)`. A
/// layout_stride takes every weight; other layouts those that have their strides. Valid until the lease ends. Error invalid_argument,
/// which says what differs: the lease does not cover the weight; elements of another type, or not const although kernels do not write;
/// another rank, another static extent, an index type that is too small, or strides of another layout. Error unsupported: kernels read the
/// weight packed.
template <Mdspan View, Device D>
[[nodiscard]] Result<View> try_view(const Lease<D>& lease, WeightId id) {
    if (auto readable = detail::check_readable(lease, id); !readable) { return readable.error(); }
    const Weight& weight = lease.catalog().weight(id);
    if (auto fits = detail::check_view<View>(weight, lease.catalog().storage(weight.storage).is_mutable); !fits) {
        return fits.error();
    }
    auto mapping = detail::view_mapping<View>(weight, std::make_index_sequence<View::rank()>{});
    if (!mapping) { return mapping.error(); }
    return View{lease.template address<typename View::element_type>(id), *mapping};
}
template <Mdspan View, Device D>
Result<View> try_view(const Lease<D>&& lease, WeightId id) = delete;
#if RESIDENCY_EXCEPTIONS
template <Mdspan View, Device D>
[[nodiscard]] View view(const Lease<D>& lease, WeightId id) {
    return unwrap(try_view<View>(lease, id));
}
template <Mdspan View, Device D>
View view(const Lease<D>&& lease, WeightId id) = delete;
#endif

}}  // namespace residency::RESIDENCY_ABI
