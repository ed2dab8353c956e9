#!/usr/bin/env python3
"""Compiles the gate for every architecture and writes it as C++ tables of machine words.

usage: make_templates.py --ptxas PTXAS --source gate.ptx.in --abi gate_abi.h --output TEMPLATES.inc ARCH...

ptxas does all the encoding. What is learned from its output, and checked, because the splicer relies on it:
  * places: which words hold the offset of the gate's parameters, and where in the word (found by compiling for
    several offsets; nothing else may differ)
  * entries: where the kernel is entered (two instructions each, see gate.ptx.in)
  * exits: the true ones, where a block leaves
  * jumps: how a branch holds its distance (every branch of the gate is taken apart and put together again)
  * order: blocks of grids of several axes or with clusters take an aside, which is moved out of the way of the others
    (every path must execute the same instructions after as before)
  * on every path what diverged has joined again before the kernel is entered (BSSY ... BSYNC around each atomic)
An architecture that ptxas does not know is left out. Anything unexpected fails the build.
"""
import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile

# Opcodes (low 12 bits of an instruction) that are looked for in what ptxas made.
BRANCH, EXIT, NOP, PMTRIG, BSSY, BSYNC = 0x947, 0x94D, 0x918, 0x801, 0x945, 0x941
UNIFORM_BRANCH = 0x547  # always under a condition, which is a uniform predicate
BRANCHES = (BRANCH, UNIFORM_BRANCH)
# The lower 9 bits are what an instruction does, the others how its operands are given. All of these lead elsewhere
# (calls, jumps, returns, ...); here only those above may occur.
CONTROL_FLOW = range(0x140, 0x151)
ATOMICS = (0x98E, 0x9A8, 0x3A9)
ALWAYS = 7  # the predicate field of an instruction without predicate
NEGATED = 1 << 15  # executed if the predicate is false
# In the high word: how long to stall after an instruction and so on; among it the scoreboards to wait for before it.
SCHEDULING, AWAITED = ~((1 << 41) - 1), 0x3F << 52
# Records of .nv.info, and those of them that the gate brings to a kernel.
REGISTERS, FRAME, PARAMETER, BANK, BANK_SIZE, EXITS, WARP_WIDE, WARP_WIDE_MASKS, STACK, CTAID_Z = (
    0x2F, 0x11, 0x17, 0x0A, 0x19, 0x1C, 0x28, 0x29, 0x1E, 0x04)
BROUGHT = {EXITS, WARP_WIDE, WARP_WIDE_MASKS, STACK, CTAID_Z, PARAMETER, BANK, BANK_SIZE}
FIRST_VERSION = {100: "8.6", 103: "8.8", 110: "9.0", 120: "8.7", 121: "8.8"}  # of PTX that knows the target
OFFSETS = (16, 64, 4064, 4096, 4336, 16384, 32736)  # of the gate's parameters; each is compiled

CLUSTER_INDEX = """and.b32 %x, %flags, {clusters};
  setp.eq.u32 %p5, %x, 0;
  @%p5 bra.uni BLOCKS;
  mov.u32 %x, %clusterid.x;
  mov.u32 %y, %clusterid.y;
  mov.u32 %z, %clusterid.z;
  mov.u32 %nx, %nclusterid.x;
  mov.u32 %ny, %nclusterid.y;
  bra.uni LINEAR;
BLOCKS:"""


def require(condition, what):
    if not condition:
        sys.exit(f"make_templates.py: {what}; the gate cannot be spliced with this ptxas")


def ptx(source, constants, arch, offset):
    clusters, many_axes = constants["kGateClusters"], constants["kGateManyAxes"]
    has_clusters = arch >= 90
    words = {
        "VERSION": FIRST_VERSION.get(arch, "8.1"),
        "TARGET": f"sm_{arch}",
        "BYTES": offset + 16,
        "RECORD": offset,
        "BASE": offset + 8,
        "CHUNK": offset + 12,
        "OTHER_SHAPES": many_axes | (clusters if has_clusters else 0),
        "CLUSTER_INDEX": CLUSTER_INDEX.format(clusters=clusters) if has_clusters else "",
        # Leaving before the predecessor is complete would complete this grid before it (programmatic launches).
        "WAIT_FOR_PREDECESSOR": "griddepcontrol.wait;" if has_clusters else "",
    }
    return re.sub(r"@([A-Z_]+)@", lambda match: str(words[match.group(1)]), source)


