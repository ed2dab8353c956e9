// The program's own pages that were replaced by shared ones because it registered them (cuMemHostRegister), and what a
// fork makes of them.
//
// A shared page would be shared with a fork's child too, heap neighbours included. Natively the child gets a copy, and
// so it does here: the child replaces the pages by private ones before anything of the program runs in it, and the
// parent's fork returns when that is done. Children made without the C library's fork (vfork, clone) do not pass here.
//
// Thread-safe. Addresses are of whole pages.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace tally::client_shim {

class RegisteredMemory {
 public:
  // Held from before a registration looks at the program's mappings until it is done, and while one ends.
  std::mutex& mutex() { return mutex_; }

  // With mutex(). Replaces the pages by those of `fd`, a file of exactly these bytes. False: nothing was changed.
  bool Share(uint64_t begin, uint64_t size_bytes, int fd);
  // With mutex(). Gives the program private pages again, wherever ours are still mapped. For any address: does nothing
  // if Share was not called for it.
  void GiveBack(uint64_t begin);

  // Around fork, in this order: in the parent before; then in the child, or in the parent after.
  void BeforeFork();
  void AfterForkInChild();
  void AfterForkInParent();

 private:
  struct Pages {
    uint64_t size_bytes;
    dev_t device;  // of the memory file: tells our pages from what the program has mapped there since
    ino_t inode;
  };
  struct Part {
    uint64_t begin, size_bytes;
  };
  void AppendParts(uint64_t begin, const Pages& pages, std::vector<Part>* parts) const;

  std::mutex mutex_;
  std::map<uint64_t, Pages> shared_;            // by begin
  std::vector<Part> fork_parts_;                // what the child must copy
  std::atomic<uint32_t>* is_copied_ = nullptr;  // in memory shared with the child; null: nothing to wait for
};

}  // namespace tally::client_shim
