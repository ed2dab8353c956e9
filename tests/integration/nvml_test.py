#!/usr/bin/env python3
"""Our libnvidia-ml.so.1, as programs use it (ctypes, like pynvml): with NVIDIA's own, or what passes for it, and without."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from support.daemon_fixture import program
from support.full_stack import BUILD, FullStackTest, not_built

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(BUILD, "lib", "tally", "client", "libnvidia-ml.so.1")
SYMBOLS = os.path.join(HERE, "..", "..", "client-shim", "nvml", "symbols.txt")
MIB = 1 << 20
MISSING = not_built(LIBRARY)

# Says as JSON what NVML and CUDA answer. Words: MiB to hold first; 0: without CUDA.
PROGRAM = """
import ctypes, json, sys
nvml, said = ctypes.CDLL("libnvidia-ml.so.1"), {}
held = int(sys.argv[1]) << 20
if held:
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(held)) == 0
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    said["cuda"] = [total.value, free.value]
count, device, memory = ctypes.c_uint(), ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
said["before"] = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
said["init"] = nvml.nvmlInit_v2()
if said["init"] == 0:
    said["count"] = [nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value]
    said["handle"] = [nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)) for i in (1, 0)]
    said["memory"] = [nvml.nvmlDeviceGetMemoryInfo(device, memory), *memory]
    class V2(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]
    second = V2(ctypes.sizeof(V2) | 2 << 24)
    said["memory_v2"] = [nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(second)), second.total, second.free, second.used]
    said["memory_v9"] = nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(V2(9)))
    text = ctypes.create_string_buffer(96)
    said["uuid"] = [nvml.nvmlDeviceGetUUID(device, text, 96), text.value.decode()]
    said["short"] = nvml.nvmlDeviceGetUUID(device, text, 5)
    again = ctypes.c_void_p()
    said["by_uuid"] = [nvml.nvmlDeviceGetHandleByUUID(text.value[:4] + b"x", ctypes.byref(again)),
                       nvml.nvmlDeviceGetHandleByUUID(said["uuid"][1].encode(), ctypes.byref(again)), again.value == device.value]
    class Pci(ctypes.Structure):
        _fields_ = [("legacy", ctypes.c_char * 16)] + [(n, ctypes.c_uint) for n in "abcde"] + [("id", ctypes.c_char * 32)]
    pci = Pci()
    said["pci"] = nvml.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci))
    said["by_pci"] = nvml.nvmlDeviceGetHandleByPciBusId_v2(pci.id, ctypes.byref(again)) if said["pci"] == 0 else None
    few, processes = ctypes.c_uint(0), (ctypes.c_ulonglong * 30)()
    said["too_few"] = [nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(few), None), few.value]
    few.value = 10
    said["processes"] = [nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(few), processes), few.value,
                         processes[0] & 0xffffffff, processes[1]]
    said["graphics"] = [nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(device, ctypes.byref(few), processes), few.value]
    said["hidden"] = nvml.nvmlDeviceGetProcessUtilization(device, None, None, None)
    degrees = ctypes.c_uint()
    said["temperature"] = [nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(degrees)), degrees.value]
    nvml.nvmlGpmMetricsGet.restype = ctypes.c_double
    nvml.nvmlGpmMetricsGet.argtypes = [ctypes.c_long] * 6 + [ctypes.c_double] * 2 + [ctypes.c_long]
    said["sum"] = [nvml.nvmlGpmMetricsGet(1, 2, 3, 4, 5, 6, 7, 8, 9) for _ in range(2)]
    said["nonsense"] = nvml.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(1), memory)
    said["null"] = [nvml.nvmlDeviceGetMemoryInfo(device, None), nvml.nvmlDeviceGetCount_v2(None)]
    said["end"] = [nvml.nvmlShutdown(), nvml.nvmlShutdown()]
