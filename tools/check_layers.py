#!/usr/bin/env python3
"""Checks who includes whom: the table of docs/architecture.md, the front desk rule, and the order of folders in a room.

usage: check_layers.py [ROOT]

A room is a top-level folder. Headers directly in a room's root are its public face (the front desk); those in
sub-folders are private to the room. The three parts of server are rooms in this respect. Includes are written from the
repository root, so an include line is a path.
"""
import os
import re
import sys

import source_tree

# unit: (other units or single headers that it may include, pattern of system headers it must not include, why). A unit
# is a room, or a part of a room that has rules of its own; the longest matching prefix counts.
CUDA = r"cuda|cuComplex|nv"
THREADS = r"thread|mutex|condition_variable|future|shared_mutex|pthread\.h|semaphore"
RPC = r"grpc|google/protobuf"
# What tallyd knows of the policies: their names and their figures. Decisions are the executor's.
POLICY_NAMES = ["scheduler/launch.h", "scheduler/policy_choice.h", "scheduler/policy_list.h", "scheduler/slo.h",
                "scheduler/slo_feedback.h", "scheduler/tuning.h", "scheduler/variant_choice.h"]
UNITS = {
    "base": ([], CUDA, "base knows no CUDA"),
    "images": (["base"], CUDA + "|sys/socket", "images reads bytes; it needs no CUDA"),
    "proto/shm": ([], None, ""),
    "proto/device": ([], None, ""),
    "proto/driver": (["proto/shm"], RPC, "driver calls travel by shared memory"),
    "proto/control": (["proto/shm", "proto/driver"], CUDA, "the control plane knows no CUDA"),
    "ptx-transforms": (["base", "proto/device"], CUDA + "|sys/socket", "text in, text out"),
    "cubin-transforms": (["base", "images", "proto/device"], CUDA + "|sys/socket|" + THREADS, "bytes in, bytes out"),
    "scheduler": (["base"], CUDA + "|" + THREADS, "pure decisions: no CUDA, no threads; the caller owns the clock"),
    "pipelines": (["base", "include"], RPC, "a library for any program; it knows no daemon"),
    "sim-driver": (["base", "images", "ptx-transforms", "proto/device"], RPC, "a driver knows no daemon"),
    "include": ([], CUDA, "any program includes it"),
    "client-shim": (["base", "images", "include", "proto/shm", "proto/driver", "proto/control"], RPC + "|prometheus",
                    "it runs inside somebody else's process"),
    "server/executor": (["base", "images", "proto", "ptx-transforms", "cubin-transforms", "scheduler"], RPC,
                        "only tallyd and tallyctl speak gRPC"),
    "server/daemon": (["base", "proto", *POLICY_NAMES], CUDA, "no CUDA in tallyd"),
    "server/ctl": (["base", "images", "proto"], CUDA, "no CUDA in tallyctl"),
    # It asks tallyd and NVML, and furnishes containers, as tallyctl does.
    "server/device-plugin": (["base", "proto", "server/ctl/cdi_specification.h", "server/ctl/client_library.h",
                              "server/ctl/control_call.h", "server/ctl/gpu_readings.h"], CUDA, "no CUDA in the plugin"),
    "proto/kubelet": ([], CUDA, "kubelet knows no CUDA"),
}
# Only these, so that the layout compiles the same everywhere.
ONLY_THESE = {unit: {"cstdint", "cstddef", "atomic", "type_traits"} for unit in ("proto/shm", "proto/device")}
# Whole folders that others may use although they are no front desk.
PUBLIC_FOLDERS = {"include/tally", "proto/shm", "proto/device", "proto/driver", "proto/driver/generated", "proto/control",
                  "proto/kubelet", "scheduler/taskgraph", "scheduler/window"}
# (who, private folder): the software driver executes the syntax tree itself, so it needs all of it.
EXCEPTIONS = {("sim-driver", "ptx-transforms/syntax")}
# unit: its folders from the ground to the roof; each includes itself and what stands before it. A row of several: they
# know nothing of one another. "." is the unit's root; files with a row of their own are the root's ground or roof. Units of one folder need no rows.
FOLDERS = {
    "ptx-transforms": ["syntax", "analysis", "transform.h", "passes", "segments", ".", "opt"],
    "cubin-transforms": ["add_gates.h", "gate_templates.inc", "gate", "cubin", ".", "tool"],
    "scheduler": [".", ("policies", "window"), "policy_list.cc", "taskgraph"],
    "pipelines": [("plan", "queue", "common.inc", "hopper.inc", "resident.inc", "streamed.inc", "mma.inc"), "stages", "runtime"],
    "sim-driver": ["declared_boxes.h", "engine", "api", "api/entry"],
    "client-shim": [("portable", "arrivals", "nvml"), "transport", "origins", "state", "entry", "launcher"],
    "server/executor": [("channel", "driver"), "mirror", "dispatch", "issue", "session", ".", "process"],
    "server/daemon": [".", ("metrics", "rpc"), "daemon.cc"],
    "server/ctl": [".", ("doctor", "top"), ("doctor.cc", "top.cc")],
}
SPEAK_GRPC = ("server/daemon/", "server/ctl/", "server/device-plugin/", "proto/control/session_fields.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")', re.MULTILINE)


