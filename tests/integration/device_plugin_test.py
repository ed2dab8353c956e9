#!/usr/bin/env python3
"""tally-device-plugin with a kubelet that is none: what it registers, gives out and refuses, and what survives whom."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from support.daemon_fixture import DaemonTest, Refused, Session, free_port, program, wait_until
from support.full_stack import BUILD, PROGRAMS, FullStackTest, not_built
from support.image import Image
from support.kubelet import FAKE_KUBELET, Kubelet, start_plugin

GPU, HIGH_GPU = "tally.dev/gpu", "tally.dev/gpu-high"
CUDA_PROGRAM = os.path.join(PROGRAMS, "reduction")  # linked with the static runtime
POD_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "pod_program.py")
CLIENT = os.path.join(BUILD, "lib", "tally", "client", "libcuda.so.1")
INVALID, NOT_FOUND, FAILED, UNAVAILABLE = 3, 5, 9, 14


class PluginTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.plugin_directory = os.path.join(self.directory, "device-plugins")
        self.kubelets = []

    def tearDown(self):
        for kubelet in self.kubelets:
            if kubelet.process.poll() is None:
                kubelet.kill()
        super().tearDown()

    def start_kubelet(self, *words):
        kubelet = Kubelet(self.plugin_directory, os.path.join(self.directory, "pods.sock"), *words)
        self.kubelets.append(kubelet)
        return kubelet

    def start_plugin(self, *arguments, **words):
        plugin, self.plugin_log_path = start_plugin(self.directory, self.socket_path, *arguments, **words)
        self.addCleanup(self.end, plugin)
        return plugin

    def plugin_log(self):
        with open(self.plugin_log_path, encoding="utf-8") as log:
            return log.read()

    def start_all(self, *arguments, **words):
        self.start_daemon(**words)
        kubelet = self.start_kubelet()
        self.start_plugin(*arguments)
        kubelet.devices(GPU, lambda devices: devices)
        return kubelet

    def tenants(self):
        return {row["tenant"]: row for row in self.ctl_json("grant", "list")}

    def assert_refused_by_plugin(self, answer, code, words):
        self.assertIn("error", answer)
        self.assertEqual(answer["error"]["code"], code, answer)
        self.assertIn(words, answer["error"]["sentence"])
        self.assertNotIn("\n", answer["error"]["sentence"])
        self.assertLess(len(answer["error"]["sentence"]), 300)

    def socket_of(self, answer):
        (container,) = answer["allocated"]
        return os.path.join(container["mounts"]["/run/tally"]["from"], "tally.sock")


class Registration(PluginTest):
    def test_both_resources_are_registered_and_listed(self):
        self.start_daemon()
        kubelet = self.start_kubelet()
        self.start_plugin("--devices", "3", "--high-devices", "1")
        said = [kubelet.next("registered") for _ in range(2)]
        self.assertEqual(sorted((event["registered"], event["version"], event["endpoint"]) for event in said),
                         [(GPU, "v1beta1", "tally-gpu.sock"), (HIGH_GPU, "v1beta1", "tally-gpu-high.sock")])
        kubelet.taken = 0
        self.assertEqual(kubelet.devices(GPU, bool), {f"software-gpu-{i}": "Healthy" for i in range(3)})
        kubelet.taken = 0
        self.assertEqual(kubelet.devices(HIGH_GPU, bool), {"software-gpu-0": "Healthy"})

    def test_a_resource_of_no_devices_is_not_offered(self):
        kubelet = self.start_all("--high-devices", "0")
        self.assertEqual(os.listdir(self.plugin_directory).count("tally-gpu-high.sock"), 0)
        self.assertEqual({event["registered"] for event in kubelet.events if "registered" in event}, {GPU})

    def test_kubelet_starts_again(self):
        kubelet = self.start_all()
        for _ in range(2):
            kubelet.kill()
            kubelet = self.start_kubelet()  # removes the plugin's sockets
            self.assertEqual(len(kubelet.devices(GPU, bool)), 10)
            self.assertIn("allocated", kubelet.ask(f"allocate {GPU} software-gpu-4"))

    def test_kubelet_starts_again_and_leaves_sockets_alone(self):
        kubelet = self.start_all()
        kubelet.kill()
        kubelet = self.start_kubelet("keep")
        self.assertEqual(len(kubelet.devices(GPU, bool)), 10)

    def test_a_kubelet_that_restarts_in_a_loop_is_not_run_after(self):
        kubelet = self.start_all("--high-devices", "0")
        for _ in range(6):
            kubelet.kill()
            kubelet = self.start_kubelet()
        self.assertIn("registered", kubelet.next("registered"))
        registered = sum("registered" in event for each in self.kubelets for event in each.events)
        self.assertLess(registered, 6, "seven kubelets in a second or two")

    def test_a_refusal_is_said_once_and_tried_again(self):
        self.start_daemon()
        kubelet = self.start_kubelet()
        kubelet.say("refuse this version is too new")
        self.start_plugin("--high-devices", "0")
        for _ in range(2):
            kubelet.next("refused")
        self.assertEqual(self.plugin_log().count("kubelet does not take tally.dev/gpu: this version is too new"), 1)
        kubelet.say("refuse")
        kubelet.next("registered")
        self.assertEqual(len(kubelet.devices(GPU, bool)), 10)

    def test_the_socket_directory_vanishes(self):
        kubelet = self.start_all()
        kubelet.kill()
        shutil.rmtree(self.plugin_directory)
        wait_until(lambda: "I wait for it" in self.plugin_log(), "it says what it waits for")
        kubelet = self.start_kubelet()
        self.assertEqual(len(kubelet.devices(GPU, bool)), 10)

    def test_without_tallyd_nothing_is_registered(self):
        kubelet = self.start_kubelet()
        self.start_plugin()
        wait_until(lambda: "no tallyd serves" in self.plugin_log(), "it says so")
        self.start_daemon()
        self.assertEqual(len(kubelet.devices(GPU, bool)), 10)
        self.assertEqual(self.plugin_log().count("no tallyd serves"), 1)


class Health(PluginTest):
    def test_a_lost_gpu_is_unhealthy_and_comes_back(self):
        gpus = os.path.join(self.directory, "gpus")
        def say(*lines):
            with open(gpus + ".part", "w", encoding="ascii") as file:
                file.write("".join(line + "\n" for line in lines))
            os.rename(gpus + ".part", gpus)
        say("GPU-a", "GPU-b")
        self.start_daemon(driver="cuda")
        kubelet = self.start_kubelet()
        self.start_plugin("--devices", "2", env={"TALLY_TEST_GPUS": gpus})
        well = {f"GPU-{name}-{i}": "Healthy" for name in "ab" for i in range(2)}
        self.assertEqual(kubelet.devices(GPU, bool), well)
        for lines in (("GPU-a", "GPU-b lost"), ("GPU-a",)):
            say(*lines)
            self.assertEqual(kubelet.devices(GPU, lambda devices: "Unhealthy" in devices.values()),
                             well | {"GPU-b-0": "Unhealthy", "GPU-b-1": "Unhealthy"})
            self.assert_refused_by_plugin(kubelet.ask(f"allocate {GPU} GPU-b-0"), FAILED, "is not well")
            self.assertIn("allocated", kubelet.ask(f"allocate {GPU} GPU-a-0"))
            say("GPU-a", "GPU-b")
            self.assertEqual(kubelet.devices(GPU, lambda devices: "Unhealthy" not in devices.values()), well)
        self.assertIn("GPU GPU-b: lost", self.plugin_log())

    def test_a_tallyd_that_is_gone_is_unhealthy_after_a_while(self):
        kubelet = self.start_all()
        self.daemons[0].terminate()
        self.daemons[0].wait(60)
        self.assertEqual(set(kubelet.devices(GPU, lambda devices: "Unhealthy" in devices.values()).values()), {"Unhealthy"})
        self.assert_refused_by_plugin(kubelet.ask(f"allocate {GPU} software-gpu-0"), FAILED, "is not well")
        self.start_daemon()
        kubelet.devices(GPU, lambda devices: "Unhealthy" not in devices.values())


class Allocate(PluginTest):
    def test_mounts_and_nothing_else(self):
        kubelet = self.start_all("--memory", "7G", "--high-memory", "1Gi")
        answer = kubelet.ask(f"allocate {GPU} software-gpu-3")
        (container,) = answer["allocated"]
        grant = os.path.join(self.directory, "grants", "gpu-software-gpu-3")
        expected = {"/run/tally": grant, "/usr/lib/tally/client": os.path.dirname(CLIENT),
                    "/usr/lib/x86_64-linux-gnu/libcuda.so.1": CLIENT, "/usr/lib64/libcuda.so.1": CLIENT}
        self.assertEqual({to: mount["from"] for to, mount in container["mounts"].items()}, expected)
        self.assertEqual({mount["read_only"] for mount in container["mounts"].values()}, {True})
        self.assertEqual((container["variables"], container["cdi"]), ({}, []))
        kubelet.ask(f"allocate {HIGH_GPU} software-gpu-0")
        rows = self.tenants()
        self.assertEqual([(rows[name]["class"], rows[name]["device_memory_bytes"], rows[name]["domain"]) for name in rows],
                         [("best-effort", 7 << 30, "tenant"), ("high", 1 << 30, "tenant")])

    def test_by_cdi(self):
        cdi = os.path.join(self.directory, "cdi")
        kubelet = self.start_all("--cdi-directory", cdi)
        (container,) = kubelet.ask(f"allocate {GPU} software-gpu-3")["allocated"]
        self.assertEqual((container["mounts"], container["variables"]), ({}, {}))
        self.assertEqual(container["cdi"], ["tally.dev/gpu=gpu-software-gpu-3"])
        with open(os.path.join(cdi, "tally.dev-gpu-software-gpu-3.json"), encoding="ascii") as file:
            specification = json.load(file)
        self.assertEqual([device["name"] for device in specification["devices"]], ["gpu-software-gpu-3"])
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in specification["containerEdits"]["mounts"]}
        self.assertEqual(mounts["/run/tally"], os.path.join(self.directory, "grants", "gpu-software-gpu-3"))

    def test_bad_requests_are_one_sentence_and_change_nothing(self):
        kubelet = self.start_all()
        for words, code, sentence in ((f"allocate {GPU} GPU-nobody", NOT_FOUND, "has no device 'GPU-nobody'"),
                                      (f"allocate {GPU} -1", NOT_FOUND, "has no device '-1'"),
                                      (f"allocate {GPU} software-gpu-10", NOT_FOUND, "has no device"),
                                      (f"allocate {GPU} ../../etc", NOT_FOUND, "has no device '../../etc'"),
                                      (f"allocate {GPU} " + "x" * 5000, NOT_FOUND, "x...'"),
                                      (f"allocate {GPU} ", INVALID, "asks for 0 devices"),
                                      (f"allocate {GPU} software-gpu-0,software-gpu-1", INVALID, "asks for 2 devices"),
                                      (f"allocate {GPU} software-gpu-0;software-gpu-0", INVALID, "two containers ask"),
                                      (f"allocate {GPU} software-gpu-0;nobody", NOT_FOUND, "has no device 'nobody'"),
                                      (f"prefer {GPU} -3", 12, "prefers no device")):
            with self.subTest(words[:60]):
                self.assert_refused_by_plugin(kubelet.ask(words), code, sentence)
        self.assertEqual(self.tenants(), {})
        self.assertEqual(len(kubelet.ask(f"allocate {GPU} software-gpu-0;software-gpu-1")["allocated"]), 2)

    def test_a_device_given_out_again_is_another_tenant(self):
        port = free_port()
        kubelet = self.start_all(metrics=f"127.0.0.1:{port}")
        path = self.socket_of(kubelet.ask(f"allocate {GPU} software-gpu-0"))
        other = self.socket_of(kubelet.ask(f"allocate {GPU} software-gpu-1"))
        before, neighbour = Session(path), Session(other)
        self.addCleanup(before.close)
        self.addCleanup(neighbour.close)
        first = self.tenants()["gpu-software-gpu-0"]["id"]
        descriptor = os.open(os.path.dirname(path), os.O_PATH)  # what the old container has mounted
        self.addCleanup(os.close, descriptor)
        self.assertEqual(self.socket_of(kubelet.ask(f"allocate {GPU} software-gpu-0")), path)
        wait_until(lambda: not before.is_open(), "the earlier container's program ends")
        self.assertTrue(neighbour.is_open())
        with self.assertRaises(OSError):
            Session(f"/proc/self/fd/{descriptor}/tally.sock")
        self.assertGreater(self.tenants()["gpu-software-gpu-0"]["id"], first)
        Session(path).close()
        with self.assertRaises(Refused):
            Session(path, priority=1)
        self.assertIn('tally_grant_sessions_refused_total{tenant="gpu-software-gpu-0",reason="PERMISSION_DENIED"} 1',
                      self.scrape(port))
        self.assertIn("given out again", self.plugin_log())

    def test_tallyd_that_does_not_answer_costs_no_grant(self):
        kubelet = self.start_all()
        self.daemons[0].terminate()
        self.daemons[0].wait(60)
        answer = kubelet.ask(f"allocate {GPU} software-gpu-0")
        self.assertIn(answer["error"]["code"], (UNAVAILABLE, FAILED))


class Labels(PluginTest):
    def test_the_pod_is_known_once_kubelet_says_so(self):
        kubelet = self.start_all()
        session = Session(self.socket_of(kubelet.ask(f"allocate {GPU} software-gpu-2")))
        self.addCleanup(session.close)
        self.assertEqual(self.tenants()["gpu-software-gpu-2"]["pod"], "")
        kubelet.say(f"pod research resnet-0 trainer {GPU} software-gpu-2")
        wait_until(lambda: self.tenants()["gpu-software-gpu-2"]["pod"] == "resnet-0", "the grant is labelled")
        (row,) = self.ctl_json("ps")  # a program that runs is, too
        self.assertEqual((row["namespace"], row["pod"], row["container"]), ("research", "resnet-0", "trainer"))
        self.assertTrue(session.is_open())

    def test_a_label_that_tallyd_refuses_costs_nothing(self):
        kubelet = self.start_all()
        for number in (2, 3):
            kubelet.ask(f"allocate {GPU} software-gpu-{number}")
        kubelet.say(f"pod {'n' * 300} p c {GPU} software-gpu-2")
        kubelet.say(f"pod research p c {GPU} software-gpu-3")
        why = "must be at most 253 printable characters"
        wait_until(lambda: why in self.plugin_log(), "it says why")
        wait_until(lambda: self.tenants()["gpu-software-gpu-3"]["namespace"], "the next one is labelled all the same")
        self.assertEqual(self.tenants()["gpu-software-gpu-2"]["namespace"], "")
        self.assertEqual(self.plugin_log().count(why), 1)

    def test_what_a_restart_of_the_machine_took_is_made_again(self):
        self.start_daemon()
        kubelet = self.start_kubelet()
        kubelet.say(f"pod research resnet-0 trainer {GPU} software-gpu-2")
        kubelet.say(f"pod elsewhere p c example.com/gpu software-gpu-3")
        self.start_plugin()
        row = wait_until(lambda: self.tenants().get("gpu-software-gpu-2"), "there is a grant again")
        wait_until(lambda: self.tenants()["gpu-software-gpu-2"]["pod"] == "resnet-0", "and it is labelled")
        self.assertTrue(os.path.exists(row["socket"]))
        self.assertEqual(list(self.tenants()), ["gpu-software-gpu-2"])
        # What somebody revokes stays so, whatever kubelet says.
        self.assertEqual(self.ctl("grant", "revoke", "gpu-software-gpu-2").returncode, 0)
        kubelet.say(f"pod research other trainer {GPU} software-gpu-5")
        wait_until(lambda: "gpu-software-gpu-5" in self.tenants(), "it has looked again")
        self.assertNotIn("gpu-software-gpu-2", self.tenants())

    def test_nobody_ends_with_the_plugin(self):
        kubelet = self.start_all()
        session = Session(self.socket_of(kubelet.ask(f"allocate {GPU} software-gpu-2")))
        self.addCleanup(session.close)
        plugin = self._cleanups[-2][1][0]
        plugin.terminate()
        self.assertEqual(plugin.wait(30), 0)
        self.start_plugin()
        kubelet.devices(GPU, bool)
        self.assertTrue(session.is_open())
        self.assertEqual(list(self.tenants()), ["gpu-software-gpu-2"])


# As root of the machine: what a runtime does with the mounts that kubelet was told (PATH=TARGET, below the image), then a
# program of user 1000 without a variable of anybody's.
CONTAINER = """
set -e
image=$1; shift
mount --make-rprivate /
while [ "$1" != -- ]; do
  from=${1%%=*}; to=$image${1#*=}; shift
  if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}"; [ -e "$to" ] || : > "$to"; fi
  mount --bind "$from" "$to"; mount -o remount,bind,ro "$to"
