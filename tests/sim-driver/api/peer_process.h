// A second process with the software driver, which does what a test asks of it: for memory that processes share.
//
// The process is this program again, started with kPeerOption: its main() calls ServePeer() (peer_main.cc).
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>

#include "base/unique_fd.h"

namespace tally::sim_driver {

inline constexpr const char* kPeerOption = "--peer";

enum class PeerCall : uint32_t {
  kAllocate,   // bytes -> address
  kFree,       // address
  kExport,     // address -> handle
  kOpen,       // handle, flags -> address
  kClose,      // address
  kIncrement,  // address, words: by a kernel, waited for
  kRead,       // address -> word
  kImport,     // descriptor -> VMM handle
  kCreate,     // bytes -> VMM handle, descriptor
  kReserve,    // bytes, hint -> address
  kMap,        // address, bytes, VMM handle; with access for device 0
  kUseDevice,  // ordinal
};

struct PeerRequest {
  PeerCall call;
  uint64_t a = 0, b = 0, c = 0;
  CUipcMemHandle handle{};
};
struct PeerReply {
  CUresult result = CUDA_SUCCESS;
  uint64_t value = 0;
  CUipcMemHandle handle{};
};

class PeerProcess {
 public:
  PeerProcess();
  ~PeerProcess();

  PeerReply Ask(const PeerRequest& request, int fd = -1);
  // The descriptor that came with the last reply.
  UniqueFd TakeFd();
  void Kill();

 private:
  pid_t pid_ = 0;
  UniqueFd socket_;
  UniqueFd received_;
};

// Answers requests from `socket` until it is closed.
void ServePeer(int socket);

}  // namespace tally::sim_driver
