#!/usr/bin/env python3
"""Makes man pages and shell completion from what the programs say about themselves; run by the build.

usage: make_manual.py OUTPUT SECTION PROGRAM    OUTPUT/man/manSECTION/NAME.SECTION and OUTPUT/completions/*/
       make_manual.py OUTPUT config PROGRAM docs/tallyd.md    OUTPUT/man/man5/tallyd.json.5; PROGRAM tells the version
"""
import os
import sys

import command_line
import completion
import man_page


def write(text, *path):
    path = os.path.join(*path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(output, section, path, *rest):
    version = command_line.version_of(path)
    if section == "config":
        with open(rest[0], encoding="utf-8") as file:
            write(man_page.config_page(file.read(), version), output, "man", "man5", "tallyd.json.5")
        return
    program = command_line.ask(path)
    name = program.name
    write(man_page.program_page(program, section, version), output, "man", f"man{section}", f"{name}.{section}")
    write(completion.bash(program), output, "completions", "bash", name)
    write(completion.zsh(program), output, "completions", "zsh", "_" + name)
    write(completion.fish(program), output, "completions", "fish", name + ".fish")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
