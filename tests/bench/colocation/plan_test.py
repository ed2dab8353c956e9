"""Which cells bench/colocation measures, in which order, and what lives side by side."""
import unittest

import catalogue
import modes
import plan
import ways

PAIRS = (("bert-graph", "gpt2-medium"), ("resnet50-eager", "bert"))
SMALL = ("bert-graph", "pointnet")
MODES = ["alone", "time-slicing", "tally", "tally+transforms", "tally:none"]


class CellsTest(unittest.TestCase):
    def cells(self, **changes):
        whole = {"loads": (0.5, 0.1), "counts": (1, 2), "repetitions": 3, "load_pairs": PAIRS, "tenant_pairs": PAIRS, **changes}
        return plan.Plan(tuple(MODES), PAIRS, **whole).cells(MODES)

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

    def test_sweeps_are_of_their_pairs_and_modes(self):
        cells = self.cells(load_pairs=PAIRS[:1], tenant_pairs=(SMALL,), sweep_modes=("tally",), counts=(1, 8))
        self.assertEqual({(cell.mode, cell.service, cell.training) for cell in cells if cell.service and cell.training and cell.load == 0.1},
                         {("tally", *PAIRS[0])})
        self.assertEqual({(cell.mode, cell.training, cell.count) for cell in cells if cell.training == "pointnet" and cell.service},
                         {("tally", "pointnet", 1), ("tally", "pointnet", 8)})
        self.assertIn(("alone", "", "pointnet"), {(cell.mode, cell.service, cell.training) for cell in cells})
        self.assertIn(("bert-graph", 0.1, ""), {(cell.service, cell.load, cell.training) for cell in cells if cell.mode == "alone"})

    def test_each_load_has_both_baselines(self):
        """Natively alone, and alone in each mode that is measured at that load."""
        cells = self.cells(sweep_modes=("tally",))
        for load in (0.5, 0.1):
            beside = {(cell.service, cell.mode) for cell in cells if cell.load == load and cell.training and cell.mode not in modes.NATIVE}
            alone = {(cell.service, cell.mode) for cell in cells if cell.load == load and not cell.training}
            self.assertTrue(beside)
            self.assertLessEqual(beside | {(service, "alone") for service, _ in beside}, alone)

    def test_a_service_without_a_training_is_alone_in_each_mode(self):
        cells = plan.Plan(tuple(MODES), (("bert-graph", ""),), repetitions=3).cells(MODES)
        self.assertEqual([(cell.mode, cell.service, cell.training, cell.count) for cell in cells if cell.repetition == 2],
                         [(mode, "bert-graph", "", 0) for mode in MODES if mode != "time-slicing"])

    def test_trainings_beside_services_without_requests(self):
        idle = [(cell.mode, cell.training) for cell in self.cells(idle_services="also", repetitions=1) if not cell.service and cell.mode != "alone"]
        self.assertEqual(sorted(idle), sorted((mode, training) for mode in MODES[2:] for _, training in PAIRS))
        self.assertFalse([cell for cell in self.cells() if not cell.service and cell.mode != "alone"])

    def test_only_beside_idle_services_no_training_is_beside_one_that_works(self):
        cells = self.cells(idle_services="only", repetitions=1)
        self.assertFalse([cell for cell in cells if cell.service and cell.training])
        self.assertEqual(sorted((cell.mode, cell.training) for cell in cells if cell.training),
                         sorted((mode, training) for mode in ("alone", *MODES[2:]) for _, training in PAIRS))
        self.assertEqual({cell.mode for cell in cells if cell.service}, {"alone", *MODES[2:]})  # it is there in each


class NeedsTest(unittest.TestCase):
    def test_only_what_the_cells_work_with(self):
        whole = plan.Plan(("alone", "tally", "tally:none"), PAIRS, counts=(1, 8), tenant_pairs=(SMALL,), sweep_modes=("tally",))
        found = plan.needs(whole.cells(["tally", "tally:none"]))
        services = {("service", "bert-graph"): 1, ("service", "resnet50-eager"): 1}
        self.assertEqual(found["native"], services)
        self.assertEqual(found["tally:none"], {**services, ("training", "gpt2-medium"): 1, ("training", "bert"): 1})
        self.assertEqual(found["tally"], {**found["tally:none"], ("training", "pointnet"): 8})

    def test_native_modes_share_their_workers(self):
        found = plan.needs(plan.Plan(("alone", "time-slicing"), PAIRS).cells(["alone", "time-slicing"]))
        self.assertEqual(list(found), ["native"])
        self.assertEqual(len(found["native"]), 4)


class GroupsTest(unittest.TestCase):
    @staticmethod
    def groups(names, free):
        return plan.Plan(tuple(names), PAIRS).groups(free)

    def test_every_mode_is_in_one_group(self):
        for free in (10, 75, 139, 1000):
            groups = self.groups([*MODES, "mps", "mps-priority"], free)
            self.assertEqual(sorted(mode for group in groups for mode in group), sorted([*MODES, "mps", "mps-priority"]))
            self.assertEqual(groups[0][:2], MODES[:2])

    def test_much_memory_is_one_group_and_little_is_many(self):
        self.assertEqual(len(self.groups(MODES, 1000)), 1)
        self.assertEqual(len(self.groups(MODES, 50)), 4)

    def test_not_more_executors_than_the_driver_takes(self):
        own = [f"tally@{index}" for index in range(1, 10)]
        self.assertEqual([len(group) for group in self.groups(["alone", *own], 1000)], [9, 1])
        self.assertEqual(len(self.groups(["alone", *own[:6], *(f"tally+shared@{index}" for index in range(1, 5))], 1000)), 1)

    def test_mps_is_by_itself(self):
        groups = self.groups([*MODES, "mps", "mps-priority"], 1000)
        self.assertIn(["mps"], groups)
        self.assertIn(["mps-priority"], groups)


class NamesTest(unittest.TestCase):
    def test_all_pairs_can_be_measured(self):
        pairs = catalogue.all_pairs()
        self.assertEqual((len(pairs), len(set(pairs))), (48, 48))
        for service, training in pairs:
            self.assertTrue(catalogue.is_service(service) and catalogue.is_training(training))
        self.assertEqual({training for _, training in pairs}, set(catalogue.MATRIX_TRAININGS))
        self.assertEqual({service.rpartition("-")[0] for service, _ in pairs}, set(catalogue.SERVICES))

    def test_what_there_is_not(self):
        self.assertFalse(catalogue.is_service("bert"))
        self.assertFalse(catalogue.is_service("llama-graph"))
        self.assertFalse(catalogue.is_training("gpt-5"))

    def test_modes(self):
        modes.check([*MODES, "mps", "tally:tally-paper+transforms@100", "tally+gates+shared/200"])
        for name in ("tallyho", "tally+gates+transforms", "tally+", "tally@", "fair"):
            with self.assertRaises(ways.Failed):
                modes.check([name])


if __name__ == "__main__":
    unittest.main()
