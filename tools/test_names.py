#!/usr/bin/env python3
"""Which tests one revision has and another has not, so that a rework can show that it lost none.

usage: test_names.py REVISION [REVISION]      the second one is HEAD unless given

Reads git, so that neither revision is built or checked out: names stand in the sources. What counts as a test:

  gtest      TEST, TEST_F, TEST_P, TYPED_TEST and TYPED_TEST_P of C++ and CUDA files         Suite.Name
  python     methods test_* of classes in *_test.py                                          Class.test_name
  ctest      what CMake files under tests/ and bench/ register under a written-out name      name
  program    tests/programs/*.cu and tests/frameworks/programs/*.py                          path

Instances of one TEST_P are one test. A test whose name is found in another suite of the second revision, where that is
new, is said to have moved: look whether it still asks the same. Prints three lists and the sums; an empty list of what
is in the first only is the aim, each other line of it needs a reason.

  $ tools/test_names.py v1 main
  == in v1 only
  gtest    Sequencer.Waits                     tests/server/sequencer_test.cc
  == moved
  gtest    Session.Ends -> Sessions.Ends       tests/server/session_test.cc
  == in main only
  python   DoctorTest.test_names_the_driver    tests/integration/doctor_test.py
  == gtest: 812 and 811; python: 90 and 91; ctest: 60 and 60; program: 84 and 84

Exit status: 0 if the first list is empty, 1 if it is not, 2 if a revision cannot be read.
"""
import dataclasses
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import source_tree  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
KINDS = ("gtest", "python", "ctest", "program")
GTEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
PYTHON = re.compile(r"^class (\w+)|^    def (test_\w+)", re.MULTILINE)
CTEST = re.compile(r"\b(?:add_test\(\s*NAME|tally_\w*test\()\s*([\w-]+)[\s)]")
COMMENT = re.compile(r"#.*")
PROGRAM = re.compile(r"tests/(?:programs/\w+\.cu|frameworks/programs/\w+\.py)$")


@dataclasses.dataclass(frozen=True, order=True)
class Test:
    kind: str
    suite: str  # empty where there is none
    name: str

    @property
    def full_name(self):
        return f"{self.suite}.{self.name}" if self.suite else self.name


def tests_of(path, text):
    """Of one file."""
    found = []
    if path.endswith((".cc", ".cu", ".h")):
        found += [Test("gtest", *m.groups()) for m in GTEST.finditer(source_tree.blank_comments_and_strings(text))]
    elif path.endswith("_test.py"):
        suite = ""
        for match in PYTHON.finditer(text):
            suite = match.group(1) or suite
            if match.group(2):
                found.append(Test("python", suite, match.group(2)))
    elif path.startswith(("tests/", "bench/")) and path.endswith("CMakeLists.txt"):
        found += [Test("ctest", "", m.group(1)) for m in CTEST.finditer(COMMENT.sub("", text))]
    if PROGRAM.match(path):
        found.append(Test("program", "", path))
    return found


def tests_in(root, revision):
    """{test: path} of a whole revision."""
    tests = {}
    for path, text in source_tree.read_revision(root, revision, (".cc", ".cu", ".h", ".py", ".txt")).items():
        tests.update({test: path for test in tests_of(path, text)})
    return tests


def pair_moved(gone, new):
    """[(gone, new)] of those with one name; each is in one pair at most. Takes them out of both sets."""
    pairs = []
    for test in sorted(gone):
        if test.kind == "program":
            match = [t for t in new if t.kind == "program" and os.path.basename(t.name) == os.path.basename(test.name)]
        else:
            match = [t for t in new if t.suite and t.kind == test.kind and t.name == test.name]
        if match:
            pairs.append((test, min(match)))
            gone.discard(test)
            new.discard(min(match))
    return pairs


def print_list(title, lines):
    print(f"== {title}")
    width = max((len(name) for _, name, _ in lines), default=0)
    for kind, name, path in sorted(lines):
        print(f"{kind:8} {name:{width}}  {path}")


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if len(arguments) not in (1, 2):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    first, second = (arguments + ["HEAD"])[:2]
    try:
        before, after = tests_in(ROOT, first), tests_in(ROOT, second)
    except subprocess.CalledProcessError as error:
        print(f"test_names.py: {error}", file=sys.stderr)
        return 2
    gone, new = set(before) - set(after), set(after) - set(before)
    moved = pair_moved(gone, new)
    print_list(f"in {first} only", [(t.kind, t.full_name, before[t]) for t in gone])
    print_list("moved", [(a.kind, f"{a.full_name} -> {b.full_name}", after[b]) for a, b in moved])
    print_list(f"in {second} only", [(t.kind, t.full_name, after[t]) for t in new])
    sums = [f"{kind}: {sum(t.kind == kind for t in before)} and {sum(t.kind == kind for t in after)}" for kind in KINDS]
    print("== " + "; ".join(sums))
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
