// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "residency/config.hpp"

#if RESIDENCY_EXCEPTIONS
#include <stdexcept>
#endif

namespace residency { inline namespace RESIDENCY_ABI {

/// What kind of failure it is, for a caller to branch on.
enum class ErrorKind : std::uint8_t {
    invalid_argument,  ///< a value that the caller passed: a bad id, a wrong option
    malformed,         ///< bytes or text from outside that do not follow their format; detail: FileLocation
    mismatch,          ///< valid things that do not belong together, such as a plan and another catalog
    budget,            ///< below the floor, or nothing left to evict; detail: BudgetNumbers
    out_of_memory,     ///< the device or the host refused an allocation; detail: DeviceFailure
    device,            ///< a device call failed; detail: DeviceFailure
    unsupported,       ///< this device, driver, file or composition cannot do it
    divergence,        ///< strict mode: the caller asked for something else than the schedule says; detail: Divergence
    stale,             ///< made for an earlier mapping or budget
    io,                ///< the operating system refused a read or a write; detail: FileLocation
    cancelled,         ///< the caller's own callback returned false
    wrong_state,       ///< this object does not take the call now
};

/// Its name here.
[[nodiscard]] constexpr const char* to_string(ErrorKind kind) noexcept {
    switch (kind) {
        case ErrorKind::invalid_argument: return "invalid_argument";
        case ErrorKind::malformed: return "malformed";
        case ErrorKind::mismatch: return "mismatch";
        case ErrorKind::budget: return "budget";
        case ErrorKind::out_of_memory: return "out_of_memory";
        case ErrorKind::device: return "device";
        case ErrorKind::unsupported: return "unsupported";
        case ErrorKind::divergence: return "divergence";
        case ErrorKind::stale: return "stale";
        case ErrorKind::io: return "io";
        case ErrorKind::cancelled: return "cancelled";
        case ErrorKind::wrong_state: return "wrong_state";
    }
    return "unknown";
}

/// The numbers behind a refused budget or allocation. Bytes as the pool rounds them, of a whole budget. They do not depend on what happens
/// to be on the device.
struct BudgetNumbers {
    std::uint64_t asked_bytes =
        0;  ///< that the refused request takes in all, what of it is on the device already with it
    std::uint64_t budget_bytes = 0;   ///< the cap that it was to fit into
    std::uint64_t held_bytes = 0;     ///< of the cap, beside the request: held, and not to be evicted
    std::uint64_t floor_bytes = 0;    ///< the smallest budget that works
    std::uint32_t step = UINT32_MAX;  ///< the step that sets the floor; UINT32_MAX: no step
    /// Device memory that the Residency can have, what it holds already included; set if others hold so much that the budget cannot be had.
    /// UINT64_MAX: that is not why.
    std::uint64_t free_bytes = UINT64_MAX;
};

/// Where in a file, text or stream an error is.
struct FileLocation {
    std::string source;        ///< the name of the file, or what the bytes are
    std::uint64_t offset = 0;  ///< in bytes, from the start
    std::string found;         ///< what is there; may be empty
    std::string expected;      ///< what should be there; may be empty
};

/// A device call that failed.
struct DeviceFailure {
    int code = 0;             ///< the device's own code, such as a cudaError_t
    std::string call;         ///< the call that returned it
    std::uint64_t bytes = 0;  ///< that were asked for; 0 where that does not apply
};

/// What a schedule said and what the caller asked for instead.
struct Divergence {
    std::uint32_t step = 0;  ///< position in the schedule
    std::string expected;    ///< the storages that the schedule has there, in words
    std::string came;        ///< the storages that were asked for, in words
};

/// The numbers behind an error: of one of the four types, or none. Room for all four, since errors are rare and std::variant takes
/// long to compile.
class ErrorDetail {
public:
    ErrorDetail() = default;
    /// Holds what belongs to the kind of the error.
    /// @{
    ErrorDetail(BudgetNumbers numbers) noexcept : type_{Type::budget}, budget_{numbers} {}
    ErrorDetail(FileLocation location) noexcept : type_{Type::file}, file_{std::move(location)} {}
    ErrorDetail(DeviceFailure failure) noexcept : type_{Type::device}, device_{std::move(failure)} {}
    ErrorDetail(Divergence divergence) noexcept : type_{Type::divergence}, divergence_{std::move(divergence)} {}
    /// @}

