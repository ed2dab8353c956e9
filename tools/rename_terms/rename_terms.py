#!/usr/bin/env python3
"""Renames the terms of the field in a whole git tree of Tally; see docs/glossary.md of the result.

usage: rename_terms.py TREE

For one use: the commit that runs it over this repository takes this folder out. It stands here because the terms are
decided and the run is not yet made. Deterministic; refuses a tree in which it has run. Works on tracked files and on new
ones that git does not ignore.
"""
import csv
import hashlib
import os
import re
import subprocess
import sys

WIDTH = 120
DONE = "server/executor/session/sequencer.h"


# ---------------------------------------------------------------- which files
def starts(*prefixes):
    return lambda path: path.startswith(prefixes)


def under(*prefixes, but=()):
    return lambda path: path.startswith(prefixes) and not (but and path.startswith(but))


def everywhere_but(*prefixes):
    return lambda path: not path.startswith(prefixes)


KEPT = ("docs/results/", "tools/rename_terms/", "shared/", "LICENSE", "NOTICE", ".git", "tests/ptx-transforms/fuzz/corpus/")
KERNEL_ROOMS = ("sim-driver/", "ptx-transforms/", "cubin-transforms/", "tests/sim-driver/", "tests/ptx-transforms/",
                "tests/cubin-transforms/", "tests/mutants/sim-driver", "tests/mutants/ptx-transforms",
                "tests/mutants/cubin-transforms", "bench/sim-driver/", "bench/ptx-transforms/")


# ---------------------------------------------------------------- prose and code
CXX = (".h", ".cc", ".cu", ".proto", ".inc", ".in")
_CXX_PARTS = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>R"(?P<mark>[^()\s\\"]*)\(.*?\)(?P=mark)")|'
    r'(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<char>(?<![0-9A-Za-z_])\'(?:[^\'\\\n]|\\.)*\')', re.S)
_PY_PARTS = re.compile(
    r'(?P<long>"""(?:[^\\]|\\.)*?""")|(?P<string>f?"(?:[^"\\\n]|\\.)*"|f?\'(?:[^\'\\\n]|\\.)*\')|(?P<comment>\#[^\n]*)',
    re.S)
_SH_PARTS = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<comment>(?<![^\s])\#[^\n]*)', re.S)
_TICKS = re.compile(r"(`+)(?:(?!\1).)+?\1", re.S)


def by_ticks(text):
    """(part, is_prose) of prose in which `code` is quoted."""
    at = 0
    for found in _TICKS.finditer(text):
        yield text[at:found.start()], True
        yield found.group(), False
        at = found.end()
    yield text[at:], True


def by_pattern(text, pattern, prose_kinds):
    at = 0
    for found in pattern.finditer(text):
        yield text[at:found.start()], False
        kind = found.lastgroup if found.lastgroup != "mark" else "raw"
        for name in ("comment", "long", "string", "raw", "char"):
            if name in found.groupdict() and found.group(name) is not None:
                kind = name
                break
        if kind in prose_kinds or (kind == "string" and pattern is _PY_PARTS and " " in found.group()):
            yield from by_ticks(found.group())
        else:
            yield found.group(), False
        at = found.end()
    yield text[at:], False


def markdown_parts(text):
    """Blocks of code are code; so is what is quoted."""
    fenced, prose = False, []
    for line in text.splitlines(keepends=True):
        is_fence = line.lstrip().startswith("```")
        is_code = fenced or is_fence
        if is_fence:
            fenced = not fenced
        if is_code:
            yield from by_ticks("".join(prose))
            prose = []
            yield line, False
        else:
            prose.append(line)
    yield from by_ticks("".join(prose))


def mutant_parts(text):
    for line in text.splitlines(keepends=True):
        if line[:2] in ("- ", "+ ", "@ ", "= "):
            yield line[:2], False
            yield from by_pattern(line[2:], _CXX_PARTS, ("comment", "string"))
        elif line.startswith("#"):
            yield from by_ticks(line)
        else:
            yield line, False


