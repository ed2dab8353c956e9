#!/usr/bin/env python3
"""The checks of tools/ find what they are for, and nothing in clean text: each case is a tree of a few small files."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
import check_headers_alone  # noqa: E402


def run_check(check, files):
    """Exit status and output of a check on a tree that holds `files` (path -> text)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as output:
                output.write(text)
        run = subprocess.run([sys.executable, os.path.join(TOOLS, check), root], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        return run.returncode, run.stdout


class Docs(unittest.TestCase):
    def accept(self, files):
        status, output = run_check("check_docs.py", files)
        self.assertEqual(status, 0, output)

    def refuse(self, files, fragment):
        status, output = run_check("check_docs.py", files)
        self.assertEqual(status, 1, output)
        self.assertIn(fragment, output)

    def test_accepts_what_is_short_and_whole(self):
        self.accept({
            "README.md": "# A\n" + "short\n" * 119,
            "docs/a.md": "# Two words, `code`\n[b](b.md#the-place) [itself](#two-words-code) [out](https://nowhere.invalid/x)\n"
                         "`[no](link.md)` " + "x" * 90 + "\n\n    [no](link.md) " + "x " * 80 + "\n\n| " + "x " * 80 + "|\n",
            "docs/b.md": '<a id="the-place"></a>\n```\n[no](link.md)\n```\n* one\n\n  [a](a.md)\n' + "x" * 200 + "\n",
            "docs/results/page.md": "[numbers](raw/page.json.gz)\n",
            "docs/results/raw/page.json.gz": "x",
        })

    def test_refuses_a_long_readme(self):
        self.refuse({"README.md": "short\n" * 121}, "README.md:121: 121 lines")

    def test_refuses_long_lines_of_prose(self):
        self.refuse({"docs/a.md": "fine\n" + "word " * 25 + "\n"}, "docs/a.md:2: 125 characters")
        self.refuse({"docs/a.md": "* one\n    " + "word " * 25 + "\n"}, "docs/a.md:2: ")
        self.refuse({"README.md": "| " + "x " * 80 + "|\n"}, "README.md:1: ")

    def test_refuses_items_that_wrapping_has_joined(self):
        self.refuse({"docs/a.md": "* the first. * **The second**\n"}, "docs/a.md:1: a list's item begins")
        self.accept({"docs/a.md": "twice (1) x 2, `a. * b`, 3 * 4\n\n| a. * b |\n"})

    def test_refuses_links_that_lead_nowhere(self):
        self.refuse({"docs/a.md": "fine\n[b](b.md)\n"}, "docs/a.md:2: there is no docs/b.md")
        self.refuse({"docs/a.md": "[b](b.md#that)\n", "docs/b.md": "# This\n"}, "docs/b.md has no place #that")
        self.refuse({"docs/a.md": "[here](#that)\n"}, "docs/a.md has no place #that")

    def test_refuses_what_results_should_not_hold(self):
        self.refuse({"docs/results/a.svg": "x" * (3 << 20) + "x"}, "docs/results: 3.0 MB, at most 3")
        self.refuse({"docs/results/raw/a.json.gz": "x" * (2 << 20) + "x"}, "raw numbers: 2.0 MB, at most 2")
        self.refuse({"docs/results/probe.py": "x"}, "docs/results/probe.py:1: results are")
        self.refuse({"docs/results/2026-11-22-h200.md": "x"}, "named by their question")


class Layers(unittest.TestCase):
    def accept(self, files):
        status, output = run_check("check_layers.py", files)
        self.assertEqual(status, 0, output)

    def refuse(self, path, line, fragment):
        status, output = run_check("check_layers.py", {path: line + "\n"})
        self.assertEqual(status, 1, output)
        self.assertIn(f"{path}:1: ", output)
        self.assertIn(fragment, output)

    def test_accepts_what_the_table_allows(self):
        self.accept({
            "server/executor/session/a.cc": '#include "server/executor/dispatch/b.h"\n#include "scheduler/gate.h"\n',
            "server/executor/dispatch/a.cc": '#include "server/executor/dispatch/b.h"\n#include "proto/shm/x_abi.h"\n',
            "server/daemon/daemon.cc": '#include "server/daemon/rpc/b.h"\n#include "scheduler/policy_list.h"\n',
            "server/daemon/rpc/b.cc": '#include "server/daemon/c.h"\n#include "proto/control/control.pb.h"\n',
            "ptx-transforms/transform.cc": '#include "ptx-transforms/passes/a.h"\n',
            "ptx-transforms/passes/a.h": '#include "ptx-transforms/transform.h"\n',
            "sim-driver/api/entry/b.cc": '#include "sim-driver/api/b.h"\n',
            "base/b.cc": '#include "base/c.h"\n',
            "tests/integration/a.cc": '#include "server/executor/executor.h"\n',
            "bench/server/a.cc": '#include "server/executor/session/b.h"\n',
            "sim-driver/engine/a.cc": '#include "ptx-transforms/syntax/ast.h"\n#include <cuda.h>\n',
            "client-shim/entry/a.cc": '#include "base/status.h"\n#include <cuda.h>\n',
            "proto/shm/x_abi.h": "#include <cstdint>\n",
            "tests/server/executor/dispatch/a_test.cc": '#include "server/executor/dispatch/a.h"\n#include "scheduler/gate.h"\n',
            "base/a.cc": '// #include <cuda.h>\nconst char* text = R"(\n#include "server/x.h"\n)";\n',
        })

    def test_refuses_the_other_half_of_the_product(self):
        self.refuse("client-shim/entry/a.cc", '#include "server/executor/executor.h"', "not server")
        self.refuse("server/executor/a.cc", '#include "client-shim/state/x.h"', "not client-shim")
        self.refuse("server/executor/a.cc", '#include "sim-driver/engine/x.h"', "not sim-driver")

    def test_refuses_that_the_parts_of_the_server_meet(self):
        self.refuse("server/daemon/a.h", '#include "server/executor/executor.h"', "not server/executor")
        self.refuse("server/executor/process/a.cc", '#include "server/daemon/a.h"', "not server/daemon")
        self.refuse("server/ctl/a.cc", '#include "server/daemon/a.h"', "not server/daemon")
        self.refuse("server/daemon/rpc/a.cc", '#include "server/ctl/a.h"', "not server/ctl")
        self.refuse("server/daemon/a.cc", '#include "scheduler/device_policy.h"', "not scheduler")
        self.refuse("server/daemon/a.cc", "#include <cuda.h>", "no CUDA in tallyd")
        self.refuse("server/executor/process/a.cc", '#include "proto/control/control.pb.h"', "gRPC")
        self.refuse("server/a.h", "", "only for its sub-folders")
        self.refuse("tests/server/daemon/a_test.cc", '#include "server/executor/session/a.h"', "private to server/executor")

    def test_refuses_what_turns_the_order_of_folders_round(self):
        executor = "server/executor/"
        for lower, higher in (("channel", "session"), ("driver", "dispatch"), ("dispatch", "issue"), ("issue", "session")):
            self.refuse(f"{executor}{lower}/a.h", f'#include "{executor}{higher}/b.h"', f"{higher} stands above {lower}")
        self.refuse(executor + "session/a.h", f'#include "{executor}executor.h"', ". stands above session")
        self.refuse(executor + "executor.cc", f'#include "{executor}process/a.h"', "process stands above .")
        self.refuse(executor + "driver/a.h", f'#include "{executor}channel/a.h"', "channel knows nothing of driver")
        self.refuse("server/daemon/a.cc", '#include "server/daemon/rpc/a.h"', "rpc stands above .")
        self.refuse("server/daemon/metrics/a.cc", '#include "server/daemon/rpc/a.h"', "rpc knows nothing of metrics")
        self.refuse("server/ctl/doctor/a.cc", '#include "server/ctl/doctor.cc"', "doctor.cc stands above doctor")
        self.refuse("sim-driver/engine/a.cc", '#include "sim-driver/api/a.h"', "api stands above engine")
        self.refuse("sim-driver/api/a.cc", '#include "sim-driver/api/entry/a.h"', "api/entry stands above api")
        self.refuse("ptx-transforms/syntax/a.h", '#include "ptx-transforms/analysis/a.h"', "analysis stands above syntax")
        self.refuse("ptx-transforms/passes/a.h", '#include "ptx-transforms/other.h"', ". stands above passes")
        self.refuse("cubin-transforms/gate/a.h", '#include "cubin-transforms/cubin/a.h"', "cubin stands above gate")
        self.refuse("scheduler/a.cc", '#include "scheduler/policies/a.h"', "policies stands above .")
        self.refuse("client-shim/entry/a.cc", '#include "client-shim/launcher/a.h"', "launcher stands above entry")

    def test_refuses_a_folder_without_a_place(self):
        self.refuse("server/executor/extra/a.cc", '#include "server/executor/channel/a.h"', "no row of FOLDERS")
        self.refuse("scheduler/a.cc", '#include "scheduler/core/x.h"', "says where scheduler/core/ stands")

    def test_refuses_private_headers_of_other_rooms(self):
        self.refuse("server/executor/a.cc", '#include "ptx-transforms/syntax/ast.h"', "private to ptx-transforms")
        self.refuse("tests/server/a_test.cc", '#include "scheduler/core/x.h"', "private to scheduler")

    def test_refuses_forbidden_system_headers(self):
        self.refuse("scheduler/a.cc", "#include <mutex>", "pure decisions")
        self.refuse("base/a.h", "#include <cuda_runtime.h>", "no CUDA")
        self.refuse("client-shim/a.cc", "#include <grpcpp/grpcpp.h>", "somebody else's process")
        self.refuse("proto/shm/x_abi.h", "#include <vector>", "may include only")

    def test_refuses_relative_includes(self):
        self.refuse("base/a.cc", '#include "status.h"', "repository root")


class Banned(unittest.TestCase):
    def refuse(self, path, text, fragment):
        status, output = run_check("check_banned.py", {path: text})
        self.assertEqual(status, 1, output)
        self.assertIn(fragment, output)

    def accept(self, path, text):
        status, output = run_check("check_banned.py", {path: text})
        self.assertEqual(status, 0, output)

    def test_names(self):
        self.refuse("base/string_util.h", "#pragma once\n", "'util' in a file name")
        self.refuse("base/a.cc", "class SessionManager {};\n", "SessionManager")
        self.refuse("base/a.cc", "struct KernelInfo;\n", "KernelInfo")
        self.refuse("base/a.cc", "int my_value = do_work();\n", "my_value")
        self.refuse("server/a.cu", "", "device code")
        self.refuse("base/a.h", "int x;\n", "#pragma once")
        self.accept("base/a.cc", "class Metadata {}; struct Database; enum class Kind { kInfo };\n")
        self.accept("server/opcode_handler_table.cc", "int x;\n")

    def test_calls(self):
        self.refuse("server/a.cc", "auto t = std::chrono::system_clock::now();\n", "monotonic")
        self.refuse("client-shim/entry/a.cc", "void F() { std::exit(1); }\n", "never ends the program")
        self.refuse("client-shim/entry/a.cc", "void F() { throw 1; }\n", "C ABI")
        self.refuse("client-shim/entry/a.cc", "void F() { std::cout << 1; }\n", "stdout")

    def test_exceptions(self):
        self.accept("client-shim/launcher/main.cc", "void F() { std::exit(1); }\n")
        self.accept("client-shim/entry/a.cc", "void F() { thread.exit(1); } // exit(1) and throw in words\n")
        self.accept("client-shim/entry/a.cc", 'const char* text = "abort(";\n')
        self.accept("client-shim/entry/a.cc", "try {} catch (A) { throw; }\n")
        self.accept("client-shim/entry/a.cc", "void F() { throw 1; }  // allow: caught two lines below\n")
        self.refuse("client-shim/entry/a.cc", "void F() { throw 1; }  // allow:\n", "C ABI")


class Includes(unittest.TestCase):
    def run_on(self, files):
        return run_check("check_includes.py", files)

    def test_what_comes_through_our_own_headers_is_enough(self):
        source = '#include "base/b.h"\nstd::vector<int> b;  // std::map\nconst char* c = "std::set";\n'
        self.assertEqual(self.run_on({"base/b.cc": source, "base/b.h": "#include <vector>\n"}), (0, ""))

    def test_what_one_standard_header_includes_of_another_is_not(self):
        status, output = self.run_on({"base/b.cc": "#include <map>\nstd::optional<int> b;\n",
                                      "base/c.h": 'inline auto C() { return fmt::format("c"); }\n',
                                      "tests/d_test.cc": "#include <gtest/gtest.h>\nvoid D() { EXPECT_THAT(1, 1); }\n"})
        self.assertEqual(status, 1)
        self.assertIn("base/b.cc:2: std::optional needs #include <optional>", output)
        self.assertIn("base/c.h:1: fmt::format needs #include <fmt/format.h>", output)
        self.assertIn("tests/d_test.cc:2: EXPECT_THAT needs #include <gmock/gmock.h>", output)


class HeadersAlone(unittest.TestCase):
    """On sources of this repository: futex.cc begins with futex.h, status.cc with status.h."""
    HEADERS = {"base/futex.h", "base/status.h"}

    def read(self, files, build):
        entries = [{"file": file, "directory": build, "command": f"c++ -I/x -std=c++23 -O3 -o x.o -c {file}"} for file in files]
        with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as output:
            json.dump(entries, output)
        return check_headers_alone.read_commands(build)

    def test_a_source_alone_proves_its_header(self):
        with tempfile.TemporaryDirectory() as build:
            commands = self.read([os.path.join(check_headers_alone.ROOT, "base/futex.cc")], build)
            self.assertEqual(check_headers_alone.proved_by_build(self.HEADERS, commands), {"base/futex.h"})

    def test_a_unity_file_proves_the_first_of_its_sources_and_has_the_flags_of_all(self):
        with tempfile.TemporaryDirectory() as build:
            unity = os.path.join(build, "Unity", "unity_0_cxx.cxx")
            os.mkdir(os.path.dirname(unity))
            with open(unity, "w", encoding="utf-8") as output:
                for source in ("base/status.cc", "base/futex.cc", "images/cubin.cc"):
                    output.write(f'#include "{check_headers_alone.ROOT}/{source}"\n')
            commands = self.read([unity], build)
            self.assertEqual(check_headers_alone.proved_by_build(self.HEADERS, commands), {"base/status.h"})
            self.assertEqual(check_headers_alone.flags_by_folder(commands),
                             {folder: ["c++", "-I/x", "-std=c++23"] for folder in ("base", "images")})

    def test_with_a_header_the_one_that_it_includes_first_is_proved(self):
        following = {"a": "b", "b": "c", "c": None, "d": "c", "e": None}
        self.assertEqual(check_headers_alone.with_lines({"a"}, following), {"a", "b", "c"})

    def test_a_header_stands_behind_such_only_as_it_includes(self):
        def chains(below, *headers):
            return sorted(check_headers_alone.chains(set(headers or below), below))

        # `top` includes both sides, which include `low`.
        below = {"top": {"left", "right", "low"}, "left": {"low"}, "right": {"low"}, "low": set(), "apart": set()}
        self.assertEqual(len(chains(below)), 3)
        for chain in chains(below):
            for index, header in enumerate(chain):
                self.assertLessEqual(set(chain[:index]), below[header])
        self.assertEqual(sorted(sum(chains(below), [])), sorted(below))
        # What is proved already is left out, and does not part those around it.
        self.assertEqual(chains(below, "top", "low"), [["low", "top"]])
        # Two may want the same one below them: who can take another does.
        self.assertEqual(chains({"a": {"x", "y"}, "b": {"x"}, "x": set(), "y": set()}), [["x", "b"], ["y", "a"]])
        # Round about: each is compiled first once.
        self.assertEqual(chains({"x": {"y"}, "y": {"x"}}), [["x"], ["y"]])

    def test_what_changed_comes_first_and_each_commit_leaves_out_others(self):
        lists = [[f"{name}.h", f"{name}_base.h"] for name in "abcdefgh"]
        orders = [check_headers_alone.in_turn(lists, {"c_base.h", "f.h"}, seed) for seed in ("one", "two", "one")]
        for order in orders:
            self.assertEqual(sorted(order), lists)
            self.assertEqual(sorted(order[:2]), [lists[2], lists[5]])
        self.assertNotEqual(orders[0][2:], orders[1][2:])
        self.assertEqual(orders[0], orders[2])

    def test_below_is_all_that_is_included(self):
        headers = {"base/status.h", "base/event_loop.h", "base/unique_fd.h"}
        self.assertIn("base/status.h", check_headers_alone.everything_below(headers)["base/event_loop.h"])

    def test_system_headers_are_not_the_next_in_line(self):
        headers = {"base/status.h", "base/event_loop.h"}
        self.assertEqual(check_headers_alone.next_in_line("base/event_loop.h", headers), "base/status.h")


if __name__ == "__main__":
    unittest.main()
