#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes that a programmer might make, put into the headers one at a time: the random programs have to notice each.

mutants.py makes the mutants on the syntax, and names each by header, function, operator and its ordinal in the function. A
program is compiled once with many mutants that do not overlap, all of them off, and then run with one of them on. A mutant that
cannot be switched is compiled alone. A program notices a mutant where it fails, crashes or does not end in time.

Exits with 1 where a mutant survives that unnoticed.txt does not list, with 2 where nothing can be tried. --check compiles nothing:
it looks whether libclang reads the headers, every operator works and finds places, and every header that decides something has
mutants."""

import argparse
import collections
import concurrent.futures
import dataclasses
import fnmatch
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # nothing is left beside the sources
import mutants as mutation

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADERS = ROOT / "include/residency"


@dataclasses.dataclass(frozen=True)
class Program:
    sources: tuple  # patterns below the root
    flags: tuple = ()
    arguments: tuple = ()


def unit_tests(folder, optimisation="-O0"):
    return Program(("tests/main.cpp", f"tests/{folder}/*.cpp"), (optimisation,), ("--abort-after=1",))


# Random programs first: they are quick, and notice most.
PROGRAMS = {
    "planned": Program(("tests/mutation/program.cpp", "tests/model_based/run.cpp"), ("-DONLY_PLANNED",)),
    "online": Program(("tests/mutation/program.cpp", "tests/model_based/run.cpp"), ("-DONLY_ONLINE",)),
    "graphs": Program(("tests/main.cpp", "tests/planned/random.cpp"), (), ("--abort-after=1",)),
    "staged": Program(("tests/main.cpp", "tests/transport/staged*.cpp"), (), ("--abort-after=1",)),
    "plan": Program(("tests/mutation/plan_program.cpp",)),
    "unit tests of core": unit_tests("core"),
    "unit tests of planned": unit_tests("planned"),
    "unit tests of pool": unit_tests("pool"),
    "unit tests of transport": unit_tests("transport"),
    "unit tests of plan": unit_tests("plan", "-O1"),
    **{f"unit tests of {folder}": unit_tests(folder) for folder in ("broker", "budget", "evict", "host", "prefetch")},
    **{f"unit tests of {folder}": unit_tests(folder, "-O1") for folder in ("codec", "packed", "routed")},
}
# The folders whose headers get mutants, and the programs that cover them. A program that does not come by a mutant is not run for
# it, and one that no mutant is left for is not built.
FOLDERS = {
    "core": ("planned", "online", "graphs", "unit tests of core", "unit tests of planned"),
    "pool": ("planned", "online", "graphs", "unit tests of pool", "unit tests of core"),
    "transport": ("planned", "online", "staged", "unit tests of transport"),
    "plan": ("plan", "unit tests of plan"),
    "evict": ("online", "unit tests of evict"),
    "prefetch": ("online", "unit tests of prefetch"),
    **{folder: (f"unit tests of {folder}",) for folder in ("broker", "budget", "codec", "host", "packed", "routed")},
}
COMPILE = ("-std=c++20", "-O1", "-w", "-DRESIDENCY_TEST_COMPOSITIONS_HERE", f'-DRESIDENCY_FIXTURES_DIR="{ROOT}/tests/fixtures"',
           f"-I{ROOT}", "-include", str(HERE / "switch.hpp"))
MEMORY_BYTES = 8 << 30
FILE_BYTES = 8 << 30  # the memory of a simulated device is a file


class Tree:
    """A copy of include/ with mutants in it, and the programs built on it."""

    def __init__(self, folder, texts, cxx):
        self.folder = folder
        self.texts = texts
        self.cxx = cxx
        self.built = {}
        shutil.copytree(ROOT / "include", folder / "include")

    def write(self, edits):
        """edits: (mutant, begin, end, new bytes), of which no two overlap. Remembers where each came to lie."""
        self.spans = collections.defaultdict(list)
        by_header = collections.defaultdict(list)
        for edit in edits:
            by_header[edit[0].header].append(edit)
        for header, text in self.texts.items():
            pieces, at, length = [], 0, 0
            for mutant, begin, end, new in sorted(by_header[header], key=lambda edit: edit[1]):
                pieces += [text[at:begin], new]
                length += begin - at
                self.spans[header].append((length, length + len(new), mutant))
                length += len(new)
                at = end
            written = b"".join(pieces) + text[at:]
            path = self.folder / "include/residency" / header
            if path.read_bytes() != written:
                path.write_bytes(written)

    def commands(self, name):
        """What compiles a program's sources, each with its object file."""
        program = PROGRAMS[name]
        for pattern in program.sources:
            for source in sorted(ROOT.glob(pattern)):
                target = self.folder / f"{name.replace(' ', '_')}-{source.parent.name}-{source.stem}.o"
                yield [*self.cxx, *COMPILE, f"-I{self.folder / 'include'}", *program.flags, str(source)], target

    def compile(self, name, pool, *options):
        """The compiler's messages on what does not compile of a program."""
        def one(command, target):
            output = options or ("-c", "-o", str(target))
            done = subprocess.run([*command, *output], capture_output=True, text=True, errors="replace")
            return "" if done.returncode == 0 else done.stdout + done.stderr
        return "".join(pool.map(lambda each: one(*each), self.commands(name)))

    def build(self, name, pool):
        """The same, and it is linked."""
        messages = self.compile(name, pool)
        if not messages:
            self.built[name] = self.folder / name.replace(" ", "_")
            objects = [str(target) for _, target in self.commands(name)]
            subprocess.run([*self.cxx, *objects, "-pthread", "-o", str(self.built[name])], check=True)
        return messages

    def run(self, name, limit, **environment):
        """Whether the program passes within so many seconds of the processor, and what it said last or first of an error."""
        def limits():
            resource.setrlimit(resource.RLIMIT_CPU, (round(limit), round(limit) + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
            if not any("sanitize" in word for word in self.cxx):
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))  # addresses are reserved freely
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run([self.built[name], *PROGRAMS[name].arguments], stdin=subprocess.DEVNULL, stdout=output,
                                      stderr=output, timeout=2 * limit, env={**os.environ, **environment}, preexec_fn=limits)
            except subprocess.TimeoutExpired:
                return False, "it does not end"
            if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return False, "it does not end"
            output.seek(0)
            lines = output.read(1 << 20).decode(errors="replace").strip().splitlines()
        said = [line for line in lines if "ERROR" in line or "assertion failed" in line] or lines[:1]
        return done.returncode == 0, said[0].strip() if said else f"exit status {done.returncode}"

    def suspects(self, messages):
        """The mutants that the compiler's messages are about."""
        place = r"^.*?/include/residency/([^:]*):(\d+):(\d+)"
        for pattern in (place + ": (?:fatal )?error", place):
            found, near = set(), set()
            for match in re.finditer(pattern, messages, re.MULTILINE):
                header, line, column = match[1], int(match[2]), int(match[3])
                if header not in self.spans:
                    continue
                lines = (self.folder / "include/residency" / header).read_bytes().split(b"\n")
                start = sum(len(each) + 1 for each in lines[:line - 1])
                at, stop = start + column - 1, start + len(lines[line - 1])
                for begin, end, mutant in self.spans[header]:
                    if begin <= at < end:
                        found.add(mutant.number)
                    elif begin <= stop and end >= start:
                        near.add(mutant.number)
            if found or near:
                return found or near
        return set()