class Donor:
    """The compiled gate: its instructions as (low, high) words, and its attributes."""

    def __init__(self, image):
        section_offset, = struct.unpack_from("<Q", image, 40)
        count, names_index = struct.unpack_from("<HH", image, 60)
        headers = [struct.unpack_from("<IIQQQQIIQQ", image, section_offset + 64 * i) for i in range(count)]
        names_at = headers[names_index][4]
        name = lambda at: image[names_at + at:image.index(0, names_at + at)].decode()
        self.sections = {name(h[0]): image[h[4]:h[4] + h[5]] for h in headers}
        self.attributes = dict(self.records(".nv.info.gate"))
        self.module_attributes = dict(self.records(".nv.info"))
        text = self.sections[".text.gate"]
        self.code = [struct.unpack_from("<QQ", text, at) for at in range(0, len(text), 16)]

    def records(self, section):
        content, at = self.sections[section], 0
        while at < len(content):
            form, identity, value = struct.unpack_from("<BBH", content, at)
            at += 4
            yield identity, content[at:at + value] if form == 4 else struct.pack("<H", value)
            at += value if form == 4 else 0

    def words(self, identity):
        payload = self.attributes.get(identity, b"")
        return [word for word, in struct.iter_unpack("<I", payload)]


def opcode(instruction):
    return instruction[0] & 0xFFF


def is_conditional(instruction):
    return (instruction[0] >> 12) & 15 != ALWAYS or opcode(instruction) == UNIFORM_BRANCH


def distance(arch, instruction):
    """Of a branch: bytes from the next instruction."""
    words = instruction[0] >> 34 | (instruction[1] & 0x3FFFF) << 30
    if words >> 47:
        words -= 1 << 48
    if arch >= 90:
        words = words << 8 | instruction[0] >> 16 & 0xFF
    return words * 4


def with_distance(arch, instruction, byte_distance):
    low, high = instruction
    words = byte_distance // 4
    if arch >= 90:
        low = low & ~(0xFF << 16) | (words & 0xFF) << 16
        words >>= 8
    low = low & (1 << 34) - 1 | (words << 34) & (1 << 64) - 1
    return low, high & ~0x3FFFF | words >> 30 & 0x3FFFF


def target_of(arch, code, at):
    return at + 1 + distance(arch, code[at]) // 16


def compile_gate(ptxas, text, arch):
    with tempfile.TemporaryDirectory() as folder:
        source, image = os.path.join(folder, "gate.ptx"), os.path.join(folder, "gate.cubin")
        with open(source, "w", encoding="ascii") as file:
            file.write(text)
        subprocess.run([ptxas, f"-arch=sm_{arch}", source, "-o", image], check=True)
        with open(image, "rb") as file:
            return Donor(file.read())


def bank_base(donor):
    return struct.unpack_from("<H", donor.attributes[BANK], 4)[0]


def find_places(donor, others, arch):
    """{instruction: shift}: where the byte offset of the gate's parameters is added."""
    places = None
    for offset, other in others.items():
        require(len(other.code) == len(donor.code), f"sm_{arch}: the gate's length depends on the offset {offset}")
        moved = offset + bank_base(other) - bank_base(donor)
        found = {}
        for at, (old, new) in enumerate(zip(donor.code, other.code)):
            if old == new:
                continue
            shift = next((s for s in (37, 38) if old[1] == new[1] and old[0] + (moved << s) == new[0]), None)
            require(shift is not None, f"sm_{arch}: instruction {at} holds offset {offset} in an unknown way")
            found[at] = shift
        require(places in (None, found), f"sm_{arch}: other places hold offset {offset}")
        places = found
    return places


