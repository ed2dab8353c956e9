#!/usr/bin/env python3
"""tools/launch_census.py counts what it says, in the revision it was asked for: on a repository of a few small files."""
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
import launch_census  # noqa: E402
from small_repository import commit, git  # noqa: E402

BEFORE = {
    "server/wide.h": '#include "server/narrow.h"\n' + "".join(f"struct S{i} {{}};\n" for i in range(5)),
    "server/narrow.h": "enum class Small { kOne };\n",
    "server/a.cc": '#include "server/wide.h"\n// cuEventQuery(event) in a comment\n'
                   "auto a = driver.cuEventQuery(event) + driver.cuEventQuery(other);\n"
                   "auto b = stream.real == stream->real;\nauto really = stream.really;\n",
    "server/b.cc": '#include "server/wide.h"\nEventPool& borrowed = pool();\n'
                   "void Count() { num_sliced.fetch_add(1); }\n",
    "server/watch.h": '#include "server/narrow.h"\nclass Watch { PollingWatch watch_; EventPool events_; };\n',
    "server/watch.cc": '#include "server/watch.h"\nvoid Start() { StartThread("watch", Run); }\n',
    "server/reaper.cc": 'void Start() { StartThread("reaper", Reap); }\nvoid Look() { driver.cuEventCreate(&event, 0); }\n',
    "server/event_pool.cc": "void Make() { driver.cuEventCreate(&event, 0); }\n",
    "server/figures.h": "uint64_t num_sliced = 0;\n",
    "proto/control/control.proto": "message Session { uint64 sliced_launches = 1; }\n",
    "server/launches.h": "struct GatedLaunch { int grid; };\nstruct Kernel; struct PersistentLaunch;\n"
                         "using KernelRecord = std::vector<std::byte>;\n",
    "tests/launches.h": "class PersistentLaunch { };\n",
    "tests/wide_test.cc": '#include "server/wide.h"\n' + "\n" * 50,
}
AFTER = {**BEFORE, "server/a.cc": "",
         "server/watch.h": '#include "server/narrow.h"\nclass Watch { PollingWatch watch_; CompletionSource& source_; };\n',
         "server/devices.h": "struct Device { std::unique_ptr<CompletionSource> completions; };\n",
         "server/event_pool.cc": "", "server/completion_source.cc": BEFORE["server/event_pool.cc"],
         "server/launches.h": "struct PendingLaunch {\n};\n" + "\n" * 20}


class Census(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = cls.folder.name
        git(cls.root, "init", "-q")
        cls.before, cls.after = commit(cls.root, BEFORE), commit(cls.root, AFTER)
        cls.old = launch_census.count(launch_census.read_tree(cls.root, cls.before))
        cls.new = launch_census.count(launch_census.read_tree(cls.root, cls.after))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_queries_of_events_but_not_in_comments(self):
        self.assertEqual(self.old["event-query sites"], (2, "in 1 files"))
        self.assertEqual(self.new["event-query sites"][0], 0)

    def test_pools_are_who_owns_one_and_others_make_events_by_hand(self):
        self.assertEqual(self.old["event pools"], (1, "and 1 files with events of their own"))
        self.assertEqual(self.new["event pools"], (1, "and 1 files with events of their own"))

    def test_watchers_are_threads_of_classes_that_watch(self):
        self.assertEqual(self.old["watcher threads"], (1, "watch"))

    def test_types_are_those_defined_in_rooms(self):
        self.assertEqual(self.old["types for a launch"], (2, "GatedLaunch, KernelRecord"))
        self.assertEqual(self.new["types for a launch"], (1, "PendingLaunch"))

    def test_lines_that_go_to_the_drivers_object(self):
        self.assertEqual(self.old[".real uses"], (1, "in 1 files"))

    def test_the_widest_header_declares_several_types(self):
        self.assertEqual(self.old["behind the widest header"], (3, "server/wide.h"))
        self.assertEqual(self.new["behind the widest header"], (2, "server/wide.h"))

    def test_files_that_carry_a_metric_beside_its_increment(self):
        self.assertEqual(self.old["files for a metric"][0], 2)

    def test_the_longest_file_is_no_test(self):
        self.assertEqual(self.new["longest file"], (22, "server/launches.h"))

    def test_a_table_of_both(self):
        lines = launch_census.table(self.root, [self.before, self.after]).splitlines()
        self.assertIn("| event-query sites | 2 | 0 |", lines)
        self.assertIn("| types for a launch | 2 | 1 |", lines)

    def test_this_repository_and_what_is_no_revision(self):
        script = os.path.join(TOOLS, "launch_census.py")
        wrong = subprocess.run([sys.executable, script, "no-such-revision"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((wrong.returncode, wrong.stdout), (1, ""))
        self.assertIn("no-such-revision", wrong.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
