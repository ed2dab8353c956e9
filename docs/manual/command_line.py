"""What a program of ours says about its command line (`PROGRAM --describe`, base/command_line.h), as a model."""
import dataclasses
import re
import subprocess


@dataclasses.dataclass
class Option:
    names: list  # ["-h", "--help"]; of an argument its one name
    type: str  # "FILE", "high|best-effort"; empty: a flag; "[=FILE]": one that may be given a value
    text: str

    @property
    def takes_value(self):
        return bool(self.type) and not self.type.startswith("[")

    @property
    def choices(self):
        """The words to choose from; empty where anything may stand."""
        words = self.type.removeprefix("[=").removesuffix("]")
        return words.split("|") if re.fullmatch(r"[a-z][a-z-]*(\|[a-z-]+)*", words) else []

    @property
    def completes(self):
        """"words", "files", "directories", or nothing."""
        if self.choices:
            return "words"
        return {"FILE": "files", "PATH": "files", "SOCKET": "files", "DIRECTORY": "directories"}.get(self.type, "")


@dataclasses.dataclass
class Command:
    name: str  # "tallyctl cdi generate"
    usage: str
    text: str
    options: list = dataclasses.field(default_factory=list)
    arguments: list = dataclasses.field(default_factory=list)

    @property
    def last_name(self):
        return self.name.rsplit(" ", 1)[-1]


@dataclasses.dataclass
class Program(Command):
    commands: list = dataclasses.field(default_factory=list)  # all of them, also those inside others
    sections: list = dataclasses.field(default_factory=list)  # of the footer: (title or "", lines)

    @property
    def runs_another(self):
        return self.usage.endswith("PROGRAM [ARGUMENTS...]")

    def inside(self, command):
        """The commands that may stand behind this one."""
        return [one for one in self.commands if one.name.rsplit(" ", 1)[0] == command.name]


def sections_of(footer):
    sections = []
    for part in filter(None, footer.strip("\n").split("\n\n")):
        lines = part.split("\n")
        title = re.fullmatch(r"([A-Z][A-Za-z ]*)(?: \(.*\))?:", lines[0])
        sections.append((title.group(1), lines[1:]) if title else ("", lines))
    return sections


def parse(text):
    program = command = None
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        fields = [field.replace("\\n", "\n") for field in fields]
        if kind == "program":
            command = program = Program(*fields)
        elif kind == "command":
            command = Command(*fields)
            program.commands.append(command)
        elif kind == "option":
            command.options.append(Option(fields[0].split(","), *fields[1:]))
        elif kind == "argument":
            command.arguments.append(Option([fields[0]], *fields[1:]))
        elif kind == "footer":
            program.sections = sections_of(fields[0])
        else:
            raise ValueError(f"--describe printed a line of unknown kind: {line}")
    return program


def ask(path):
    return parse(subprocess.run([path, "--describe"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout)


def version_of(path):
    return subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.split()[1]
