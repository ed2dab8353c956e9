// Device code of one session: pieces on their way in. What becomes of them: issue/kernel_code.h.
//
// The client's bytes are copied, bounded by a quota, validated (images/), and kept for as long as the module lives: the
// driver may go on reading them. Guarded by the session's sequencer.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "proto/shm/records_code_abi.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/session/held_account.h"

namespace tally::server {

// `image` is what the driver takes. We keep it for as long as the library lives, so the driver need not copy it.
CUresult LoadLibraryData(const DriverTable& driver, const void* image, CUjit_option* options, void** values,
                         unsigned int num_options, CUlibrary* library);

class ImageStore {
 public:
  explicit ImageStore(HeldAccount& account) : account_(account) {}

  // False: the piece makes no sense (the reason is in *reason). Of an image that the session or its user may not hold
  // nothing is kept; Take says so.
  bool Write(const shm::WriteImage& piece, std::span<const std::byte> bytes, const char** reason);
  // Takes a complete image out, validated and with its wrapper rebuilt. Fails with the CUresult a driver would give.
  CUresult Take(const shm::LoadImage& request, std::shared_ptr<ImageBytes>* image);
  // To be called when an image taken is no longer kept.
  void Return(const ImageBytes& image);

 private:
  struct Assembly {
    std::vector<std::byte> bytes;
    uint64_t total_bytes = 0;
    uint64_t received_bytes = 0;
    bool is_refused = false;
  };

  HeldAccount& account_;
  std::map<uint32_t, Assembly> assemblies_;
};

}  // namespace tally::server