done
shift
mount -t proc proc "$image/proc"
exec env -i "$(command -v setpriv)" --no-new-privs "$(command -v chroot)" --userspec=1000:1000 --groups= "$image" "$@"
"""


@unittest.skipIf(os.getuid() != 0 or not shutil.which("setpriv") or not_built(CUDA_PROGRAM), "only root, with programs built")
class LikeAPod(FullStackTest, PluginTest):
    """An unchanged image with what Allocate returned: the program runs on the software GPU under that grant."""

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o711)
        self.image = Image(os.path.join(self.directory, "image"), CLIENT)
        self.image.put(CUDA_PROGRAM)
        self.python, self.python_library = self.image.put_python()
        shutil.copy(POD_PROGRAM, os.path.join(self.image.path, "tmp"))

    def contain(self, answer, *command):
        (container,) = answer["allocated"]
        mounts = [f"{mount['from']}={to}" for to, mount in container["mounts"].items()]
        run = subprocess.Popen(["unshare", "-m", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER, "sh", self.image.path,
                                f"{self.python_library}={self.python_library}", *mounts, "--", *command],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, run)
        return run

    def test_without_a_share_there_is_no_gpu(self):
        run = self.contain({"allocated": [{"mounts": {}}]}, "/usr/bin/reduction")
        output, _ = run.communicate(timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertNotIn(" OK", output)

    def test_a_program_runs_by_its_mounts_alone(self):
        kubelet = self.start_all()
        for resource, name, domain in ((GPU, "gpu-software-gpu-1", "best-effort"),
                                       (HIGH_GPU, "gpu-high-software-gpu-0", "high")):
            device = name[name.index("software"):]
            run = self.contain(kubelet.ask(f"allocate {resource} {device}"), "/usr/bin/reduction")
            output, errors = run.communicate(timeout=100)
            self.assertEqual((run.returncode, errors), (0, ""), output)
            self.assertTrue(output.splitlines()[-1].endswith(" OK"), output)
            self.assertIn(f"{domain}@{name}", {row["domain"] for row in self.ctl_json("executors")})

    def test_the_old_container_ends_when_its_device_is_given_out_again(self):
        kubelet = self.start_all()
        serve = (self.python, "/tmp/pod_program.py", "serve")
        answers = [kubelet.ask(f"allocate {GPU} software-gpu-{number}") for number in (0, 1)]
        old, neighbour = (self.contain(answer, *serve) for answer in answers)
        for run in (old, neighbour):
            self.assertEqual(run.stdout.readline(), "serving\n", run.poll())
        self.assertEqual({(row["tenant"], row["uid"]) for row in self.ctl_json("ps")},
                         {("gpu-software-gpu-0", 1000), ("gpu-software-gpu-1", 1000)})
        fresh = self.contain(kubelet.ask(f"allocate {GPU} software-gpu-0"), *serve)
        self.assertEqual(fresh.stdout.readline(), "serving\n")
        output, _ = old.communicate(timeout=60)
        self.assertIn(output, ("709\n", "46\n"))
        self.assertEqual((fresh.poll(), neighbour.poll()), (None, None))


class CommandLine(unittest.TestCase):
    def test_wrong_words_are_one_sentence(self):
        for words in (["--devices", "-3"], ["--devices", "many"], ["--memory", "8X"], ["--memory", "-1G"], ["--sokcet", "x"]):
            run = subprocess.run([program("tally-device-plugin"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, timeout=30, check=False)
            self.assertEqual((run.returncode, run.stderr.count("\n"), run.stdout), (2, 1, ""), run.stderr)

    def test_no_library_to_give_is_said_at_once(self):
        run = subprocess.run([program("tally-device-plugin")], stderr=subprocess.PIPE, text=True, timeout=30, check=False,
                             env={**os.environ, "TALLY_CLIENT_DIR": "/nowhere"})
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"^tally-device-plugin: Tally's libcuda.so.1 is not in '/nowhere': .*\n$")


if __name__ == "__main__":
    if not os.path.exists(FAKE_KUBELET):
        print("SKIPPED ALL: the fake kubelet is not built")
        sys.exit(0)
    unittest.main(verbosity=2)
