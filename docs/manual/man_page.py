"""Man pages (roff with the man macros): of a program's command line, and of tallyd's configuration file."""
import datetime
import os
import re

PAGES = ["tally-run(1)", "tallyctl(1)", "cubin-gate(1)", "tallyd.json(5)", "tallyd(8)", "tally-executor(8)",
         "tally-switch-test(8)"]


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def paragraph(text):
    """Text whose lines may break anywhere."""
    return escaped(re.sub(r"\s+", " ", text).strip()) + "\n"


def head(name, section, version):
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.date.fromtimestamp(int(epoch)) if epoch else datetime.date.today()
    return f'.TH {name.upper()} {section} {day.isoformat()} "Tally {version}" "Tally"\n'


def see_also(name):
    others = [page for page in PAGES if not page.startswith(name + "(")]
    lines = [".BR " + re.sub(r"\((\d)\)", r" (\1)", escaped(page)) for page in others]
    return ".SH SEE ALSO\n" + " ,\n".join(lines) + "\n"


def option_entry(option):
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in option.names)
    space = " " if option.takes_value else ""
    value = f"{space}\\fI{escaped(option.type)}\\fR" if option.type and option.names[0].startswith("-") else ""
    return f".TP\n{names}{value}\n{paragraph(option.text)}"


def synopsis(usage):
    first, *rest = usage.split(" ")
    return f".B {escaped(first)}\n" + (escaped(" ".join(rest)) + "\n" if rest else "")


def table_entry(line):
    """("name", "text") of a line of a footer's table."""
    match = re.fullmatch(r"  (\S.*?) {2,}(\S.*)", line)
    return match.groups() if match else None


def footer_section(title, lines):
    if title == "Examples":
        return ".SH EXAMPLES\n.nf\n" + escaped("\n".join(line[2:] for line in lines)) + "\n.fi\n"
    text = f".SH {title.upper()}\n"
    words = ""
    for line in lines:
        entry = table_entry(line)
        if words.endswith(". "):  # a sentence, and no list of names that goes on
            text += paragraph(words)
            words = ""
        if not entry:
            words += line.strip() + " "
            continue
        names = (words + entry[0]).strip()
        words = ""
        text += f".TP\n.B {escaped(names)}\n{paragraph(entry[1])}"
    return text + (paragraph(words) if words else "")


def command_entry(command):
    text = f".SS {escaped(command.usage)}\n{paragraph(command.text)}"
    return text + "".join(option_entry(option) for option in command.arguments + command.options
                          if "--help" not in option.names)


def program_page(program, section, version):
    name = program.name
    one_line = re.sub(rf"^{re.escape(name)} ", "", program.text.split("\n")[0])
    one_line = re.split(r"\. |[.:]$|: ", one_line)[0]
    one_line = one_line[0].lower() + one_line[1:]
    text = head(name, section, version)
    text += f".SH NAME\n{escaped(name)} \\- {paragraph(one_line)}.SH SYNOPSIS\n{synopsis(program.usage)}"
    text += f".SH DESCRIPTION\n{paragraph(program.text)}"
    for title, lines in program.sections:
        if not title:
            text += ".PP\n" + paragraph(" ".join(lines))
    if program.commands:
        leaves = [command for command in program.commands if not program.inside(command)]
        text += ".SH COMMANDS\n" + "".join(command_entry(command) for command in leaves)
    text += ".SH OPTIONS\n" + "".join(option_entry(option) for option in program.arguments + program.options)
    last = [part for part in program.sections if part[0] == "Examples"]
    for title, lines in [part for part in program.sections if part[0] and part not in last] + last:
        text += footer_section(title, lines)
    return text + see_also(name)


def plain(markdown):
    """Without links and marks of code."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("\\|", "|")
    return text.replace("`", "")


def config_rows(markdown):
    """(key, default, meaning) of the table in docs/tallyd.md."""
    section = markdown.split("\n## Configuration\n")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:4] for line in section.splitlines() if line.startswith("| `")]
    return [(plain(key).strip(), plain(default).strip(), plain(meaning).strip()) for key, default, meaning in rows]


def config_page(markdown, version):
    text = head("tallyd.json", 5, version)
    text += ".SH NAME\ntallyd.json \\- configuration of tallyd\n"
    text += ".SH SYNOPSIS\n.B tallyd \\-\\-config\n.I /etc/tally/tallyd.json\n"
    text += ".SH DESCRIPTION\n" + paragraph(
        "One JSON object; // begins a comment. What is left out has its default, options of the command line win, and "
        "keys that are not listed here are errors.") + ".SH KEYS\n"
    for key, default, meaning in config_rows(markdown):
        text += f".TP\n.B {escaped(key)}\n{paragraph(f'{meaning}. Default: {default}.')}"
    text += ".SH FILES\n.TP\n.I /etc/tally/tallyd.json\nwhere the service of a machine has it\n"
    return text + see_also("tallyd.json")
