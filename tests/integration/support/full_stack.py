"""The real programs on the software driver: tallyd, its own executor, and programs under tally-run."""
import os
import subprocess

from support.daemon_fixture import DaemonTest, program

BUILD = os.environ["TALLY_TEST_BUILD"]
# Another build may have compiled the programs (TALLY_PROGRAMS_DIR).
PROGRAMS = os.environ.get("TALLY_TEST_PROGRAMS") or os.path.join(BUILD, "programs")
REPEATED_LAUNCHES = os.path.join(PROGRAMS, "repeated_launches")
GRAPH_REPEATED = os.path.join(PROGRAMS, "graph_repeated")
SIM_DRIVER = os.path.join(BUILD, "lib", "tally", "libtally-sim-driver.so")
# The executor with the scripted driver's time slices, which the software GPU has not; and what tallyd's environment needs.
SLICED_EXECUTOR = os.path.join(BUILD, "tests", "sliced", "tally-executor")
SLICES = {"TALLY_SCRIPT_SLICES": "accept", "TALLY_REAL_LIBCUDA": SIM_DRIVER}


def not_built(*programs):
    """What is missing of that, and of what every such test needs."""
    needed = [program("tallyd"), program("tally-run"), program("tally-executor"), *programs,
              os.path.join(BUILD, "lib", "tally", "client", "libcuda.so.1"), SIM_DRIVER]
    return [path for path in needed if not os.path.exists(path)]


class FullStackTest(DaemonTest):
    executor = ""  # the real one, beside tallyd

    def start_under_tally(self, *command, priority="best-effort", options=(), env=None):
        run = subprocess.Popen([program("tally-run"), "--socket", self.socket_path, "--priority", priority, *options,
                                *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={**os.environ, **(env or {})})
        self.addCleanup(self.end, run)
        return run

    def assert_right(self, run):
        """Of a program that checks its results by itself."""
        output, _ = run.communicate(timeout=100)
        self.assertEqual(run.returncode, 0, output.decode())
        self.assertTrue(output.decode().splitlines()[-1].endswith(" OK"), output.decode())
