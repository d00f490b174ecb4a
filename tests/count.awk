# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
# Reads ctest's JUnit file; prints a table, and last `N passed, N failed`: doctest's cases where a program is one, and
# one for every other test. A program that fails without a failed case, by a crash, say, counts as one failure.
# -v failed=1 counts a failure from before, such as the build's.

function close_test() {
    if (name == "") { return }
    if (status == "run") {
        if (cases == 0) { passed_now = 1; failed_now = 0 }
        word = "passed"
    } else if (status == "fail") {
        if (failed_now == 0) { failed_now = 1 }
        if (cases == 0) { passed_now = 0 }
        word = "FAILED"
    } else {
        passed_now = 0; failed_now = 0
        word = "skipped"
        skipped++
    }
    passed += passed_now; failed += failed_now
    printf "  %-34s %-8s %6d cases  %7.2f s%s\n", name, word, passed_now + failed_now, seconds, reason
    name = ""
}
/<testcase / {
    close_test()
    match($0, / name="[^"]*"/);   name = substr($0, RSTART + 7, RLENGTH - 8)
    match($0, / status="[^"]*"/); status = substr($0, RSTART + 9, RLENGTH - 10)
    match($0, / time="[^"]*"/);   seconds = substr($0, RSTART + 7, RLENGTH - 8)
    cases = 0; passed_now = 0; failed_now = 0; reason = ""
}
/<skipped message="Unable to find executable"/ { status = "fail"; reason = "  not built" }
/\[doctest\] test cases:/ {
    split($0, field, "|")
    cases += 1
    match(field[2], /[0-9]+/); passed_now += substr(field[2], RSTART, RLENGTH)
    match(field[3], /[0-9]+/); failed_now += substr(field[3], RSTART, RLENGTH)
}
/SKIPPED: |skipped: / { sub(/.*(SKIPPED|skipped): /, ""); reason = "  " $0 }
END {
    close_test()
    if (passed + failed == 0) { failed = 1; print "  no test was run" }
    if (skipped) { printf "  %d skipped\n", skipped }
    printf "%d passed, %d failed\n", passed, failed
    exit failed > 0
}