def is_on(number):
    return b"::mutation::is_on(%d)" % number


def programs_of(mutant):
    return FOLDERS[mutant.header.split("/")[0]]


def batches(chosen):
    """Lists of mutants that can be switched and do not overlap."""
    made = []
    for mutant in sorted(chosen, key=lambda each: each.wide[1] - each.wide[0]):
        begin, end = mutant.wide
        for batch, taken in made:
            if all(end <= other[0] or begin >= other[1] for other in taken[mutant.header]):
                break
        else:
            batch, taken = [], collections.defaultdict(list)
            made.append((batch, taken))
        batch.append(mutant)
        taken[mutant.header].append((begin, end))
    return [batch for batch, _ in made]


class Campaign:
    """Tries mutants, and keeps what became of each."""

    def __init__(self, texts, arguments, temporary):
        self.texts = texts
        self.cxx = shlex.split(arguments.cxx)
        if "clang" in self.cxx[0]:
            self.cxx.append("-ferror-limit=0")  # all that do not compile at once
        self.jobs = arguments.jobs
        self.programs = [name for name in PROGRAMS if name in arguments.programs]
        self.limit = arguments.limit
        self.temporary = temporary
        self.trees = 0
        self.pool = concurrent.futures.ThreadPoolExecutor(self.jobs)
        self.lock = threading.Lock()
        self.excused = unnoticed()
        self.counts = collections.Counter()
        self.seconds = collections.Counter()
        self.survivors = []

    def tree(self):
        with self.lock:
            self.trees += 1
            folder = self.temporary / str(self.trees)
        return Tree(folder, self.texts, self.cxx)

    def report(self, mutant, verdict, text=""):
        with self.lock:
            if verdict in ("survives", "not reached"):
                reason = next((reason for pattern, reason in self.excused if fnmatch.fnmatchcase(mutant.name, pattern)), None)
                if reason is None:
                    self.survivors.append(mutant)
                else:
                    verdict, text = "listed", reason
            self.counts[verdict] += 1
            old = self.texts[mutant.header][mutant.begin:mutant.end]
            change = f"\n{'':17}{shown(old)}  ->  {shown(mutant.plain)}" if verdict in ("survives", "not reached") else ""
            print(f"{verdict:16} {mutant.name}:{mutant.line}{'  ' + text[:160] if text else ''}{change}", flush=True)

    def timed(self, what, function, *arguments, **keywords):
        begin = time.monotonic()
        result = function(*arguments, **keywords)
        with self.lock:
            self.seconds[what] += time.monotonic() - begin
            self.counts["times " + what] += 1
        return result

    def batch(self, chosen):
        """Tries mutants that do not overlap. Returns those that do not compile when switched."""
        tree = self.tree()
        alone, survived = [], set()
        for name in self.programs:
            def open_mutants():
                return [each for each in chosen if name in programs_of(each)]
            while open_mutants():
                tree.write([(each, *each.wide, each.switched.replace(mutation.IS_ON, is_on(each.number))) for each in chosen])
                messages = self.timed("look", tree.compile, name, self.pool, "-fsyntax-only")
                if not messages:
                    break
                wrong = tree.suspects(messages)
                if not wrong:
                    sys.exit(messages)
                alone += [each for each in chosen if each.number in wrong]
                chosen = [each for each in chosen if each.number not in wrong]
            if not open_mutants():
                continue
            if messages := self.timed("build", tree.build, name, self.pool):
                sys.exit(messages)
            begin = time.monotonic()
            path = tree.folder / "reached"
            passes, text = tree.run(name, 900, MUTANTS_REACHED=str(path))
            if not passes:
                sys.exit(f"without a mistake, the program “{name}” says: {text}")
            limit = max(self.limit, 5 * (time.monotonic() - begin))
            reached = {int(line) for line in path.read_text().split()}
            tried = [each for each in open_mutants() if each.number in reached]
            survived |= {each.number for each in tried}

            def attempt(mutant):
                passes, text = self.timed("run", tree.run, name, limit, MUTANT=str(mutant.number))
                if not passes:
                    self.report(mutant, "noticed", f"{name}: {text}")
                    return mutant.number
                return None
            noticed = set(self.pool.map(attempt, tried))
            chosen = [each for each in chosen if each.number not in noticed]
        for each in chosen:
            self.report(each, "survives" if each.number in survived else "not reached")
        shutil.rmtree(tree.folder)
        return alone

    def by_itself(self, mutant):
        tree = self.tree()
        try:
            tree.write([(mutant, mutant.begin, mutant.end, mutant.plain)])
            for name in [name for name in programs_of(mutant) if name in self.programs]:
                if self.timed("build", tree.build, name, self.pool):
                    return self.report(mutant, "does not compile")
                passes, text = self.timed("run", tree.run, name, 10 * self.limit)
                if not passes:
                    return self.report(mutant, "noticed", f"{name}: {text}")
            return self.report(mutant, "survives")
        finally:
            shutil.rmtree(tree.folder)

    def run(self, chosen):
        alone = [each for each in chosen if not each.switched]
        for batch in batches([each for each in chosen if each.switched]):
            alone += self.batch(batch)
        for mutant in alone:
            self.by_itself(mutant)


