"""Many cases of fault_rig.py, one after another, and the table of what came of them."""
import collections
import csv
import os
import time

from support.fault_cases import INSTEAD, LOST, Case, all_cases, errors_of, one_per_function
from support.fault_rig import ABSORBED, OK, Outcome
from support.full_stack import PROGRAMS

# Together they have executors call nearly every function that any program does, and each ends within 20 ms.
SHORT_PROGRAMS = """
driver_arrays driver_contexts driver_graphs driver_memory driver_modules driver_streams graph_built graph_capture
graph_memory graph_updates host_callbacks module_loading memory_pools reduction stream_memory_ops texture_objects
virtual_memory
""".split()
HIGHEST_RANDOM_CALL = 300


def programs():
    """All that were built."""
    return sorted(name for name in os.listdir(PROGRAMS) if os.access(os.path.join(PROGRAMS, name), os.X_OK)
                  and os.path.isfile(os.path.join(PROGRAMS, name)))


NUM_LOSSES_IN_SHORT, NUM_STARTS_IN_SHORT = 4, 4
# Each went wrong once, by what the comment says, and is carried out by the short form, too.
FOUND = [
    # The program crashed: its managed variable was taken for one of the device.
    Case("managed_memory", "cuPointerGetAttribute", 1, 999, INSTEAD),
]


class Report:
    def __init__(self, table=""):
        self.rows = []
        self.file = open(table, "w", newline="", encoding="utf-8") if table else None
        self.writer = csv.writer(self.file) if self.file else None
        if self.writer:
            self.writer.writerow(["program", "function", "call", "error", "form", "verdict", "seen", "seconds"])
        self.began = time.monotonic()

    def add(self, case, outcome):
        self.rows.append((case, outcome))
        if self.writer:
            self.writer.writerow([*case, outcome.verdict, outcome.seen, f"{outcome.seconds:.3f}"])
            self.file.flush()
        if outcome.verdict != OK:
            print(f"{case}: {outcome.verdict} (the program: {outcome.seen}; {outcome.detail})", flush=True)

    def finish(self):
        """The sums; returns the exit status."""
        wrong = [row for row in self.rows if row[1].verdict != OK]
        reached = [row for row in self.rows if row[1].seen != "not reached"]
        heard = [(case, outcome) for case, outcome in reached if outcome.seen != ABSORBED]
        same = [1 for case, outcome in heard if str(case.code) in outcome.seen.split()]
        for kind, count in collections.Counter(row[1].verdict.split(" ")[0] for row in wrong).most_common():
            print(f"{count} cases: {kind} ...")
        functions, programs_ = ({getattr(row[0], what) for row in self.rows} for what in ("function", "program"))
        print(f"{len(functions)} functions, {len(programs_)} programs, {len(self.rows)} cases in "
              f"{time.monotonic() - self.began:.0f} s: {len(reached)} reached, {len(heard)} heard of by the program "
              f"({len(same)} with the same error), {len(reached) - len(heard)} absorbed; {len(wrong)} went wrong")
        return 1 if wrong else 0


def profile(rig, names, report):
    """program -> (seconds, {function: calls}) of those that end well and leave the executor's context, without faults."""
    profiles = {}
    for name in names:
        for _ in range(2):  # the second time
            run, calls = rig.profile(name)
            is_lost = rig.is_lost()
            if is_lost:
                rig.stop()
                break
        if run.status == 0 and not is_lost:
            profiles[name] = (run.seconds, calls)
            if left := rig.left_without_fault(name):
                report.add(Case(name, "none", 0, 0, INSTEAD), Outcome("left " + left, "", "", run.seconds))
        else:
            print(f"without {name}: it ends with {run.status}{' and loses the context' if is_lost else ''}", flush=True)
    print(f"{len(profiles)} programs, {len({f for _, calls in profiles.values() for f in calls})} functions", flush=True)
    return profiles


def run_cases(rigs, cases, report, deadline):
    """Those that lose the context need an executor each, so they have a rig of their own."""
    for case in cases:
        if time.monotonic() > deadline:
            print(f"stopped after {len(report.rows)} of {len(cases)} cases")
            return
        report.add(case, rigs[case.form == LOST].carry_out(case))


def run_starts(rig, report, deadline, chance=None):
    """What executors call when they start, and for the first program. With `chance`: some of it."""
    functions = rig.calls_at_start()
    for function in chance.sample(functions, NUM_STARTS_IN_SHORT) if chance else functions:
        for code, form in errors_of(function)[:1] if chance else errors_of(function):
            if time.monotonic() < deadline:
                case = Case("start", function, 1, code, form)
                report.add(case, rig.start_with_fault(case))


def run_short(rigs, chance, report):
    """For CI: each function once, a few losses, and what was found before."""
    profiles = profile(rigs[0], SHORT_PROGRAMS, report)
    cases = one_per_function(all_cases(profiles, 1), chance, NUM_LOSSES_IN_SHORT)
    run_cases(rigs, cases + FOUND, report, time.monotonic() + 1000)
    run_starts(rigs[1], report, time.monotonic() + 1000, chance)


def run_random(rigs, profiles, chance, report, deadline):
    """Any call of any function under any program; now and then one that an executor makes when it starts."""
    while time.monotonic() < deadline:
        name = chance.choice(sorted(profiles))
        function = chance.choice(sorted(profiles[name][1]))
        code, form = chance.choice(errors_of(function))
        nth = chance.randint(1, min(HIGHEST_RANDOM_CALL, profiles[name][1][function]))
        case = Case(name, function, nth, code, form)
        report.add(case, rigs[form == LOST].carry_out(case))
