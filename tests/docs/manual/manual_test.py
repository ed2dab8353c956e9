#!/usr/bin/env python3
"""The man pages and completion scripts of this build: correct as files, complete, and asked as people ask them."""
import glob
import json
import os
import re
import shutil
import subprocess
import unittest

BUILD = os.environ["TALLY_TEST_BUILD"]
SOURCE = os.environ["TALLY_TEST_SOURCE"]
MAN = os.path.join(BUILD, "man")
COMPLETIONS = os.path.join(BUILD, "completions")
PROGRAMS = {"tally-run": 1, "tallyctl": 1, "cubin-gate": 1, "tallyd": 8, "tally-device-plugin": 8, "tally-executor": 8,
            "tally-switch-test": 8}


def page(name, section):
    return os.path.join(MAN, f"man{section}", f"{name}.{section}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def words_of_page(name, section):
    """As a reader sees it, without emphasis and breaks."""
    text = subprocess.run(["mandoc", "-Tascii", page(name, section)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.sub(r"\s+", " ", re.sub(r".\x08", "", text))


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


class Pages(unittest.TestCase):
    def test_each_program_and_the_configuration_have_one(self):
        pages = {os.path.basename(path) for path in glob.glob(os.path.join(MAN, "man*", "*"))}
        self.assertEqual(pages, {f"{name}.{section}" for name, section in PROGRAMS.items()} | {"tallyd.json.5"})

    @needs("mandoc")
    def test_they_are_correct(self):
        for path in glob.glob(os.path.join(MAN, "man*", "*")):
            # "referenced manual not found": they are not installed here.
            found = [line for line in run("mandoc", "-Tlint", "-Wwarning", path).stdout.splitlines()]
            self.assertEqual(found, [], path)

    @needs("mandoc")
    def test_they_say_all_that_help_says(self):
        for name, section in PROGRAMS.items():
            text = words_of_page(name, section)
            usage = run(os.path.join(BUILD, "bin", name), "--help").stdout
            self.assertIn(f"NAME {name} - ", text)
            options = re.findall(r"^  (?:-\w,)?(--[a-z-]+)", usage, re.MULTILINE)
            self.assertIn("--help", options)
            for option in options:
                self.assertIn(option, text, name)
            for variable in re.findall(r"\bTALLY_[A-Z_]+", usage):
                self.assertIn(variable, text, name)
            self.assertNotIn("TEXT", re.findall(r"\b[A-Z]+\b", usage), name)

    @needs("mandoc")
    def test_commands_have_their_arguments_and_options(self):
        text = words_of_page("tallyctl", 1)
        for words in ("tallyctl set-weight [OPTIONS] SESSION WEIGHT", "tallyctl cdi generate [OPTIONS]", "--image-library PATH",
                      "--switch-test", "TALLY_SOCKET", "EXIT STATUS 0 done"):
            self.assertIn(words, text)

    @needs("mandoc")
    def test_every_key_of_the_configuration_is_there(self):
        text = words_of_page("tallyd.json", 5)
        sources = read(os.path.join(SOURCE, "server", "daemon", "config.cc"))
        keys = re.findall(r'^      \{"([a-z_]+)",', sources, re.MULTILINE)
        self.assertGreater(len(keys), 15)
        for key in keys:
            self.assertIn(f" {key} ", text)
        for key in json.loads(re.sub(r"^\s*//.*", "", read(os.path.join(SOURCE, "deploy", "tallyd.json")), flags=re.MULTILINE)):
            self.assertIn(f" {key} ", text)

    def test_tally_run_lists_the_variables_that_it_reads(self):
        source = read(os.path.join(SOURCE, "client-shim", "launcher", "options.cc"))
        usage = run(os.path.join(BUILD, "bin", "tally-run"), "--help").stdout
        variables = re.findall(r'FillFromEnvironment\("(TALLY_[A-Z_]+)"', source)
        self.assertIn("TALLY_NAME", variables)
        for variable in variables:
            self.assertIn(variable, usage)


class Completion(unittest.TestCase):
    def bash(self, *words):
        """What bash offers for the last of the words."""
        name = words[0]
        script = (f'source "{COMPLETIONS}/bash/{name}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  f'_{name.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"')
        result = run("bash", "--norc", "-uc", script, "bash", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout.split()

    def fish(self, line):
        name = line.split()[0]
        result = run("fish", "--no-config", "-c", f"source {COMPLETIONS}/fish/{name}.fish; complete -C '{line}'")
        self.assertEqual((result.returncode, result.stderr), (0, ""), line)
        return [row.split("\t")[0] for row in result.stdout.splitlines()]

    def test_there_is_one_for_each_shell(self):
        for name in PROGRAMS:
            for path in (f"bash/{name}", f"zsh/_{name}", f"fish/{name}.fish"):
                self.assertTrue(os.path.exists(os.path.join(COMPLETIONS, path)), path)

    def test_bash_offers_commands_and_options(self):
        self.assertEqual(self.bash("tallyctl", "set-p"), ["set-priority"])
        self.assertIn("doctor", self.bash("tallyctl", ""))
        self.assertEqual(self.bash("tallyctl", "--js"), ["--json"])
        self.assertIn("generate", self.bash("tallyctl", "cdi", ""))
        self.assertEqual(self.bash("tallyctl", "cdi", "g"), ["generate"])
        self.assertEqual(self.bash("tallyctl", "--json", "cdi", "generate", "--ou"), ["--output"])
        self.assertEqual(self.bash("tallyctl", "ps", "--soc"), ["--socket"])
        self.assertEqual(self.bash("tallyctl", "set-priority", "7", "h"), ["high"])

    def test_bash_offers_values(self):
        self.assertEqual(self.bash("tallyd", "--driver", ""), ["auto", "cuda", "sim"])
        self.assertEqual(self.bash("tallyd", "--transforms", "s"), ["slices"])
        self.assertEqual(self.bash("tallyd", "--max-sessions", ""), [])
        here = os.path.join(SOURCE, "READ")
        self.assertEqual(self.bash("tallyd", "--config", here), [here + "ME.md"])
        self.assertEqual(self.bash("tallyd", "--cache-directory", os.path.join(SOURCE, "base")), [os.path.join(SOURCE, "base")])

    def test_bash_leaves_the_programs_words_to_the_program(self):
        here = os.path.join(SOURCE, "READ")
        self.assertEqual(self.bash("tally-run", "--priority", "b"), ["best-effort"])
        self.assertEqual(self.bash("tally-run", "--pri"), ["--priority"])
        self.assertIn("bash", self.bash("tally-run", "--priority", "high", "bas"))
        self.assertEqual(self.bash("tally-run", "--quiet", "cat", "--pri"), [])
        self.assertIn("bash", self.bash("tally-run", "--window", "bas"))
        self.assertEqual(self.bash("tally-run", "--window", "=", "on", "cat", "--pri"), [])  # as readline splits it
        self.assertEqual(self.bash("tally-run", "--weight", "7", "cat", here), [here + "ME.md"])

    @needs("fish")
    def test_fish(self):
        self.assertEqual(self.fish("tallyctl set-p"), ["set-priority"])
        self.assertEqual(self.fish("tallyctl cdi g"), ["generate"])
        self.assertIn("high", self.fish("tallyctl set-priority 7 h"))
        self.assertEqual(self.fish("tallyd --driver c"), ["cuda"])
        self.assertIn("--json", self.fish("tallyctl --j"))

    @needs("zsh")
    def test_zsh(self):
        for name in PROGRAMS:
            path = os.path.join(COMPLETIONS, "zsh", "_" + name)
            self.assertEqual(run("zsh", "-f", "-n", path).stderr, "")
            self.assertTrue(read(path).startswith(f"#compdef {name}\n"))
        # zsh completes on a terminal only: in one of its own, whose screen is read.
        script = r"""
          zmodload zsh/zpty
          zpty shell zsh -f -i
          zpty -w shell "fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; PS1=; zstyle ':completion:*' list-colors; bindkey '^I' complete-word"
          zpty -w shell 'print -r READY'
          zpty -r shell text '*READY*READY*'
          zpty -w -n shell "$2"$'\t'
          sleep 2
          zpty -w -n shell $'\C-a'"print -r -- "$'\C-m'
          zpty -w shell 'print -r DONE'
          zpty -r shell text '*DONE*DONE*'
          print -r -- "$text"
        """
        for typed, completed in (("tallyctl set-pri", "set-priority"), ("tallyd --driver cu", "--driver cuda"),
                                 ("tallyctl cdi gen", "cdi generate")):
            with self.subTest(typed):
                text = run("zsh", "-f", "-c", script, "zsh", os.path.join(COMPLETIONS, "zsh"), typed).stdout
                self.assertIn(completed, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text))


if __name__ == "__main__":
    unittest.main()
