#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the documents against the tree.

    check.py            fails if the design (docs/design.md, decisions.md, classes.md) names a file, class or test that
                        does not exist, if a contract has no test, if a class of include/ has no comment or no row in the table of classes, or if a header includes a room
                        that its row in the table of rooms does not name; also if a document (the README, docs/, .github/, those
                        of examples/) has a link that leads nowhere, names a file or a qualified name that is not there, or, in
                        docs/, has a block of C++ that is not a quotation of the file which its title names, or a table of options,
                        numbers, events or errors that lacks a name of its header, or has one that the header lacks
    check.py --write    writes the two generated tables anew: classes by their first sentence, and tests by contract
    check.py --trips    damages the documents in memory, and fails if the check does not notice
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (DOCS / "design.md", DOCS / "decisions.md", DOCS / "classes.md")  # checked as one text: of the design
CLASSES = PAGES[-1]  # has the generated tables
CONTRACTS = range(1, 33)

CLASS = re.compile(r"^(class|struct|union|enum class)\s+(?:\[\[\w+\]\]\s+)?(?:RESIDENCY_\w+\s+)?(\w+)([^;{(]*)(.*)$")
CONCEPT = re.compile(r"^concept (\w+) =")
NAMESPACE = re.compile(r"\bnamespace (\w+)? ?\{")


def declarations(path):
    """The classes and concepts at namespace scope of a file, outside detail: (qualified name, first sentence)."""
    scopes, doc, found = [], [], []
    for line in path.read_text(encoding="utf-8").split("\n"):
        names = NAMESPACE.findall(line)
        if names and not line.startswith((" ", "//", "#")):
            scopes.append([n for n in names if n not in ("residency", "RESIDENCY_ABI")])
            doc = []
            continue
        if re.match(r"^\}+(\s*//.*)?$", line) and "namespace" in line:
            if scopes:
                scopes.pop()
            continue
        if line.startswith("///"):
            doc.append(line[3:].strip())
            continue
        concept, declared = CONCEPT.match(line), CLASS.match(line)
        if concept or declared:
            name = (concept or declared).group(1 if concept else 2)
            defined = concept or not (line.split("//")[0].rstrip().endswith(";") and "{" not in line)
            if declared and re.match(r"\s*(<[^>]*>)?::", declared.group(3)):  # a class within one that has its row
                doc = []
                continue
            specialised = declared and declared.group(3).lstrip().startswith("<")
            where = [n for scope in scopes for n in scope]
            if defined and (doc or not specialised) and "detail" not in where and "" not in where:
                found.append(("::".join([*where, name]), first_sentence(doc)))
            doc = []
        elif not line.startswith(("template", " ", "requires")):
            doc = []
    return found


def first_sentence(doc):
    """Up to the first period; code, numbered lists and later paragraphs do not belong to it."""
    lines = []
    for line in doc:
        if not line or re.match(r"\d+\. ", line):
            break
        lines.append(line)
    text = " ".join(lines)
    for end in re.finditer(r"[.](?=\s|$)", text):
        if not re.search(r"\b(e\.g|i\.e|vs|H)$", text[: end.start()]):
            return text[: end.start()].replace("|", "\\|")
    return text.rstrip(":").replace("|", "\\|")


def classes():
    found = {}
    for path in sorted((ROOT / "include").rglob("*.[hi]pp")):
        for name, sentence in declarations(path):
            found[(name, str(path.relative_to(ROOT / "include" / "residency")))] = sentence
    return found


TEST_CASE = re.compile(r'TEST_CASE(?:_TEMPLATE|_FIXTURE)?\(\s*"((?:[^"\\]|\\.)*)"')


def contracts_of(name):
    label = re.match(r"((?:C\d+(?: to )?\s?)+):", name)
    if not label:
        return set()
    span = re.match(r"C(\d+) to C(\d+):", name)
    return set(range(int(span[1]), int(span[2]) + 1)) if span else {int(n) for n in re.findall(r"C(\d+)", label[1])}


