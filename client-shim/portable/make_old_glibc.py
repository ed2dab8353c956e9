#!/usr/bin/env python3
"""Makes what a file is linked against so that it runs with an older glibc: shared libraries without code.

    make_old_glibc.py VERSION DIRECTORY COMPILER

They export what this machine's glibc has, but each symbol only in the newest version that glibc VERSION had, and from the
library where it was then. So the linker picks those versions, and a symbol that is newer is undefined: a link error, and
not a program that does not start in somebody's image. `-L DIRECTORY` in front of the system's directories is all it takes.
"""
import collections
import os
import re
import subprocess
import sys

# Merged into libc.so.6 by glibc 2.34, each symbol under a new version. Before that it has to be loaded by name.
FORMER_LIBRARIES = {
    "libpthread.so.0": re.compile(r"_*(pthread|sem)_"),
    "libdl.so.2": re.compile(r"dl[a-z]"),
    "librt.so.1": re.compile(r"(aio|lio|mq|shm|timer)_"),
}

Symbol = collections.namedtuple("Symbol", "name version is_object size")


def numbers(version):
    """"GLIBC_2.3.4" as (2, 3, 4); nothing for what no program may use (GLIBC_PRIVATE, GLIBC_ABI_...)."""
    match = re.fullmatch(r"(?:GLIBC_)?([0-9]+(?:\.[0-9]+)+)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def exported(path):
    """The versioned symbols that a library defines."""
    text = subprocess.run(["readelf", "-W", "--dyn-syms", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or "@" not in words[7] or words[6] in ("UND", "ABS") or words[3] == "TLS":
            continue
        name, version = re.split("@+", words[7], maxsplit=1)
        yield Symbol(name, version, words[3] == "OBJECT", int(words[2], 0))


def as_of(symbols, limit):
    """Of each name the newest version up to `limit`, and whether there is a newer one."""
    chosen, newest = {}, {}
    for symbol in symbols:
        version = numbers(symbol.version)
        if version is None:
            continue
        newest[symbol.name] = max(newest.get(symbol.name, ()), version)
        if version <= limit and (symbol.name not in chosen or version > numbers(chosen[symbol.name].version)):
            chosen[symbol.name] = symbol
    return [(symbol, newest[name] > limit) for name, symbol in sorted(chosen.items())]


def home(symbol, has_newer, library):
    """In which library an old program finds it."""
    if library == "libc.so.6" and has_newer:
        for former, names in FORMER_LIBRARIES.items():
            if names.match(symbol.name):
                return former
    return library


def make_library(directory, compiler, name, symbols):
    assembly = []
    versions = collections.defaultdict(list)
    for symbol in symbols:
        kind, section, size = ("object", ".bss", symbol.size) if symbol.is_object else ("function", ".text", 1)
        assembly.append(f".section {section}\n.globl {symbol.name}\n.type {symbol.name}, @{kind}\n"
                        f".size {symbol.name}, {size}\n{symbol.name}: .zero {size}\n")
        versions[symbol.version].append(symbol.name)
    path = os.path.join(directory, name)
    with open(path + ".s", "w", encoding="ascii") as file:
        file.write("".join(assembly) + ".section .note.GNU-stack,\"\",@progbits\n")
    with open(path + ".map", "w", encoding="ascii") as file:
        for version in sorted(versions, key=numbers):
            file.write(f"{version} {{ {' '.join(f'{name};' for name in versions[version])} }};\n")
    command = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", path, path + ".s"]
    subprocess.run(command + ([f"-Wl,--version-script={path}.map"] if symbols else []), check=True)


def main(version, directory, compiler):
    def file_name(name):
        command = [compiler, f"-print-file-name={name}"]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    os.makedirs(directory, exist_ok=True)
    libraries = {name: [] for name in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", *FORMER_LIBRARIES)}
    for library in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"):
        for symbol, has_newer in as_of(exported(file_name(library)), numbers(version)):
            libraries[home(symbol, has_newer, library)].append(symbol)
    for name, symbols in libraries.items():
        make_library(directory, compiler, name, symbols)

    # What -lc and -lm find. The rest is loaded if something of it is used.
    rest = " ".join(os.path.join(directory, name) for name in (*FORMER_LIBRARIES, "ld-linux-x86-64.so.2"))
    with open(os.path.join(directory, "libm.so"), "w", encoding="ascii") as script:
        script.write(f"INPUT({os.path.join(directory, 'libm.so.6')})\n")
    with open(os.path.join(directory, "libc.so"), "w", encoding="ascii") as script:
        script.write(f"GROUP({os.path.join(directory, 'libc.so.6')} {file_name('libc_nonshared.a')} AS_NEEDED({rest}))\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
