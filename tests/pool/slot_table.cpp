// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/pool/slot_table.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace slot_table_test {

using residency::pool::SlotTable;
using Chunks = std::vector<bool>;

namespace {

/// Ends a change, with every chunk that is wanted mapped, and the others not.
Chunks end_resize(SlotTable& table) {
    const Chunks wanted = table.end_resize();
    for (std::size_t chunk = 0; chunk < wanted.size(); ++chunk) { table.set_mapped(chunk, wanted[chunk]); }
    table.list_free();
    return wanted;
}
std::vector<std::size_t> take_all(SlotTable& table) {
    std::vector<std::size_t> taken;
    while (const auto slot = table.take()) { taken.push_back(*slot); }
    return taken;
}

}  // namespace

TEST_SUITE_BEGIN("pools");

TEST_CASE("slot table: as many slots are open as the cap has chunks for, in the order in which they became free") {
    SlotTable table;
    CHECK_FALSE(table.is_open());
    table.open(5, 100, 100);
    CHECK(table.chunks() == 5);
    CHECK_FALSE(table.take());
    table.begin_resize(3, {});
    CHECK_FALSE(table.take());  // none is backed yet
    CHECK(end_resize(table) == Chunks{true, true, true, false, false});
    CHECK(take_all(table) == std::vector<std::size_t>{0, 1, 2});
    CHECK(table.used_slots() == 3);
    table.give_back(2);
    table.give_back(0);
    CHECK(take_all(table) == std::vector<std::size_t>{2, 0});
}

TEST_CASE("slot table: neighbours are taken as one, given back as one, and pinned as one") {
    SlotTable table;
    table.open(7, 100, 100, true);
    table.begin_resize(6, {});
    end_resize(table);
    CHECK(table.take() == 0);
    CHECK(table.take(3) == 1);
    CHECK_FALSE(table.take(3));
    CHECK(table.take() == 4);
    CHECK(table.used_slots() == 5);
    table.give_back(0);
    CHECK_FALSE(table.take(2));  // 0 and 5 are no neighbours
    CHECK(table.take() == 0);
    table.give_back(4);
    CHECK(table.take(2) == 4);
    CHECK_FALSE(table.take());
    table.begin_resize(5, std::vector<std::size_t>{1});
    CHECK_FALSE(table.must_be_given_back(1));
    CHECK(table.must_be_given_back(4));  // its second slot is closed
    CHECK(table.is_over());
    table.give_back(4);
    CHECK_FALSE(table.is_over());
    CHECK(end_resize(table) == Chunks{true, true, true, true, true, false, false});
    table.give_back(1);
    CHECK(table.take(4) == 1);
    CHECK_FALSE(table.take());
}

TEST_CASE("slot table: a slot is backed only if all of its chunks are mapped") {
    SlotTable table;
    table.open(4, 150, 100);  // slots 0 and 1 share chunk 1, 2 and 3 share chunk 4
    CHECK(table.chunks() == 6);
    table.begin_resize(5, {});
    CHECK(end_resize(table) == Chunks{true, true, true, true, true, false});
    CHECK(take_all(table) == std::vector<std::size_t>{0, 1, 2});
    table.give_back(1);
    table.set_mapped(1, false);
    table.list_free();
    CHECK_FALSE(table.take());
}

TEST_CASE("slot table: pinned slots beyond the cap keep their chunks, and the others have to be given back") {
    SlotTable table;
    table.open(6, 100, 100);
    table.begin_resize(6, {});
    end_resize(table);
    CHECK(take_all(table).size() == 6);
    const std::vector<std::size_t> pinned{4};
    table.begin_resize(3, pinned);  // chunk 4 counts: slots 0 and 1 are open beside it
    CHECK(table.must_be_given_back(2));
    CHECK_FALSE(table.must_be_given_back(1));
    CHECK(table.must_be_given_back(4));
    for (const std::size_t slot : {0U, 5U, 3U}) {
        CHECK(table.is_over());
        table.give_back(slot);
    }
    CHECK_FALSE(table.is_over());  // 1 and 2 have a place each
    CHECK(take_all(table) == std::vector<std::size_t>{0});
    table.give_back(2);
    CHECK(end_resize(table) == Chunks{true, true, false, false, true, false});

    // The pinned slot is given back: the cap holds three again.
    table.give_back(4);
    CHECK(end_resize(table) == Chunks{true, true, true, false, false, false});
    CHECK(take_all(table) == std::vector<std::size_t>{2});
}

TEST_SUITE_END();

}  // namespace slot_table_test
