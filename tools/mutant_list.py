"""The lists of mutants, tests/mutants/<room>.txt: reads them, puts a mutant into a source; README.md there."""
import dataclasses
import os
import re

LISTS = "tests/mutants"
HEADING = re.compile(r"\[([a-z0-9-]+)\]\s+(\S+)$")


class ListError(Exception):
    """A list or a mutant of it is wrong; the message says where."""


@dataclasses.dataclass
class Mutant:
    name: str
    room: str
    path: str
    place: str  # file:line of the list
    anchor: str = ""
    old: list = dataclasses.field(default_factory=list)
    new: list = dataclasses.field(default_factory=list)
    tests: list = dataclasses.field(default_factory=list)  # regular expressions, those that fail soonest first
    survives: str = ""  # why no test need see it

    @property
    def id(self):
        return f"{self.room}/{self.name}"

    @property
    def text(self):
        """What a result depends on: a mutant that is written anew is run anew."""
        return "\n".join([self.path, self.anchor, *self.old, "=>", *self.new])

    def applied_to(self, source):
        """The source with the mistake in it. What is replaced must be there once, or once named by its anchor."""
        begin = 0
        if self.anchor:
            if source.count(self.anchor) != 1:
                raise ListError(f"{self.place}: {self.id}: the anchor occurs {source.count(self.anchor)} times in "
                                f"{self.path}, not once: {self.anchor}")
            begin = source.index(self.anchor)
        # Lines may be indented anew.
        pattern = re.compile(r"[ \t]*\n[ \t]*".join(re.escape(line) for line in self.old))
        found = pattern.findall(source, begin)
        if not found or (len(found) > 1 and not self.anchor):
            raise ListError(f"{self.place}: {self.id}: the old text occurs {len(found)} times in {self.path}, not "
                            f"once: {' / '.join(self.old)}")
        start = source.index(found[0], begin)
        mutated = source[:start] + "\n".join(self.new) + source[start + len(found[0]):]
        if mutated == source:
            raise ListError(f"{self.place}: {self.id}: old and new text are the same")
        return mutated


def read_list(path, room, lines):
    mutants, of_room, current = [], [], None
    for number, line in enumerate(lines, 1):
        place = f"{path}:{number}"
        key, _, rest = line.rstrip("\n").partition(" ")
        rest = rest.strip()
        if not key or key.startswith("#"):
            continue
        if heading := HEADING.match(line.strip()):
            current = Mutant(heading.group(1), room, heading.group(2), place)
            mutants.append(current)
        elif key == "tests:":
            (current.tests if current else of_room).extend(rest.split())
        elif current is None:
            raise ListError(f"{place}: before the first [name] only 'tests:' may stand")
        elif key == "@":
            current.anchor = rest
        elif key == "-":
            current.old.append(rest)
        elif key == "+":
            current.new.append(rest)
        elif key == "survives:":
            current.survives = f"{current.survives} {rest}".strip()
        else:
            raise ListError(f"{place}: a line begins with [name], @, -, +, tests: or survives:, not with '{key}'")
    for mutant in mutants:
        mutant.tests += of_room
        if not mutant.old or not mutant.tests:
            raise ListError(f"{mutant.place}: {mutant.id} has no old text or no tests")
    return mutants


def read_all(root):
    mutants = []
    for folder, folders, files in os.walk(os.path.join(root, LISTS)):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".txt"):
                full = os.path.join(folder, name)
                room = os.path.relpath(full, os.path.join(root, LISTS)).removesuffix(".txt")
                with open(full, encoding="utf-8") as lines:
                    mutants += read_list(os.path.relpath(full, root), room, lines)
    seen = {}
    for mutant in mutants:
        if mutant.id in seen:
            raise ListError(f"{mutant.place}: {mutant.id} is there already: {seen[mutant.id]}")
        seen[mutant.id] = mutant.place
    return mutants


def complaints(root, mutants):
    """Why mutants of the list cannot be put into the sources as they are."""
    for mutant in mutants:
        try:
            with open(os.path.join(root, mutant.path), encoding="utf-8") as source:
                mutant.applied_to(source.read())
        except FileNotFoundError:
            yield f"{mutant.place}: {mutant.id}: there is no {mutant.path}"
        except ListError as error:
            yield str(error)
