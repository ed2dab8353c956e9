// CUDA manual: Driver Entry Point Access. One generated table, sorted by name, then by the version each ABI appeared
// in.
#include "client-shim/entry/proc_address.h"

#include <cuda.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "client-shim/entry/proc_symbols.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim {
namespace {

constexpr ProcRow kRows[] = {
#define TALLY_PROC(name, version, is_per_thread, symbol) {name, version, is_per_thread},
#include "proto/driver/generated/getproc.inc"
#undef TALLY_PROC
};
constexpr bool RowsAreSorted() {
  for (size_t i = 1; i < std::size(kRows); ++i) {
    const std::string_view before = kRows[i - 1].name, after = kRows[i].name;
    if (before > after || (before == after && kRows[i - 1].version > kRows[i].version)) return false;
  }
  return true;
}
static_assert(RowsAreSorted(), "generate.py sorts by name, then version");

}  // namespace

ProcAnswer FindProc(std::string_view name, int version, uint64_t flags) {
  const bool wants_per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const auto [first, last] =
      std::ranges::equal_range(kRows, name, {}, [](const ProcRow& row) { return std::string_view(row.name); });
  if (first == last) return {nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
  const bool has_twin = std::any_of(first, last, [](const ProcRow& row) { return row.is_per_thread; });
  const ProcRow* best = nullptr;
  for (const ProcRow* row = first; row != last; ++row) {
    if (row->is_per_thread != (wants_per_thread && has_twin) || row->version > version) continue;
    best = row;  // rows come in rising versions: the last that fits is the newest
  }
  if (best == nullptr) return {nullptr, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT};
  return {kProcSymbols[best - kRows], CU_GET_PROC_ADDRESS_SUCCESS};
}

namespace entry {

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (symbol == nullptr || pfn == nullptr || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  // Newer than the driver is an error, once it is known which driver that is.
  const Process* process = CurrentProcess();
  if (process != nullptr && process->driver_version() != 0 && cudaVersion > process->driver_version())
    return CUDA_ERROR_INVALID_VALUE;
  const ProcAnswer answer = FindProc(symbol, cudaVersion, flags);
  *pfn = answer.function;
  if (symbolStatus != nullptr) *symbolStatus = answer.status;
  return CUDA_SUCCESS;  // also for what is not there, as the manual says
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return entry::cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}

}  // namespace entry
}  // namespace tally::client_shim
