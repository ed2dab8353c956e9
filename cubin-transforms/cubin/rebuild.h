// Puts changed sections back into a cubin: what follows a grown section moves, nothing else changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"
#include "images/elf_view.h"

namespace tally::cubin_transforms {

// By section index; every index must be that of a section with bytes.
struct SectionChanges {
  std::map<size_t, std::vector<std::byte>> contents;  // as long as before, or longer
  std::map<size_t, uint32_t> infos;                   // sh_info
  std::map<size_t, uint64_t> symbol_sizes;            // st_size, by index in the (one) symbol table
};

// Room is made in steps of 128 bytes, so that what was aligned to at most that stays aligned.
// kUnimplemented: sections or tables overlap in a way that leaves open what belongs to what.
Result<std::vector<std::byte>> Rebuild(std::span<const std::byte> original, const images::ElfView& elf,
                                       const SectionChanges& changes);

}  // namespace tally::cubin_transforms
