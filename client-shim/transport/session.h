// The connection of this process with its executor: the session socket, the session region, and all channels.
//
// Created by cuInit, never destroyed: threads may call until the process's very last instruction. After a fork the
// child forgets it (state/process.h).
#pragma once

#include <cuda.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "client-shim/transport/channel.h"
#include "client-shim/transport/copy_threads.h"
#include "proto/shm/arrival_abi.h"
#include "proto/shm/channel_abi.h"
#include "proto/shm/handshake_abi.h"

namespace tally::client_shim {

// The documented error of every call after the executor is gone (docs/adding-a-driver-call.md names all of ours).
inline constexpr CUresult kExecutorGone = CUDA_ERROR_DEVICE_UNAVAILABLE;

class Session {
 public:
  // Says hello to tallyd and attaches. On failure `*sentence` is for a person. An executor that ends before it has
  // taken us, after a fault of another program for instance, is no failure: tallyd is asked for another one, a few
  // times.
  //   CUDA_ERROR_SYSTEM_NOT_READY       nobody listens, or tallyd has no executor for us now
  //   CUDA_ERROR_SYSTEM_DRIVER_MISMATCH other protocol or another table of calls
  //   CUDA_ERROR_NOT_PERMITTED          tallyd refuses this user
  static CUresult Connect(Session** session, std::string* sentence);

  // A channel for the calling thread, new or one that an ended thread left.
  CUresult TakeChannel(Channel** channel);
  void ReturnChannel(Channel* channel);

  struct HostMemory {
    void* address = nullptr;
    size_t mapped_bytes = 0;
  };
  // Memory shared with the executor and known to the device, at the same address on both sides.
  CUresult AllocateHost(size_t size_bytes, int server_device, shm::HostMemoryUse use, HostMemory* memory);

  // Makes memory of this process known to the device: `size_bytes` of `fd` from `offset_bytes` on, which are mapped
  // shared at `address` here (whole pages). `*server_address` is where the device sees them, the same address if
  // possible.
  CUresult RegisterHost(int fd, uint64_t offset_bytes, uint64_t address, uint64_t size_bytes, int server_device,
                        uint64_t* server_address);

  CUresult sticky_error() const {
    const uint32_t gone = gone_.load(std::memory_order_relaxed);
    return static_cast<CUresult>(gone != 0 ? gone : header_->sticky_error.load(std::memory_order_relaxed));
  }
  // True, once and for all, when the executor has ended. Asks the kernel.
  bool CheckGone();
  // A reply that makes no sense: treated like the executor's end.
  void DeclareGone(const char* reason);

  shm::SessionHeader* header() const { return header_; }
  uint64_t id() const { return id_; }
  unsigned num_cpus() const { return num_cpus_; }
  // Whether the executor can do something with the PTX of machine code.
  bool wants_ptx() const { return wants_ptx_; }
  // Whether it can do something with what launches are said to touch.
  bool wants_declarations() const { return wants_declarations_; }
  bool wants_tasks() const { return wants_tasks_; }
  // Where it is told when work is expected; null: the executor does not want to know. `*reason` is for a person then.
  shm::ArrivalPage* OpenArrivals(const char** reason);
  // For large copies to and from the arenas.
  CopyThreads& copy_threads() { return copy_threads_; }

  // Ends this process's part. In the child of a fork: so that the executor sees the parent's end and not the child's.
  void Close();

 private:
  explicit Session(unsigned num_cpus) : num_cpus_(num_cpus), copy_threads_(CopyThreads::NumFor(num_cpus)) {}
  // `*is_lost`: the executor was gone before it took the session.
  static CUresult ConnectOnce(Session** session, std::string* sentence, bool* is_lost);
  CUresult Attach(std::string* sentence);
  // One exchange on the session socket; `fd` receives the reply's descriptor if it has one, `sent_fd` goes along.
  CUresult Ask(const shm::SessionRequest& request, shm::SessionReply* reply, UniqueFd* fd, int sent_fd = -1);
  // False after the program has closed all descriptors, as daemons do: the number may be a file of its own by now.
  bool HasSocket() const;

  UniqueFd socket_;
  uint64_t socket_inode_ = 0;
  uint64_t id_ = 0;
  bool wants_ptx_ = false;
  bool wants_declarations_ = false;
  bool wants_tasks_ = false;
  bool takes_arrivals_ = false;
  const unsigned num_cpus_;
  CopyThreads copy_threads_;
  MappedRegion region_;
  shm::SessionHeader* header_ = nullptr;
  std::atomic<uint32_t> gone_{0};

  std::mutex mutex_;                     // one exchange on the socket at a time
  std::vector<Channel*> free_channels_;  // guarded by channels_mutex_
  std::mutex channels_mutex_;
};

// The process's session: null before cuInit, and in the child of a fork.
extern std::atomic<Session*> g_session;
inline Session* CurrentSession() { return g_session.load(std::memory_order_acquire); }

}  // namespace tally::client_shim