def tests():
    """(file, name of the case) of every test case that is named after contracts."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.cpp")):
        for name in TEST_CASE.findall(path.read_text(encoding="utf-8", errors="replace")):
            numbers = contracts_of(name)
            if numbers:
                found[(str(path.relative_to(ROOT)), name)] = numbers
    return found


def table_of_classes():
    folders = {}
    for (name, file), sentence in classes().items():
        folders.setdefault(file.rpartition("/")[0], []).append((name, file, sentence))
    lines = []
    for folder in sorted(folders):
        lines += [f"**`{folder}/`**" if folder else "**At the top**", "", "| class | file | what it is |", "|---|---|---|"]
        lines += [f"| `{name}` | `{file}` | {sentence} |" for name, file, sentence in folders[folder]]
        lines.append("")
    return lines


def table_of_tests():
    lines = ["| contract | test cases |", "|---|---|"]
    for number in CONTRACTS:
        by_file = {}
        for (file, name), numbers in tests().items():
            if number in numbers:
                by_file.setdefault(file, []).append(name)
        cells = [f"`{file}`: " + "; ".join(f"“{name}”" for name in names) for file, names in by_file.items()]
        lines.append(f"| C{number} | {'<br>'.join(cells)} |")
    return lines + [""]


def between(text, mark):
    begin, end = f"<!-- {mark}: check.py --write -->\n", f"<!-- {mark}: end -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{CLASSES}: the marks of the table \"{mark}\" are missing")
    start = text.index(begin) + len(begin)
    return start, text.index(end)


def write(text):
    for mark, lines in (("classes", table_of_classes()), ("tests", table_of_tests())):
        start, end = between(text, mark)
        text = text[:start] + "\n" + "\n".join(lines) + text[end:]
    return text


def words_of_tree():
    words = set()
    for folder in ("include", "tests", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.parent.name != "docs" and path.suffix in (".hpp", ".ipp", ".cpp", ".cu", ".cuh", ".h", ".c", ".txt", ".cmake", ".py", ".sh"):
                words.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
    for file in ("CMakeLists.txt", "CMakePresets.json", "meson.build", "meson_options.txt"):
        words.update(re.findall(r"\w+", (ROOT / file).read_text(encoding="utf-8")))
    return words


def exists(path):
    return any((base / path).exists() for base in (ROOT, ROOT / "include" / "residency", ROOT / "include"))


def text_of(path):
    for base in (ROOT, ROOT / "include" / "residency", ROOT / "include"):
        if (base / path).is_file():
            return (base / path).read_text(encoding="utf-8")
    return ""


FILE = re.compile(r"^[\w.+-]+(/[\w.+-]+)*\.(hpp|ipp|cpp|cu|h|c|py|sh|md|txt|cmake|awk)$|^(\.?[\w-]+/)+[\w-]*$")
NAME = re.compile(r"^~?[A-Za-z_]\w*(::~?[A-Za-z_]\w*)*(\(\))?$")


def problems(text, have=None, words=None):
    have, words = have or (classes(), tests()), words or words_of_tree()
    known, cases = have
    found = []
    for line in text.split("\n"):
        ticked = re.findall(r"(?<!`)`([^`]+)`(?!`)", line)
        files = [t for t in ticked if FILE.match(t)]
        names = [t for t in ticked if t not in files and NAME.match(t)]
        found += [f"there is no file or folder {file}" for file in files if not exists(file)]
        for name in names:
            parts = name.removesuffix("()").split("::")
            found += [f"nothing in the tree is named {part} (of {name})" for part in parts if part.strip("~") not in words]
        # A row that begins with a number is a stop of a way: its functions are in its files.
        if re.match(r"\| *\d+ *\|", line):
            texts = " ".join(text_of(file) for file in files)
            for name in names:
                last = name.removesuffix("()").split("::")[-1]
                if files and not re.search(rf"\b{re.escape(last)}\b", texts):
                    found.append(f"{last} is not in {', '.join(files)}")
    start, end = between(text, "classes")
    rows = set(re.findall(r"^\| `([\w:]+)` \| `([\w./]+)` \|", text[start:end], re.M))
    found += [f"the table of classes lacks {name} of {file}" for name, file in sorted(set(known) - rows)]
    found += [f"the table of classes names {name} of {file}, which is not there" for name, file in sorted(rows - set(known))]
    found += [f"{name} of include/residency/{file} has no comment" for (name, file), sentence in known.items() if not sentence]
    found += wrong_includes(text)
    start, end = between(text, "tests")
    for row in text[start:end].split("\n"):
        label = re.match(r"\| C(\d+) \|", row)
        if not label:
            continue
        named = [(file, name) for file, names in re.findall(r"`([\w./]+)`: ((?:“.*?”(?:; )?)+)", row) for name in re.findall(r"“(.*?)”", names)]
        found += [f"C{label[1]}: {file} has no case \"{name}\"" for file, name in named if (file, name) not in cases]
    for number in CONTRACTS:
        if not re.search(rf"^- \*\*C{number}\*\* \S", text, re.M):
            found.append(f"C{number} is not stated")
        if not re.search(rf"^\| C{number} \| `.*“", text[start:end], re.M):
            found.append(f"C{number} has no test in the table of tests")
        if not any(number in numbers for numbers in cases.values()):
            found.append(f"no test case is named after C{number}")
    for (file, name), numbers in cases.items():
        found += [f"{file}: C{n} is no contract (\"{name}\")" for n in sorted(numbers - set(CONTRACTS))]
    return found


def wrong_includes(text):
    """Headers that include a room which the row of their own does not name; rows that name what is below, or what nobody includes. The
    files at the top are the base, which everybody includes, and umbrellas."""
    may, found = {}, []
    for room, touched in re.findall(r"^\| `([\w/]+)/` \|[^|\n]*\| ([^|\n]*) \|$", text, re.M):
        names = re.findall(r"`([\w/]+)/`", touched)
        found += [f"the room {room}/ may not touch {name}/, which is not above it" for name in names if name not in may]
        may[room] = set(names)
    include, unused = ROOT / "include" / "residency", {(room, name) for room in may for name in may[room]}
    for path in sorted(path for ending in ("hpp", "ipp", "cuh", "h") for path in include.rglob(f"*.{ending}")):
        file = path.relative_to(include)
        own = next((str(folder) for folder in file.parents if str(folder) in may), None)
        if own is None or own == "impl":  # the sources of residency::compiled
            if own is None and len(file.parts) > 1:
                found.append(f"the list of rooms lacks {file.parts[0]}/")
            continue
        for target in re.findall(r'#include "residency/([\w/]+)/\w+\.\w+"', path.read_text(encoding="utf-8")):
            target = target.removesuffix("/impl")
            unused.discard((own, target))
            # A device with the compositions that residency::compiled has on it, so that a program which includes the device has them.
            is_presets = path.name in ("presets.hpp", "cuda_presets.hpp") and target == "impl"
            if target not in may[own] | {own} and not is_presets:
                found.append(f"{path.relative_to(ROOT)} includes {target}/, which {own}/ may not touch")
    found += [f"the room {room}/ is said to touch {name}/, but does not" for room, name in sorted(unused)]
    return found


def documents():
    """Every document for readers, beside design.md: (path, text)."""
    paths = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in (".github", "docs", "examples"):
        paths += sorted((ROOT / folder).rglob("*.md"))
    return [(path, path.read_text(encoding="utf-8")) for path in paths]


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(text):
    """Of the headings of a document, as GitHub and mkdocs make them of plain headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def dead_links(text, path):
    """Relative links of the document at that path that lead nowhere: to no file, or to no heading of it."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file) if file else path
        if not target.exists():
            found.append(f"the link to {link} leads nowhere")
        elif anchor and target.suffix == ".md":
            there = text if target == path else target.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                found.append(f"the link to {link}: there is no such heading")
    return found


def dedented(lines):
    """Without the indentation that all of them have, and without what is empty at both ends."""
    return textwrap.dedent("\n".join(line.rstrip() for line in lines)).strip("\n").split("\n")


def is_quotation(block, source):
    """Whether the lines of a block stand in a row in a source, but for their common indentation."""
    wanted, lines = dedented(block), [line.rstrip() for line in source]
    starts = [i for i, line in enumerate(lines) if line.strip() == wanted[0].strip()]
    return any(dedented(lines[i : i + len(wanted)]) == wanted for i in starts)


CODE = ("cpp", "c++", "cuda", "cmake", "c", "python")


def wrong_quotations(text, root=ROOT):
    """Blocks of code of a document that are no quotations: each has the file as its title, and the tests compile and run that file."""
    found = []
    for match in re.finditer(r"^```(\S+)([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        language, rest, block = match.groups()
        if language not in CODE:
            continue
        number = text.count("\n", 0, match.start()) + 1
        title = re.search(r'title="([^"]+)"', rest)
        if not title:
            found.append(f"{number}: a block of {language} names no file that it quotes")
        elif not (root / title[1]).is_file():
            found.append(f"{number}: there is no file {title[1]}")
        elif not is_quotation(block.split("\n")[:-1], (root / title[1]).read_text(encoding="utf-8").split("\n")):
            found.append(f"{number}: this block is not in {title[1]}")
    return found


def signatures(text):
    """The functions of a header of C with the names of their parameters; those that a function writes to begin with &."""
    found = []
    for name, inside in re.findall(r"^[\w *]*\b(residency_\w+)\(((?:[^()]|\([^()]*\))*)\);", text, re.M):
        names = []
        for each in re.split(r",\s*(?![^(]*\))", " ".join(inside.split())):
            pointer = re.search(r"\(\*(\w+)\)", each)  # to a function
            if each != "void":
                own = pointer[1] if pointer else re.search(r"\w+$", each)[0]
                names.append("&" * bool(re.match(r"(.*\*\*|u?int\d+_t\*|residency_(weight|statistics|counters)\*) ", each)) + own)
        found.append(f"{name}({', '.join(names)})")
    return found


def members(file, kind, name):
    """The data members of a struct of a header, the names of an enumeration, the calls of a class, without "try_", the
    functions of a header of C with their parameters, or what a concept asks for, in their order."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "include" / "residency" / file).read_text(encoding="utf-8"))
    if kind == "functions":
        return signatures(text)
    if kind == "concept":  # what its comment numbers, such as `e.attach(context)`
        comments = re.findall(r"^///.*", (ROOT / "include" / "residency" / file).read_text(encoding="utf-8"), re.M)
        return list(dict.fromkeys(re.findall(r"`\w(?:\.|::)(\w+)", "\n".join(comments))))
    begin = re.search(rf"^ *(?:typedef )?{kind} (?:\[\[nodiscard\]\] )?{name}\b[^;{{]*{{", text, re.M)
    if not begin:
        raise SystemExit(f"include/residency/{file} has no {kind} {name}")
    body, depth = text[begin.end() :], 1
    for at, letter in enumerate(body):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0:
            body = body[:at]
            break
    if kind == "enum class":
        return re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip())
    if kind == "class":
        public, found = re.split(r"^private:", body, maxsplit=1, flags=re.M)[0], {}
        for line in public.split("\n"):
            call = re.match(r"    (?! |template|requires|friend|using|RESIDENCY_)[^=(~]*?\b(\w+)\(", line)
            if call and call[1] != name and "operator" not in line:
                found[call[1].removeprefix("try_")] = None
        return list(found)
    for pattern, instead in ((r"\{[^{}]*\}", ";"), (r"<[^<>;{}]*>", "")):  # bodies and initializers, then arguments of templates
        while re.search(pattern, body):
            body = re.sub(pattern, instead, body)
    found = []
    for statement in body.split(";"):
        declared = re.match(r"\s*(?!using\b|friend\b|static\b|struct\b|public\b)[\w:]+(?: [\w:]+)*[\s*&]+(\w+)\s*(=.*)?$", statement, re.S)
        if declared and "(" not in statement.split("=")[0]:
            found.append(declared[1])
    return found


