#!/usr/bin/env python3
"""tools/dashboard-picture: every query of the dashboard is asked as Grafana would, and what comes is drawn; with a real
Prometheus where there is one."""
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import urllib.parse
import xml.etree.ElementTree

from support.dashboard_picture import Prometheus, in_unit, svg_of
from support.full_stack import BUILD, not_built

ROOT = os.environ["TALLY_TEST_SOURCE"]
MISSING = not_built()
HOSTILE = '<script>"&'

with open(os.path.join(ROOT, "deploy", "grafana", "tally.json"), encoding="utf-8") as dashboard_file:
    DASHBOARD = json.load(dashboard_file)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        words = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        self.server.asked.append(words["query"][0])
        rows = [] if "faults" in self.path else [
            {"metric": {"tenant": HOSTILE, "class": "high"}, "values": [[float(words["start"][0]) + i, value] for i, value in
                                                                       enumerate(("1", "NaN", "+Inf", "3.5"))]},
            {"metric": {"tenant": "b"}, "values": [[float(words["start"][0]), "2"]]}]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode())

    def log_message(self, *_):
        pass


class Picture(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.server.asked = []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.prometheus = Prometheus(f"http://127.0.0.1:{self.server.server_port}", 1000, 1060, 1, 5.5)

    def test_every_query_is_asked_and_every_panel_drawn(self):
        picture, empty = svg_of(DASHBOARD, self.prometheus)
        self.assertEqual(len(self.server.asked), sum(len(panel["targets"]) for panel in PANELS))
        self.assertFalse([query for query in self.server.asked if "$" in query])
        self.assertTrue(any("[6s]" in query for query in self.server.asked))
        texts = [element.text for element in xml.etree.ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
        for panel in DASHBOARD["panels"]:
            self.assertIn(panel["title"], texts)
        self.assertTrue(any(HOSTILE in (text or "") for text in texts), "names are text, whatever they hold")
        self.assertNotIn("<script", picture)
        self.assertEqual(empty, [panel["title"] for panel in PANELS
                                 if all("faults" in target["expr"] for target in panel["targets"])])
        self.assertNotRegex(picture, r'\b(nan|inf)\b')

    def test_a_variable_that_nobody_knows_is_no_query(self):
        with self.assertRaises(ValueError):
            self.prometheus.query("rate(a[$__range])")

    def test_units(self):
        for value, unit, expected in ((0.5, "percentunit", "50 %"), (0.002, "s", "2 ms"), (0, "s", "0 µs"), (1536, "bytes", "1.5 KiB"),
                                      (0, "bytes", "0 B"), (2500, "ops", "2.5 k/s"), (7, "short", "7"), (-3, "short", "-3")):
            self.assertEqual(in_unit(value, unit), expected)

    @unittest.skipIf(MISSING or not shutil.which("prometheus"), "needs prometheus (Debian has it) and what is built")
    def test_with_a_real_prometheus(self):
        with tempfile.TemporaryDirectory() as directory:
            output = os.path.join(directory, "picture.svg")
            result = subprocess.run([os.path.join(ROOT, "tools", "dashboard-picture"), "--seconds", "15", "--output", output], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150, check=False,
                                    env={**os.environ, "TALLY_BUILD": BUILD})
            self.assertEqual(result.returncode, 0, result.stdout)
            empty = re.search(r"nothing to show: (.*)", result.stdout)
            for title in ("Machines", "Busy on the GPU", "Busy by GPU", "Sessions", "Device memory", "Copied", "Calls that failed"):
                self.assertNotIn(title, (empty.group(1) if empty else "").split(", "))
            xml.etree.ElementTree.parse(output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
