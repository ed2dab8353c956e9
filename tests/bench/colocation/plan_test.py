"""Which cells bench/colocation measures, in which order, and what lives side by side."""
import unittest

import catalogue
import modes
import plan
import ways

PAIRS = [("bert-graph", "gpt2-medium"), ("resnet50-eager", "bert")]
MODES = ["alone", "time-slicing", "tally", "tally+transforms", "tally:none"]


class CellsTest(unittest.TestCase):
    def cells(self, loads=(0.5, 0.1), counts=(1, 2), repetitions=3, names=MODES):
        return plan.cells(PAIRS, names, list(loads), list(counts), repetitions, True, "g")

    def test_keys_are_unique(self):
        keys = [cell.key() for cell in self.cells()]
        self.assertEqual(len(keys), len(set(keys)))

    def test_what_is_compared_with_comes_right_before(self):
        """For each cell of a pair there is one of the service alone of that load and repetition, before it."""
        seen = set()
        for cell in self.cells():
            if cell.mode == "alone" and cell.service:
                seen.add((cell.service, cell.load, cell.repetition))
            elif cell.training:
                self.assertIn((cell.service, cell.load, cell.repetition), seen | {("", 0, cell.repetition)})

    def test_the_first_repetition_has_every_pair_in_every_mode(self):
        first = [cell for cell in self.cells()[:20] if cell.repetition == 0 and cell.load == 0.5 and cell.count == 1]
        met = {(cell.mode, cell.service, cell.training) for cell in first}
        for service, training in PAIRS:
            for mode in MODES[1:]:
                self.assertIn((mode, service, training), met)
            self.assertIn(("alone", service, ""), {(cell.mode, cell.service, cell.training) for cell in self.cells()[:20]})

    def test_other_points_come_after_two_rounds(self):
        cells = self.cells()
        index = next(index for index, cell in enumerate(cells) if cell.service and (cell.load == 0.1 or cell.count == 2))
        self.assertLessEqual({0, 1}, {cell.repetition for cell in cells[:index] if cell.mode == "tally"})

    def test_all_repetitions_come(self):
        pairs = [cell for cell in self.cells() if cell.mode == "tally" and cell.training and cell.service == "bert-graph"]
        self.assertEqual(len(pairs), 3 * 3)


class GroupsTest(unittest.TestCase):
    def test_every_mode_is_in_one_group(self):
        for free in (10, 75, 139, 1000):
            groups = plan.groups([*MODES, "mps", "mps-priority"], PAIRS, 1, free)
            self.assertEqual(sorted(mode for group in groups for mode in group), sorted([*MODES, "mps", "mps-priority"]))
            self.assertEqual(groups[0][:2], MODES[:2])

    def test_much_memory_is_one_group_and_little_is_many(self):
        self.assertEqual(len(plan.groups(MODES, PAIRS, 1, 1000)), 1)
        self.assertEqual(len(plan.groups(MODES, PAIRS, 1, 50)), 4)

    def test_mps_is_by_itself(self):
        groups = plan.groups([*MODES, "mps", "mps-priority"], PAIRS, 1, 1000)
        self.assertIn(["mps"], groups)
        self.assertIn(["mps-priority"], groups)


class NamesTest(unittest.TestCase):
    def test_all_pairs_can_be_measured(self):
        pairs = catalogue.all_pairs()
        self.assertEqual(len(pairs), len(set(pairs)))
        for service, training in pairs:
            self.assertTrue(catalogue.is_service(service) and catalogue.is_training(training))
        self.assertEqual({training for _, training in pairs}, set(catalogue.TRAININGS))
        self.assertEqual({service.rpartition("-")[0] for service, _ in pairs}, set(catalogue.SERVICES))

    def test_what_there_is_not(self):
        self.assertFalse(catalogue.is_service("bert"))
        self.assertFalse(catalogue.is_service("llama-graph"))
        self.assertFalse(catalogue.is_training("gpt-5"))

    def test_modes(self):
        modes.check([*MODES, "mps", "tally:tally-paper+transforms@100"])
        for name in ("tallyho", "tally+", "tally@", "fair"):
            with self.assertRaises(ways.Failed):
                modes.check([name])


if __name__ == "__main__":
    unittest.main()
