#!/usr/bin/env python3
"""Checks that sources and headers reach each header of the standard library whose names they use.

Precompiled headers (cmake/precompiled) stand before every file, so the compiler does not miss what a file forgot. Here a
file must include, itself or through headers of ours, what the table below names. What one header of the standard library
includes of another does not count: it differs between libraries and versions.
"""
import os
import re
import sys

import source_tree

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)', re.MULTILINE)

# Header -> names of namespace std.
NAMES = {
    "algorithm": "sort stable_sort find_if any_of all_of none_of count_if lower_bound upper_bound min_element max_element "
                 "remove_if replace copy_n fill_n clamp transform partition nth_element",
    "array": "array to_array",
    "atomic": "atomic atomic_ref atomic_thread_fence memory_order_relaxed memory_order_acquire memory_order_release",
    "bit": "bit_cast popcount countl_zero countr_zero has_single_bit bit_width bit_ceil",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "condition_variable": "condition_variable condition_variable_any",
    "deque": "deque",
    "expected": "expected unexpected",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "function move_only_function bind hash",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex",
    "optional": "optional nullopt",
    "random": "mt19937 mt19937_64 uniform_int_distribution",
    "set": "set multiset",
    "span": "span",
    "string": "string to_string stoi stoul stoull",
    "string_view": "string_view",
    "thread": "thread jthread this_thread",
    "unordered_map": "unordered_map",
    "variant": "variant visit holds_alternative monostate",
    "vector": "vector",
}
# Names that the standard gives to other headers, too.
ALSO = {"hash": {"string", "string_view", "thread", "memory", "optional"}, "string_view": {"string"},
        "unique_lock": {"shared_mutex"}}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
USE = re.compile(r"\bstd::(\w+)")
OUTSIDE = [(re.compile(r"\bfmt::format\w*\("), "fmt/format.h"),
           (re.compile(r"\b(?:EXPECT|ASSERT)_THAT\("), "gmock/gmock.h")]


def main():
    files = [f for f in source_tree.list_files(ROOT, (".h", ".cc")) if not f.startswith("tests/programs/")]
    texts = {path: source_tree.read(ROOT, path) for path in files}
    direct = {path: set(INCLUDE.findall(text)) for path, text in texts.items()}

    def reached(path):
        seen, waiting = set(), [path]
        while waiting:
            for include in direct.get(waiting.pop(), ()):
                if include not in seen:
                    seen.add(include)
                    waiting.append(include)
        return seen

    found = []
    for path in files:
        code = source_tree.blank_comments_and_strings(texts[path])
        headers = reached(path)
        needed = {}
        for use in USE.finditer(code):
            header = HEADER_OF.get(use.group(1))
            if header and header not in headers and not headers & ALSO.get(use.group(1), set()):
                needed.setdefault(header, (use.start(), use.group(0)))
        for expression, header in OUTSIDE:
            use = expression.search(code)
            if use and header not in headers:
                needed.setdefault(header, (use.start(), use.group(0).rstrip("(")))
        for header, (place, name) in sorted(needed.items()):
            found.append(f"{path}:{code.count(chr(10), 0, place) + 1}: {name} needs #include <{header}>")
    if found:
        print("\n".join(found))
        sys.exit(f"{len(found)} include(s) are missing")


if __name__ == "__main__":
    main()
