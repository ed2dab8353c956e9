"""A copy of the sources with a build of its own, in which tools/mutants tries mutants: builds targets, runs tests."""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import source_tree

# What programs and integration tests start or load; CTest does not know.
PRODUCT = re.compile("(bin|lib)/tally")
LEAST_TIMEOUT = 60  # seconds; on a busy machine
FAILED_CASE = re.compile(r"^\[  FAILED  \] (\S+\.\S+?),?(?: |$)|^(?:FAIL|ERROR): (\w+)", re.MULTILINE)


class BuildError(Exception):
    pass


class Refused(Exception):
    """A static_assert does not let the mutant pass."""


class Test:
    def __init__(self, description, build, outputs):
        properties = {p["name"]: p["value"] for p in description.get("properties", ())}
        self.name = description["name"]
        self.command = description.get("command", [])  # CTest leaves out what is not built
        self.folder = properties.get("WORKING_DIRECTORY", build)
        self.environment = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", ()) if "=" in e)
        self.timeout = properties.get("TIMEOUT", 120)
        self.is_serial = properties.get("RUN_SERIAL", False)
        words = self.command + list(self.environment.values())
        self.needs = {os.path.relpath(w, build) for w in words if w.startswith(build + "/")} & outputs
        if not self.command:
            self.needs = {f"tests/{self.name}"} & outputs
        if {"programs", "integration"} & set(properties.get("LABELS", ())):
            self.needs |= set(filter(PRODUCT.match, outputs))
        if "integration" in properties.get("LABELS", ()):
            self.needs.add("tests/integration/all")


