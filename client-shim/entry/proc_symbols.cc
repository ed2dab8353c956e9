#include "client-shim/entry/proc_symbols.h"

// Default visibility, as where they are defined; -Bsymbolic makes the addresses ours whoever else exports the names.
#define TALLY_PROC(name, version, is_per_thread, symbol) \
  extern "C" __attribute__((visibility("default"))) void symbol();
#include "proto/driver/generated/getproc.inc"
#undef TALLY_PROC

namespace tally::client_shim {

void* const kProcSymbols[] = {
#define TALLY_PROC(name, version, is_per_thread, symbol) reinterpret_cast<void*>(&symbol),
#include "proto/driver/generated/getproc.inc"
#undef TALLY_PROC
};

}  // namespace tally::client_shim