def parts(path, text):
    if path.endswith(".md"):
        return markdown_parts(text)
    if path.endswith(CXX):
        return by_pattern(text, _CXX_PARTS, ("comment", "string"))
    if path.endswith(".py") or text.startswith("#!/usr/bin/env python"):
        return by_pattern(text, _PY_PARTS, ("comment", "long"))
    if path.startswith("tests/mutants/"):
        return mutant_parts(text)
    if path.endswith((".txt", ".cmake", ".yml", ".yaml", ".sh")) or text.startswith("#!"):
        return by_pattern(text, _SH_PARTS, ("comment",))
    return [(text, False)]


# ---------------------------------------------------------------- phrases
def gap(phrase):
    """A phrase as a pattern: a space may be a line's end inside a comment or a paragraph."""
    words = [re.escape(word) for word in phrase.split(" ")]
    return r"(?: |\n[ \t]*(?://+|\#|\*)?[ \t]*)".join(words)


class Phrase:
    """Replaces text as it stands, before any other rule. `\\b` is put around it unless it begins or ends otherwise."""

    def __init__(self, where, old, new, is_pattern=False):
        self.where, self.new = where, new
        text = old if is_pattern else gap(old)
        if not is_pattern:
            text = (r"(?<![A-Za-z0-9_])" if re.match(r"\w", old) else "") + text + \
                   (r"(?![A-Za-z0-9_])" if re.search(r"\w$", old) else "")
        self.pattern = re.compile(text)
        self.key = "" if is_pattern else max(old.split(" "), key=len)  # in every text that has the phrase

    def apply(self, text):
        def put(found):
            new = found.expand(self.new)
            return new + ("\2" if "\n" in found.group() and "\n" not in new else "")  # lines were joined: to be filled
        return self.pattern.sub(put, text) if self.key in text else text


PHRASES = []


def phrases(where, *pairs):
    for old, new in pairs:
        PHRASES.append(Phrase(where, old, new.replace("\\", "\\\\")))
        if old[:1].islower() and new[:1].islower() and re.match(r"[a-z]", old):
            PHRASES.append(Phrase(where, old[0].upper() + old[1:], (new[0].upper() + new[1:]).replace("\\", "\\\\")))


def patterns(where, *pairs):
    for old, new in pairs:
        PHRASES.append(Phrase(where, old, new, is_pattern=True))


exec(compile(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "rename_terms_rules.py")).read(),
             "rename_terms_rules.py", "exec"))


# ---------------------------------------------------------------- words
def with_words(path, text):
    rules = [(re.compile(kept), None) for where, kept in PROTECTED if where(path)]
    guard = re.compile("|".join(f"(?:{rule.pattern})" for rule, _ in rules)) if rules else None
    words = [rule for rule in WORDS if rule[0](path)]
    if not words:
        return text
    kept = []

    def hide(found):
        kept.append(found.group())
        return f"\1{chr(0xE000 + len(kept) - 1)}"

    if guard:
        text = guard.sub(hide, text)
    assert len(kept) < 0x1900, path
    result = []
    for part, is_prose in parts(path, text):
        for _, kind, pattern, new in words:
            if kind == "both" or (kind == "prose") == is_prose:
                part = pattern.sub(new, part)
        result.append(part)
    text = "".join(result)
    return re.sub("\1(.)", lambda found: kept[ord(found.group(1)) - 0xE000], text)


def renamed(path):
    """Where a file goes."""
    if path in PATHS:
        return PATHS[path]
    if path.startswith(KEPT):
        return path
    for where, old, new in PATH_PARTS:
        if where(path):
            path = re.sub(old, new, path)
    return path


# ---------------------------------------------------------------- lines
def prefix_of(path, line):
    """(what a line of running text begins with, and what the next ones do), or nothing."""
    if path.endswith(".md"):
        found = re.match(r"(\s*(?:\* |- |\d+\. )?)(?=[^\s|#<>])(?!```)", line)
        if not found or line.startswith("    ") and not re.match(r" {2,}\S", line):
            return None
        return found.group(1), " " * len(found.group(1)) if found.group(1).strip() else found.group(1)
    if path.endswith(CXX):
        found = re.match(r"(\s*// )(?=\S)", line)
    elif path.endswith((".py", ".txt", ".cmake")) or "." not in os.path.basename(path):
        found = re.match(r"(\s*# )(?=\S)", line)
    else:
        found = None
    return (found.group(1), found.group(1)) if found else None


