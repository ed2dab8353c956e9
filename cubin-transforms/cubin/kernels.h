// Finds the kernels of a cubin and the sections that belong to each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "images/elf_view.h"

namespace tally::cubin_transforms {

// Indices into ElfView's sections and symbols. Valid only if there is no refusal.
struct KernelParts {
  std::string_view name;
  size_t symbol = 0;
  size_t text = 0;       // .text.NAME
  size_t records = 0;    // .nv.info.NAME
  size_t constants = 0;  // .nv.constant0.NAME
  std::string refusal;   // not empty: something about its sections, symbols or relocations is not as usual
};

// In the order of the symbol table.
std::vector<KernelParts> FindKernels(const images::ElfView& elf);

// 90 for sm_90.
uint32_t ArchOf(const images::ElfView& elf);

}  // namespace tally::cubin_transforms