# Tables that name every member of a struct, name of an enumeration or call of a class: (page, heading, header, kind, name).
TABLES = (
    ("reference.md", "Of a `Residency`", "core/residency.hpp", "class", "Residency"),
    ("reference.md", "Of a pass", "core/engine/pass.hpp", "class", "Pass"),
    ("reference.md", "Of a lease", "core/engine/lease.hpp", "class", "Lease"),
    ("reference.md", "Of a ticket", "core/engine/lease.hpp", "class", "Ticket"),
    ("reference.md", "Of a captured pass", "core/engine/captured_pass.hpp", "class", "CapturedPass"),
    ("reference.md", "Of a `RoutedExperts`", "routed/routed_experts.hpp", "class", "RoutedExperts"),
    ("reference.md", "Of a `RoutedExperts`", "routed/routed_experts.hpp", "struct", "Options"),
    ("reference.md", "Of routed experts", "routed/tables.hpp", "struct", "Counters"),
    ("reference.md", "`LinkUse`", "device/link.hpp", "struct", "LinkUse"),
    ("reference.md", "A broker", "broker/ledger.hpp", "struct", "Settings"),
    ("reference.md", "Of a `Catalog`", "model/catalog.hpp", "class", "Catalog"),
    ("reference.md", "Of a `CatalogBuilder`", "model/catalog_builder.hpp", "class", "CatalogBuilder"),
    ("reference.md", "Of a `ScheduleBuilder`", "model/schedule_builder.hpp", "class", "ScheduleBuilder"),
    ("reference.md", "`Counters`", "core/measure/statistics.hpp", "struct", "Counters"),
    ("reference.md", "`Statistics`", "core/measure/statistics.hpp", "struct", "Statistics"),
    ("reference.md", "`StallStatistics`", "core/measure/stalls.hpp", "struct", "StallStatistics"),
    ("reference.md", "`LearningReport`", "core/measure/learning_report.hpp", "struct", "LearningReport"),
    ("reference.md", "`LearningReport`", "core/measure/learning_report.hpp", "enum class", "LearningReason"),
    ("reference.md", "`ResolvedBudget`", "budget/budget.hpp", "struct", "ResolvedBudget"),
    ("reference.md", "`BudgetChange`", "core/measure/statistics.hpp", "struct", "BudgetChange"),
    ("reference.md", "Loading", "host/loading.hpp", "struct", "LoadOptions"),
    ("reference.md", "`LoadReport`", "host/loading.hpp", "struct", "LoadReport"),
    ("reference.md", "`Loading`", "host/loading.hpp", "class", "Loading"),
    ("reference.md", "A broker", "broker/broker.hpp", "class", "BudgetBroker"),
    ("reference.md", "A broker", "broker/broker.hpp", "struct", "ModelOptions"),
    ("reference.md", "A broker", "broker/broker.hpp", "struct", "MemoryOptions"),
    ("reference.md", "A client that is a model", "broker/model_client.hpp", "class", "ModelClient"),
    ("reference.md", "A client that is memory", "broker/memory_client.hpp", "class", "MemoryClient"),
    ("reference.md", "A group of models", "broker/model_group.hpp", "class", "ModelGroup"),
    ("reference.md", "Events", "core/measure/event.hpp", "enum class", "EventKind"),
    ("reference.md", "Errors", "error.hpp", "enum class", "ErrorKind"),
    ("own-policy.md", "Who leaves: an evictor", "evict/eviction_policy.hpp", "concept", "EvictionPolicy"),
    ("own-policy.md", "What comes next: a prefetcher", "prefetch/prefetch_policy.hpp", "concept", "PrefetchPolicy"),
    ("own-policy.md", "Where it lives: a pool", "pool/memory_pool.hpp", "concept", "MemoryPool"),
    ("own-policy.md", "How it travels: a transport", "transport/transport_policy.hpp", "concept", "TransportPolicy"),
    ("c.md", "All functions", "c.h", "functions", "residency/c.h"),
    ("c.md", "All functions", "c.h", "struct", "residency_options"),
    ("device.md", "Its machine", "simulation/simulated_device.hpp", "struct", "Config"),
    ("slow.md", "Which step waits, and for what", "core/measure/stalls.hpp", "enum class", "StallCause"),
)
# Which composition has which option: by the word in the table, the structs that have it.
OPTIONS = {"planned": ("core/options.hpp", "PlannedOptions"), "online": ("core/options.hpp", "OnlineOptions")}
POLICIES = {
    "planned": ("core/planned/planned_decider.hpp", "Config"),
    "online": ("core/online/online_decider.hpp", "Config"),
    "`Packed`": ("packed/packed_decider.hpp", "Config"),
    "`PackedExperts`": ("packed/packed_online_decider.hpp", "Config"),
}
KIND_OF = {"`Packed`": "planned", "`PackedExperts`": "online"}
KNOBS = "Knobs of evictors, prefetchers and pools"
TRANSPORTS = {
    "`Staged`": ("transport/weight_sources.hpp", "StagedConfig"),
    "`Links`": ("transport/links.hpp", "LinksConfig"),
    "`Replicas`": ("transport/replicas.hpp", "ReplicasConfig"),
}


