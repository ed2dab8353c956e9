// Device code of one session as it is loaded: modules, libraries, their kernels, and links in progress.
//
// Guarded by the session's sequencer. What it is made of must outlive it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/variant_registry.h"
#include "server/executor/session/handle_tables.h"
#include "server/executor/session/held_account.h"
#include "server/executor/session/image_store.h"
#include "server/executor/session/memory_map.h"

namespace tally::server {

// A cuLink in progress: the driver keeps pointers into the logs until it is destroyed.
struct LinkState {
  CUlinkState link = nullptr;
  std::vector<char> info_log;
  std::vector<char> error_log;
  std::vector<std::shared_ptr<ImageBytes>> inputs;
  std::vector<std::byte> result;
};

class LoadedCode {
 public:
  // `variants` null: every kernel runs as it is.
  LoadedCode(const DriverTable& driver, HandleTables& handles, MemoryMap& memory, HeldAccount& held,
             VariantRegistry* variants)
      : images(held), driver_(driver), handles_(handles), memory_(memory), variants_(variants) {}

  ImageStore images;  // on their way in
  std::vector<std::unique_ptr<LoadedImage>> loaded;
  std::unordered_map<const void*, Kernel*> kernel_of;  // by CUfunction or CUkernel

  // Called before code goes. Constant once channels exist.
  std::function<void()> before_unload = [] {};

  // Unloads and forgets it, its kernels and its globals.
  void Unload(LoadedImage* image);
  // Gives every library's variables their first values again, as the reset of the only context does; handles stay.
  // CUfunctions of its kernels and its module go, as natively.
  void ReloadLibraries();
  // Links that were begun in one client context, or in all (kNoContext).
  void DestroyLinks(uint32_t context);
  // Modules of one context, or all code.
  void UnloadAll(uint32_t context);

 private:
  void Reload(LoadedImage& library);
  // Its other forms go, once no launch of theirs is in flight.
  void AwaitVariants(Kernel& kernel);

  const DriverTable& driver_;
  HandleTables& handles_;
  MemoryMap& memory_;
  VariantRegistry* const variants_;
};

}  // namespace tally::server
