"""Programs of both classes under tallyd with a policy, on the software driver, and how many launches each makes."""
import os
import sys
import time

from support.daemon_fixture import wait_until
from support.full_stack import REPEATED_LAUNCHES, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scheduling_case.py")
MISSING = not_built(REPEATED_LAUNCHES)


class PolicyTest(FullStackTest):
    def start_program(self, *options, priority="best-effort", command=(REPEATED_LAUNCHES,), env=None):
        return self.start_under_tally(*command, priority=priority, options=options, env=env)

    def policies(self):
        return {row["policy"] for row in self.ctl_json("executors")}


class SharingTest(PolicyTest):
    def forever(self, name, *arguments, priority="best-effort", loops=20):
        return self.start_program("--name", name, *arguments, priority=priority,
                                  command=(sys.executable, CASES, "forever", str(loops)))

    def rows(self):
        return {row["tenant"]: row for row in self.ctl_json("ps")}

    def start_busy_service(self):
        """High-priority work that never ends."""
        service = self.start_program("--name", "service", priority="high", command=(sys.executable, CASES, "busy", "1000"))
        wait_until(lambda: self.rows().get("service", {}).get("kernel_launches", 0) > 150, "the service works", 60)
        return service

    def launches_within(self, seconds, *names):
        before = self.rows()
        time.sleep(seconds)
        after = self.rows()
        return [after[name]["kernel_launches"] - before[name]["kernel_launches"] for name in names]
