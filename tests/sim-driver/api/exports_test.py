"""libtally-sim-driver.so exports names of the driver API, and a few of its own, under its own soname."""
import re
import subprocess
import sys

library, table = sys.argv[1:3]

# What a forwarding executor cannot do without, whatever else is refused.
INDISPENSABLE = """cuInit cuDeviceGet cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxSynchronize cuMemAlloc_v2 cuMemFree_v2
cuMemHostRegister_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemsetD8Async cuModuleLoadData cuModuleGetFunction
cuLibraryLoadData cuLibraryGetKernel cuKernelGetFunction cuLaunchKernel cuLaunchKernelEx cuStreamCreateWithPriority
cuStreamSynchronize cuEventCreate cuEventRecord cuEventQuery cuStreamBeginCapture_v2 cuGraphInstantiateWithFlags
cuGraphLaunch cuMemAllocAsync cuGetErrorName""".split()


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Not CUDA's, for tests: what is alive; what a launch may touch.
OWN = {"cuTallyDescribeLive", "cuTallyDeclareBoxes", "cuTallyTakeOutside"}

known = {line.split("\t")[0] for line in open(table) if line.startswith("cu")}
exported = {
    line.split()[-1].split("@")[0]
    for line in run("nm", "-D", "--defined-only", library).splitlines()
    if line.split()[-2] not in "Vv" or not line.split()[-1].startswith("_")
}
foreign = sorted(name for name in exported if name not in known | OWN)
missing = [name for name in INDISPENSABLE if name not in exported]
soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", library))

failures = []
if foreign:
    failures.append("exported, but no name of the driver API: " + ", ".join(foreign[:20]))
if missing:
    failures.append("not exported: " + ", ".join(missing))
if not soname or not soname.group(1).startswith("libtally-sim-driver"):
    failures.append("soname is " + (soname.group(1) if soname else "missing"))
print(f"{len(exported)} functions exported")
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
