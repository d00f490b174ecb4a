#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the site as it was built.

    check.py FOLDER [BROWSER]    fails where a page links to a file or an anchor that is not there. With a browser (chromium), opens the
                                 site from a server on this machine: code is set in a fixed width and no wider than its frame
                                 scrolls, pictures load, and a search finds the page of the word
    check.py --trips             checks a folder with a dead link and a dead anchor, which have to be found
"""
import functools
import html.parser
import http.server
import json
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[key] for key in ("id", "name") if values.get(key))
        for key in ("href", "src"):
            if values.get(key):
                self.links.append(values[key])


def dead_links(folder):
    """The API's pages are made by Doxygen: what they link to among themselves is its business."""
    pages = {path: Page(path.read_text(encoding="utf-8", errors="replace")) for path in sorted(folder.rglob("*.html")) if "api" not in path.relative_to(folder).parts}
    found, links = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            links += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{path.relative_to(folder)}: {link} leads nowhere")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors and not parts.fragment.startswith("__"):
                found.append(f"{path.relative_to(folder)}: {link}: there is no such anchor")
    print(f"{len(pages)} pages, {links} links")
    return found


SEARCHES = (("captured", "graphs.html"), ("zero-copy", "measured.html"), ("ExpectedUse", "experts.html"))

PROBE = """<script>addEventListener("load", async () => {
    const problems = [], codes = document.querySelectorAll("pre code");
    for (const code of codes) {
        const style = getComputedStyle(code);
        if (!/mono/i.test(style.fontFamily)) problems.push("code in " + style.fontFamily);
        if (parseFloat(style.fontSize) < 11) problems.push("code of " + style.fontSize);
        if (code.scrollWidth > code.clientWidth + 1 && !["auto", "scroll"].includes(style.overflowX)) problems.push("code is cut off");
    }
    if (document.documentElement.scrollWidth > innerWidth + 1) problems.push("the page is wider than the window");
    for (const image of document.images) if (!image.naturalWidth) problems.push("no picture at " + image.src);
    let results = [];
    if (location.search) {  // a search: until there is a result, or the browser is ended
        while (!results.length) {
            await new Promise(done => setTimeout(done, 100));
            results = [...document.querySelectorAll(".md-search-result__item a")].map(link => link.getAttribute("href"));
        }
    }
    await fetch("/report", {method: "POST", body: JSON.stringify({blocks: codes.length, problems, results})});
});</script>"""


class Site:
    """A server on this machine whose pages report what a reader would see."""

    def __init__(self, folder, browser):
        self.browser, self.reports = browser, queue.Queue()
        site = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                path = folder / urllib.parse.urlsplit(self.path).path.lstrip("/")
                if path.suffix != ".html" or not path.is_file():
                    return super().do_GET()
                body = path.read_bytes().replace(b"</head>", PROBE.encode() + b"</head>", 1)
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                site.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def report(self, page, limit_seconds=60):
        """What the browser reports of a page; none where it does not in time."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            process = subprocess.Popen(
                [self.browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}",
                 f"http://127.0.0.1:{self.server.server_address[1]}/{page}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                return self.reports.get(timeout=limit_seconds)
            except queue.Empty:
                return None
            finally:
                process.terminate()
                process.wait()


def in_browser(folder, browser):
    """What a reader would stumble over."""
    site, found, blocks = Site(folder, browser), [], 0
    for page in sorted(path.name for path in folder.glob("*.html") if path.name != "404.html"):
        report = site.report(page)
        if report is None:
            found.append(f"{page}: the browser did not run its scripts")
            continue
        blocks += report["blocks"]
        found += [f"{page}: {problem}" for problem in report["problems"]]
    for word, page in SEARCHES:
        report = site.report(f"index.html?q={word}")
        if report is None or not any(page in result for result in report["results"]):
            found.append(f"a search for {word} does not find {page}")
    print(f"{blocks} blocks of code, {len(SEARCHES)} searches")
    return found


def trips():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "a.html").write_text('<h1 id="here"></h1><a href="#here"></a><a href="b.html"></a><a href="a.html#there"></a>')
        found = dead_links(folder)
    return [] if len(found) == 2 else [f"of two faults were noticed: {found}"]


def main(arguments):
    if arguments == ["--trips"]:
        found = trips()
    elif arguments and not arguments[0].startswith("-"):
        folder = pathlib.Path(arguments[0]).resolve()
        found = dead_links(folder)
        for browser in arguments[1:]:
            found += in_browser(folder, browser)
    else:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    print("".join(f"{problem}\n" for problem in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
