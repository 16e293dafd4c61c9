#!/usr/bin/env python3
"""check-links.py: every relative link and picture in the project's Markdown leads to a file, and every page of the manual is in its table of contents."""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"```.*?```|`[^`\n]*`|<!--.*?-->", re.S)


def anchors(page):
    """Names of a page's headings, as mdBook and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub(lambda m: m[0] if m[0][0] == "`" != m[0][1] else "", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def faults(page):
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{page}: no file {name}"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{page}: no heading #{anchor} in {name or page.name}"


def main():
    pages = [pathlib.Path(p) for p in subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], text=True).split()]
    found = [fault for page in pages if page.exists() for fault in faults(page)]
    book = pathlib.Path("docs")
    listed = {(book / t).resolve() for t in LINK.findall((book / "SUMMARY.md").read_text(encoding="utf-8"))}
    found += [f"{page}: not in docs/SUMMARY.md" for page in book.glob("*.md") if page.resolve() not in listed and page.name != "SUMMARY.md"]
    print("\n".join(found) if found else f"{len(pages)} pages, no broken link")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
