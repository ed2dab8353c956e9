#!/usr/bin/env python3
"""Keeps the documents short and whole: lengths, links, and what docs/results may hold.

usage: check_docs.py [ROOT]

Lines of code and of tables may be longer, and a line that is a single word (an address) cannot be shorter.
"""
import os
import re
import sys

import source_tree

LONGEST_LINE = 120
MOST_README_LINES = 120
RESULTS = "docs/results/"
MOST_RESULTS_BYTES, MOST_RAW_BYTES = 3 << 20, 2 << 20
# What a reader of results has use for. Raw numbers are compressed; probes and patches stay in history.
RESULT_SUFFIXES = (".md", ".csv", ".svg", ".json.gz")

LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
JOINED_ITEM = re.compile(r"[.:;)] \* \S")
LIST_ITEM = re.compile(r"\s*(?:[*+-]|\d+[.)])\s")


def is_code(lines):
    """Of each line whether it is part of a block of code, fenced or indented."""
    found, fenced, indented, in_list = [], False, False, False
    before = ""
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            found.append(True)
        elif fenced:
            found.append(True)
        else:
            if LIST_ITEM.match(line):
                in_list = not line.startswith("    ") or in_list
            elif line.strip() and not line.startswith(" "):
                in_list = False
            starts = line.startswith("    ") and not in_list and (not before.strip() or before.startswith(("#", "|")))
            indented = line.startswith("    ") and (indented or starts)
            found.append(indented)
        before = line
    return found


def prose(text):
    """The text with code blanked, so that what looks like a link or a heading in it is none."""
    lines = text.split("\n")
    kept = ["" if code else line for line, code in zip(lines, is_code(lines))]
    return CODE.sub(lambda match: re.sub(r"[^\n]", "x", match.group(0)), "\n".join(kept))


def anchors(text):
    """What a link to a place of this document may name, as the usual hosts make it of headings."""
    found, lines = set(ANCHOR.findall(text)), text.split("\n")
    for line, code in zip(lines, is_code(lines)):
        match = HEADING.match(line)
        if match and not code:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1))
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            repeated = 0
            while slug + (f"-{repeated}" if repeated else "") in found:
                repeated += 1
            found.add(slug + (f"-{repeated}" if repeated else ""))
    return found


def complaints_about_lines(path, text):
    lines = text.removesuffix("\n").split("\n")
    if path == "README.md" and len(lines) > MOST_README_LINES:
        yield f"{path}:{MOST_README_LINES + 1}: {len(lines)} lines, at most {MOST_README_LINES}: move the rest to docs/"
    for number, (line, code) in enumerate(zip(lines, is_code(lines)), 1):
        is_prose = not code and not line.lstrip().startswith("|") and len(line.split()) > 1
        if len(line) > LONGEST_LINE and (is_prose or path == "README.md"):
            yield f"{path}:{number}: {len(line)} characters, at most {LONGEST_LINE}: break the line"
        if is_prose and JOINED_ITEM.search(CODE.sub("", line)):
            yield f"{path}:{number}: a list's item begins in the middle of the line: give it one of its own"


def complaints_about_links(root, path, text, anchors_of):
    clean = prose(text)
    for match in LINK.finditer(clean):
        target, _, place = match.group(1).partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:", match.group(1)):
            continue
        at = f"{path}:{clean.count(chr(10), 0, match.start()) + 1}"
        full = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(os.path.join(root, full)):
            yield f"{at}: there is no {full}: mend or remove the link"
        elif place and full.endswith(".md") and place not in anchors_of(full):
            yield f"{at}: {full} has no place #{place}: mend the link"


def complaints_about_results(root, paths):
    sizes = {path: os.path.getsize(os.path.join(root, path)) for path in paths if path.startswith(RESULTS)}
    for path in sizes:
        if not path.endswith(RESULT_SUFFIXES):
            yield f"{path}:1: results are {', '.join(RESULT_SUFFIXES)}; name the commit that has the rest"
        if re.match(r"\d{4}-\d\d", os.path.basename(path)):
            yield f"{path}:1: pages are named by their question; the date stands inside"
    for what, most, mine in (("docs/results", MOST_RESULTS_BYTES, sizes),
                             ("raw numbers", MOST_RAW_BYTES, [path for path in sizes if path.endswith(".gz")])):
        whole = sum(sizes[path] for path in mine)
        if whole > most:
            yield f"{RESULTS}:1: {what}: {whole / 2**20:.1f} MB, at most {most >> 20}: leave old numbers to history"


def complaints(root):
    paths = source_tree.list_files(root, (".md",))
    texts = {path: source_tree.read(root, path) for path in paths}
    known = {}

    def anchors_of(path):
        if path not in known:
            known[path] = anchors(texts[path] if path in texts else source_tree.read(root, path))
        return known[path]

    for path, text in texts.items():
        yield from complaints_about_lines(path, text)
        yield from complaints_about_links(root, path, text, anchors_of)
    yield from complaints_about_results(root, source_tree.list_files(root, ("",)))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = list(complaints(root))
    print("\n".join(found) if found else "documents: all well")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