def check_paths(arch, code, entries):
    """Follows every path: no loop, and a whole warp wherever the kernel is entered."""
    paths = [(0, 0, False)]  # instruction, BSSYs open, whether an atomic was executed by part of the warp
    steps = 0
    while paths:
        at, opened, diverged = paths.pop()
        while True:
            steps += 1
            require(steps < 100000, f"sm_{arch}: the gate has a loop")
            require(at < len(code), f"sm_{arch}: the gate's end can be reached")
            kind = opcode(code[at])
            if at in entries:
                require(opened == 0 and not diverged, f"sm_{arch}: a warp may enter the kernel diverged (at {at})")
                break
            opened += (kind == BSSY) - (kind == BSYNC)
            if kind in ATOMICS:
                require(opened == 1, f"sm_{arch}: an atomic outside BSSY ... BSYNC (at {at})")
                diverged = True
            diverged = diverged and kind != BSYNC
            if kind == EXIT:
                require(opened == 0, f"sm_{arch}: a diverged exit (at {at})")
                if not is_conditional(code[at]):
                    break
            if kind in BRANCHES:
                target = target_of(arch, code, at)
                if is_conditional(code[at]):
                    paths.append((target, opened, diverged))
                else:
                    at = target
                    continue
            at += 1


def movable_detour(arch, code):
    """(branch, target): the instructions between them are an aside that only this branch skips, with no way in or out
    but at its two ends; None if there is none. That is what blocks of other shapes than rows go through."""
    targets = [(at, target_of(arch, code, at)) for at, instruction in enumerate(code) if opcode(instruction) in BRANCHES]
    for branch, target in targets:
        inside = range(branch + 1, target)
        if len(inside) < 8 or not is_conditional(code[branch]) or opcode(code[branch]) == UNIFORM_BRANCH:
            continue  # how the condition of a uniform branch is negated is not known
        if any(opcode(code[at]) in (EXIT, PMTRIG, BSSY, BSYNC) for at in inside):
            continue
        if any((at in inside and to not in inside and to != target) or (at not in inside and to in inside)
               for at, to in targets):
            continue
        return branch, target
    return None


def straighten(arch, code, jump):
    """The aside goes behind everything else, so that the way of most blocks is straight: an instruction fetched is
    mostly an instruction executed. Returns the code and, for each old instruction, its new place."""
    detour = movable_detour(arch, code)
    last = len(code) - 1  # the branch to itself
    if detour is None:
        return code, list(range(len(code)))
    branch, target = detour
    order = [*range(branch + 1), *range(target, last), *range(branch + 1, target), None, last]
    where = [order.index(at) for at in range(len(code))]
    for at, instruction in enumerate(code):  # distances of these are not touched: they must stay right
        ends = at + 1 + (instruction[0] >> 34 & (1 << 30) - 1) // 4
        require(opcode(instruction) != BSSY or target <= at < ends < last, f"sm_{arch}: a BSSY {at} would be torn")
    moved = []
    for place, at in enumerate(order):
        instruction = jump if at is None else code[at]
        if opcode(instruction) in BRANCHES:
            to = where[target if at is None else branch + 1 if at == branch else target_of(arch, code, at)]
            low = instruction[0] ^ (NEGATED if at == branch else 0)
            instruction = with_distance(arch, (low, instruction[1]), 16 * (to - place - 1))
        moved.append(instruction)
    old = all_paths(arch, code, list(range(len(code))), None)
    new = all_paths(arch, moved, order, branch)
    require(old and old == new, f"sm_{arch}: reordering has changed a path")
    return moved, where


def all_paths(arch, code, names, inverted):
    """{the branches taken: the other instructions executed}, both by `names`, over all ways through the code."""
    found, begun = {}, [(0, (), ())]
    while begun:
        at, taken, executed = begun.pop()
        while True:
            kind = opcode(code[at])
            if kind in BRANCHES:
                target = target_of(arch, code, at)
                if is_conditional(code[at]):
                    is_inverted = names[at] == inverted
                    begun.append((target, (*taken, (names[at], not is_inverted)), executed))
                    at, taken = at + 1, (*taken, (names[at], is_inverted))
                else:
                    at = target
                continue
            executed = (*executed, names[at])
            if kind == EXIT and not is_conditional(code[at]):
                found[taken] = executed
                break
            at += 1
    return found


