# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs. The README and other documents outside docs/ become pages, and so does each source file that a document links to: a
link that leads out of docs/ on disk leads to that page on the site. The API reference is copied from build/site/api."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
API = ROOT / "build" / "site" / "api"
# In the repository → on the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    ".github/CONTRIBUTING.md": "CONTRIBUTING.md",
    ".github/SECURITY.md": "SECURITY.md",
}
LANGUAGES = {".hpp": "cpp", ".ipp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".sh": "sh", ".cmake": "cmake"}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)


def page_of(path):
    """The page of a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def with_links(text, path, linked):
    """The text of a document of the repository, with the links of its page. Files that it links to are added to `linked`."""

    def on_site(match):
        file, mark, anchor = match[2].partition("#")
        if "://" in match[2] or not file:
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if not (ROOT / target).is_file():
            raise SystemExit(f"{path}: the link to {match[2]}: a page can link to files only")
        linked.add(target)
        return match[1] + posixpath.relpath(page_of(target), posixpath.dirname(page_of(path)) or ".") + mark + anchor + match[3]

    parts = FENCE.split(text)
    return "".join(part if FENCE.match(part) else LINK.sub(on_site, part) for part in parts)


def on_files(files, config):
    wanted = {*PAGES, *(f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md"))}
    done = set()
    while wanted > done:
        path = sorted(wanted - done)[0]
        done.add(path)
        page = page_of(path)
        if not path.endswith(".md"):
            if path.startswith("docs/"):
                continue  # a picture: mkdocs copies it
            language = LANGUAGES.get(pathlib.PurePath(path).suffix, "text")
            text = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n````{language}\n{(ROOT / path).read_text(encoding='utf-8')}````\n"
        else:
            text = with_links((ROOT / path).read_text(encoding="utf-8"), path, wanted)
        there = files.get_file_from_path(page)
        if there is not None:
            files.remove(there)
        files.append(File.generated(config, page, content=text))
    for path in sorted(API.rglob("*")):
        if path.is_file():
            files.append(File.generated(config, f"api/{path.relative_to(API)}", abs_src_path=str(path)))
    return files
