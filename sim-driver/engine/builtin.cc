#include "sim-driver/engine/builtin.h"

#include <cstring>

#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_view.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/printf_format.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kMaxString = 64 * 1024;

// Argument `index` of lane `lane`; shorter ones are zero-extended.
uint64_t Argument(const Warp& w, const Instruction& i, uint32_t lane, uint32_t index) {
  uint32_t offset = i.list[2 * (i.x + index)];
  uint32_t bytes = std::min(i.list[2 * (i.x + index) + 1], 8u);
  uint64_t value = 0;
  std::memcpy(&value, w.frame->parameters + size_t{lane} * w.frame->function->parameter_stride_bytes + offset, bytes);
  return value;
}

void SetResult(const Warp& w, const Instruction& i, uint32_t lane, uint64_t value) {
  if (i.x == 0) return;
  std::memcpy(w.frame->parameters + size_t{lane} * w.frame->function->parameter_stride_bytes + i.list[0], &value,
              std::min(i.list[1], 8u));
}

// The argument buffer of vprintf, read with checks.
class DeviceArguments final : public PrintfArguments {
 public:
  DeviceArguments(Warp& w, const Instruction& i, uint32_t lane, uint64_t address)
      : w_(w), i_(i), lane_(lane), address_(address) {}

  bool Next(uint32_t bytes, uint64_t* value) override {
    address_ = (address_ + bytes - 1) / bytes * bytes;
    const std::byte* at = ResolveAddress(w_, i_, lane_, Space::kGeneric, address_, bytes, bytes, false);
    if (at == nullptr) return false;
    *value = 0;
    std::memcpy(value, at, bytes);
    address_ += bytes;
    return true;
  }
  bool String(uint64_t address, std::string* text) override {
    return ReadString(w_, i_, lane_, address, kMaxString, text);
  }

 private:
  Warp& w_;
  const Instruction& i_;
  uint32_t lane_;
  uint64_t address_;
};

void OpVprintf(Warp& w, const Instruction& i) {
  Grid& grid = *w.block->cluster->grid;
  std::string output;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    std::string format;
    if (!ReadString(w, i, lane, Argument(w, i, lane, 0), kMaxString, &format)) return;
    DeviceArguments arguments(w, i, lane, Argument(w, i, lane, 1));
    uint32_t count = 0;
    if (!FormatPrintf(format, arguments, &output, &count)) return;
    SetResult(w, i, lane, count);
  }
  if (!grid.request.on_printf) return;
  std::lock_guard lock(grid.printf_mutex);
  grid.request.on_printf(output);
}

void OpAssertFail(Warp& w, const Instruction& i) {
  auto lane = static_cast<uint32_t>(std::countr_zero(w.mask));
  std::string texts[3];
  uint32_t line = static_cast<uint32_t>(Argument(w, i, lane, 2));
  for (uint32_t k = 0; k < 3; ++k) {
    uint64_t address = Argument(w, i, lane, k == 2 ? 3 : k);
    if (address != 0 && !ReadString(w, i, lane, address, 1024, &texts[k])) return;
  }
  const Block& block = *w.block;
  const Dim3& dims = block.cluster->grid->request.block;
  const Grid& grid = *block.cluster->grid;
  uint32_t thread = w.index * kLanes + lane;
  std::string text = Format("{}:{}: {}: block: [{},{},{}], thread: [{},{},{}] Assertion `{}` failed.\n", texts[1], line,
                            texts[2], block.index.x, block.index.y, block.index.z, thread % dims.x,
                            thread / dims.x % dims.y, thread / dims.x / dims.y, texts[0]);
  if (grid.request.on_printf) {
    std::lock_guard lock(const_cast<Grid&>(grid).printf_mutex);
    grid.request.on_printf(text);
  }
  RaiseFault(w, i, lane, kFaultAssert, Format("assertion `{}` failed at {}:{}", texts[0], texts[1], line));
}

void OpMalloc(Warp& w, const Instruction& i) {
  const Grid& grid = *w.block->cluster->grid;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    SetResult(w, i, lane, grid.heap->Allocate(Argument(w, i, lane, 0), grid.request.heap_bytes));
  }
}

void OpFree(Warp& w, const Instruction& i) {
  const Grid& grid = *w.block->cluster->grid;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = Argument(w, i, lane, 0);
    if (address != 0 && !grid.heap->Free(address))
      return RaiseFault(w, i, lane, kFaultIllegalAddress,
                        Format("free of {:#x}, which malloc did not return", address));
  }
}

constexpr Builtin kBuiltins[] = {
    {"vprintf", 2, &OpVprintf, true},
    {"__assertfail", 5, &OpAssertFail, true},
    {"malloc", 1, &OpMalloc, false},
    {"free", 1, &OpFree, false},
};

}  // namespace

const Builtin* FindBuiltin(std::string_view name) {
  for (const Builtin& builtin : kBuiltins)
    if (builtin.name == name) return &builtin;
  return nullptr;
}

}  // namespace tally::sim_driver
