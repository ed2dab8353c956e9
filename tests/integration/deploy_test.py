#!/usr/bin/env python3
"""Every file under deploy/ loads, and names only what exists."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.daemon_fixture import DaemonTest, program

ROOT = os.environ["TALLY_TEST_SOURCE"]
DEPLOY = os.path.join(ROOT, "deploy")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def metric_rows():
    """{name: (type, labels)} of docs/metrics.md, which a test holds to the sources."""
    rows = re.findall(r"^\| `(tally_\w+)` \| (\w+) \| [^|]* \| ([^|]*) \|", read("docs", "metrics.md"), re.MULTILINE)
    return {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows}


def commented_json(*path):
    return json.loads(re.sub(r"^\s*//.*$", "", read(*path), flags=re.MULTILINE))


def metric_names():
    return set(metric_rows())


class SampleConfiguration(DaemonTest):
    def test_tallyd_starts_with_it_and_it_names_every_key_with_its_default(self):
        sample = commented_json("deploy", "tallyd.json")
        known = set(re.findall(r'^      \{"(\w+)",', read("server", "daemon", "config.cc"), re.MULTILINE))
        self.assertGreater(len(known), 5)
        self.assertEqual(set(sample), known)
        self.assertEqual(set(re.findall(r"^\| `(\w+)` \|", read("docs", "tallyd.md"), re.MULTILINE)), known)
        self.start_daemon("--config", os.path.join(DEPLOY, "tallyd.json"))  # flags choose another socket
        self.assertTrue(self.session().is_open())

    def test_page_says_of_each_key_when_a_change_applies(self):
        rows = re.findall(r'RowOf<&DaemonConfig::\w+>\("(\w+)", Applies::(\w+)\)', read("server", "daemon", "reload.cc"))
        for kind, words in (("kNow", "at once"), ("kNewExecutors", "to executors"), ("kRestart", "after a restart")):
            (line,) = re.findall(rf"^\| {words}[^|]*\| (.*) \|$", read("docs", "tallyd.md"), re.MULTILINE)
            self.assertEqual(set(re.findall("`(\\w+)`", line)), {key for key, when in rows if when == kind}, kind)


class Files(unittest.TestCase):
    def yaml_documents(self, *path):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
            return list(yaml.safe_load_all(file))

    def units(self, directory):
        """Copies of the units. They name the program where packages put it; here it is elsewhere."""
        for name in ("tallyd.service", "tally.socket"):
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(read("deploy", "systemd", name).replace("ExecStart=tallyd", "ExecStart=" + program("tallyd")))
            yield os.path.join(directory, name)

    def analyze(self, *arguments):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        return subprocess.run(["systemd-analyze", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)

    def test_systemd_units(self):
        with tempfile.TemporaryDirectory() as directory:
            result = self.analyze("verify", "--man=no", *self.units(directory))
        self.assertEqual([line for line in result.stderr.splitlines() if "tally" in line], [])
        service, listener = read("deploy", "systemd", "tallyd.service"), read("deploy", "systemd", "tally.socket")
        self.assertIn("KillMode=process", service)
        (path,) = re.findall("^ListenSequentialPacket=(.*)$", listener, re.MULTILINE)
        (link,) = re.findall("^Symlinks=(.*)$", listener, re.MULTILINE)
        self.assertEqual(path, os.path.join(os.path.dirname(link), "clients", os.path.basename(link)))
        self.assertIn(f'"socket": "{link}"', read("deploy", "tallyd.json"))
        self.assertIn(f"d {os.path.dirname(path)} 0711 tally tally", read("deploy", "systemd", "tally.tmpfiles.conf"))
        self.assertIn("RuntimeDirectory=tally tally/clients\n", service)

    def test_the_service_is_shut_in_as_far_as_it_was(self):
        with tempfile.TemporaryDirectory() as directory:
            result = self.analyze("security", "--offline=true", "--threshold=39", next(iter(self.units(directory))))
        self.assertEqual(result.returncode, 0, result.stdout[-200:] + result.stderr)

    def test_prometheus(self):
        (scrape,) = self.yaml_documents("prometheus", "scrape.yml")
        self.assertEqual(scrape["scrape_configs"][0]["static_configs"][0]["targets"], ["127.0.0.1:9464"])
        (alerts,) = self.yaml_documents("prometheus", "alerts.yml")
        rules = alerts["groups"][0]["rules"]
        self.assertGreater(len(rules), 3)
        used = {name for rule in rules for name in re.findall(r"tally_\w+", rule["expr"])}
        self.assertEqual(used - metric_names(), set())

    def test_grafana(self):
        """The dashboard: what it asks for exists, is asked in the way of its type, by labels that it has."""
        rows = metric_rows()
        dashboard = json.loads(read("deploy", "grafana", "tally.json"))
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        self.assertEqual(len({panel["id"] for panel in dashboard["panels"]}), len(dashboard["panels"]))
        self.assertGreater(len(panels), 20)
        taken = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, f"{panel['title']} lies on another")
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells
        variables = dashboard["templating"]["list"]
        names = {variable["name"] for variable in variables} | {"__rate_interval"}
        legends = {target["expr"]: target["legendFormat"] for panel in panels for target in panel["targets"]}
        legends |= {variable["query"]["query"]: "" for variable in variables if variable["type"] == "query"}
        used = set()
        for query, legend in legends.items():
            self.assertEqual(set(re.findall(r"\$\{?(\w+)", query)) - names, set(), query)
            self.assertEqual(query.count("("), query.count(")"), query)
            labels = set(re.findall(r"(\w+)=", query)) | {word for by in re.findall(r"by \(([^)]*)\)", query)
                                                          for word in re.findall(r"\w+", by)}
            labels |= set(re.findall(r"{{(\w+)}}", legend))
            known = {"instance", "job"}
            for name, rest in re.findall(r"\b(tally_\w+)(\{[^}]*\}\[?)?", query):
                family = name if name in rows else re.sub("_(bucket|sum|count)$", "", name)
                self.assertIn(family, rows, query)
                kind, of_family = rows[family]
                used.add(family)
                known |= of_family | ({"le"} if kind == "histogram" else set())
                self.assertEqual(name != family, kind == "histogram", query)
                if "label_values" not in query:
                    self.assertEqual(rest.endswith("["), kind != "gauge", f"{query}: {name} is a {kind}")
            self.assertEqual(labels - known, set(), query)
        for wanted in ("tally_tenant_gpu_busy_seconds_total", "tally_tenant_kernel_launches_total", "tally_tenant_held_launches_total", "tally_executor_faults_total",
                       "tally_tenant_device_memory_bytes", "tally_slo_observed_seconds"):
            self.assertIn(wanted, used)
        self.assert_prometheus_reads(query.replace("$__rate_interval", "5m") for query in legends if "label_values" not in query)

    def assert_prometheus_reads(self, queries):
        """Where its own checker is installed (Debian's package prometheus)."""
        if shutil.which("promtool") is None:
            return
        with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
            rules = [{"record": "query", "labels": {"number": str(number)}, "expr": query} for number, query in enumerate(queries)]
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            result = subprocess.run(["promtool", "check", "rules", file.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_containerfile_names_what_exists(self):
        text = read("deploy", "container", "Containerfile")
        usage = subprocess.run([os.path.join(ROOT, "tools", "package"), "--help"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
        arguments = re.search(r"tools/package (.*)", text).group(1).split()
        self.assertIn(arguments[0], usage)
        for option in (word for word in arguments if word.startswith("--")):
            self.assertIn(option, usage)
        for option in set(re.findall(r"-D(TALLY_\w+)=", text)):
            self.assertIn(f"option({option} ", read("CMakeLists.txt"))
        arguments = json.loads(re.search(r"^CMD (.*)", text, re.MULTILINE).group(1))
        usage = subprocess.run([program("tallyd"), "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for option in (word for word in arguments if word.startswith("--")):
            self.assertIn(option, usage)


if __name__ == "__main__":
    unittest.main(verbosity=2)
