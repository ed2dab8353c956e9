#!/usr/bin/env python3
"""A grant's GPUs are all that its programs see, in its order, and all that they can use; by CUDA and by NVML."""
import json
import os
import subprocess
import sys
import unittest

from support.daemon_fixture import Refused, Session
from support.full_stack import BUILD, FullStackTest, not_built

MISSING = not_built()

# What CUDA and NVML say of GPUs, and a copy to memory on each.
PROGRAM = """
import ctypes, json
cuda, nvml, said = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1"), {"cuda": [], "nvml": [], "works": []}
said["init"] = cuda.cuInit(0)
count, text, device = ctypes.c_int(), ctypes.create_string_buffer(96), ctypes.c_void_p()
if said["init"] == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        uuid, context, address = ctypes.create_string_buffer(16), ctypes.c_void_p(), ctypes.c_uint64()
        cuda.cuDeviceGetUuid_v2(uuid, ordinal)
        said["cuda"].append(uuid.raw.hex())
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal)
        cuda.cuCtxSetCurrent(context)
        said["works"].append(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096))
                             or cuda.cuMemcpyHtoD_v2(address, text, ctypes.c_size_t(16)))
    if count.value > 1:
        peer = ctypes.c_int()
        said["peer"] = [cuda.cuDeviceCanAccessPeer(ctypes.byref(peer), 0, 1), peer.value]
    said["beyond"] = cuda.cuDeviceGet(ctypes.byref(ctypes.c_int()), count.value)
if nvml.nvmlInit_v2() == 0:
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        nvml.nvmlDeviceGetUUID(device, text, 96)
        memory = (ctypes.c_ulonglong * 3)()
        nvml.nvmlDeviceGetMemoryInfo(device, memory)
        said["nvml"].append([text.value.decode(), memory[2]])
print(json.dumps(said))
"""


def hexed(uuid):
    return uuid[4:].replace("-", "")


@unittest.skipIf(MISSING, f"not built: {MISSING}")
class GrantGpus(FullStackTest):
    def setUp(self):
        super().setUp()
        os.environ["TALLY_SIM_DEVICES"] = "3"
        self.addCleanup(os.environ.pop, "TALLY_SIM_DEVICES")

    def says(self, socket, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TALLY_", "CUDA_"))}
        environment |= {"LD_LIBRARY_PATH": os.path.join(BUILD, "lib", "tally", "client"), "TALLY_SOCKET": socket,
                        "TALLY_NVML_DIR": "/nonexistent", **variables}
        run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True,
                             timeout=100, check=True)
        return json.loads(run.stdout)

    def grant(self, *words):
        made = self.ctl("grant", "create", *words)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stdout.strip()

    def refused(self, *words):
        made = self.ctl("grant", "create", *words)
        self.assertEqual((made.returncode, made.stdout, made.stderr.count("\n")), (1, "", 1), made.stderr)
        self.assertLess(len(made.stderr), 400)
        return made.stderr

    def all_gpus(self):
        everything = self.says(self.socket_path)
        self.assertEqual((everything["works"], len(everything["cuda"])), ([0, 0, 0], 3))
        self.assertEqual([hexed(uuid) for uuid, _ in everything["nvml"]], everything["cuda"])
        return [uuid for uuid, _ in everything["nvml"]]

    def test_its_programs_see_these_in_its_order(self):
        self.start_daemon()
        gpus = self.all_gpus()
        two = self.grant("two", "--gpu", gpus[2], "--gpu", "0", "--memory", "64M")
        said = self.says(two)
        self.assertEqual((said["init"], said["cuda"], said["works"]), (0, [hexed(gpus[2]), hexed(gpus[0])], [0, 0]))
        self.assertEqual(said["beyond"], 101)
        self.assertEqual(said["nvml"], [[gpus[2], 4096], [gpus[0], 4096]])
        for visible, expected in (("1", [gpus[0]]), ("1,0", [gpus[0], gpus[2]]), (gpus[2], [gpus[2]])):
            said = self.says(two, CUDA_VISIBLE_DEVICES=visible)
            self.assertEqual((said["cuda"], set(said["works"])), ([hexed(uuid) for uuid in expected], {0}), visible)
        for visible in ("2", gpus[1]):
            self.assertEqual(self.says(two, CUDA_VISIBLE_DEVICES=visible)["init"], 100)
        self.assertEqual(len(self.says(self.grant("all"))["cuda"]), 3)

    def test_two_tenants_of_two_gpus(self):
        self.start_daemon()
        gpus = self.all_gpus()
        for name, gpu in (("first", gpus[0]), ("second", gpus[1])):
            said = self.says(self.grant(name, "--gpu", gpu))
            self.assertEqual((said["cuda"], [uuid for uuid, _ in said["nvml"]]), ([hexed(gpu)], [gpu]))
        rows = {row["tenant"]: row["gpus"] for row in self.ctl_json("grant", "list")}
        self.assertEqual(rows, {"first": [gpus[0]], "second": [gpus[1]]})

    def test_what_is_there_no_more_after_a_restart(self):
        self.start_daemon()
        path = self.grant("b", "--gpu", "1")
        self.assertEqual(len(self.says(path)["cuda"]), 1)
        self.daemons[0].terminate()
        self.daemons[0].wait()
        self.start_daemon()
        self.assertEqual(len(self.says(path)["cuda"]), 1)

    def test_gpus_that_there_are_not(self):
        self.start_daemon()
        nowhere = "GPU-00000000-0000-0000-0000-000000000001"
        early = self.grant("early", "--gpu", nowhere)  # nobody knows yet which there are
        self.all_gpus()
        self.assertIn(f"may use {nowhere} only, which this machine does not have: it has 3 GPUs",
                      self.refused("late", "--gpu", nowhere))
        with self.assertRaises(Refused) as refused:
            Session(early)
        self.assertIn("which this machine does not have", refused.exception.sentence)
        for wrong in ("-1", "64", "GPU-1", "0,1", "x" * 10_000, "0\n1", "MIG-1"):
            self.assertIn("names no GPU", self.refused("late", f"--gpu={wrong}"))
        self.assertIn("there twice", self.refused("late", "--gpu", "0", "--gpu", "0"))
        self.assertEqual([row["tenant"] for row in self.ctl_json("grant", "list")], ["early"])

    def test_before_any_executor_has_told_a_program_sees_none(self):
        self.start_daemon()
        early = self.grant("early", "--gpu", "GPU-00000000-0000-0000-0000-000000000001")
        self.assertEqual(self.says(early)["init"], 100)  # CUDA_ERROR_NO_DEVICE


if __name__ == "__main__":
    unittest.main(verbosity=2)
