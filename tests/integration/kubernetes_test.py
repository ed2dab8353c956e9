#!/usr/bin/env python3
"""What deploy/ has for Kubernetes, without a cluster: manifests, chart, and the DaemonSet's situation in namespaces."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.daemon_fixture import HIGH, DaemonTest, hello, is_alive, program, wait_until
from support.full_stack import BUILD, FullStackTest, not_built
from support.kubelet import Kubelet

try:
    import yaml
except ImportError:
    print("SKIPPED ALL: PyYAML is not installed")
    sys.exit(0)

PERMISSION_DENIED = 7

ROOT = os.environ["TALLY_TEST_SOURCE"]
KUBERNETES = os.path.join(ROOT, "deploy", "kubernetes")
CHART = os.path.join(ROOT, "deploy", "helm", "tally")


def document(name):
    with open(os.path.join(KUBERNETES, name), encoding="utf-8") as file:
        return yaml.safe_load(file)


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def commented_json(text):
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def containers_of(pod):
    return {each["name"]: each for each in [*pod.get("initContainers", []), *pod["containers"]]}


def restricted_problems(pod):
    """What Pod Security "restricted" has against a pod's specification (kubernetes.io, Pod Security Standards)."""
    allowed_volumes = {"name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
                       "secret"}
    problems = [f"{key} is set" for key in ("hostPID", "hostIPC", "hostNetwork") if pod.get(key)]
    problems += [f"volume {volume['name']}" for volume in pod.get("volumes", []) if set(volume) - allowed_volumes]
    whole = pod.get("securityContext", {})
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        own = container.get("securityContext", {})
        either = {**whole, **own}
        capabilities = own.get("capabilities", {})
        wrong = {"runAsNonRoot": either.get("runAsNonRoot") is not True, "runAsUser": either.get("runAsUser") == 0,
                 "privileged": bool(own.get("privileged")),
                 "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
                 "seccompProfile": either.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"),
                 "capabilities": "ALL" not in capabilities.get("drop", [])
                                 or bool(set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}),
                 "hostPort": any("hostPort" in port for port in container.get("ports", []))}
        problems += [f"{container['name']}: {name}" for name, is_wrong in wrong.items() if is_wrong]
    return problems


