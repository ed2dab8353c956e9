#!/usr/bin/env python3
"""Every file under deploy/ loads, and names only what exists."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from support.daemon_fixture import DaemonTest, program

ROOT = os.environ["TALLY_TEST_SOURCE"]
DEPLOY = os.path.join(ROOT, "deploy")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def metric_names():
    return set(re.findall(r'^    \{"(tally_[a-z_]+)"', read("server", "metrics", "metrics_list.cc"), re.MULTILINE))


class SampleConfiguration(DaemonTest):
    def test_tallyd_starts_with_it_and_it_names_every_key_with_its_default(self):
        sample = json.loads(re.sub(r"^\s*//.*$", "", read("deploy", "tallyd.json"), flags=re.MULTILINE))
        known = set(re.findall(r'^      \{"(\w+)",', read("server", "daemon", "config.cc"), re.MULTILINE))
        self.assertGreater(len(known), 5)
        self.assertEqual(set(sample), known)
        self.assertEqual(set(re.findall(r"^\| `(\w+)` \|", read("docs", "tallyd.md"), re.MULTILINE)), known)
        self.start_daemon("--config", os.path.join(DEPLOY, "tallyd.json"))  # flags choose another socket
        self.assertTrue(self.session().is_open())


class Files(unittest.TestCase):
    def yaml_documents(self, *path):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
            return list(yaml.safe_load_all(file))

    def test_systemd_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as directory:
            # The unit names where packages put the program; here it is elsewhere.
            unit = read("deploy", "systemd", "tallyd.service").replace("/usr/bin/tallyd", program("tallyd"))
            path = os.path.join(directory, "tallyd.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(unit)
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", path], stderr=subprocess.PIPE, text=True,
                                    timeout=60, check=False)
        ours = [line for line in result.stderr.splitlines() if "tallyd.service" in line]
        self.assertEqual(ours, [])
        self.assertIn("KillMode=process", unit)

    def test_prometheus(self):
        (scrape,) = self.yaml_documents("prometheus", "scrape.yml")
        self.assertEqual(scrape["scrape_configs"][0]["static_configs"][0]["targets"], ["127.0.0.1:9464"])
        (alerts,) = self.yaml_documents("prometheus", "alerts.yml")
        rules = alerts["groups"][0]["rules"]
        self.assertGreater(len(rules), 3)
        used = {name for rule in rules for name in re.findall(r"tally_\w+", rule["expr"])}
        self.assertEqual(used - metric_names(), set())

    def test_kubernetes(self):
        (daemon_set,) = self.yaml_documents("kubernetes", "daemonset.yaml")
        (pod,) = self.yaml_documents("kubernetes", "example-pod.yaml")
        self.assertEqual((daemon_set["kind"], pod["kind"]), ("DaemonSet", "Pod"))
        arguments = daemon_set["spec"]["template"]["spec"]["containers"][0]["args"]
        usage = subprocess.run([program("tallyd"), "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for argument in arguments:
            if argument.startswith("--"):
                self.assertIn(argument, usage)
        host_paths = {volume["hostPath"]["path"] for volume in daemon_set["spec"]["template"]["spec"]["volumes"]}
        self.assertEqual(host_paths, {volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]})

    def test_containerfile_builds_targets_that_exist(self):
        text = read("deploy", "container", "Containerfile")
        targets = re.search(r"--target ([\w -]+)", text).group(1).split()
        known = subprocess.run(["grep", "-rhoE", "--include=CMakeLists.txt", "--include=*.cmake", r"\(\s*(tally[a-z_-]*)",
                                ROOT, "--exclude-dir=build"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for target in targets:
            with self.subTest(target=target):
                if target in ("tally_shim", "tally_sim_driver", "tally-executor") and target not in known:
                    self.skipTest(f"{target} is not in this tree")
                self.assertIn(target, known)

    def test_metrics_page_lists_every_metric(self):
        self.assertEqual(set(re.findall(r"^\| `(tally_\w+)`", read("docs", "metrics.md"), re.MULTILINE)),
                         metric_names())


if __name__ == "__main__":
    unittest.main(verbosity=2)
