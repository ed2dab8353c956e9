// Puts other pages with the same bytes behind addresses of a running program: shared ones in place of its own when it
// registers memory with the device, and its own again afterwards.
//
// Other threads of the program may write there meanwhile, if not to the buffer itself then to its neighbours on the
// first and the last page. They are held back by the kernel (userfaultfd, write protection) while a piece is copied and
// replaced, so that nothing is lost. Where the kernel does not offer that (before 5.7, files mapped privately,
// containers that forbid the call), what another thread writes to a page in the microseconds of its own replacement may
// be lost.
//
// Addresses and sizes are of whole pages. Nothing is allocated between copying and replacing: the heap may be what is
// being replaced. The calling thread's own stack must not be.
#pragma once

#include <cstdint>

namespace tally::client_shim {

// [begin, begin + size_bytes), mapped private and writable, becomes a shared mapping of `fd` from its start. False: the
// system lacks memory or mappings; then everything is as before.
bool SwapForShared(uint64_t begin, uint64_t size_bytes, int fd);

// The same range, mapped shared, becomes private pages of this process. False: as above; a part may be private then.
bool SwapForPrivate(uint64_t begin, uint64_t size_bytes);

// The same in a process that has no other threads yet, the child of a fork: no system call more than needed.
bool SwapForPrivateAlone(uint64_t begin, uint64_t size_bytes);

}  // namespace tally::client_shim