class Manifests(unittest.TestCase):
    def setUp(self):
        self.daemon_set = document("daemonset.yaml")
        self.pod = self.daemon_set["spec"]["template"]["spec"]
        self.containers = containers_of(self.pod)

    def test_every_option_and_probe_is_there(self):
        for name in ("tallyd", "device-plugin"):
            container = self.containers[name]
            usage = subprocess.run([program(os.path.basename(container["command"][0])), "--help"], stdout=subprocess.PIPE,
                                   text=True, check=True).stdout
            for argument in container["args"]:
                if argument.startswith("--"):
                    self.assertIn(argument, usage)
            self.assertNotIn("0.0.0.0", " ".join(container["args"]))
        for probe in ("startupProbe", "livenessProbe"):
            path = self.containers["tallyd"][probe]["httpGet"]["path"]
            self.assertIn(f'"{path}"', text_of("server", "daemon", "metrics", "exporter.cc"))

    def test_what_is_mounted_is_there_and_what_is_written_lies_on_it(self):
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        for container in self.containers.values():
            self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, set(volumes))
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertIn("requests", container["resources"])
            if container["name"] == "device-plugin":
                continue
            self.assertIs(container["securityContext"]["allowPrivilegeEscalation"], False)
            self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])
        tallyd = self.containers["tallyd"]
        mounts = {mount["mountPath"] for mount in tallyd["volumeMounts"]}
        self.assertLessEqual({"/run/tally", "/tmp", tallyd["args"][tallyd["args"].index("--cache-directory") + 1]}, mounts)
        # The plugin tells kubelet paths of the host: it must see them as the host does.
        plugin = self.containers["device-plugin"]
        for mount in plugin["volumeMounts"]:
            self.assertEqual(volumes[mount["name"]]["hostPath"]["path"], mount["mountPath"])
        library = plugin["args"][plugin["args"].index("--client-library") + 1]
        self.assertEqual(os.path.dirname(library), volumes["client"]["hostPath"]["path"])

    def test_users(self):
        security = self.containers["tallyd"]["securityContext"]
        user = security["runAsUser"]
        self.assertTrue(security["runAsNonRoot"] and isinstance(user, int) and user > 0)
        self.assertEqual(set(re.findall(r"-[og] (\S+)", self.containers["directories"]["command"][-1])), {str(user)})
        self.assertEqual(self.pod["priorityClassName"], "system-node-critical")

    def test_what_it_needs_beyond_restricted_is_listed_with_reasons(self):
        lead = text_of("deploy", "kubernetes", "daemonset.yaml").split("apiVersion")[0]
        for problem in restricted_problems(self.pod):
            words = {"hostPID is set": "hostPID", "device-plugin: privileged": "privileged"}
            word = words.get(problem) or ("hostPath" if problem.startswith("volume") else "root")
            self.assertRegex(lead, rf"(?m)^#   {word}", problem)

    def test_pods_of_clients_pass_restricted(self):
        pod = document("example-pod.yaml")["spec"]
        self.assertEqual(restricted_problems(pod), [])
        (container,) = pod["containers"]
        self.assertEqual(container["resources"]["limits"], {"tally.dev/gpu": 1})
        self.assertNotIn("volumeMounts", container)
        self.assertEqual([each["name"] for each in container["env"] if each["name"].startswith(("TALLY_", "LD_"))], [])
        self.assertGreater(len(restricted_problems(self.pod)), 5, "this check sees something")

    def test_metrics_are_where_the_policy_lets_through(self):
        policy, monitor = document("network-policy.yaml"), document("pod-monitor.yaml")
        port = policy["spec"]["ingress"][0]["ports"][0]["port"]
        self.assertIn(port, [each["name"] for each in self.containers["tallyd"]["ports"]])
        self.assertEqual(monitor["spec"]["podMetricsEndpoints"][0]["port"], port)
        labels = self.daemon_set["spec"]["template"]["metadata"]["labels"]
        for selector in (policy["spec"]["podSelector"], monitor["spec"]["selector"], self.daemon_set["spec"]["selector"]):
            self.assertLessEqual(selector["matchLabels"].items(), labels.items())

    def test_kustomization(self):
        kustomization = document("kustomization.yaml")
        for name in kustomization["resources"]:
            self.assertTrue(os.path.exists(os.path.join(KUBERNETES, name)), name)
        if shutil.which("kubectl") is None:
            self.skipTest("kubectl is not installed")
        run = subprocess.run(["kubectl", "kustomize", KUBERNETES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        kinds = re.findall(r"^kind: (\w+)$", run.stdout, re.MULTILINE)
        self.assertEqual(sorted(kinds), ["ConfigMap", "DaemonSet", "Namespace", "NetworkPolicy"])
        (name,) = set(re.findall(r"^ *name: (tallyd-\w+)$", run.stdout, re.MULTILINE))
        self.assertIn(f"configMap:\n          name: {name}", run.stdout)

    def test_schemas(self):
        modules = os.environ.get("TALLY_TEST_NODE_MODULES", "")
        if not os.path.isdir(os.path.join(modules, "kubernetes-models")):
            self.skipTest("TALLY_TEST_NODE_MODULES names no directory with npm's kubernetes-models")
        objects = [document(name) for name in os.listdir(KUBERNETES) if name.endswith(".yaml") and name != "kustomization.yaml"]
        if shutil.which("helm"):
            objects += rendered("--set", "podMonitor=true,memory=7G")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "check_manifests.mjs")
        run = subprocess.run(["node", script, modules], input=json.dumps(objects), stdout=subprocess.PIPE, text=True,
                             timeout=60, check=False)
        self.assertEqual((run.returncode, run.stdout.count(": valid\n")), (0, len(objects)), run.stdout)


def rendered(*arguments):
    """The chart's objects, by Helm itself."""
    run = subprocess.run(["helm", "template", "tally", CHART, "--namespace", "tally", *arguments], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    if run.returncode != 0:
        raise AssertionError(run.stderr)
    return [each for each in yaml.safe_load_all(run.stdout) if each]


class Chart(unittest.TestCase):
    def test_templates_use_values_that_there_are(self):
        with open(os.path.join(CHART, "values.yaml"), encoding="utf-8") as file:
            values = yaml.safe_load(file)
        used = set()
        for name in os.listdir(os.path.join(CHART, "templates")):
            text = text_of("deploy", "helm", "tally", "templates", name)
            used |= set(re.findall(r"\.Values\.(\w+)", text))
            self.assertEqual(len(re.findall(r"{{-? if ", text)), len(re.findall(r"{{-? end", text)), name)
        self.assertEqual(used, set(values))
        version = re.search(r"project\(tally VERSION (\S+)", text_of("CMakeLists.txt")).group(1)
        self.assertIn(f"appVersion: {version}\n", text_of("deploy", "helm", "tally", "Chart.yaml"))
        self.assertEqual(values["image"], f"tally:{version}")

    @unittest.skipUnless(shutil.which("helm"), "helm is not installed")
    def test_with_its_own_values_it_is_the_kustomization(self):
        lint = subprocess.run(["helm", "lint", "--strict", CHART], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(lint.returncode, 0, lint.stdout)
        objects = {each["kind"]: each for each in rendered()}
        objects["DaemonSet"]["spec"]["template"]["metadata"].pop("annotations")
        self.assertEqual(objects["DaemonSet"], document("daemonset.yaml"))
        self.assertEqual(objects["NetworkPolicy"], document("network-policy.yaml"))
        self.assertEqual(json.loads(objects["ConfigMap"]["data"]["tallyd.json"]),
                         commented_json(text_of("deploy", "kubernetes", "tallyd.json")))
        self.assertEqual(set(objects), {"DaemonSet", "NetworkPolicy", "ConfigMap"})

    @unittest.skipUnless(shutil.which("helm"), "helm is not installed")
    def test_without_executors_that_stay_nothing_is_privileged(self):
        (daemon_set,) = [each for each in rendered("--set", "keepExecutors=false") if each["kind"] == "DaemonSet"]
        pod = daemon_set["spec"]["template"]["spec"]
        plugin = containers_of(pod)["device-plugin"]
        self.assertEqual(plugin["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]})
        self.assertNotIn("--executor-cgroup", plugin["args"])
        self.assertNotIn("privileged", json.dumps(pod))
        self.assertNotIn("cgroup", json.dumps(pod))

    @unittest.skipUnless(shutil.which("helm"), "helm is not installed")
    def test_values_arrive(self):
        objects = {each["kind"]: each for each in rendered("--set", "podMonitor=true,memory=7G,highDevices=0,metricsPort=9000",
                                                            "--set", "metricsFromNamespace=null")}
        self.assertEqual(objects["PodMonitor"], document("pod-monitor.yaml"))
        self.assertNotIn("NetworkPolicy", objects)
        containers = containers_of(objects["DaemonSet"]["spec"]["template"]["spec"])
        arguments = containers["device-plugin"]["args"]
        self.assertEqual(arguments[arguments.index("--devices"):],
                         ["--devices", "10", "--high-devices", "0", "--memory", "7G", "--executor-cgroup", "/sys/fs/cgroup/tally"])
        self.assertEqual(containers["tallyd"]["args"][-1], "$(POD_IP):9000")
        self.assertEqual(containers["tallyd"]["ports"][0]["containerPort"], 9000)


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
        containers = containers_of(document("daemonset.yaml")["spec"]["template"]["spec"])
        self.container, self.init = containers["tallyd"], containers["directories"]
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
        for path, here in (("/usr/lib/tally/client/", os.path.join(os.environ["TALLY_TEST_BUILD"], "lib/tally/client/")),
                           ("/var/cache/tally", f"{self.host}/cache"), ("/client/", f"{self.host}/client/")):
            self.assertIn(path, command)
            command = re.sub(rf'(?<=[ "]){re.escape(path)}', here, command)
        return command

    def start(self, init):
        arguments = [word for word in self.container["args"]]
        for option, value in (("--config", os.path.join(self.host, "tallyd.json")), ("--driver", "sim"),
                              ("--cache-directory", f"{self.host}/cache"), ("--metrics-address", "127.0.0.1:0")):
            arguments[arguments.index(option) + 1] = value
        shutil.copy(os.path.join(KUBERNETES, "tallyd.json"), self.host)
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
        self.socket_path = f"{self.host}/run/tally.sock"
        self.assertEqual(self.ctl("grant", "create", "training").returncode, 0)
        self.assertEqual(self.as_pod(grant), (0, ""))
        self.assertEqual(self.as_pod(grant, priority=HIGH)[0], PERMISSION_DENIED)
        self.assertEqual(self.as_pod(common)[0], PERMISSION_DENIED, "who has no grant is nobody")
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


# What kubelet does to a pod: a control group, $2 below the hierarchy that it mounts at $1, and all of it ends together.
IN_CGROUP = 'mount -t cgroup2 none "$1"; mkdir -p "$1/$2"; echo $$ > "$1/$2/cgroup.procs"; shift 2; exec "$@"'
END_OF_POD = 'mount -t cgroup2 none "$1"; echo 1 > "$1/$2/cgroup.kill"; until rmdir "$1/$2"; do sleep 0.1; done'
CAN_KILL = 'mount -t cgroup2 none "$1" && mkdir "$1/$2" && test -e "$1/$2/cgroup.kill"; rmdir "$1/$2"'


def in_namespace(script, *words, **options):
    return subprocess.Popen(["unshare", "-m", "sh", "-ec", script, "sh", *words], **options)


@unittest.skipIf(os.getuid() != 0 or not_built(), "only root can make control groups, and programs must be built")
class Upgrade(FullStackTest):
    """One pod of the DaemonSet after the other, with a program that goes on: its executor outlives the first one."""

    def setUp(self):
        super().setUp()
        self.hierarchy = os.path.join(self.directory, "cgroup")
        os.mkdir(self.hierarchy)
        self.groups = f"tally-test-{os.getpid()}"
        if in_namespace(CAN_KILL, self.hierarchy, self.groups, stderr=subprocess.DEVNULL).wait(30) != 0:
            self.skipTest("no cgroup2 with cgroup.kill can be mounted")
        self.kubelet = Kubelet(os.path.join(self.directory, "device-plugins"), os.path.join(self.directory, "pods.sock"))
        self.addCleanup(self.kubelet.kill)
        self.started = []

    def tearDown(self):
        for group in ("executors", *self.started):
            in_namespace(END_OF_POD, self.hierarchy, f"{self.groups}-{group}", stderr=subprocess.DEVNULL).wait(30)
        super().tearDown()

    def start_pod(self, name):
        """tallyd and the plugin, in a control group of their own."""
        self.started.append(name)
        log_path = os.path.join(self.directory, name + ".log")
        commands = ([program("tallyd"), "--socket", self.socket_path, "--driver", "sim", "--metrics-address", "0"],
                    [program("tally-device-plugin"), "--socket", self.socket_path, "--plugin-directory",
                     os.path.join(self.directory, "device-plugins"), "--pod-resources", os.path.join(self.directory, "pods.sock"),
                     "--executor-cgroup", f"{self.hierarchy}/{self.groups}-executors"])
        with open(log_path, "wb") as log:
            for command in commands:
                run = in_namespace(IN_CGROUP, self.hierarchy, f"{self.groups}-{name}", *command, stdout=log, stderr=log)
                self.addCleanup(self.end, run)
        self.kubelet.devices("tally.dev/gpu", bool)
        def log_of_pod():
            with open(log_path, encoding="utf-8") as log:
                return log.read()
        return log_of_pod

    def end_pod(self, name):
        self.assertEqual(in_namespace(END_OF_POD, self.hierarchy, f"{self.groups}-{name}",
                                      stderr=subprocess.DEVNULL).wait(30), 0)
        self.started.remove(name)

    def client(self, directory):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        environment["LD_LIBRARY_PATH"] = os.path.join(BUILD, "lib", "tally", "client")
        run = subprocess.Popen(["unshare", "-m", "sh", "-ec",
                                'mount -t tmpfs tmpfs /run; mkdir /run/tally; mount --bind -o ro "$0" /run/tally; exec "$@"',
                                directory, sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support",
                                                                        "pod_program.py"), "serve"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(self.end, run)
        self.assertEqual(run.stdout.readline(), "serving\n")
        return run

    def test_a_program_goes_on_from_one_pod_to_the_next(self):
        log = self.start_pod("first")
        (container,) = self.kubelet.ask("allocate tally.dev/gpu software-gpu-0")["allocated"]
        directory = container["mounts"]["/run/tally"]["from"]
        client = self.client(directory)
        (executor,) = self.ctl_json("executors")
        wait_until(lambda: f"executor {executor['pid']} outlives" in log(), "the executor is moved")
        self.end_pod("first")
        self.assertTrue(is_alive(executor["pid"]))
        self.assertIsNone(client.poll())
        self.start_pod("second")
        rows = wait_until(lambda: self.ctl_json("ps"), "the session is back")
        self.assertEqual([(row["tenant"], row["executor_pid"]) for row in rows], [("gpu-software-gpu-0", executor["pid"])])
        self.assertIsNone(client.poll(), "none of its requests has failed")
        self.client(directory)  # the directory that its pod has mounted leads to the new tallyd
        self.assertEqual(len(self.ctl_json("ps")), 2)
        self.assertIsNone(client.poll())


if __name__ == "__main__":
    unittest.main(verbosity=2)
