#!/usr/bin/env python3
"""Counts what the dispatch of launches is made of, in two revisions side by side.

usage: launch_census.py REVISION [REVISION]      the second one is HEAD unless given

Reads the files from git, so that neither needs to be checked out. What is counted, all without comments and strings:

  event-query sites       calls of cuEventQuery under server/
  event pools             members and locals of type EventPool, or CompletionSource, which came after it and is one for
                          timed and one for other events; and files that make events of their own beside them
  watcher threads         classes that start a thread and keep something that watches the GPU or its activity page
  types for a launch      those of LAUNCH_TYPES that are defined: each describes one launch, beside the others; what
                          the software driver makes of a launch that it was given is its own business
  .real uses              lines under server/ that go from a virtual stream or object to the driver's
  behind the widest header  sources of the repository that reach it; of the headers of server/ that declare several
                          types, it is that of most
  files for a metric      files under server/ and proto/ that name one session counter, beside that which counts
  longest file            of C++ in the rooms, tests and benches apart
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import source_tree  # noqa: E402

# Where somebody adds a type that says which kernel runs with what, it belongs here.
LAUNCH_TYPES = ("Launch", "LaunchArguments", "PreparedLaunch", "LaunchParameters", "VaryingLaunch", "DispatchOf",
                "LaunchKind", "LaunchAsked", "GatedLaunch", "PersistentLaunch", "KernelRecord", "PendingLaunch")
POOL = re.compile(r"\b(?:EventPool|CompletionSource)>*\s+\w+\s*[;{(=]")
MAKERS = ("event_pool.cc", "completion_source.cc")  # of events for others
OWN_EVENT = re.compile(r"\bcuEventCreate\s*\(")
WATCHES = re.compile(r"\b(?:HighPriorityWatch|PollingWatch|PageWatch|ActivityPage)\b[&*]?\s+\w+_\s*[;{=]")
TYPE = re.compile(r"^(?:struct|class|enum class) \w+[^;]*\{", re.MULTILINE)
WIDE = 5  # types in one header
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# The probe: any counter of sessions would do. All that carries it from its increment to who reads it has this in its
# name.
METRIC = re.compile(r"\b(?:num_)?sliced\w*\b")
INCREMENT = re.compile(r"\bnum_sliced\.fetch_add\(")


def read_tree(root, revision):
    """Path -> text of all sources, protocol files and headers of the revision."""
    return source_tree.read_revision(root, revision, (".h", ".cc", ".proto"))


def num_sources_behind(files):
    """Header -> how many sources include it, themselves or through other headers."""
    direct = {name: [target for target in INCLUDE.findall(text) if target in files] for name, text in files.items()}
    counts = {}
    for source in direct:
        if not source.endswith(".cc"):
            continue
        seen, left = set(), list(direct[source])
        while left:
            header = left.pop()
            if header not in seen:
                seen.add(header)
                left += direct[header]
        for header in seen:
            counts[header] = counts.get(header, 0) + 1
    return counts


def count(files):
    """What is counted -> (number, what it is made of), in the order of the table."""
    code = {name: source_tree.blank_comments_and_strings(text) for name, text in files.items()}
    server = {name: text for name, text in code.items() if name.startswith("server/")}

    def sites(pattern):
        found = {name: len(pattern.findall(text)) for name, text in server.items()}
        found = {name: number for name, number in found.items() if number}
        return sum(found.values()), f"in {len(found)} files"

    pools = {name: len(POOL.findall(text)) for name, text in server.items()}
    own = [name for name, text in server.items() if OWN_EVENT.search(text) and not name.endswith(MAKERS)]
    watchers = [name for name, text in server.items()
                if "StartThread(" in text and name.endswith(".cc")
                and WATCHES.search(server.get(name[:-3] + ".h", text))]
    defined = [kind for kind in LAUNCH_TYPES
               if any(re.search(rf"\b(?:struct|class)\s+{kind}\s*(?:final\s*)?[{{:]|\busing\s+{kind}\s*=", text)
                      for name, text in code.items() if not name.startswith((*source_tree.OUTSIDE, "sim-driver/")))]
    real = {name: len([line for line in text.splitlines() if re.search(r"(?:\.|->)real\b", line)])
            for name, text in server.items()}
    behind = {name: number for name, number in num_sources_behind(files).items()
              if name in server and len(TYPE.findall(server[name])) >= WIDE}
    widest = max(behind, key=lambda name: (behind[name], name), default="")
    carriers = [name for name, text in code.items() if name.startswith(("server/", "proto/"))
                and METRIC.search(text) and not INCREMENT.search(text)]
    rooms = [name for name in files if name.startswith(source_tree.ROOMS) and name.endswith((".h", ".cc"))]
    longest = max(rooms, key=lambda name: files[name].count("\n"), default="")
    return {
        "event-query sites": sites(re.compile(r"\bcuEventQuery\s*\(")),
        "event pools": (sum(pools.values()), f"and {len(own)} files with events of their own"),
        "watcher threads": (len(watchers), ", ".join(os.path.basename(name)[:-3] for name in sorted(watchers))),
        "types for a launch": (len(defined), ", ".join(defined)),
        ".real uses": (sum(real.values()), f"in {len([n for n in real.values() if n])} files"),
        "behind the widest header": (behind.get(widest, 0), widest),
        "files for a metric": (len(carriers), ""),
        "longest file": (files[longest].count("\n") if longest else 0, longest),
    }


def table(root, revisions):
    counts = [count(read_tree(root, revision)) for revision in revisions]
    lines = ["| | " + " | ".join(revisions) + " |", "|---|" + "---:|" * len(revisions)]
    for what in counts[0]:
        numbers = " | ".join(str(of_one[what][0]) for of_one in counts)
        lines.append(f"| {what} | {numbers} |")
    for revision, of_one in zip(revisions, counts):
        lines += ["", f"{revision}:"]
        lines += [f"  {what}: {made_of}" for what, (_, made_of) in of_one.items() if made_of]
    return "\n".join(lines)


def main():
    arguments = sys.argv[1:]
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(__doc__)
        return 0 if arguments[:1] == ["--help"] else 2
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    try:
        print(table(root, arguments if len(arguments) == 2 else arguments + ["HEAD"]))
    except subprocess.CalledProcessError as error:
        print(f"launch_census.py: git knows no such revision ({error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