def section(text, heading):
    """What stands under a heading, up to the next one."""
    begin = re.search(rf"^#+ {re.escape(heading)}\n", text, re.M)
    if not begin:
        raise SystemExit(f"there is no heading \"{heading}\"")
    return re.split(r"^#+ ", text[begin.end() :], maxsplit=1, flags=re.M)[0]


def rows(text):
    """The tables of a text, each as (names of the first cell, second cell) by row, without heads."""
    tables = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        cells = [line.split("|")[1:3] for line in table.strip().split("\n")[2:]]
        tables.append([(re.findall(r"`([^`]+)`", first), second.strip()) for first, second in cells])
    return tables


def wrong_tables(page, text):
    """Names that a table lacks, and names in it that the header lacks."""
    found = []
    for where, heading, file, kind, name in TABLES:
        if where != page:
            continue
        have, wanted = members(file, kind, name), [[each for names, _ in table for each in names] for table in rows(section(text, heading))]
        best = max(wanted, key=lambda names: len(set(names) & set(have)), default=[])
        found += [f"{heading}: the table lacks {each} of {name}" for each in have if each not in best]
        found += [f"{heading}: {name} has no {each}" for each in best if each not in have]
    return found


def wrong_options(text):
    """The same of the options, and the compositions that have them."""
    found, listed = [], {each: word for table in rows(section(text, "Options")) for names, word in table for each in names}
    for prefix, structs in (("", OPTIONS), ("policies.", POLICIES), ("transport.", TRANSPORTS)):
        having = {}
        for word, (file, name) in structs.items():
            for each in members(file, "struct", name):
                having.setdefault(prefix + each, []).append(word)
        for each, words in having.items():
            if each not in listed:
                found.append(f"Options: the table lacks {each}")
            elif listed[each] != ("all" if {"planned", "online"} <= set(words) else ", ".join(word for word in words if KIND_OF.get(word) not in words)):
                found.append(f"Options: {each} is one of {' and '.join(words)} compositions, not of {listed[each]}")
        found += [f"Options: there is no {each}" for each in listed if each.removesuffix(each.split(".")[-1]) == prefix and each not in having]
    return found