def fill(first, rest, words, width=WIDTH):
    lines, line = [], first
    is_empty = True
    for word in words:
        if not is_empty and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, is_empty = rest, True
        line += word if is_empty else " " + word
        is_empty = False
    lines.append(line)
    return lines


def words_of(text):
    """Words that may stand at a line's end: quoted code and links are broken nowhere inside if they were not."""
    return text.split()


def rewrap(path, text, before):
    """Running text in which something was renamed, filled anew if it was filled; else only what is too long."""
    old = set(before.split("\n"))
    lines, result, i = text.split("\n"), [], 0
    fenced = False
    while i < len(lines):
        if path.endswith(".md") and lines[i].lstrip().startswith("```"):
            fenced = not fenced
        prefix = None if fenced else prefix_of(path, lines[i])
        if prefix is None or lines[i] == "" or (path.endswith(".md") and lines[i].lstrip().startswith("|")):
            result.append(lines[i])
            i += 1
            continue
        first, rest = prefix
        block = [lines[i][len(first):]]
        j = i + 1
        while j < len(lines):
            following = prefix_of(path, lines[j])
            if following is None or following != (rest, rest) or not lines[j][len(rest):].strip() or \
                    lines[j][len(rest):].startswith(" "):
                break
            if path.endswith(".md") and fenced:
                break
            block.append(lines[j][len(rest):])
            j += 1
        originals = lines[i:j]
        if any("\2" in line for line in originals):
            begin = next(n for n, line in enumerate(originals) if "\2" in line)
            end = begin
            while begin > 0 and len(originals[begin - 1]) > 84:
                begin -= 1
            while end + 1 < len(originals) and (len(originals[end]) > 84 or "\2" in originals[end]):
                end += 1
            result += originals[:begin]
            result += fill(first if begin == 0 else rest, rest,
                           words_of(" ".join(block[begin:end + 1]).replace("\2", "")))
            lines[i + begin:j] = [rest + line for line in block[end + 1:]]
            i = i + begin
            continue
        has_changed = any(line not in old for line in originals)
        is_running = len(block) > 1 and all(len(line) > 84 for line in originals[:-1]) and \
            not any("  " in line for line in block) and not any(line.startswith(("clang-format", "NOLINT")) for line in block)
        too_long = any(len(line) > WIDTH for line in originals)
        if has_changed and (is_running or (too_long and not any("  " in line for line in block))):
            if is_running:
                result += fill(first, rest, words_of(" ".join(block)))
            else:  # from the line that is too long on, as far as it pushes
                for n, line in enumerate(originals):
                    head = first if n == 0 else rest
                    if len(line) > WIDTH:
                        result += fill(head, rest, words_of(line[len(head):]))
                    else:
                        result.append(line)
        else:
            result += originals
        i = j
    return "\n".join(result)


_STRING_LINE = re.compile(r'(?P<before>[^"]*)"(?P<text>(?:[^"\\]|\\.)*)"(?P<after>[^"]*)$')


def refill_strings(text, before):
    """String literals that stand one below the other, filled anew where something was renamed."""
    old, lines, result, i = set(before.split("\n")), text.split("\n"), [], 0
    while i < len(lines):
        j, found = i, _STRING_LINE.match(lines[i])
        run = []
        while found and (not run or not found["before"].strip()):
            run.append(found)
            if found["after"].strip():
                break
            j += 1
            found = _STRING_LINE.match(lines[j]) if j < len(lines) else None
        if run and run[-1]["after"].strip():
            end = j + 1
        else:
            end = i
        if end - i > 1 and any(line not in old for line in lines[i:end]) and not run[-1]["after"].lstrip().startswith("//") and \
                all(r["text"].endswith(" ") for r in run[:-1]) and all(len(line) > 84 for line in lines[i + 1:end - 1]) and \
                any(len(line) > WIDTH for line in lines[i:end]):
            words = re.findall(r"\S+ *|^ +", "".join(r["text"] for r in run))
            made, line = [], run[0]["before"] + '"'
            indent = run[1]["before"] + '"'
            for n, one in enumerate(words):
                room = len(run[-1]["after"]) if n == len(words) - 1 else 0
                if len(line) + len(one) + 1 + room > WIDTH:
                    made.append(line + '"')
                    line = indent
                line += one
            result += made + [line + '"' + run[-1]["after"]]
            i = end
            continue
        result.append(lines[i])
        i += 1
    return "\n".join(result)


