"""A SLURM cluster of one node, with deploy/slurm in it: munged, slurmctld, slurmd. In mount, pid and uts namespaces."""
import os
import pathlib
import shutil
import subprocess
import time

from support.daemon_fixture import free_port

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sinfo")


def missing():
    return [name for name in NEEDED if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]


class Cluster:
    def __init__(self, directory, scripts):
        """`scripts`: where prolog, epilog and task-prolog are."""
        self.directory, self.runs = directory, []
        os.environ["PATH"] += ":/usr/sbin"
        self.host = "tally-test-node"
        subprocess.run(["hostname", self.host], check=True)
        hosts = self.write("hosts", f"127.0.0.1 localhost {self.host}\n")
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
        munge = os.path.join(directory, "munge")
        os.mkdir(munge, 0o755)
        with open(os.path.join(munge, "key"), "wb") as key:
            key.write(os.urandom(128))
        os.chmod(key.name, 0o600)
        for path in (munge, key.name):
            shutil.chown(path, "munge", "munge")
        subprocess.run(["runuser", "-u", "munge", "--", "munged", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
                        f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed"], check=True)
        controller, node = free_port(), free_port()
        settings = {"ClusterName": "test", "SlurmctldHost": self.host, "SlurmctldPort": controller, "SlurmdPort": node,
                    "SlurmUser": "root", "AuthType": "auth/munge", "AuthInfo": f"socket={munge}/socket", "CryptoType": "crypto/munge",
                    "StateSaveLocation": self.made("state"), "SlurmdSpoolDir": self.made("spool"), "MpiDefault": "none",
                    "SlurmctldPidFile": f"{directory}/slurmctld.pid", "SlurmdPidFile": f"{directory}/slurmd.pid",
                    "ProctrackType": "proctrack/pgid", "TaskPlugin": "task/none", "SelectType": "select/cons_tres",
                    "PrologFlags": "Alloc", "ReturnToService": 2, "Prolog": f"{scripts}/prolog", "Epilog": f"{scripts}/epilog",
                    "TaskProlog": f"{scripts}/task-prolog"}
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines += [f"NodeName={self.host} CPUs=1 RealMemory=100 State=UNKNOWN",
                  f"PartitionName=batch Nodes={self.host} Default=YES State=UP", f"PartitionName=web Nodes={self.host} State=UP"]
        os.environ["SLURM_CONF"] = self.write("slurm.conf", "\n".join(lines) + "\n")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", self.host)
        for _ in range(120):
            if "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], stdout=subprocess.PIPE, text=True, check=False).stdout:
                return
            time.sleep(0.5)
        raise AssertionError("the node is not idle:\n" + self.log())

    def made(self, name):
        os.mkdir(os.path.join(self.directory, name))
        return os.path.join(self.directory, name)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def start(self, *command):
        with open(os.path.join(self.directory, command[0] + ".log"), "wb") as log:
            self.runs.append(subprocess.Popen(command, stdout=log, stderr=log))

    def log(self):
        return "".join(pathlib.Path(self.directory, name + ".log").read_text(encoding="utf-8") for name in ("slurmctld", "slurmd"))

    def run(self, *command, uid=None, options=()):
        who = [] if uid is None else [f"--uid={uid}"]
        return subprocess.run(["srun", *who, *options, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, cwd="/", check=False)

    def stop(self):
        for run in reversed(self.runs):
            run.terminate()
            run.wait()  # munged ends with the process namespace