def unit_of(path):
    prefixes = [unit for unit in UNITS if path == unit or path.startswith(unit + "/")]
    return max(prefixes, key=len, default=None)


def room_of(path):
    return path.split("/", 1)[0]


def may_include(unit, path):
    return any(path.startswith(a + "/") or path == a for a in UNITS[unit][0])


def at_front_desk(includer, target_path):
    folder = os.path.dirname(target_path)
    if folder == unit_of(target_path) or folder in PUBLIC_FOLDERS:
        return True
    return any(includer == who and (folder == private or folder.startswith(private + "/"))
               for who, private in EXCEPTIONS)


def place_of(unit, path):
    """(row, name in it) of a file of a unit whose folders have an order; None if no row names its folder."""
    inside = path[len(unit) + 1:]
    folder = os.path.dirname(inside)
    parents = [folder[:i] for i, letter in enumerate(folder + "/") if letter == "/"][::-1] if folder else ["."]
    rows = [(row,) if isinstance(row, str) else row for row in FOLDERS[unit]]
    for name in [inside, *parents]:
        for index, row in enumerate(rows):
            if name in row:
                return index, name
    return None


def check_order(path, unit, name):
    """The complaint about an include within a unit, or None."""
    if unit not in FOLDERS:
        return None
    here, there = place_of(unit, path), place_of(unit, name)
    for file, place in ((path, here), (name, there)):
        if place is None:
            return f'"{name}": no row of FOLDERS in tools/check_layers.py says where {os.path.dirname(file)}/ stands'
    if there[0] < here[0] or here == there:
        return None
    relation = "stands above" if there[0] > here[0] else "knows nothing of"
    return f'"{name}": in {unit}, {there[1]} {relation} {here[1]}'


def check_system(unit, name):
    """The complaint about `#include <name>` in `unit`, or None."""
    if unit in ONLY_THESE and name not in ONLY_THESE[unit]:
        return f"<{name}>: {unit} may include only {', '.join(sorted(ONLY_THESE[unit]))}"
    _, forbidden, why = UNITS[unit]
    if forbidden and re.match(rf"(?:{forbidden})", name):
        return f"<{name}>: not in {unit}: {why}"
    return None


def check_room_include(path, unit, name):
    """The complaint about `#include "name"` in a file of a room, or None."""
    target = unit_of(name)
    if target is None:
        if room_of(name) in source_tree.OUTSIDE:
            return f'"{name}": a room never includes {room_of(name)}'
        return f'"{name}": includes are written from the repository root and start with a room\'s name'
    if name.endswith(".pb.h") and not path.startswith(SPEAK_GRPC):
        return f'"{name}": only tallyd and tallyctl speak gRPC'
    if target == unit:
        return check_order(path, unit, name)
    if not may_include(unit, name):
        allowed = ", ".join(UNITS[unit][0]) or "nothing of ours"
        return f'"{name}": {unit} may include {allowed}; not {target}'
    if not at_front_desk(room_of(path), name):
        return f'"{name}" is private to {target}; only headers directly in {target}/ are for others'
    return None


def check_outside_include(path, name):
    """Tests and benchmarks: any front desk, and the private parts of the room that they mirror."""
    if name.startswith(room_of(path) + "/") or name.endswith(".pb.h"):
        return None
    if path.startswith("bench/") and name.startswith("tests/"):
        return None  # a benchmark may stand on the fakes and fixtures of its room's tests
    if unit_of(name) is None:
        return f'"{name}": includes are written from the repository root'
    _, _, inside = path.partition("/")
    mirrored = room_of(inside) if "/" in inside else ""
    unit = unit_of(inside)
    if (unit_of(name) == unit if unit else room_of(name) == mirrored) or at_front_desk(mirrored, name):
        return None
    return f'"{name}" is private to {unit_of(name)}, and {path} mirrors {mirrored or "no room"}'


def complaints(root):
    for path in source_tree.list_files(root):
        unit, room = unit_of(path), room_of(path)
        if unit is None and room not in source_tree.OUTSIDE:
            if room in source_tree.ROOMS:
                yield f"{path}:1: {room}/ has rules only for its sub-folders; put the file into one of them"
            continue
        # Literals hold no include lines that matter (generated text, test input).
        text = source_tree.blank_comments_and_strings(source_tree.read(root, path))
        for match in INCLUDE.finditer(text):
            quoted, name = match.group(1)[0] == '"', match.group(1)[1:-1]
            if unit is None:
                complaint = check_outside_include(path, name) if quoted else None
            elif quoted:
                complaint = check_room_include(path, unit, name)
            else:
                complaint = check_system(unit, name)
            if complaint:
                yield f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}: {complaint}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = list(complaints(root))
    for line in found:
        print(line)
    if found:
        sys.exit(f"{len(found)} include(s) break the layers (docs/architecture.md, rooms)")


if __name__ == "__main__":
    main()
