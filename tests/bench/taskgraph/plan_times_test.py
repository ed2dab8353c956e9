#!/usr/bin/env python3
"""bench/taskgraph/plan_times.py: a small plan with its times, by hand."""
import re
import unittest

import plan_times

PICTURE = r'''digraph graph_on_several_gpus {
  rankdir=LR;
  node [shape=box];
  subgraph cluster_0 {
    label="GPU 0, home";
    s0 [label="task 0: potrf, 160 nodes\nplanned 0.000 to 2.000 ms\nran 0.100 to 2.100 ms"];
    s3 [label="task 2: gemm\", s9, 2 nodes\nplanned 2.000 to 3.000 ms\nran 2.000 to 4.000 ms"];
  }
  subgraph cluster_1 {
    label="GPU 1";
    s1 [label="1000000 bytes from GPU 0\nplanned 2.000 to 2.500 ms\nran 2.200 to 2.700 ms"];
    s2 [label="task 1: trsm, 1 node\nplanned 2.500 to 4.500 ms\nran 3.000 to 6.000 ms"];
    s4 [label="room given up\nplanned 0.000 to 0.000 ms"];
    s5 [label="task 3: trsm, 1 node\nplanned 5.000 to 6.000 ms"];
  }
  s0 -> s1;
  s1 -> s2;
  s3 -> s2;
  s2 -> s5;
}
'''


class PlanTimes(unittest.TestCase):
    def setUp(self):
        self.steps = plan_times.read(PICTURE.splitlines())

    def test_all_steps_are_read(self):
        self.assertEqual([self.steps[k].gpu for k in range(6)], [0, 1, 1, 0, 1, 1])
        self.assertEqual(self.steps[2].before, [1, 3])
        self.assertEqual(self.steps[3].name, 'gemm\\", s9 (2)')
        self.assertEqual((self.steps[1].num_bytes, self.steps[1].name), (1000000, None))
        self.assertEqual((self.steps[5].ran, self.steps[4].name), (None, None))

    def test_overlapping_spans_count_once(self):
        self.assertAlmostEqual(plan_times.covered([(3, 5), (0, 1), (4, 4.5), (0.5, 2)]), 4)

    def test_the_end_waited_for_the_last_of_those_before(self):
        count, spent = plan_times.way_to_the_end(self.steps)
        # Of those before step 2 the task at home ended last, by this clock after step 2 had begun: such an overlap is no wait.
        self.assertEqual(count, 2)
        self.assertAlmostEqual(spent["trsm (1)"], 3)
        self.assertAlmostEqual(spent['gemm\\", s9 (2)'], 2)
        self.assertAlmostEqual(spent["between steps: nothing that it was behind still ran"], 2)

    def test_the_report_says_who_was_idle(self):
        text = "\n".join(plan_times.report(self.steps))
        self.assertIn("6 steps, 6.000 ms; planned 6.000 ms", text)
        self.assertRegex(text, r"GPU 0 +2 +3\.900 +2\.100 +4\.000 +3\.000 +0\.000")
        self.assertRegex(text, r"GPU 1 +1 +3\.000 +3\.000 +3\.000 +2\.000 +0\.500")
        self.assertRegex(text, r"trsm \(1\), elsewhere +1 +2\.000 +3\.000 +1\.500")
        self.assertRegex(text, r"1000000 bytes +1 +0\.500 +0\.500 +2\n")

    def test_a_plan_that_never_ran(self):
        steps = plan_times.read(re.sub(r'\\nran [^"]*', "", PICTURE).splitlines())
        self.assertEqual(plan_times.report(steps), ["the graph has not been launched by this plan yet"])


if __name__ == "__main__":
    unittest.main()
