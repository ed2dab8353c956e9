"""Writes what the library exports: trampolines.cc and exports.map. Words: symbols.txt, the files with our own functions,
the directory to write to.

A trampoline jumps to NVIDIA's function of the same name. Its address is looked up at the first call, with the arguments
kept as they came, whatever they are."""
import re
import sys

HEAD = """// Made by client-shim/nvml/make_library.py.
extern "C" {
extern const char* const tally_nvml_names[];
void* tally_nvml_addresses[%d];
const char* const tally_nvml_names[] = {
"""

# Registers that carry arguments are kept; the stack is aligned for the call.
COMMON = r"""
asm(R"(
  .text
  .type tally_nvml_first_call, @function
tally_nvml_first_call:
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $136, %rsp
  movups %xmm0, 0(%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq %rax, %rdi
  call tally_nvml_resolve
  movq %rax, %r11
  movups 0(%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $136, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  jmp *%r11
  .size tally_nvml_first_call, .-tally_nvml_first_call
)");
"""

ONE = r"""asm(R"(
  .globl {name}
  .type {name}, @function
{name}:
  endbr64
  movq tally_nvml_addresses+{offset}(%rip), %r11
  testq %r11, %r11
  je 1f
  jmp *%r11
1: movl ${index}, %eax
  jmp tally_nvml_first_call
  .size {name}, .-{name}
)");
"""


def main(symbols_path, *rest):
    *sources, directory = rest
    with open(symbols_path, encoding="ascii") as file:
        symbols = file.read().split()
    own = {"nvmlErrorString"}
    for path in sources:
        with open(path, encoding="utf-8") as file:
            own |= set(re.findall(r"^NVML_FUNCTION\((nvml\w+)", file.read(), re.MULTILINE))
    unknown = own - set(symbols)
    if unknown:
        sys.exit(f"not in {symbols_path}: {unknown}")
    passed_on = [symbol for symbol in symbols if symbol not in own]
    with open(f"{directory}/trampolines.cc", "w", encoding="ascii") as out:
        out.write(HEAD % len(passed_on))
        out.writelines(f'    "{symbol}",\n' for symbol in passed_on)
        out.write("};\nextern const unsigned tally_nvml_num_names;\n")
        out.write(f"const unsigned tally_nvml_num_names = {len(passed_on)};\n}}\n{COMMON}")
        out.writelines(ONE.format(name=symbol, offset=8 * index, index=index) for index, symbol in enumerate(passed_on))
    with open(f"{directory}/exports.map", "w", encoding="ascii") as out:
        out.write("{\n  global:\n" + "".join(f"    {symbol};\n" for symbol in symbols))
        out.write("    tally_nvml_marker;\n  local: *;\n};\n")


main(*sys.argv[1:])
