"""Verdicts of bench/forwarding: a wrong one would hide a missed budget."""
import json
import unittest

import parts
import processes
import report


def verdict(name, unit, native, tally):
    return report.judge(parts.Row(name, unit, native, tally)).verdict


class VerdictTest(unittest.TestCase):
    def test_times_may_not_be_above_their_limit(self):
        self.assertEqual(verdict("launch, no parameters", "us", [3.0], [0.2, 0.3, 9.0]), "within")
        self.assertEqual(verdict("launch, no parameters", "us", [3.0], [0.2, 0.31, 0.4]), "missed")

    def test_ratios_compare_medians(self):
        name = "BERT-base fp16 batch 1, CUDA graph"
        self.assertEqual(verdict(name, "ms", [1.0, 1.0, 5.0], [1.005]), "within")
        self.assertEqual(verdict(name, "ms", [1.0], [1.02]), "missed")

    def test_bandwidths_may_not_be_below(self):
        self.assertEqual(verdict("copy pinned to device, 16 MB", "GB/s", [50.0], [49.5]), "within")
        self.assertEqual(verdict("copy device to pinned, 16 MB", "GB/s", [50.0], [48.5]), "missed")
        self.assertEqual(verdict("copy device to pageable, 16 MB", "GB/s", [50.0], [49.9]), "missed")

    def test_native_is_enough_where_the_budget_says_so(self):
        name = "sustained launches (100000), each"
        self.assertEqual(verdict(name, "us", [2.9], [2.85]), "within")
        self.assertEqual(verdict(name, "us", [2.9], [2.95]), "missed")
        self.assertEqual(verdict(name, "us", [], [2.6]), "within")

    def test_what_was_not_measured_is_not_within(self):
        self.assertEqual(verdict("launch, no parameters", "us", [3.0], []), "not measured")
        self.assertEqual(verdict("BERT-base fp16 batch 1, eager", "ms", [], [1.0]), "-")
        self.assertEqual(verdict("cudaMemGetInfo", "us", [1.0], [9.0]), "-")

    def test_every_model_and_the_idle_row_have_a_budget(self):
        for _, name, _ in parts.MODELS:
            self.assertEqual(verdict(name, "ms", [1.0], [5.0]), "missed", name)

    def test_page_and_json_agree(self):
        sections = [("Calls", [report.judge(parts.Row("launch, no parameters", "us", [3.0], [0.5]))])]
        profiles = {"launch, no parameters": [processes.Use("client", "main", 99.0, 1.0)]}
        page = report.markdown({"GPU": "none"}, sections, profiles, False)
        self.assertIn("0 within, 1 missed", page)
        self.assertIn("| client | main | 99.0 | 1 |", page)
        written = json.loads(json.dumps(report.as_json({}, sections, profiles, False)))
        self.assertEqual(written["rows"][0]["verdict"], "missed")


if __name__ == "__main__":
    unittest.main()
