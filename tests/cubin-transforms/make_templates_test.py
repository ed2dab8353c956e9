#!/usr/bin/env python3
"""The checks of make_templates.py see code that must not be spliced; and straightening keeps every path."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cubin-transforms", "gate"))
import make_templates as gate  # noqa: E402

ARCH = 90
ATOMIC = gate.ATOMICS[0]
ADD = 0x210  # any instruction that goes on to the next


def plain(opcode):
    return opcode | gate.ALWAYS << 12, 0


def branch(at, to, predicate=gate.ALWAYS):
    return gate.with_distance(ARCH, (gate.BRANCH | predicate << 12, 0), 16 * (to - at - 1))


def entry():
    return [plain(gate.PMTRIG), plain(gate.EXIT)]


class CheckPaths(unittest.TestCase):
    def refuses(self, code, entries, why):
        with self.assertRaises(SystemExit) as caught:
            gate.check_paths(ARCH, code, entries)
        self.assertIn(why, str(caught.exception.code))

    def test_takes_an_atomic_of_part_of_the_warp_that_joins_again(self):
        code = [plain(gate.BSSY), branch(1, 3, 0), plain(ATOMIC), plain(gate.BSYNC), *entry()]
        gate.check_paths(ARCH, code, [4])

    def test_refuses_to_enter_diverged(self):
        code = [plain(gate.BSSY), branch(1, 3, 0), plain(ATOMIC), *entry()]
        self.refuses(code, [3], "enter the kernel diverged")

    def test_refuses_a_way_around_the_joining(self):
        code = [plain(gate.BSSY), plain(ATOMIC), branch(2, 4, 0), plain(gate.BSYNC), *entry()]
        self.refuses(code, [4], "enter the kernel diverged")

    def test_refuses_an_atomic_outside(self):
        self.refuses([plain(ATOMIC), *entry()], [1], "atomic outside")

    def test_refuses_a_diverged_exit(self):
        self.refuses([plain(gate.BSSY), plain(gate.EXIT)], [], "diverged exit")

    def test_refuses_loops_and_open_ends(self):
        self.refuses([plain(ADD), branch(1, 0)], [], "has a loop")
        self.refuses([plain(ADD)], [], "end can be reached")

    def test_follows_branches_under_uniform_predicates(self):
        uniform = (gate.UNIFORM_BRANCH | gate.ALWAYS << 12, 0)
        code = [gate.with_distance(ARCH, uniform, 32), *entry(), plain(ATOMIC), *entry()]
        self.refuses(code, [1, 4], "atomic outside")


class Distances(unittest.TestCase):
    def test_survive_being_written(self):
        for arch in (75, 89, 90, 120):
            for apart in (0, 16, -16, 1040, -4096, 1 << 20, -(1 << 20)):
                written = gate.with_distance(arch, branch(0, 1), apart)
                self.assertEqual(gate.distance(arch, written), apart)


class Straighten(unittest.TestCase):
    def code(self):
        aside = [plain(ADD + i) for i in range(8)]
        # 0: over the aside if P0; the aside; then one of three ways to the end
        code = [branch(0, 9, 0), *aside]
        for predicate in (1, 2, 3):
            at = len(code)
            code += [branch(at, at + 3, predicate), *entry()]
        return code + [plain(gate.EXIT), branch(len(code) + 1, len(code) + 1)]

    def test_moves_the_aside_behind_the_rest_on_the_same_paths(self):
        code = self.code()
        moved, where = gate.straighten(ARCH, code, branch(0, 1))
        self.assertEqual(len(moved), len(code) + 1)  # and a way back
        self.assertEqual(where[0], 0)
        self.assertEqual(where[9], 1)
        self.assertGreater(where[1], where[18])
        self.assertEqual(gate.target_of(ARCH, moved, 0), where[1])
        self.assertNotEqual(moved[0][0] & gate.NEGATED, code[0][0] & gate.NEGATED)

    def test_leaves_alone_an_aside_with_another_way_in(self):
        code = self.code()
        code[9] = branch(9, 4, 1)
        self.assertEqual(gate.straighten(ARCH, code, branch(0, 1))[0], code)


if __name__ == "__main__":
    unittest.main()
