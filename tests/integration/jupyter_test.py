#!/usr/bin/env python3
"""tally-run --jupyter: kernelspecs as Jupyter wants them, and what they start."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from support.daemon_fixture import program


# cuInit and cuDeviceGetCount of Tally's library, in the kernel.
NOTEBOOK = """
import jupyter_client
manager, client = jupyter_client.manager.start_new_kernel(kernel_name="tally-nb", startup_timeout=60)
def show(message):
    if message["msg_type"] == "stream": print(message["content"]["text"], end="", flush=True)
client.execute_interactive('''
import ctypes, os
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(os.environ["TALLY_NAME"], cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
''', output_hook=show, timeout=60)
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


class Kernelspec(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tally-jupyter-")
        self.addCleanup(subprocess.run, ["rm", "-rf", self.directory], check=True)

    def make(self, *options, **env):
        env = {"JUPYTER_DATA_DIR": self.directory, **env}
        return subprocess.run([program("tally-run"), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={"PATH": os.environ["PATH"], **{name: value for name, value in env.items() if value}}, check=False)

    def made(self, *options, **env):
        result = self.make(*options, **env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        path = result.stdout.rstrip("\n")
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
        # https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs
        self.assertEqual(set(spec), {"argv", "display_name", "language", "metadata"})
        self.assertTrue(all(isinstance(word, str) for word in spec["argv"]))
        self.assertEqual(spec["argv"].count("{connection_file}"), 1)
        self.assertRegex(os.path.basename(os.path.dirname(path)), r"^[a-z0-9._-]+$")
        return path, spec

    def test_it_has_the_options_that_were_given(self):
        path, spec = self.made("--jupyter", "--name", "Nora's notebook", "--priority=high", "--window", "--embedded", "--driver", "sim")
        self.assertEqual(path, os.path.join(self.directory, "kernels", "tally-nora-s-notebook", "kernel.json"))
        self.assertEqual(spec["argv"][0], program("tally-run"))
        self.assertEqual(spec["argv"][1:], ["--name=Nora's notebook", "--priority=high", "--window=on", "--embedded", "--driver=sim",
                                            "--", "python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        self.assertEqual(spec["display_name"], "Python 3 under Tally (Nora's notebook)")

    def test_without_a_name_and_with_another_python(self):
        path, spec = self.made("--jupyter", "/opt/venv/bin/python")
        self.assertEqual(path, os.path.join(self.directory, "kernels", "tally", "kernel.json"))
        self.assertEqual(spec["argv"][1:3], ["--", "/opt/venv/bin/python"])

    def test_it_replaces_its_own(self):
        self.made("--jupyter", "--priority", "high")
        _, spec = self.made("--jupyter", "--priority", "best-effort")
        self.assertIn("--priority=best-effort", spec["argv"])

    def test_where_it_goes(self):
        for env, below in (({"JUPYTER_DATA_DIR": "", "HOME": self.directory}, ".local/share/jupyter"),
                           ({"JUPYTER_DATA_DIR": "", "HOME": "/nowhere", "XDG_DATA_HOME": self.directory}, "jupyter")):
            path, _ = self.made("--jupyter", **env)
            self.assertEqual(path, os.path.join(self.directory, below, "kernels/tally/kernel.json"))

    def test_names_that_are_no_json_or_lead_elsewhere(self):
        name = '../../"quoted"\\ \t"'
        path, spec = self.made("--jupyter", "--name", name)
        self.assertTrue(os.path.realpath(path).startswith(os.path.realpath(self.directory) + "/kernels/"), path)
        self.assertEqual(spec["argv"][1], f"--name={name}")

    def test_what_goes_wrong_is_one_sentence(self):
        for env, status in (({"JUPYTER_DATA_DIR": "/proc/nowhere"}, 1), ({"JUPYTER_DATA_DIR": "", "HOME": ""}, 1)):
            result = self.make("--jupyter", **env)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (status, "", 1), result.stderr)
        self.assertEqual(self.make("--jupyter", "--priority", "urgent").returncode, 2)

    def test_it_starts_what_it_says(self):
        """With something in place of ipykernel, which has the connection file to read."""
        with open(os.path.join(self.directory, "ipykernel_launcher.py"), "w", encoding="ascii") as file:
            file.write("import os, sys\nprint(sys.argv[1:], os.environ['TALLY_NAME'], 'tally' in os.environ['LD_LIBRARY_PATH'])")
        _, spec = self.made("--jupyter", "--embedded", "--driver", "sim", "--name", "nb", sys.executable)
        argv = [word.replace("{connection_file}", "/run/kernel-1.json") for word in spec["argv"]]
        printed = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                                 env={**os.environ, "PYTHONPATH": self.directory}).stdout
        self.assertEqual(printed, "['-f', '/run/kernel-1.json'] nb True\n")

    @unittest.skipUnless(os.path.isdir("/usr/lib/python3/dist-packages/ipykernel"), "Debian's python3-ipykernel is not installed")
    def test_a_notebook_computes_under_tally(self):
        """Jupyter's own client finds the kernel, starts it and asks it."""
        self.made("--jupyter", "--embedded", "--driver", "sim", "--name", "nb", "/usr/bin/python3")
        printed = subprocess.run(["/usr/bin/python3", "-c", NOTEBOOK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=100,
                                 env={"PATH": os.environ["PATH"], "HOME": self.directory, "JUPYTER_DATA_DIR": self.directory}).stdout
        self.assertEqual(printed, "nb 0 1\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