print(json.dumps(said))
"""


class Nvml(FullStackTest):
    def setUp(self):
        super().setUp()
        self.nothing = os.path.join(self.directory, "nothing")
        os.mkdir(self.nothing)

    def says(self, held, *options, directory=None, **variables):
        run = subprocess.run([program("tally-run"), "--socket", self.socket_path, *options, sys.executable, "-c", PROGRAM,
                              str(held)], text=True, stdout=subprocess.PIPE, check=True, timeout=60,
                             env={**os.environ, "TALLY_NVML_DIR": directory or self.nothing, **variables})
        return json.loads(run.stdout)

    def test_alone_it_says_what_cuda_says(self):
        self.start_daemon()
        said = self.says(64, "--memory", "1G", "--name", "a")
        self.assertEqual(said["cuda"], [1024 * MIB, 960 * MIB])
        self.assertEqual(said["memory"], [0, 1024 * MIB, 960 * MIB, 64 * MIB])
        self.assertEqual(said["memory_v2"], [0, 1024 * MIB, 960 * MIB, 64 * MIB])
        self.assertEqual((said["before"], said["init"], said["count"], said["handle"]), (1, 0, [0, 1], [2, 0]))
        self.assertEqual((said["memory_v9"], said["short"], said["by_uuid"], said["by_pci"]), (25, 7, [6, 0, True], 0))
        self.assertEqual(said["too_few"], [7, 1])
        self.assertEqual(said["processes"][:2] + said["processes"][3:], [0, 1, 64 * MIB])
        self.assertEqual((said["graphics"], said["hidden"], said["temperature"][0]), ([0, 0], 3, 13))
        self.assertEqual((said["nonsense"], said["null"], said["end"]), (2, [2, 2], [0, 1]))

    def test_it_needs_no_cuda_and_starts_none_in_the_program(self):
        self.start_daemon()
        said = self.says(0, "--memory", "1G", "--name", "a")
        self.assertEqual((said["memory"], said["too_few"]), ([0, 1024 * MIB, 1024 * MIB, 0], [0, 0]))

    def test_another_tenants_processes_and_memory_are_not_seen(self):
        self.start_daemon()
        other = os.path.join(HERE, "support", "quota_program.py")
        run = subprocess.Popen([program("tally-run"), "--socket", self.socket_path, "--name", "b", "--memory", "32M",
                                sys.executable, other, "fill", "plain", str(MIB)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, run)
        run.stdout.readline()
        self.assertEqual(self.says(0, "--memory", "1G", "--name", "a")["too_few"], [0, 0])
        self.assertEqual(self.says(0, "--memory", "32M", "--name", "b")["memory"], [0, 32 * MIB, 0, 32 * MIB])

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_what_is_not_ours_goes_to_nvidias_library_as_it_comes(self):
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", os.path.join(self.directory, "libnvidia-ml.so.1"),
                        os.path.join(HERE, "support", "fake_nvml.c")], check=True)
        self.start_daemon()
        said = self.says(64, "--memory", "2G", "--name", "a", directory=self.directory)
        self.assertEqual((said["count"], said["temperature"]), ([0, 1], [0, 44]))
        # 64 MiB of its 2 GiB are in use, and of the GPU itself only 1 GiB is free.
        self.assertEqual(said["memory"], [0, 2048 * MIB, 1024 * MIB, 1024 * MIB])
        right = 1 + 4 + 9 + 16 + 25 + 36 + 49 + 64 + 81
        self.assertEqual(said["sum"], [right, right], "at the first call and after it")
        without = self.says(0, directory=self.directory, TALLY_SOCKET=self.socket_path)
        self.assertEqual(without["memory"][1], 100 << 30, "without a quota it is NVIDIA's answer")

    def test_without_a_tallyd_and_without_nvidias_library_there_is_no_driver(self):
        run = subprocess.run([sys.executable, "-c", PROGRAM, "0"], text=True, stdout=subprocess.PIPE, check=True, timeout=60,
                             env={**os.environ, "TALLY_NVML_DIR": self.nothing, "TALLY_SOCKET": self.socket_path,
                                  "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)})
        self.assertEqual(json.loads(run.stdout)["init"], 9)

    def test_every_name_of_nvidias_library_is_there(self):
        with open(SYMBOLS, encoding="ascii") as file:
            names = set(file.read().split())
        shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], text=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual({line.split()[-1] for line in shown.splitlines()}, names | {"tally_nvml_marker"})


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