def unnoticed():
    """(pattern of names, why nothing can notice them) of unnoticed.txt."""
    entries = []
    for line in (HERE / "unnoticed.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            entries.append((pattern, reason.strip()))
    return entries


def shown(text):
    return " ".join(text.decode(errors="replace").split()) or "(nothing)"


def headers():
    """Those of the folders, below include/residency."""
    return sorted(str(path.relative_to(HEADERS)) for folder in FOLDERS for path in (HEADERS / folder).rglob("*.[hi]pp"))


# ---- --check ---------------------------------------------------------------------------------------------------------

EXAMPLE = "mutation_example.hpp"
EXAMPLE_TEXT = """#pragma once
#include <algorithm>
#include <utility>
#include <vector>
namespace mutation_example { inline namespace v1 {
struct Status {
    bool good = true;
    bool operator!() const { return !good; }
    int error() const { return 1; }
};
Status work(int);
inline void note(bool) {}
struct Early {
    int less(int a, int b) {
        if (a < b) { return 7; }
        return b;
    }
    template <class T> bool both(const T& a, const T& b) const { return a == b && a.size() > 2; }
};
inline int Late(std::vector<int>& values, int x) {
    if (auto done = work(x); !done) { return done.error(); }
    note(x > 1);
    for (int i = 0; i < x; ++i) { note(false); }
    for (const int value : values) { x += value; }
    if (x != 2) { x = 3, note(true); } else { x = 4; }
    const int old = std::exchange(x, 5);
    return (std::max)(old, x - 1);
}
}}
"""
EXAMPLE_MUTANTS = """\
Status::error/literal/1: 1
    0
Early::less/never/1: a < b
    false
Early::less/relational/1: <
    <=
Early::both/left-only/1: a == b && a.size() > 2
    a == b
Early::both/right-only/1: a == b && a.size() > 2
    a.size() > 2
Early::both/equality/1: ==
    !=
Early::both/logical/1: &&
    ||
Early::both/relational/1: >
    >=
Late/checked-call/1: if (auto done = work(x); !done) { return done.error(); }
    {}
Late/order/1: if (auto done = work(x); !done) { return done.error(); } note(x > 1);
    note(x > 1); if (auto done = work(x); !done) { return done.error(); }
Late/never/1: !done
    false
Late/statement/1: note(x > 1)
    (nothing)
Late/relational/1: >
    >=
Late/loop-begin/1: 0
    1
Late/loop-end/1: i < x
    i + 1 < x
Late/relational/2: <
    <=
Late/statement/2: note(false)
    (nothing)
Late/literal/1: false
    true
Late/range-begin/1: const int value : values) {
    bool mutant_skips = true; const int value : values) { if (mutant_skips) { mutant_skips = false; continue; }
Late/statement/3: x += value
    (nothing)
Late/always/1: x != 2
    true
Late/never/2: x != 2
    false
Late/equality/1: !=
    ==
Late/statement/4: x = 3, note(true)
    (nothing)
Late/literal/2: true
    false
Late/statement/5: x = 4
    (nothing)
Late/exchange/1: std::exchange(x, 5)
    x
Late/min-max/1: (std::max)(old, x - 1)
    (std::min)(old, x - 1)
Late/term/1: x - 1
    x
"""


def listed(mutant, text):
    """What the mutant changes, in two lines."""
    name = mutant.name.removeprefix(mutant.header + "/")
    return f"{name}: {shown(text[mutant.begin:mutant.end])}\n    {shown(mutant.plain)}"


def faults(mutant, text):
    """What is wrong with a mutant."""
    old, wide = text[mutant.begin:mutant.end], text[slice(*mutant.wide)]
    forms = [(mutant.plain, old)] + ([(mutant.switched, wide)] if mutant.switched else [])
    if b"".join(old.split()) == b"".join(mutant.plain.split()):
        yield f"{mutant.name}: is no change"
    if not mutant.wide[0] <= mutant.begin < mutant.end <= mutant.wide[1] or text.count(b"\n", 0, mutant.begin) + 1 != mutant.line:
        yield f"{mutant.name}: is not in its place"
    if mutant.switched and mutation.IS_ON not in mutant.switched:
        yield f"{mutant.name}: is always on"
    # Brackets in texts are no brackets.
    bare = [tuple(re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', each) for each in form) for form in forms]
    if any(new.count(a) - new.count(b) != place.count(a) - place.count(b)
           for new, place in bare for a, b in ((b"(", b")"), (b"[", b"]"), (b"{", b"}"))):
        yield f"{mutant.name}: its brackets do not close"


def check(found, texts):
    """What is wrong, a line each."""
    wrong = []
    example = [listed(each, texts[EXAMPLE]) for each in found if each.header == EXAMPLE]
    if "\n".join(example) + "\n" != EXAMPLE_MUTANTS:
        wrong.append("the example's mutants are others:\n" + "\n".join(example))
    own = [each for each in found if each.header != EXAMPLE]
    if len({each.name for each in found}) != len(found):
        wrong.append("two mutants have one name")
    for operator in mutation.OPERATORS:
        for part, where in (("the example", [each for each in found if each.header == EXAMPLE]), ("the headers", own)):
            if not any(each.operator == operator for each in where):
                wrong.append(f"the operator “{operator}” finds no place in {part}")
    count = collections.Counter(each.header for each in own)
    for header in headers():
        plain = re.sub(rb'//[^\n]*|"(\\.|[^"\\\n])*"', b"", texts[header])
        if count[header] == 0 and re.search(rb"\b(if|for|while) \(|\breturn [^;]*(&&|\|\||[=!]=)[^;]*;", plain):
            wrong.append(f"{header}: decides something, and has no mutant")
    seen = set()
    for each in found:
        wrong += faults(each, texts[each.header])
        mistake = (each.header, each.begin, each.end, each.plain)
        if mistake in seen:
            wrong.append(f"{each.name}: the same as another one")
        seen.add(mistake)
    right = next(each for each in found if each.operator == "checked-call")
    for what, change in (("no change", {"plain": texts[right.header][right.begin:right.end]}),
                         ("another line", {"line": right.line + 1}),
                         ("open brackets", {"plain": b"{"}),
                         ("open brackets when switched", {"switched": b"(" + right.switched}),
                         ("a place beyond the switched one", {"wide": (right.begin + 1, right.end)}),
                         ("no switch", {"switched": b"{}"})):
        if not list(faults(dataclasses.replace(right, **change), texts[right.header])):
            wrong.append(f"a mutant with {what} is taken for right")
    for name, program in PROGRAMS.items():
        wrong += [f"the program “{name}”: no {pattern}" for pattern in program.sources if not list(ROOT.glob(pattern))]
    for folder in FOLDERS:
        if not any(each.header.startswith(folder + "/") for each in own):
            wrong.append(f"include/residency/{folder} has no mutants")
    for pattern, reason in unnoticed():
        if not reason:
            wrong.append(f"unnoticed.txt gives no reason for {pattern}")
        if not any(fnmatch.fnmatchcase(each.name, pattern) for each in own):
            print(f"unnoticed.txt lists what is not there: {pattern}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="*", help="mutants whose name has this in it, or matches it")
    parser.add_argument("--headers", nargs="+", default=["*"], help="headers below include/residency, folders, or patterns of them")
    parser.add_argument("--sample", type=int, help="so many of them, at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=PROGRAMS, metavar="NAME",
                        help="only these of " + ", ".join(PROGRAMS))
    parser.add_argument("--cxx", default="clang++-19", help="the compiler, with options if need be")
    parser.add_argument("--limit", type=float, default=20, help="processor seconds that a program has at least; it has five times what "
                        "it takes without a mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    example = {EXAMPLE: EXAMPLE_TEXT} if arguments.check else {}
    found, texts = mutation.parse(ROOT / "include", [*headers(), *example], example)
    if arguments.check:
        wrong = check(found, texts)
        print("\n".join(wrong or [f"{len(found)} mutants of {len(mutation.OPERATORS)} operators in {len(headers())} headers"]))
        return 1 if wrong else 0

    def matches(text, pattern):
        return fnmatch.fnmatchcase(text, pattern if "*" in pattern else f"*{pattern}*")
    chosen = [each for each in found if matches(each.name, arguments.only) and
              any(fnmatch.fnmatchcase(each.header, p) or each.header.startswith(p.rstrip("/") + "/") for p in arguments.headers)]
    if arguments.sample is not None and arguments.sample < len(chosen):
        chosen = random.Random(arguments.seed).sample(chosen, arguments.sample)
    if arguments.list:
        for each in sorted(chosen, key=lambda each: each.number):
            print(f"{each.header}:{each.line}: {listed(each, texts[each.header])}")
        return 0
    if not chosen:
        print("no such mutant")
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        campaign = Campaign(texts, arguments, pathlib.Path(temporary))
        campaign.run(chosen)
    verdicts = ("noticed", "survives", "not reached", "listed", "does not compile")
    print(f"{len(chosen)} mutants: " + ", ".join(f"{campaign.counts[verdict]} {verdict}" for verdict in verdicts))
    print(", ".join(f"{what}: {campaign.counts['times ' + what]} in {seconds:.0f} s" for what, seconds in campaign.seconds.items()))
    return 1 if campaign.survivors else 0


if __name__ == "__main__":
    sys.exit(main())
