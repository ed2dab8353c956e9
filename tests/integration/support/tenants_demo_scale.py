"""Many tenants, many programs, several GPUs, and what counting costs."""
import json
import os
import signal
import subprocess
import threading
import time

from support.daemon_fixture import free_port
from support.tenants_demo_rig import BUILD, DRIVER, scrapes

MIB = 1 << 20
NUM_GRANTS = int(os.environ.get("TALLY_DEMO_GRANTS", "1000"))
NUM_STORM = int(os.environ.get("TALLY_DEMO_STORM", "200"))
STORM_TENANTS = 4
GPU_NAMES = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print("cuInit:", cuda.cuInit(0))
cuda.cuDeviceGetCount(ctypes.byref(count))
for ordinal in range(count.value):
    uuid = ctypes.create_string_buffer(16)
    cuda.cuDeviceGetUuid_v2(uuid, ordinal)
    text = uuid.raw.hex()
    print(f"{ordinal}: GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
"""


def many_grants(demo):
    """A thousand grants: memory and processor time of tallyd, and how long a scrape takes."""
    port = free_port()
    config = os.path.join(demo.directory, "tallyd.json")
    listed = [{"tenant": f"team-{i}", "namespace": f"space-{i % 50}", "pod": f"job-{i}"} for i in range(NUM_GRANTS)]

    def configure(grants):
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"grants": grants}, file)

    def row(what):
        time.sleep(0.5)
        before = demo.cpu_seconds()
        time.sleep(4)
        idle = (demo.cpu_seconds() - before) / 4
        took, size = scrapes(port)
        demo.shown(f"{what:<28} {demo.rss_mib():6.1f} MiB  {took:6.2f} ms a scrape of {size:7.1f} kB  {100 * idle:4.1f} % of a processor idle")

    configure([])
    address = f"127.0.0.1:{port}"
    demo.start("--config", config, metrics=address)
    row("no grant")
    configure(listed)
    began = time.monotonic()
    demo.tallyd.send_signal(signal.SIGHUP)
    last = os.path.join(demo.directory, "grants", f"team-{NUM_GRANTS - 1}", "tally.sock")
    while not os.path.exists(last):
        time.sleep(0.005)
    took = time.monotonic() - began
    row(f"{NUM_GRANTS} grants")
    demo.shown(f"(made in {took:.2f} s, read from the configuration)")
    began = time.monotonic()
    demo.grant("one-more")
    demo.shown(f"(one more, with the start of tallyctl: {1000 * (time.monotonic() - began):.0f} ms)")
    demo.tallyd.terminate()
    demo.tallyd.wait()
    demo.shown(f"(a tallyd that starts again serves them after {demo.start('--config', config, metrics=address):.2f} s)")


def quota_storm(demo):
    """Two hundred programs of four tenants against their quotas, every ninth killed; a neighbour's requests go on."""
    demo.start()
    for i in range(STORM_TENANTS):
        demo.grant(f"storm-{i}", "--memory", "64M")
    demo.ctl("grant", "create", "serving", "--memory", "16M")
    service = demo.pod("serving", "serve")
    demo.shown(service.stdout.readline())
    demo.shown(f"$ for i in 1..{NUM_STORM}: pod --grant storm-N -- python3 program.py storm 1M &    (64 MiB each tenant)")
    most, is_over = [0] * STORM_TENANTS, threading.Event()

    def look():
        while not is_over.wait(0.05):
            held = [0] * STORM_TENANTS
            for session in demo.json("ps"):
                if session["tenant"].startswith("storm-"):
                    held[int(session["tenant"][6:])] += session["device_memory_bytes"]
            most[:] = map(max, most, held)

    watch = threading.Thread(target=look)
    watch.start()
    runs = [demo.pod(f"storm-{i % STORM_TENANTS}", "storm", str(MIB), quiet=True) for i in range(NUM_STORM)]
    ended, killed = 0, 0
    for i, run in enumerate(runs):
        if i % 9 == 8:
            run.stdout.readline()  # it holds something
            run.kill()
            killed += 1
    for run in runs:
        run.wait(timeout=300)
    is_over.set()
    watch.join()
    refused = []
    for i, run in enumerate(runs):
        output = run.communicate(timeout=60)[0].strip()
        if i % 9 == 8:
            continue
        if output.split() == ["holds", "2"] or output == "2":
            ended += 1
        else:
            refused.append(output)
    demo.shown(f"{ended} programs took what there was until CUDA said 2, out of memory; {killed} were killed")
    for output in refused:  # on a busy machine some may get no session in time: by name, and not by a quota
        demo.shown(f"(one came too late for this machine: {output})")
    demo.shown(f"most that a tenant held, as tallyctl ps saw it: {', '.join(f'{held / MIB:.0f}' for held in most)} MiB of 64")
    for i in range(STORM_TENANTS):
        demo.answer(demo.pod(f"storm-{i}", "fill", str(64 * MIB), said=f"pod --grant storm-{i} -- python3 program.py fill 64M"))
    demo.shown("(0: all of the quota is free again)")
    is_well = service.poll() is None
    demo.shown(f"the neighbour: {'none of its requests has failed' if is_well else 'HAS ENDED'}")
    if not is_well or max(most) > 64 * MIB or not all("tallyd" in output for output in refused):
        raise SystemExit("a quota did not hold")


def several_gpus(demo):
    """Two tenants of GPUs of their own, on a machine of three: each sees its own, in its order."""
    demo.start(**({"TALLY_SIM_DEVICES": "3"} if DRIVER == "sim" else {}))
    everything = subprocess.run([f"{BUILD}/bin/tally-run", "--socket", demo.socket, "python3", "-c", GPU_NAMES], text=True,
                                stdout=subprocess.PIPE, check=True).stdout
    demo.shown("$ tally-run python3 gpus.py\n" + everything)
    gpus = [line.split()[1] for line in everything.splitlines()[1:]]
    if len(gpus) < 3:
        demo.shown(f"(this machine has {len(gpus)}: not shown)")
        return
    demo.ctl("grant", "create", "first", "--gpu", gpus[2], "--gpu", gpus[0])
    demo.ctl("grant", "create", "second", "--gpu", "1")
    for tenant in ("first", "second"):
        demo.answer(demo.pod(tenant, python=("-c", GPU_NAMES), said=f"pod --grant {tenant} -- python3 gpus.py"))
    demo.answer(demo.pod("first", python=("-c", GPU_NAMES), CUDA_VISIBLE_DEVICES="1",
                         said="pod --grant first -- CUDA_VISIBLE_DEVICES=1 python3 gpus.py"))
    demo.ctl("grant", "create", "nowhere", "--gpu", "GPU-00000000-0000-0000-0000-000000000001")


def counting(demo):
    """What counting GPU time by tenant and GPU costs a launch, in ns of a processor."""
    program = next((path for path in (f"{BUILD}/bench/server/server_busy_clock_bench", f"{BUILD}/bench/server_busy_clock_bench",
                                      f"{BUILD}/bin/server_busy_clock_bench") if os.path.exists(path)), None)
    if program is None:
        demo.shown("(server_busy_clock_bench is not built)")
        return
    output = subprocess.run([program, "--benchmark_format=json", "--benchmark_repetitions=7", "--benchmark_min_time=0.1"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    median = {each["run_name"]: each["cpu_time"] for each in json.loads(output)["benchmarks"]
              if each.get("aggregate_name") == "median"}
    before = median["BM_LaunchThatIsNotCounted"]
    for name, what in (("BM_LaunchThatIsNotCounted", "before: a launch that is not counted"),
                       ("BM_LaunchWithinAStretch", "after: a launch within a stretch of work"),
                       ("BM_LaunchAndWait", "the first after a wait, and that wait"), ("BM_Measure", "a session in a scrape")):
        demo.shown(f"{what:<44} {median[name]:7.2f} ns")
    cost = median["BM_LaunchWithinAStretch"] - before
    demo.shown(f"counting costs {cost:.2f} ns a launch (limit: 25)")
    if cost > 25:
        raise SystemExit("counting costs more than 25 ns a launch")


CASES = (several_gpus, quota_storm, many_grants, counting)
