#include "client-shim/entry/guard.h"

#include <atomic>
#include <cstddef>
#include <iterator>

#include "base/log.h"

namespace tally::client_shim {
namespace {

constexpr const char* kSymbolNames[] = {
#define TALLY_SYMBOL(index, name, verdict) name,
#include "proto/driver/generated/symbols.inc"
#undef TALLY_SYMBOL
};
constinit std::atomic<uint64_t> g_num_refused[std::size(kSymbolNames)] = {};

// Uses refused so far, by the address of the literal that names them; full only if we write more refusals than this.
constinit std::atomic<const char*> g_refused_uses[256] = {};

}  // namespace

CUresult Refuse(uint32_t symbol_index) {
  if (symbol_index < std::size(kSymbolNames) &&
      g_num_refused[symbol_index].fetch_add(1, std::memory_order_relaxed) == 0)
    LOG_WARNING("{} is not supported by Tally: CUDA_ERROR_NOT_SUPPORTED", kSymbolNames[symbol_index]);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult RefuseUse(const char* what) {
  for (auto& slot : g_refused_uses) {
    const char* known = nullptr;
    if (slot.compare_exchange_strong(known, what)) {
      LOG_WARNING("not supported by Tally: {}: CUDA_ERROR_NOT_SUPPORTED", what);
      break;
    }
    if (known == what) break;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

uint64_t NumRefused(uint32_t symbol_index) {
  return symbol_index < std::size(kSymbolNames) ? g_num_refused[symbol_index].load(std::memory_order_relaxed) : 0;
}

const char* SymbolName(uint32_t symbol_index) {
  return symbol_index < std::size(kSymbolNames) ? kSymbolNames[symbol_index] : nullptr;
}

}  // namespace tally::client_shim
