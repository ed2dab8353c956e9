#!/usr/bin/env python3
"""What tallyctl --json prints is what docs/json-schema/tallyctl.json says, of every command, and nothing else."""
import copy
import json
import os
import re
import subprocess
import sys
import unittest

from support.daemon_fixture import Session, program, wait_until
from support.distribution import module
from support.full_stack import FullStackTest, not_built
from support.window import HOSTILE_GPU, ON

jsonschema = module("jsonschema")

SCHEMA = os.path.join(os.environ["TALLY_TEST_SOURCE"], "docs", "json-schema", "tallyctl.json")
CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
WINDOW_CASE = os.path.join(os.path.dirname(CASES), "window_case.py")
GRAPH_CASE = os.path.join(os.path.dirname(CASES), "graph_case.py")
MISSING = not_built()
# They print nothing, or what another's specification says.
WITHOUT_SCHEMA = {"set-priority", "set-weight", "set-level", "set-turnaround", "grant revoke", "cdi generate", "trace"}
# Parts of others, and what a command prints with an option.
OF_NO_COMMAND = {"class", "window_mode", "window_shapes"}


def strict(schema):
    """The same without room for properties that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if "properties" in schema else {}
    return {key: strict(value) for key, value in schema.items()} | more


with open(SCHEMA, encoding="utf-8") as schema_file:
    WHOLE = json.load(schema_file)


def complaints(command, printed):
    schema = strict(WHOLE)
    schema["$ref"] = f"#/$defs/{command}"
    found = jsonschema.Draft202012Validator(schema).iter_errors(printed)
    return [f"{error.json_path}: {error.message} (docs/json-schema/tallyctl.json)" for error in found]


class Schema(unittest.TestCase):
    def test_it_is_one(self):
        jsonschema.Draft202012Validator.check_schema(WHOLE)

    def test_every_command_has_one(self):
        usage = subprocess.run([program("tallyctl"), "--describe"], stdout=subprocess.PIPE, text=True, check=True).stdout
        commands = set(re.findall(r"^command\ttallyctl ([^\t]+)\t", usage, re.MULTILINE))
        commands -= {command.rsplit(" ", 1)[0] for command in commands if " " in command}
        self.assertIn("ps", commands)
        self.assertEqual(set(WHOLE["$defs"]) - OF_NO_COMMAND, commands - WITHOUT_SCHEMA)

    def test_it_is_the_units_that_names_end_with(self):
        """A time that is no integer would be one in seconds."""
        def walk(schema):
            for name, of_name in schema.get("properties", {}).items():
                if name.endswith(("_ns", "_bytes", "_us")):
                    self.assertIn(of_name["type"], ("integer", ["integer", "null"]), name)
            for value in schema.values():
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, dict):
                        walk(part)
        walk(WHOLE)


@unittest.skipIf(MISSING, f"not built: {MISSING}")
class Printed(FullStackTest):
    def test_it_fits(self):
        self.start_daemon("--policy", "tally", "--transforms", "all")
        self.start_under_tally(sys.executable, CASES, "requests", "20", priority="high",
                               options=("--name", "service", "--slo", "p99=1us"))
        self.start_under_tally(sys.executable, CASES, "forever", "200", options=("--name", "training"))
        sessions = lambda: {row["tenant"]: row for row in self.ctl_json("ps")}
        wait_until(lambda: sessions().get("service", {}).get("slo_observed_ns"), "its latency is known", 60)
        wait_until(lambda: sessions().get("training", {}).get("coverage"), "its GPU time is counted", 60)
        wait_until(lambda: self.ctl_json("kernels"), "kernels are known", 60)
        for command in ("ps", "coverage", "executors", "totals", "kernels", "version"):
            printed = self.ctl_json(command)
            self.assertTrue(printed, command)
            self.assertEqual(complaints(command, printed), [])
        for options in ((), ("--tenants",)):
            snapshots = self.ctl("--json", "top", "--snapshots", "2", "--interval", "0.2", *options).stdout.splitlines()
            self.assertEqual(len(snapshots), 2)
            for snapshot in map(json.loads, snapshots):
                self.assertEqual(complaints("top", snapshot), [])
                self.assertEqual(len(snapshot["rows"]), 2)
        checks = json.loads(self.ctl("--json", "doctor").stdout)
        self.assertGreater(len(checks), 8)
        self.assertEqual(complaints("doctor", checks), [])
        # The test itself: what is missing, new or of another type is seen.
        row = self.ctl_json("ps")[0]
        for change in ({"age_ns": "3s"}, {"uid": -1}, {"class": "urgent"}, {"memory": 7}, {"slo_caution": 2}):
            self.assertEqual(len(complaints("ps", [{**row, **change}])), 1, change)
        less = copy.copy(row)
        del less["requests"]
        self.assertEqual(len(complaints("ps", [less])), 1)

    def test_windows_fit(self):
        self.start_daemon(env=HOSTILE_GPU)
        self.start_under_tally(sys.executable, WINDOW_CASE, "forever", env=ON)
        wait_until(lambda: self.ctl_json("window", "--shapes"), "a batch has come twice", 60)
        wait_until(lambda: any(row["batches"] for row in self.ctl_json("window")), "its batches are counted", 60)
        for definition, command in (("window", ("window",)), ("window_shapes", ("window", "--shapes")), ("ps", ("ps",))):
            printed = self.ctl_json(*command)
            self.assertTrue(printed, command)
            self.assertEqual(complaints(definition, printed), [])

    def test_graphs_fit(self):
        self.start_daemon(env={"TALLY_FORCE_GRAPHS": "partitions", "TALLY_GRAPH_PARTITION_NODES": "3"})
        self.start_under_tally(sys.executable, GRAPH_CASE, "forever", "3", "4")
        wait_until(lambda: any(row["partitions"] for row in self.ctl_json("graphs")), "a graph is cut", 60)
        printed = self.ctl_json("graphs")
        self.assertEqual(complaints("graphs", printed), [])
        self.assertEqual(complaints("graph", self.ctl_json("graph", printed[0]["id"])), [])
        self.assertEqual(complaints("ps", self.ctl_json("ps")), [])

    def test_grants(self):
        self.start_daemon()
        self.assertEqual(complaints("grant create", self.ctl_json("grant", "create", "team-a", "--memory", "8G")), [])
        (grant,) = self.ctl_json("grant", "list")
        self.assertEqual(complaints("grant list", [grant]), [])
        self.assertEqual(grant["share"], 1)
        self.session_at(grant["socket"])
        self.assertEqual(complaints("ps", self.ctl_json("ps")), [])

    def session_at(self, path):
        self.addCleanup(Session(path).close)

    def test_nobody_there_is_an_empty_list(self):
        self.start_daemon()
        for command in (("ps",), ("coverage",), ("executors",), ("kernels",), ("window",), ("window", "--shapes"), ("graphs",)):
            self.assertEqual(self.ctl_json(*command), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
