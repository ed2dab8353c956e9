// The CUDA runtime's authenticity check on the driver ("INTEGRITY_CHECK" export table).
//
// WHAT IT IS. Every copy of NVIDIA's CUDA runtime, before it does anything, asks the driver for a keyed digest over
// values of this process and refuses to work (error 103) when the answer is not the one it computed itself. A
// replacement libcuda.so.1 must therefore be able to answer, or no program that uses the runtime runs at all.
//
// LICENCE QUESTION. The algorithm and its constants are not documented by NVIDIA; they have been public for years in
// other open-source replacements of this library (ZLUDA, MIT/Apache-2.0; Lupine). The code here was written from a
// description of the algorithm. Whether distributing a library that answers the check is compatible with the licence
// terms you have accepted is for you, the distributor, to decide: this file and runtime_handshake.cc are all there is
// of it, and without them the rest of Tally builds and works for programs that use the driver API only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tally::client_shim {

// Everything the digest is computed over, apart from the version.
struct HandshakeInput {
  uint32_t driver_version = 0;  // what cuDriverGetVersion says
  uint32_t process_id = 0;
  uint32_t thread_id = 0;               // low half of pthread_self()
  uint64_t runtime_table_address = 0;   // of the CUDART_INTERFACE table handed out
  uint64_t check_table_address = 0;     // of the INTEGRITY_CHECK table handed out
  uint64_t check_function_address = 0;  // the value of its slot 1
  uint64_t unix_seconds = 0;            // given by the caller
  struct Device {
    uint8_t uuid[16];
    int32_t pci_domain, pci_bus, pci_device;
  };
  std::span<const Device> devices;  // in the order the program sees them
};

struct HandshakeAnswer {
  uint64_t word[2];
};

// The answer for `version`, which the runtime raises call by call: the first two are constants, later ones digests.
HandshakeAnswer AnswerHandshake(uint32_t version, const HandshakeInput& input);

}  // namespace tally::client_shim