def wrong_knobs(text):
    """Knobs of policies that their table lacks."""
    listed = {names[0]: set(re.findall(r"`(\w+)`", row)) for table in rows(section(text, KNOBS)) for names, row in table}
    found = []
    for path in sorted(path for folder in ("evict", "prefetch", "pool") for path in (ROOT / "include" / "residency" / folder).glob("*.hpp")):
        before, has, _ = path.read_text(encoding="utf-8").partition("struct Config {")
        if has:
            file = str(path.relative_to(ROOT / "include" / "residency"))
            policy = f"{path.parent.name}::" + re.findall(r"^class (\w+)", before, re.M)[-1]
            found += [f"{KNOBS}: {policy} lacks {each}" for each in members(file, "struct", "Config") if each not in listed.get(policy, ())]
    return found


def unknown_names(text, folder, words):
    """Files and qualified names in a document that the tree does not have."""
    found = []
    for number, line in enumerate(without_code(text).split("\n"), 1):
        for ticked in re.findall(r"(?<!`)`([^`]+)`(?!`)", line):
            if FILE.match(ticked) and "/" in ticked and not ticked.startswith("build/"):
                if not exists(ticked) and not (folder / ticked).exists():
                    found.append(f"there is no file or folder {ticked} (line {number} without code)")
            elif NAME.match(ticked) and "::" in ticked:
                found += [f"nothing in the tree is named {part} (of {ticked})" for part in ticked.removesuffix("()").split("::") if part not in words]
    return found


