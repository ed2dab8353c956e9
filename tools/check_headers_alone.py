#!/usr/bin/env python3
"""Checks that every header compiles alone.

usage: check_headers_alone.py BUILD_DIRECTORY [--budget-seconds N] [--jobs N]

A header that is the first include of its own source (x.cc begins with x.h) is proved by the build itself and costs
nothing here, if the build compiles that source alone or as the first of several (unity builds). With it the one is
proved that it includes first. The others are compiled one behind the other, each behind such only as it includes itself,
with the flags of a neighbour from compile_commands.json, its precompiled header included (what that hides is what
check_includes.py looks for). What passed is remembered in BUILD_DIRECTORY/headers_alone by a hash of flags and contents.
Out of time is said and is no failure: the next run goes on. What the last commits changed comes first, the rest in an
order that each commit changes, so that runs from nothing do not always leave the same out.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time

import source_tree

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)', re.MULTILINE)
OPTIONS = re.compile(r"-(?:I|D|std=|isystem|pthread|W)")
WITH_PRECOMPILED = re.compile(r"-(?:I|D|std=|isystem|pthread|W|O|f|m)")
UNITY = re.compile(r"/Unity/unity_\d+_cxx\.cxx$")

# Only a build makes these; without one, a header that includes them cannot be judged.
NOT_BUILT = re.compile(r"fatal error: \S*(?:generated/\S+|\.pb\.h): No such file")


def read_commands(build):
    """What compile_commands.json compiles: a list of (sources relative to the root, command). A unity file stands for the
    sources that it includes."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as text:
        commands = json.load(text)
    compiled = []
    for command in commands:
        sources = [command["file"]]
        if UNITY.search(sources[0]) and os.path.isfile(sources[0]):
            sources = INCLUDE.findall(source_tree.read("/", sources[0])) or sources
        compiled.append(([os.path.relpath(source, ROOT) for source in sources], command["command"]))
    return compiled


def proved_by_build(headers, commands):
    proved = set()
    compiled_first = {sources[0] for sources, _ in commands}
    for source in compiled_first.intersection(source_tree.list_files(ROOT, (".cc",))):
        first = INCLUDE.search(source_tree.read(ROOT, source))
        if first and first.group(1) in headers:
            proved.add(first.group(1))
    return proved


def next_in_line(header, headers):
    """The first of the project's headers that `header` includes: if that compiles alone, so does this. Nothing stands
    in front of it but the standard library's, of which check_includes.py sees to it that each is named where it is used."""
    return next((path for path in INCLUDE.findall(source_tree.read(ROOT, header)) if path in headers), None)


def with_lines(headers, following):
    """Headers, and those that are proved with them. `following`: header -> next in line."""
    found = set()
    for header in headers:
        while header is not None and header not in found:
            found.add(header)
            header = following[header]
    return found


def everything_below(headers):
    """Header -> all of the project's headers that it includes, by whatever way, itself not among them."""
    included = {header: set(INCLUDE.findall(source_tree.read(ROOT, header))) & headers for header in headers}
    below = {}
    for header in headers:
        found, waiting = set(), [header]
        while waiting:
            new = included[waiting.pop()] - found
            found |= new
            waiting += new
        below[header] = found - {header}
    return below


def chains(headers, below):
    """`headers` in as few lists as can be, each header behind such only as it includes itself. Compiled one after the
    other, all of a list are proved: nothing stands in front of one that would not stand there alone. (A matching of each
    header with one above it; whoever has none begins a list.)"""
    above = {}

    def place(header, tried):
        """Finds `header` one below it; who stands above that one moves, if it can."""
        for lower in sorted(below[header] & headers):
            if lower in tried or header in below[lower]:
                continue
            tried.add(lower)
            if lower not in above or place(above[lower], tried):
                above[lower] = header
                return True
        return False

    lowest = sorted(headers - {header for header in sorted(headers) if place(header, set())})
    lists = []
    for header in lowest:
        lists.append([header])
        while lists[-1][-1] in above:
            lists[-1].append(above[lists[-1][-1]])
    return lists


