#!/usr/bin/env python3
"""Every file under deploy/ loads, and names only what exists."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.daemon_fixture import HIGH, DaemonTest, hello, program

PERMISSION_DENIED = 7

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

    def test_kubernetes(self):
        (daemon_set,) = self.yaml_documents("kubernetes", "daemonset.yaml")
        (pod,) = self.yaml_documents("kubernetes", "example-pod.yaml")
        (kustomization,) = self.yaml_documents("kubernetes", "kustomization.yaml")
        self.assertEqual((daemon_set["kind"], pod["kind"]), ("DaemonSet", "Pod"))
        template = daemon_set["spec"]["template"]["spec"]
        (container,), (init,) = template["containers"], template["initContainers"]
        for probe in ("startupProbe", "livenessProbe"):
            self.assertIn(f'"{container[probe]["httpGet"]["path"]}"', read("server", "daemon", "metrics", "exporter.cc"))
        arguments = container["args"]
        usage = subprocess.run([program("tallyd"), "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for argument in arguments:
            if argument.startswith("--"):
                self.assertIn(argument, usage)
        paths = lambda spec: {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
        ours, theirs = paths(template), paths(pod["spec"])
        # A pod's root is root: it gets the directory of its grant alone, and may write nowhere.
        (grant,) = commented_json("deploy", "kubernetes", "tallyd.json")["grants"]
        self.assertEqual(theirs, {"client": ours["client"], "socket": f"{ours['socket']}/grants/{grant['tenant']}"})
        self.assertEqual([mount.get("readOnly") for mount in pod["spec"]["containers"][0]["volumeMounts"]], [True, True])
        self.assertEqual(grant["pod"], pod["metadata"]["name"])
        # Nothing that says who it is hangs on a variable.
        self.assertEqual([each["name"] for each in pod["spec"]["containers"][0]["env"] if each["name"].startswith("TALLY_")], [])
        # Every volume that is mounted is there, and all that is written lies on one.
        volumes = {volume["name"] for volume in template["volumes"]}
        for each in (container, init):
            self.assertLessEqual({mount["name"] for mount in each["volumeMounts"]}, volumes)
            self.assertTrue(each["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(each["securityContext"]["capabilities"]["drop"], ["ALL"])
            self.assertIn("requests", each["resources"])
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        self.assertLessEqual({"/run/tally", "/tmp", arguments[arguments.index("--cache-directory") + 1]}, mounts)
        user = container["securityContext"]["runAsUser"]
        self.assertTrue(container["securityContext"]["runAsNonRoot"] and isinstance(user, int) and user > 0)
        self.assertEqual(set(re.findall(r"-[og] (\S+)", init["command"][-1])), {str(user)})
        self.assertEqual(template["priorityClassName"], "system-node-critical")
        self.assertNotIn("0.0.0.0", " ".join(arguments))
        for name in kustomization["resources"]:
            self.assertTrue(os.path.exists(os.path.join(DEPLOY, "kubernetes", name)), name)

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kustomization(self):
        run = subprocess.run(["kubectl", "kustomize", os.path.join(DEPLOY, "kubernetes")], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        kinds = re.findall(r"^kind: (\w+)$", run.stdout, re.MULTILINE)
        self.assertEqual(sorted(kinds), ["ConfigMap", "DaemonSet", "Namespace"])
        (name,) = set(re.findall(r"^ *name: (tallyd-\w+)$", run.stdout, re.MULTILINE))
        self.assertIn(f"configMap:\n          name: {name}", run.stdout)

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


# Runs as root in a mount namespace of its own, like a pod of the DaemonSet: $1 is the directory with the host's paths, $2
# what the init container does, $3 what tallyd does, as its user.
POD = """
set -e
for volume in run cache client; do mkdir -p "$1/$volume"; done
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs /run; mkdir /run/tally
mount --bind "$1/run" /run/tally
sh -ec "$2"
mount -o remount,bind,ro /
mount -t tmpfs -o mode=1777 tmpfs /tmp 2>/dev/null
! touch /root-is-writable 2>/dev/null
exec setpriv --reuid "$4" --regid "$4" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all sh -ec "$3"
"""


@unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "only root can make a pod")
class LikeInAPod(DaemonTest):
    """The DaemonSet's situation as far as namespaces go: hostPath of root's, its user, a root file system to read only."""

    def setUp(self):
        super().setUp()
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        with open(os.path.join(DEPLOY, "kubernetes", "daemonset.yaml"), encoding="utf-8") as file:
            template = yaml.safe_load(file)["spec"]["template"]["spec"]
        (self.container,), (self.init,) = template["containers"], template["initContainers"]
        self.user = self.container["securityContext"]["runAsUser"]
        # Not below /tmp, which is the pod's own; as kubelet makes them.
        self.host = tempfile.mkdtemp(prefix="tally-pod-", dir="/var/tmp")
        os.chmod(self.host, 0o755)
        self.addCleanup(shutil.rmtree, self.host, True)
        # What the image has. Its user must get to it, so it is not where this repository is.
        self.image = os.path.join(self.host, "image")
        shutil.copytree(os.path.dirname(self.executor), os.path.join(self.image, "scripted"))
        for name in ("tallyd", "tallyctl"):
            shutil.copy(program(name), self.image)

    def init_command(self):
        command = self.init["command"][-1]
        for path, here in (("/usr/lib/tally/client/.", os.path.join(os.environ["TALLY_TEST_BUILD"], "lib/tally/client/.")),
                           ("/var/cache/tally", f"{self.host}/cache"), ("/client/", f"{self.host}/client/")):
            self.assertIn(path, command)
            command = re.sub(rf"(?<= ){re.escape(path)}", here, command)
        return command

    def start(self, init):
        arguments = [word for word in self.container["args"]]
        for option, value in (("--config", os.path.join(self.host, "tallyd.json")), ("--driver", "sim"),
                              ("--cache-directory", f"{self.host}/cache"), ("--metrics-address", "127.0.0.1:0")):
            arguments[arguments.index(option) + 1] = value
        shutil.copy(os.path.join(DEPLOY, "kubernetes", "tallyd.json"), self.host)
        os.chmod(os.path.join(self.host, "tallyd.json"), 0o644)
        read_end, write_end = os.pipe()
        command = shlex.join([f"{self.image}/tallyd", *arguments, "--ready-fd", str(write_end), "--executor",
                              f"{self.image}/scripted/tally-executor"])
        with open(os.path.join(self.directory, "pod.log"), "wb") as log:
            daemon = subprocess.Popen(["unshare", "-m", "sh", "-ec", POD, "pod", self.host, init, "exec " + command,
                                       str(self.user)], pass_fds=[write_end], stdout=log, stderr=log)
        daemon.log_path = log.name
        os.close(write_end)
        self.daemons.append(daemon)
        with os.fdopen(read_end) as ready:
            return daemon, ready.readline()

    def as_pod(self, directory, **words):
        """What root of another pod is answered that has this directory at /run/tally: a code and a sentence."""
        script = ("import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
                  "s.connect('/run/tally/tally.sock'); s.send(bytes.fromhex(sys.argv[1])); a = s.recv(4096); "
                  "print(int.from_bytes(a[24:28], 'little'), a[32:].split(bytes(1))[0].decode())")
        run = subprocess.run(["unshare", "-m", "--pid", "--fork", "sh", "-ec",
                              'mount -t tmpfs tmpfs /run; mkdir /run/tally; mount --bind -o ro "$0" /run/tally; '
                              'exec "$1" -c "$2" "$3"', directory, sys.executable, script, hello(**words).hex()],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        code, _, sentence = run.stdout.strip().partition(" ")
        return int(code), sentence

    def test_it_starts_and_serves_pods(self):
        daemon, line = self.start(self.init_command())
        self.assertTrue(line.startswith("ready driver="), self.log_of(daemon))
        self.assertEqual(os.stat(f"{self.host}/run").st_uid, self.user)
        self.assertTrue(os.path.exists(f"{self.host}/client/libcuda.so.1"))
        grant, common = f"{self.host}/run/grants/training", f"{self.host}/run/clients"
        self.assertEqual(self.as_pod(grant), (0, ""))
        self.assertEqual(self.as_pod(grant, priority=HIGH)[0], PERMISSION_DENIED)
        self.assertEqual(self.as_pod(common), (0, ""))
        self.assertEqual(self.as_pod(common, priority=HIGH)[0], PERMISSION_DENIED)
        # The next pod of the DaemonSet finds what this one has left.
        daemon.terminate()
        daemon.wait(60)
        inode = os.stat(grant).st_ino
        daemon, line = self.start(self.init_command())
        self.assertTrue(line.startswith("ready driver="), self.log_of(daemon))
        self.assertEqual(os.stat(grant).st_ino, inode, "pods that run have it mounted")
        self.assertEqual(self.as_pod(grant), (0, ""))

    def test_without_the_init_container_it_says_what_is_wrong(self):
        daemon, line = self.start("mkdir -p /run/tally")
        self.assertEqual(line, "")
        self.assertEqual(daemon.wait(60), 1)
        self.assertIn("belongs to user 0", self.log_of(daemon))


if __name__ == "__main__":
    unittest.main(verbosity=2)
