// Where a kernel reads %ctaid and %nctaid it gets registers that a pass fills in: what slice_grid and
// persistent_blocks share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ptx-transforms/passes/variant.h"

namespace tally::ptx_transforms {

// Which of the six values are read: bits 0 to 2 %ctaid.x to .z, bits 3 to 5 %nctaid.x to .z.
class BlockIndexMask {
 public:
  void Add(bool is_grid, char component) { bits_ |= 1u << Bit(is_grid, component); }
  void Add(BlockIndexMask other) { bits_ |= other.bits_; }
  bool Has(bool is_grid, char component) const { return (bits_ >> Bit(is_grid, component)) & 1; }
  bool empty() const { return bits_ == 0; }
  bool reads_index() const { return (bits_ & 7) != 0; }

 private:
  static uint32_t Bit(bool is_grid, char component) {
    return (is_grid ? 3u : 0u) + static_cast<uint32_t>(component - 'x');
  }
  uint32_t bits_ = 0;
};

// "%tally_ctaid_x", the register that takes the value's place.
std::string BlockIndexRegister(const Variant& variant, bool is_grid, char component);

// Replaces every read in the kernel and in what it calls, whose functions are copied with the values as further
// parameters. Declares the registers; the pass must set those of `used` at the start of the kernel.
std::optional<Refusal> ReplaceBlockIndex(Variant& variant, BlockIndexMask& used);

}  // namespace tally::ptx_transforms
