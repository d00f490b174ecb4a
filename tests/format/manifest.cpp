// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/manifest.hpp"

#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/model/number.hpp"

namespace manifest_test {

using namespace residency;
using support::refused;

TEST_CASE("manifest: weights in files of raw bytes") {
    const support::TemporaryFolder folder;
    folder.write("w.blob", std::string(200, 'x'));
    const auto read = [&](const std::string& storages, const std::string& weights, const std::string& more = "") {
        return format::try_read_manifest(folder.write(
            "m.json",
            "{\"format\":\"aotinductor\"," + more + "\"storages\":" + storages + ",\"weights\":" + weights + "}"));
    };
    const std::string storage = R"([{"bytes":96,"file":"w.blob"}])";

    const auto model = read(R"([{"bytes":96,"file":"w.blob"},{"bytes":8,"file":"w.blob","mutable":true}])",
                            R"([{"name":"a","dtype":"float32","shape":[2,6],"storage":0},
                                {"name":"b","dtype":"float32","shape":[6,2],"strides":[1,6],"storage":0,"offset_bytes":48,"bytes":48},
                                {"name":"c","dtype":"F64","shape":[],"storage":1}])",
                            "\"alignment\":64,");
    REQUIRE(model);
    CHECK(model->format == "aotinductor");
    CHECK(model->storages[1].offset_bytes == 128);
    CHECK(model->storages[1].is_mutable);
    CHECK(model->weights[1].strides == Strides{1, 6});
    const auto catalog = model->try_catalog();
    REQUIRE(catalog);
    CHECK(catalog->resident_bytes() == 8);
    CHECK(catalog->storage_of(*catalog->find("a")) == catalog->storage_of(*catalog->find("b")));
    CHECK(read(R"([{"bytes":96,"file":"w.blob"},{"bytes":8,"file":"w.blob"}])", "[]")->storages[1].offset_bytes == 96);

    CHECK(refused(read("{}", "[]"), "lacks the arrays"));
    const std::string whole = R"({"storages":[{"bytes":9}]})";
    for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
        CAPTURE(bytes);
        CHECK(refused(support::over(whole.substr(0, bytes),
                                    [](const format::Input& input) { return format::try_read_manifest(input); }),
                      "not valid JSON, it has no end: the file is cut off: download it again: found " +
                          detail::in_bytes(bytes) + ", expected at least " + detail::in_bytes(bytes + 1)));
    }
    CHECK(refused(read("[]", "[]", "\"alignment\":3,"), "power of two"));
    CHECK(refused(read(R"([{"bytes":201,"file":"w.blob"}])", "[]"), "do not lie inside"));
    CHECK(refused(read(R"([{"bytes":2,"offset":199,"file":"w.blob"}])", "[]"), "do not lie inside"));
    CHECK(refused(read(R"([{"bytes":2,"offset":18446744073709551615,"file":"w.blob"}])", "[]"), "do not lie inside"));
    CHECK(refused(read(R"([{"bytes":2,"offset":"0","file":"w.blob"}])", "[]"), "not a whole number"));
    CHECK(refused(read(R"([{"bytes":2}])", "[]"), "lacks"));
    CHECK(refused(read(R"([{"bytes":8,"offset":0,"file":"w.blob"},{"bytes":8,"offset":4,"file":"w.blob"}])", "[]"),
                  "overlap"));
    CHECK(read(R"([{"bytes":2,"file":"none"}])", "[]").error().kind() == ErrorKind::io);
    CHECK(refused(read(storage, R"([{"dtype":"F32","shape":[],"storage":0}])"), "no name"));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"F99","shape":[],"storage":0}])"), "unknown type"));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"F32","shape":[-1],"storage":0}])"), "\"shape\""));
    CHECK(
        refused(read(storage, R"([{"name":"a","dtype":"F32","shape":[1],"strides":[],"storage":0}])"), "\"strides\""));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"F32","shape":[1],"storage":1}])"), "no storage"));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"F32","shape":[25],"storage":0}])"), "does not lie inside"));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"F32","shape":[1],"storage":0,"offset_bytes":2}])"),
                  "not a multiple"));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"F32","shape":[1],"storage":0,"bytes":5}])"), "\"bytes\""));
    CHECK(refused(read(storage, R"([{"name":"a","dtype":"Q8_0","shape":[16],"storage":0}])"), "blocks"));
    CHECK(refused(
        read(
            storage,
            R"([{"name":"a","dtype":"F32","shape":[1],"storage":0},{"name":"a","dtype":"F32","shape":[1],"storage":0}])"),
        "given twice"));
}

}  // namespace manifest_test
