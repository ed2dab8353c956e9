"""A kubelet that is none (fake_kubelet.cc), and the plugin that it drives."""
import json
import os
import subprocess
import threading

from support.daemon_fixture import program, wait_until

BUILD = os.environ["TALLY_TEST_BUILD"]
FAKE_KUBELET = os.path.join(BUILD, "tests", "fake_kubelet")
NVML = os.path.join(BUILD, "tests", "nvml")


class Kubelet:
    def __init__(self, directory, pod_resources, *words):
        self.events = []
        self.taken = 0
        self.process = subprocess.Popen([FAKE_KUBELET, directory, pod_resources, *words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.next("kubelet")

    def read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def next(self, *keys, where=lambda event: True):
        """The first event with one of these keys that was not taken yet; those before it are skipped."""
        def find():
            for number in range(self.taken, len(self.events)):
                event = self.events[number]
                if any(key in event for key in keys) and where(event):
                    self.taken = number + 1
                    return event
            return None
        return wait_until(find, f"kubelet hears {keys}; so far {self.events[self.taken:]}")

    def ask(self, line):
        self.taken = len(self.events)
        self.say(line)
        return self.next("allocated", "preferred", "error")

    def devices(self, resource, where):
        return self.next("devices", where=lambda event: event["resource"] == resource and where(event["devices"]))["devices"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


def start_plugin(directory, socket, *arguments, env=None):
    """The plugin and the path of its log."""
    log_path = os.path.join(directory, "plugin.log")
    with open(log_path, "ab") as log:
        plugin = subprocess.Popen([program("tally-device-plugin"), "--socket", socket, "--plugin-directory",
                                   os.path.join(directory, "device-plugins"), "--pod-resources",
                                   os.path.join(directory, "pods.sock"), *arguments], stdout=log, stderr=log,
                                  env={**os.environ, "LD_LIBRARY_PATH": NVML, **(env or {})})
    return plugin, log_path
