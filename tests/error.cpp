// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/error.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

using namespace residency;

namespace {

Result<int> half(int value) {
    if (value % 2 != 0) { return Error{ErrorKind::invalid_argument, std::to_string(value) + " is odd"}; }
    return value / 2;
}

Status check_budget(std::uint64_t asked, std::uint64_t budget) {
    if (asked <= budget) { return {}; }
    return Error{ErrorKind::budget, "too small",
                 BudgetNumbers{.asked_bytes = asked, .budget_bytes = budget, .floor_bytes = asked, .step = 7}};
}

}  // namespace

TEST_CASE("a result holds its value or its error") {
    const Result<int> good = half(6);
    REQUIRE(good.has_value());
    CHECK(*good == 3);
    CHECK(good.value() == 3);

    const Result<int> bad = half(7);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().kind() == ErrorKind::invalid_argument);
    CHECK(bad.error().message() == "7 is odd");
}

TEST_CASE("a result moves what it holds out of it") {
    Result<std::unique_ptr<int>> result{std::make_unique<int>(5)};
    const std::unique_ptr<int> value = std::move(result).value();
    CHECK(*value == 5);

    Result<std::string> text{"abc"};
    text->push_back('d');
    CHECK(*text == "abcd");
}

TEST_CASE("a status is success or an error") {
    CHECK(check_budget(1, 2).has_value());
    const Status refused = check_budget(3, 2);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
}

TEST_CASE("an error carries its numbers, and none of another type") {
    const Status refused = check_budget(3, 2);
    const auto* numbers = refused.error().detail<BudgetNumbers>();
    REQUIRE(numbers != nullptr);
    CHECK(numbers->asked_bytes == 3);
    CHECK(numbers->budget_bytes == 2);
    CHECK(numbers->step == 7);
    CHECK(refused.error().detail<FileLocation>() == nullptr);
}

TEST_CASE("context goes before the message and leaves kind and numbers") {
    const Status refused = check_budget(3, 2);
    const Error outer = refused.error().in("model.bin").in("load");
    CHECK(outer.message() == "load: model.bin: too small");
    CHECK(outer.kind() == ErrorKind::budget);
    CHECK(outer.detail<BudgetNumbers>()->asked_bytes == 3);
}

TEST_CASE("a result is not made from what its value cannot be made from") {
    CHECK(std::is_constructible_v<Result<int>, int>);
    CHECK_FALSE(std::is_constructible_v<Result<int>, std::string>);
    CHECK(std::is_constructible_v<Result<std::string>, Error>);
}

TEST_CASE("every kind is thrown as its own exception, with the error in it") {
    const auto thrown = [](ErrorKind kind) { throw_error(Error{kind, "text"}); };
    CHECK_THROWS_AS(thrown(ErrorKind::invalid_argument), InvalidArgument);
    CHECK_THROWS_AS(thrown(ErrorKind::malformed), FormatError);
    CHECK_THROWS_AS(thrown(ErrorKind::mismatch), MismatchError);
    CHECK_THROWS_AS(thrown(ErrorKind::budget), BudgetError);
    CHECK_THROWS_AS(thrown(ErrorKind::out_of_memory), OutOfMemory);
    CHECK_THROWS_AS(thrown(ErrorKind::out_of_memory), DeviceError);
    CHECK_THROWS_AS(thrown(ErrorKind::device), DeviceError);
    CHECK_THROWS_AS(thrown(ErrorKind::unsupported), Unsupported);
    CHECK_THROWS_AS(thrown(ErrorKind::divergence), DivergenceError);
    CHECK_THROWS_AS(thrown(ErrorKind::stale), StaleError);
    CHECK_THROWS_AS(thrown(ErrorKind::io), IoError);
    CHECK_THROWS_AS(thrown(ErrorKind::cancelled), Cancelled);
    CHECK_THROWS_AS(thrown(ErrorKind::wrong_state), WrongState);
    CHECK(std::string{to_string(ErrorKind::out_of_memory)} == "out_of_memory");
    try {
        thrown(ErrorKind::stale);
    } catch (const Exception& exception) {
        CHECK(exception.kind() == ErrorKind::stale);
        CHECK(std::string{exception.what()} == "text");
        CHECK(exception.error().message() == "text");
    }
}

TEST_CASE("unwrap gives the value, or throws the error") {
    CHECK(unwrap(half(8)) == 4);
    CHECK_THROWS_AS(unwrap(half(9)), InvalidArgument);
    CHECK_NOTHROW(unwrap(check_budget(1, 1)));
    CHECK_THROWS_AS(unwrap(check_budget(2, 1)), BudgetError);
}