def make_template(ptxas, source, constants, arch):
    text = ptx(source, constants, arch, 0)
    donor = compile_gate(ptxas, text, arch)
    others = {offset: compile_gate(ptxas, ptx(source, constants, arch, offset), arch)
              for offset in OFFSETS if arch >= 90 or offset + 16 <= 32764}
    # What a kernel without code has too says nothing about the gate. Anything else would have to be brought along.
    empty = compile_gate(ptxas, re.sub(r"\(\.param.*\n\}", "() {\n  ret;\n}", text, flags=re.DOTALL), arch).attributes
    unknown = {identity for identity, payload in donor.attributes.items()
               if identity not in BROUGHT and empty.get(identity) != payload}
    require(not unknown, f"sm_{arch}: the gate has attributes {sorted(map(hex, unknown))}")
    require(not any(name.startswith(".rel") and name.endswith(".text.gate") for name in donor.sections),
            f"sm_{arch}: the gate has relocations")
    frame = struct.unpack_from("<I", donor.module_attributes[FRAME], 4)[0]
    require(frame == 0, f"sm_{arch}: the gate has a stack frame")
    places = find_places(donor, others, arch)

    code = donor.code
    while opcode(code[-1]) == NOP:
        nop = code[-1]
        code = code[:-1]
    jump = code[-1]
    require(opcode(jump) == BRANCH and not is_conditional(jump) and distance(arch, jump) == -16,
            f"sm_{arch}: the gate does not end with a branch to itself")
    for at, instruction in enumerate(code):
        require(opcode(instruction) & 0x1FF not in CONTROL_FLOW or
                opcode(instruction) in (*BRANCHES, EXIT, BSSY, BSYNC), f"sm_{arch}: instruction {at} leads elsewhere")
        if opcode(instruction) in BRANCHES:
            apart = distance(arch, instruction)
            require(with_distance(arch, with_distance(arch, instruction, 0), apart) == instruction and apart % 16 == 0 and
                    0 < at + 1 + apart // 16 < len(code), f"sm_{arch}: branch {at} is not understood")

    # The first instruction loads the stack pointer, which the gate does not use: the kernel's own does it again.
    first = code[0]
    require(not is_conditional(first) and first[0] >> 16 & 0xFF == 1 and 0 not in places,
            f"sm_{arch}: the gate does not begin with the stack pointer")
    code = code[1:]
    places = {at - 1: shift for at, shift in places.items()}

    entries = [at for at, instruction in enumerate(code) if opcode(instruction) == PMTRIG]
    for at in entries:
        require(not is_conditional(code[at]) and opcode(code[at + 1]) == EXIT and not is_conditional(code[at + 1]),
                f"sm_{arch}: entry {at} is not PMTRIG and EXIT")
        require(at not in places and at + 1 not in places, f"sm_{arch}: entry {at} holds the offset")
    require(len(entries) == 4, f"sm_{arch}: {len(entries)} entries instead of 4")
    # The last branch is never executed, and scheduled accordingly. A jump takes over from the EXIT whose place it takes.
    scheduling = {code[at + 1][1] & SCHEDULING & ~AWAITED for at in entries}
    require(len(scheduling) == 1, f"sm_{arch}: entries are scheduled in several ways")
    jump = with_distance(arch, (jump[0], jump[1] & ~SCHEDULING | scheduling.pop()), 0)
    require(entries[0] + 2 <= 8, f"sm_{arch}: 'off' takes more than 128 bytes")
    exits = [at for at, instruction in enumerate(code) if opcode(instruction) == EXIT and at - 1 not in entries]
    claimed = {word // 16 - 1 for word in donor.words(EXITS)}
    require(claimed == set(exits) | {at + 1 for at in entries}, f"sm_{arch}: other exits than ptxas says")
    require(sum(opcode(instruction) in ATOMICS for instruction in code) == 2, f"sm_{arch}: not two atomics")
    warp_wide, masks = donor.words(WARP_WIDE), donor.words(WARP_WIDE_MASKS)
    require(len(warp_wide) == len(masks), f"sm_{arch}: warp-wide instructions and masks differ in number")

    code, where = straighten(arch, code, jump)
    entries = [where[at] for at in entries]
    exits = [where[at] for at in exits]
    places = {where[at]: shift for at, shift in places.items()}
    warp_wide = [16 * where[word // 16 - 1] for word in warp_wide]
    check_paths(arch, code, entries)
    return {
        "arch": arch,
        "code": code,
        "entries": entries,
        "places": places,
        "exits": [16 * at for at in exits],
        "warp_wide": warp_wide,
        "masks": masks,
        "nop": nop,
        "jump": jump,
        "registers": struct.unpack_from("<I", donor.module_attributes[REGISTERS], 4)[0],
        "base": bank_base(donor),
        "parameter_bits": struct.unpack_from("<I", donor.attributes[PARAMETER], 8)[0] & 0x3FFFF,
        "needs_stack_record": STACK in donor.attributes,
        "reads_ctaid_z": CTAID_Z in donor.attributes,
    }


def write(template, out):
    name = f"sm_{template['arch']}"
    number = lambda instruction: f"{{0x{instruction[0]:016x}, 0x{instruction[1]:016x}}}"
    array = lambda kind, what, values: out.write(
        f"constexpr {kind} k_{name}_{what}[] = {{{', '.join(values)}}};\n")
    array("Instruction", "code", map(number, template["code"]))
    array("uint16_t", "entries", map(str, template["entries"]))
    array("OffsetPlace", "places", (f"{{{at}, {shift}}}" for at, shift in template["places"].items()))
    for what in ("exits", "warp_wide", "masks"):
        array("uint32_t", what, map(str, template[what]))


def write_row(template, out):
    name = f"k_sm_{template['arch']}_"
    number = lambda instruction: f"{{0x{instruction[0]:016x}, 0x{instruction[1]:016x}}}"
    fields = [f".arch = {template['arch']}"]
    fields += [f".{what} = {name}{what}" for what in ("code", "entries", "places", "exits", "warp_wide", "masks")]
    fields += [f".nop = {number(template['nop'])}", f".jump = {number(template['jump'])}",
               f".registers = {template['registers']}", f".parameter_base = {template['base']}",
               f".parameter_bits = 0x{template['parameter_bits']:x}",
               f".needs_stack_record = {str(template['needs_stack_record']).lower()}",
               f".reads_ctaid_z = {str(template['reads_ctaid_z']).lower()}"]
    out.write("  {" + ", ".join(fields) + "},\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("ptxas", "source", "abi", "output"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("arch", type=int, nargs="+")
    arguments = parser.parse_args()
    with open(arguments.source, encoding="ascii") as file:
        source = file.read()
    with open(arguments.abi, encoding="utf-8") as file:
        constants = {name: int(value) for name, value in
                     re.findall(r"inline constexpr uint64_t (kGate\w+) = (\d+);", file.read())}
    require(constants["kGateRecordAlignment"] == 128, "gate.ptx.in masks the flags for records aligned to 128")
    known = subprocess.run([arguments.ptxas, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    templates = [make_template(arguments.ptxas, source, constants, arch) for arch in arguments.arch
                 if re.search(rf"\bsm_{arch}\b", known)]
    require(templates, "no architecture is known to ptxas")
    with open(arguments.output + ".part", "w", encoding="ascii") as out:
        out.write("// Made by make_templates.py from gate.ptx.in. clang-format off\n")
        for template in templates:
            write(template, out)
        out.write("constexpr GateTemplate kTemplates[] = {\n")
        for template in templates:
            write_row(template, out)
        out.write("};\n")
    os.replace(arguments.output + ".part", arguments.output)


if __name__ == "__main__":
    main()