    /// Null where these are no numbers of type T.
    template <class T>
    [[nodiscard]] const T* get() const noexcept {
        if constexpr (std::is_same_v<T, BudgetNumbers>) {
            return type_ == Type::budget ? &budget_ : nullptr;
        } else if constexpr (std::is_same_v<T, FileLocation>) {
            return type_ == Type::file ? &file_ : nullptr;
        } else if constexpr (std::is_same_v<T, DeviceFailure>) {
            return type_ == Type::device ? &device_ : nullptr;
        } else {
            static_assert(std::is_same_v<T, Divergence>, "no error has numbers of this type");
            return type_ == Type::divergence ? &divergence_ : nullptr;
        }
    }

private:
    enum class Type : std::uint8_t { none, budget, file, device, divergence };

    Type type_ = Type::none;
    BudgetNumbers budget_;
    FileLocation file_;
    DeviceFailure device_;
    Divergence divergence_;
};

/// An error: its kind, a message that says what happened, where, and what to do, and the numbers behind it. Immutable. Copies share
/// the data and cannot fail.
class Error {
public:
    /// `message` says what, where and what to do.
    Error(ErrorKind kind, std::string message, ErrorDetail detail = {})
        : data_{std::make_shared<const Data>(Data{kind, std::move(message), std::move(detail)})} {}

    /// What a program decides by.
    [[nodiscard]] ErrorKind kind() const noexcept { return data_->kind; }
    /// What a person reads.
    [[nodiscard]] const std::string& message() const noexcept { return data_->message; }
    /// The numbers, or null where this error has none of that type.
    template <class T>
    [[nodiscard]] const T* detail() const noexcept {
        return data_->detail.template get<T>();
    }
    /// A copy of this error with `context` and ": " before its message.
    [[nodiscard]] Error in(const std::string& context) const {
        return {data_->kind, context + ": " + data_->message, data_->detail};
    }

private:
    struct Data {
        ErrorKind kind;
        std::string message;
        ErrorDetail detail;
    };
    std::shared_ptr<const Data> data_;
};

/// A value or an Error, never both. It has a union of its own, since std::variant took a quarter of the time to compile a file.
template <class T>
class RESIDENCY_DETAIL_NODISCARD_TYPE Result {
    static_assert(std::is_object_v<T> && !std::is_same_v<T, Error>);
    static_assert(std::is_nothrow_move_constructible_v<T>, "what moves out of a Result cannot fail on the way");

public:
    /// Holds a value.
    template <class U = T>
        requires(std::constructible_from<T, U &&> && !std::same_as<std::remove_cvref_t<U>, Result> &&
                 !std::same_as<std::remove_cvref_t<U>, Error>)
    Result(U&& value) : value_(std::forward<U>(value)), has_value_{true} {}
    /// Holds an error.
    Result(Error error) noexcept : error_{std::move(error)}, has_value_{false} {}
    /// Holds what the other one holds.
    /// @{
    Result(const Result& other)
        requires std::copy_constructible<T>
        : has_value_{other.has_value_} {
        if (has_value_) {
            std::construct_at(std::addressof(value_), other.value_);
        } else {
            std::construct_at(std::addressof(error_), other.error_);
        }
    }
    Result(Result&& other) noexcept : has_value_{other.has_value_} {
        if (has_value_) {
            std::construct_at(std::addressof(value_), std::move(other.value_));
        } else {
            std::construct_at(std::addressof(error_), std::move(other.error_));
        }
    }
    Result& operator=(Result other) noexcept {
        std::destroy_at(this);
        return *std::construct_at(this, std::move(other));
    }
    /// @}
    ~Result() {
        if (has_value_) {
            std::destroy_at(std::addressof(value_));
        } else {
            std::destroy_at(std::addressof(error_));
        }
    }

    /// Whether there is a value.
    /// @{
    [[nodiscard]] bool has_value() const noexcept { return has_value_; }
    [[nodiscard]] explicit operator bool() const noexcept { return has_value_; }
    /// @}

    /// Precondition: has_value().
    /// @{
    [[nodiscard]] T& value() & noexcept { return *checked(this); }
    [[nodiscard]] const T& value() const& noexcept { return *checked(this); }
    [[nodiscard]] T&& value() && noexcept { return std::move(*checked(this)); }
    [[nodiscard]] T& operator*() & noexcept { return *checked(this); }
    [[nodiscard]] const T& operator*() const& noexcept { return *checked(this); }
    [[nodiscard]] T&& operator*() && noexcept { return std::move(*checked(this)); }
    [[nodiscard]] T* operator->() noexcept { return checked(this); }
    [[nodiscard]] const T* operator->() const noexcept { return checked(this); }
    /// @}