def wrong_documents(words):
    found = []
    for path, text in documents():
        own = dead_links(text, path)
        if path not in PAGES:
            own += unknown_names(text, path.parent, words)
            if path.parent == DOCS:
                own += wrong_quotations(text) + wrong_tables(path.name, text)
                own += wrong_options(text) + wrong_knobs(text) if path.name == "composition.md" else []
        found += [f"{path.relative_to(ROOT)}: {problem}" for problem in own]
    return found


def trips(text):
    """Every kind of damage is noticed."""
    have, words = (classes(), tests()), words_of_tree()
    row = re.search(r"^\| `core::\w+` \|.*\n", text, re.M).group(0)
    case = re.search(r"“(C17: [^”]*)”", text).group(1)
    damage = {
        "a file that is gone": text.replace("`core/engine/decider.hpp`", "`core/decided.hpp`"),
        "a name that is gone": text + "\n`PlannedDecider::no_such_function_anywhere()`\n",
        "a stop at the wrong file": text + "\n| 3 | `budget/budget.hpp` | `LeaseKeeper` |\n",
        "a class without a row": text.replace(row, ""),
        "a row without a class": text.replace(row, row + row.replace("core::", "core::No")),
        "a case that is gone": text.replace(case, case + " no more"),
        "a contract that is not stated": text.replace("- **C5** ", "- C5 "),
        "a room that touches another": text.replace("| `model/` `codec/` `device/` |", "| `model/` `codec/` |", 1),
        "a room that touches what is below": text.replace("| `model/` `codec/` `device/` |", "| `model/` `codec/` `device/` `core/` |", 1),
        "a contract without a test": re.sub(r"^\| C5 \|.*$", "| C5 | |", text, flags=re.M),
    }
    missed = [kind for kind, damaged in damage.items() if damaged == text or not problems(damaged, have, words)]
    without = {case: numbers - {7} for case, numbers in have[1].items()}
    if not any("C7" in problem for problem in problems(text, (have[0], without), words)):
        missed.append("a contract that no case is named after")
    silent = dict.fromkeys(have[0], "")
    if not any("has no comment" in problem for problem in problems(text, (silent, have[1]), words)):
        missed.append("a class without a comment")
    here = pathlib.Path(__file__)
    own = str(here.relative_to(ROOT))
    if len(dead_links("[there](check.py) and [not](checks.py)", here)) != 1:
        missed.append("a dead link")
    if len(dead_links("# A heading\n[there](#a-heading) and [not](#no-heading)", PAGES[0])) != 1:
        missed.append("a link to a heading that is not there")
    line = f'if __name__ == "__main__":\n    sys.exit(main())\n'
    for kind, block, wrong in (
        ("a quotation", f'```cpp title="{own}"\n{line}```\n', 0),
        ("a quotation that is another one", f'```cpp title="{own}"\n{line}main()\n```\n', 1),
        ("a quotation of no file", f"```cpp\n{line}```\n", 1),
        ("a quotation of a file that is not there", f'```cpp title="no.cpp"\n{line}```\n', 1),
    ):
        if len(wrong_quotations(block)) != wrong:
            missed.append(kind)
    if len(unknown_names("`tests/docs/check.py`, `tests/docs/checks.py`, `evict::Lru`, `evict::LruNot`", ROOT, words)) != 2:
        missed.append("a name or a file that is not there")
    for page, text_of_page in ((path.name, text) for path, text in documents() if path.parent == DOCS):
        check = wrong_options if page == "composition.md" else lambda text: wrong_tables(page, text)
        headings = {"Options"} if page == "composition.md" else {heading for where, heading, *_ in TABLES if where == page}
        for heading in headings:
            before = section(text_of_page, heading)
            row = re.findall(r"^\| `.*\n", before, re.M)[0]
            for kind, after in (("a name that a table lacks", before.replace(row, "")),
                                ("a name of a table that is not there", before.replace(row, row + row.replace("| `", "| `no_such_", 1)))):
                if not check(text_of_page.replace(before, after)):
                    missed.append(f"{page}, {heading}: {kind}")
    options = (DOCS / "composition.md").read_text(encoding="utf-8")
    if not wrong_options(options.replace("| `strict` | all |", "| `strict` | online |")):
        missed.append("an option of other compositions")
    if not wrong_knobs(options.replace("`promotion_uses`", "`promotions`")):
        missed.append("a knob that the table lacks")
    return [f"not noticed: {kind}" for kind in missed]


def main():
    if sys.argv[1:] == ["--write"]:
        CLASSES.write_text(write(CLASSES.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    found = trips(text) if sys.argv[1:] == ["--trips"] else problems(text)
    for problem in found:
        print(f"the design: {problem}")
    links = wrong_documents(words_of_tree())
    print("".join(f"{link}\n" for link in links), end="")
    if found:
        print("docs/classes.md: tests/docs/check.py --write writes the tables of classes and tests anew")
    return 1 if found or links else 0


if __name__ == "__main__":
    sys.exit(main())
