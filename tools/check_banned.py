#!/usr/bin/env python3
"""Refuses names and calls that this project does not use; each message says why.

usage: check_banned.py [ROOT]

A line may end in `// allow: REASON` where a rule must be broken; the reason is required.
"""
import os
import re
import sys

import source_tree

WORDS = {
    "manager": "says nothing: name what it owns or decides",
    "helper": "says nothing: name what it does",
    "util": "says nothing: name the concept, or put it where it is used",
    "utils": "says nothing: name the concept, or put it where it is used",
    "handler": "name the event (OnX) or the table that it is an entry of",
    "data": "everything is data: name what it is",
    "info": "everything is information: name what it is",
    "wrapper": "name what it adds, not that it wraps",
}
# (where it counts, pattern, why). The text has neither comments nor literals.
SHIM = re.compile(r"^client-shim/(?!launcher/)")  # tally-run is a program of its own
ROOM_CODE = re.compile(r"^(?:%s)/" % "|".join(source_tree.ROOMS))
ANY = re.compile("")
CALLS = [
    # gRPC deadlines are in the system's clock, whether we like it or not.
    (ANY, r"(?<!deadline\(std::chrono::)(?<!Shutdown\(std::chrono::)\bsystem_clock\b", "time is monotonic: use base/clock.h (the system's clock jumps)"),
    (ANY, r"\b(?:do|my)_[a-z]\w*", "do_ and my_ say nothing: name the thing"),
    (ANY, r"\busing\s+namespace\s+std\b", "hides where names come from"),
    (SHIM, r"\bstd::cout\b|\bprintf\s*\(|\bputs\s*\(|\bstdout\b", "stdout belongs to the client's program: log to stderr (base/log.h)"),
    (SHIM, r"(?<![\w.>])(?:std::|::)?(?:exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(",
     "the shim never ends the program that it runs in: return the right CUresult"),
    (SHIM, r"\bthrow\b(?!\s*;)", "no exception may cross the C ABI: return a Result"),
    (ROOM_CODE, r"\batoi\s*\(|\bstrcpy\s*\(|\bsprintf\s*\(|\bgets\s*\(", "unchecked: use from_chars, string_view or fmt"),
    (ROOM_CODE, r"\brand\s*\(\s*\)|\bsrand\s*\(", "not reproducible: pass a seeded generator in"),
    (ROOM_CODE, r"\bstd::thread(?:\s+\w+)?\s*[({](?!\s*\))", "throws at a task limit: use StartThread of base/thread.h"),
    (ROOM_CODE, r"\bsleep_for\s*\(\s*std::chrono::(?:seconds|minutes)", "nothing here sleeps that long: wait for the event"),
]
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+class|\s+struct)?|concept|using)\s+(?:alignas\([^)]*\)\s*)?([A-Z]\w*)")
CAMEL_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+")
ALLOW = re.compile(r"//\s*allow:\s*\S")


def complaints_about_names(path):
    for word in re.split(r"[_\-./]", path):
        if word.lower() in WORDS and not path.endswith(("_table.h", "_table.cc")):
            yield f"{path}:1: '{word}' in a file name: {WORDS[word.lower()]}"
    if path.endswith(".cu") and not path.startswith(("tests/", "bench/")):
        yield f"{path}:1: .cu files live under tests/ and bench/ only: the rooms hold no device code"
    if re.search(r"\.(?:cpp|cxx|hpp|hh)$", path):
        yield f"{path}:1: sources end in .cc, headers in .h"


def complaints_about_text(path, text):
    lines = text.split("\n")
    clean = source_tree.blank_comments_and_strings(text)

    def at(position):
        return clean.count("\n", 0, position) + 1

    def allowed(line_number):
        return ALLOW.search(lines[line_number - 1]) is not None

    if path.endswith(".h") and "#pragma once" not in text:
        yield f"{path}:1: no '#pragma once'"
    for number, line in enumerate(lines, 1):
        if re.search(r"DO NOT " r"SUBMIT", line):
            yield f"{path}:{number}: marked as not to be submitted"
    for match in TYPE.finditer(clean):
        for word in CAMEL_WORD.findall(match.group(1)):
            if word.lower() in WORDS and not allowed(at(match.start())):
                yield f"{path}:{at(match.start())}: type {match.group(1)}: '{word}' {WORDS[word.lower()]}"
    for where, pattern, why in CALLS:
        if not where.search(path):
            continue
        for match in re.finditer(pattern, clean):
            if not allowed(at(match.start())):
                yield f"{path}:{at(match.start())}: '{match.group(0).strip()}': {why}"


def complaints(root):
    suffixes = source_tree.CPP_SUFFIXES + (".cpp", ".cxx", ".hpp", ".hh")
    for path in source_tree.list_files(root, suffixes):
        yield from complaints_about_names(path)
        yield from complaints_about_text(path, source_tree.read(root, path))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = list(complaints(root))
    for line in found:
        print(line)
    if found:
        sys.exit(f"{len(found)} banned name(s) or call(s)")


if __name__ == "__main__":
    main()