def in_turn(lists, changed, seed):
    """The lists with a header that has changed first, then the others in an order of the seed's."""
    shuffled = random.Random(seed).sample(lists, len(lists))
    return sorted(shuffled, key=lambda headers: changed.isdisjoint(headers))


def last_commits(number=20):
    """What they changed, and the last one's name; nothing where there is no git."""
    try:
        said = subprocess.run(["git", "log", f"-{number}", "--name-only", "--format=%H"], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return set(), ""
    return set(said), said[0]


def rank(options):
    """Whoever knows most include folders can compile most headers."""
    return sum(option.startswith(("-I", "-isystem")) for option in options), len(options)


def flags_by_folder(commands):
    """Folder (relative to the root) -> compiler and its -I, -isystem, -D, -std options."""
    flags = {}
    for sources, command in commands:
        words = shlex.split(command)
        kept, position = [words[0]], 1
        # gcc takes a precompiled header only with the options that made it.
        matched = WITH_PRECOMPILED if "cmake_pch" in command else OPTIONS
        while position < len(words):
            word = words[position]
            if word in ("-isystem", "-I", "-D", "-include"):
                kept += words[position:position + 2]
                position += 1
            elif matched.match(word):
                kept.append(word)
            position += 1
        for folder in {os.path.dirname(source) for source in sources}:
            if rank(kept) > rank(flags.get(folder, [])):
                flags[folder] = kept
    return flags


def flags_for(header, flags):
    folder = os.path.dirname(header)
    room = header.split("/", 1)[0]
    by_rank = sorted(flags, key=lambda f: rank(flags[f]), reverse=True)
    candidates = [folder, room, *(f for f in by_rank if f.startswith(room)), "tests/" + room, *by_rank]
    return next(flags[f] for f in candidates if f in flags)


def fingerprint(header, command):
    digest = hashlib.sha256(repr(command).encode())
    waiting, seen = [header], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not os.path.isfile(os.path.join(ROOT, path)):
            continue
        seen.add(path)
        text = source_tree.read(ROOT, path)
        digest.update(text.encode())
        waiting += INCLUDE.findall(text)
    return digest.hexdigest()


def compile_chain(chain, command, cache):
    text = "".join(f'#include "{header}"\n' for header in chain)
    mark = os.path.join(cache, fingerprint(chain[-1], [command, text]))
    if os.path.exists(mark):
        return None
    run = subprocess.run(command + ["-fsyntax-only", "-x", "c++", "-"], input=text, text=True, cwd=ROOT,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if run.returncode == 0:
        with open(mark, "w", encoding="ascii"):
            return None
    return run.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--budget-seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.budget_seconds
    if not os.path.exists(os.path.join(arguments.build, "compile_commands.json")):
        sys.exit(f"{arguments.build} has no compile_commands.json: configure it first (cmake --preset release)")
    headers = {h for h in source_tree.list_files(ROOT, (".h",)) if not h.startswith("tests/programs/")}
    commands = read_commands(arguments.build)
    flags = flags_by_folder(commands)
    if not flags:
        sys.exit("compile_commands.json is empty")
    cache = os.path.join(arguments.build, "headers_alone")
    os.makedirs(cache, exist_ok=True)
    following = {header: next_in_line(header, headers) for header in headers}
    proved = with_lines(proved_by_build(headers, commands), following)
    failed, skipped = [], []

    def check(chain):
        if time.monotonic() > deadline:
            skipped.extend(chain)
            return
        complaint = compile_chain(chain, flags_for(chain[-1], flags), cache)
        if complaint is None:
            return
        if NOT_BUILT.search(complaint):
            skipped.extend(chain)
        else:
            failed.append((", then ".join(chain), complaint))

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(check, in_turn(chains(headers - proved, everything_below(headers)), *last_commits())))
    for header, complaint in failed:
        print(f"{header} does not compile alone:\n{complaint}")
    print(f"{len(headers)} headers: {len(proved)} proved by the build, {len(headers) - len(proved) - len(skipped)} "
          f"checked here, {len(failed)} failed, {len(skipped)} left (out of time, or generated files not built)")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