# ---------------------------------------------------------------- the tree
def git_files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
                            check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted({name for name in listed.split("\0") if name and os.path.isfile(os.path.join(root, name)) and
                   not os.path.islink(os.path.join(root, name))})


def read(root, path):
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def link_targets(path, text):
    """Links of a page of results to files that were renamed."""
    def put(found):
        target, mark, anchor = found.group(1).partition("#")
        if "://" in target:
            return found.group()
        if target:
            whole = os.path.normpath(os.path.join(os.path.dirname(path), target))
            new = renamed(whole)
            if new != whole:
                target = os.path.relpath(new, os.path.dirname(path))
        for old, new in ANCHORS:
            anchor = re.sub(rf"^{old}$", new, anchor)
        return f"]({target}{mark}{anchor})"
    return re.sub(r"\]\(([^()\s]+)\)", put, text)


def mutants_of(root):
    sys.path.insert(0, os.path.join(root, "tools"))
    found = {}
    folder = os.path.join(root, "tests/mutants")
    for place, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith(".txt"):
                path = os.path.join(place, name)
                room = os.path.relpath(path, folder)[:-4]
                import mutant_list
                with open(path, encoding="utf-8") as lines:
                    for number, mutant in enumerate(mutant_list.read_list(path, room, list(lines))):
                        found[room, number] = mutant
    return found


def digest(mutant):
    return hashlib.sha256(mutant.text.encode()).hexdigest()[:12]


def carry_results(root, before):
    """A mutant whose text changed by renaming alone keeps its result: its name and text in the table follow."""
    after = mutants_of(root)
    table = os.path.join(root, "docs/results/mutants.csv")
    new_of = {before[key].id: (digest(before[key]), after[key]) for key in before if key in after}
    with open(table, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    for row in rows[1:]:
        if row[0] in new_of:
            old_text, mutant = new_of[row[0]]
            row[0] = mutant.id
            if row[5] == old_text:
                row[5] = digest(mutant)
    with open(table, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


# Files without one of these have nothing to rename.
CONCERNED = re.compile(r"(?i)lane|turn_order|turns?\b|turn[A-Z_]|ticket|gate|admission|worker|stretch|busyperiod|suspen|coverage|covered|awake|"
                       r"asleep|falling|caution|channel|how careful|who suspends")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = sys.argv[1]
    if os.path.exists(os.path.join(root, DONE)):
        sys.exit(f"{root}: has run here already")
    before = mutants_of(root)
    formatted = []
    for path in git_files(root):
        if path.startswith(KEPT):
            if path.startswith("docs/results/") and path.endswith(".md"):
                text = read(root, path)
                new = link_targets(path, text)
                if new != text:
                    write(root, path, new)
            continue
        text = read(root, path)
        if text is None:
            continue
        new = text
        has_terms = CONCERNED.search(text) is not None
        for phrase in PHRASES if has_terms else ():
            if phrase.where(path):
                new = phrase.apply(new)
        new = with_words(path, new) if has_terms else new
        for where, old, made in LAST:
            if where(path):
                new = re.sub(old, made, new)
        target = renamed(path)
        if new != text:
            if not target.endswith((".tsv", ".csv", ".json", ".ptx")):
                new = rewrap(target, new, text)
                if target.endswith(CXX):
                    new = refill_strings(new, text)
            new = new.replace("\2", "")
            write(root, path, new)
        if target != path:
            os.makedirs(os.path.dirname(os.path.join(root, target)), exist_ok=True)
            assert not os.path.exists(os.path.join(root, target)), target
            os.rename(os.path.join(root, path), os.path.join(root, target))
        if (new != text or target != path) and target.endswith((".h", ".cc", ".cu")):
            formatted.append(target)
    write_pages(root)
    carry_results(root, before)
    for at in range(0, len(formatted), 40):
        subprocess.run(["clang-format", "-i", *formatted[at:at + 40]], cwd=root, check=True)


def write(root, path, text):
    with open(os.path.join(root, path), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def write_pages(root):
    for path, function in PAGES.items():
        text = read(root, path)
        new = function(text)
        if new != text:
            write(root, path, new)


if __name__ == "__main__":
    main()