    /// Precondition: !has_value().
    [[nodiscard]] const Error& error() const noexcept {
        RESIDENCY_ASSERT(!has_value_, "ask for an error only after has_value() returned false");
        return error_;
    }

private:
    template <class Self>
    static auto* checked(Self* self) noexcept {
        RESIDENCY_ASSERT(self->has_value_, "ask for a value only after has_value() returned true");
        return &self->value_;
    }

    union {
        T value_;
        Error error_;
    };
    bool has_value_;
};

/// Success, or an Error.
template <>
class RESIDENCY_DETAIL_NODISCARD_TYPE Result<void> {
public:
    Result() noexcept = default;
    /// Holds an error.
    Result(Error error) : error_{new Error{std::move(error)}} {}
    /// The source is a success afterwards, or holds what this one held.
    /// @{
    Result(Result&& other) noexcept : error_{std::exchange(other.error_, nullptr)} {}
    Result& operator=(Result&& other) noexcept {
        std::swap(error_, other.error_);
        return *this;
    }
    /// @}
    ~Result() {
        if (error_ != nullptr) { drop(error_); }
    }

    /// Whether nothing failed.
    /// @{
    [[nodiscard]] bool has_value() const noexcept { return error_ == nullptr; }
    [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }
    /// @}
    /// Precondition: !has_value().
    [[nodiscard]] const Error& error() const noexcept {
        RESIDENCY_ASSERT(error_ != nullptr, "ask for an error only after has_value() returned false");
        return *error_;
    }

private:
    RESIDENCY_DETAIL_COLD static void drop(const Error* error) noexcept { delete error; }

    const Error* error_ = nullptr;
};

using Status = Result<void>;

#if !RESIDENCY_EXCEPTIONS

namespace detail {

[[noreturn]] inline void abort_with(const Error& error) noexcept {
    std::fprintf(stderr, "residency: %s\n", error.message().c_str());
    std::abort();
}

}  // namespace detail

#endif  // !RESIDENCY_EXCEPTIONS

#if RESIDENCY_EXCEPTIONS

/// Base of all exceptions that the throwing forms throw.
class Exception : public std::runtime_error {
public:
    /// Its what() is the message of `error`.
    explicit Exception(Error error) : std::runtime_error{error.message()}, error_{std::move(error)} {}
    /// What failed, and where.
    [[nodiscard]] const Error& error() const noexcept { return error_; }
    /// The kind of that error.
    [[nodiscard]] ErrorKind kind() const noexcept { return error_.kind(); }

private:
    Error error_;
};

// clang-format off: one line each
/// Thrown for ErrorKind::invalid_argument.
class InvalidArgument : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::malformed.
class FormatError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::mismatch.
class MismatchError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::budget.
class BudgetError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::device.
class DeviceError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::out_of_memory.
class OutOfMemory : public DeviceError { using DeviceError::DeviceError; };
/// Thrown for ErrorKind::unsupported.
class Unsupported : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::divergence.
class DivergenceError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::stale.
class StaleError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::io.
class IoError : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::cancelled.
class Cancelled : public Exception { using Exception::Exception; };
/// Thrown for ErrorKind::wrong_state.
class WrongState : public Exception { using Exception::Exception; };
// clang-format on

/// Throws the exception of the error's kind.
[[noreturn]] inline void throw_error(const Error& error) {
    switch (error.kind()) {
        case ErrorKind::invalid_argument: throw InvalidArgument{error};
        case ErrorKind::malformed: throw FormatError{error};
        case ErrorKind::mismatch: throw MismatchError{error};
        case ErrorKind::budget: throw BudgetError{error};
        case ErrorKind::out_of_memory: throw OutOfMemory{error};
        case ErrorKind::device: throw DeviceError{error};
        case ErrorKind::unsupported: throw Unsupported{error};
        case ErrorKind::divergence: throw DivergenceError{error};
        case ErrorKind::stale: throw StaleError{error};
        case ErrorKind::io: throw IoError{error};
        case ErrorKind::cancelled: throw Cancelled{error};
        case ErrorKind::wrong_state: throw WrongState{error};
    }
    throw Exception{error};
}

#endif  // RESIDENCY_EXCEPTIONS

/// Returns the value or throws the error. Every throwing form is `return unwrap(try_form(...))`. Without exceptions it prints the
/// error's message to the standard error and aborts: for programs that could not go on either.
template <class T>
T unwrap(Result<T> result) {
#if RESIDENCY_EXCEPTIONS
    if (!result) { throw_error(result.error()); }
#else
    if (!result) { detail::abort_with(result.error()); }
#endif
    if constexpr (!std::is_void_v<T>) { return std::move(result).value(); }
}

}}  // namespace residency::RESIDENCY_ABI