class Tree:
    def __init__(self, root, jobs, programs):
        self.jobs = jobs
        self.source = os.path.join(root, "build/mutants/tree")
        self.folder = os.path.join(self.source, "build/release")
        self.passed = {}  # tests that have passed in this run, with how many seconds they took
        self.useless = set()  # tests that fail without a mutant, or do not run
        self.running = set()  # processes
        self.copy(root)
        self.configure(programs)
        self.tests = self.list_tests()

    def copy(self, root):
        """Only what differs, so that the rest need not be compiled again."""
        wanted = set(source_tree.list_files(root, ("",)))
        for path in wanted:
            to = os.path.join(self.source, path)
            with open(os.path.join(root, path), "rb") as file:
                content = file.read()
            if os.path.exists(to):
                with open(to, "rb") as file:
                    if file.read() == content:
                        continue
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, "wb") as file:
                file.write(content)
            shutil.copymode(os.path.join(root, path), to)
        for folder, folders, files in os.walk(self.source):
            if folder == self.source and "build" in folders:
                folders.remove("build")
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), self.source)
                if path not in wanted:
                    os.remove(os.path.join(self.source, path))

    def write(self, path, text):
        with open(os.path.join(self.source, path), "w", encoding="utf-8") as file:
            file.write(text)

    def configure(self, programs):
        command = ["cmake", "--preset", "release", "-DTALLY_PRECOMPILED_HEADERS=OFF", "-DTALLY_BUILD_BENCH=OFF",
                   "-DTALLY_PROGRAMS_SM90=OFF"]
        if os.path.isdir(programs):
            command.append(f"-DTALLY_PROGRAMS_DIR={os.path.abspath(programs)}")
        if shutil.which("ccache"):
            command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        done = subprocess.run(command, cwd=self.source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            raise BuildError(done.stdout[-2000:])

    def list_tests(self):
        targets = subprocess.run(["ninja", "-C", self.folder, "-t", "targets", "all"], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
        outputs = {line.split(": ")[0] for line in targets.split("\n")}
        listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.folder, stdout=subprocess.PIPE, check=True)
        return [Test(one, self.folder, outputs) for one in json.loads(listed.stdout)["tests"]]

    def unmatched(self, expressions):
        return [e for e in expressions if not any(re.search(e, t.name) for t in self.tests)]

    def groups(self, expressions):
        """The tests that match, group by group: each expression is one, without what was in an earlier one."""
        seen = set(self.useless)
        for expression in expressions:
            matching = [t for t in self.tests if re.search(expression, t.name) and t.name not in seen]
            seen |= {t.name for t in matching}
            together = [t for t in matching if not t.is_serial]
            yield from ([together] if together else [])
            yield from ([t] for t in matching if t.is_serial)

    def build(self, tests):
        """Empty, or the end of what the compilers said."""
        needs = sorted(set().union(*(t.needs for t in tests)))
        if not needs:
            return ""
        done = subprocess.run(["ninja", "-C", self.folder, f"-j{self.jobs}", *needs], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == 0:
            if not all(test.command for test in tests):
                commands = {t.name: t.command for t in self.list_tests()}
                for test in tests:
                    test.command = commands[test.name]
            return ""
        if "interrupted by user" in done.stdout:
            raise KeyboardInterrupt  # nothing is known of it
        # What is asserted at compile time is tested, too.
        if refused := re.search(r"(\S+?):\d+:\d+: error: static assertion failed", done.stdout):
            raise Refused(f"static_assert in {refused.group(1).replace(self.source + '/', '').replace('../', '')}")
        errors = [line for line in done.stdout.split("\n") if " error: " in line]
        return "does not build: " + (errors or [done.stdout[-500:]])[0].replace(self.source + "/", "")

    def run(self, test):
        """'passed', 'skipped', 'failed' or 'timeout', and the case that failed."""
        limit = max(LEAST_TIMEOUT, 10 * self.passed[test.name]) if test.name in self.passed else test.timeout
        began = time.monotonic()
        with subprocess.Popen(test.command, cwd=test.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, start_new_session=True,
                              env={**os.environ, "GTEST_FAIL_FAST": "1", **test.environment}) as process:
            watch = threading.Timer(limit, lambda: self.end(process))
            watch.start()
            self.running.add(process)
            output = process.communicate()[0].decode(errors="replace")
            ended_in_time = watch.is_alive()
            watch.cancel()
            self.running.discard(process)
            self.end(process)  # what it has left behind
        if not ended_in_time:
            return "timeout", ""
        if process.returncode == 77 or (process.returncode == 0 and "SKIPPED ALL" in output):
            return "skipped", ""
        if process.returncode == 0:
            if test.name not in self.passed:
                self.passed[test.name] = time.monotonic() - began
            return "passed", ""
        case = FAILED_CASE.search(output)
        return "failed", (case.group(1) or case.group(2)) if case else ""

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def first_failure(self, tests, take_out, put_in):
        """Of tests that are built: (outcome, test) of one that fails because of the mutant, or None."""
        has_failed = threading.Event()

        def ask(test):
            if has_failed.is_set():
                return "passed", ""
            answer = self.run(test)
            if answer[0] == "failed":
                answer = self.run(test)  # a busy machine, perhaps
            if answer[0] not in ("passed", "skipped"):
                has_failed.set()
            return answer

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as threads:
            try:
                answers = list(zip(tests, threads.map(ask, tests)))
            except KeyboardInterrupt:
                has_failed.set()
                for process in list(self.running):
                    self.end(process)
                raise
        self.useless |= {test.name for test, (answer, _) in answers if answer == "skipped"}
        for test, (answer, case) in answers:
            if answer in ("passed", "skipped") or not self.passes_without(test, take_out, put_in):
                continue
            by = f"{test.name}: {case}" if case else test.name
            return ("timeout" if answer == "timeout" else "killed"), by
        # Those that fail anyway have kept others from being asked.
        rest = [t for t, (answer, _) in answers if answer == "passed"]
        if not has_failed.is_set() or not rest:
            return None
        self.build(rest)
        return self.first_failure(rest, take_out, put_in)

    def passes_without(self, test, take_out, put_in):
        if test.name in self.passed:
            return True
        take_out()
        if complaint := self.build([test]):
            raise BuildError(complaint)
        passes = self.run(test)[0] == "passed" or self.run(test)[0] == "passed"
        put_in()
        if not passes:
            self.useless.add(test.name)
        return passes
