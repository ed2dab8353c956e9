// Device addresses that several processes can all have: of one range, which each of them reserves whole and divides.
//
// A driver need not grant the address that is asked for. An H200's (580.159) grants it for 4 GiB, and puts 2 MiB where
// it has room in what it reserved before, in each process elsewhere. So small pieces are cut from a large range here:
//
//      home     [ a | b |   | c |                  ]  0x600000000000, 1 TiB      Take, Give
//      mirror   [ a'| b'|   | c'|                  ]  the same                   Holds
//
// The range is reserved at the first use. Where the driver does not grant it there is none: nothing is taken, and
// nothing is held. Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class AddressArena {
 public:
  static constexpr CUdeviceptr kBegin = 0x600000000000;
  static constexpr uint64_t kNumBytes = uint64_t{1} << 40;

  explicit AddressArena(const DriverTable& driver) : driver_(driver) {}
  // Nothing is mapped in it any more.
  ~AddressArena();
  AddressArena(const AddressArena&) = delete;
  AddressArena& operator=(const AddressArena&) = delete;

  // `num_bytes` is a whole number of the device's granules, not 0. Nothing: there is no range, or no room.
  std::optional<CUdeviceptr> Take(uint64_t num_bytes);
  // What was taken; nothing is mapped there any more. False: it is not from here.
  bool Give(CUdeviceptr address, uint64_t num_bytes);
  // Whether these addresses are this process's to map at. Not for who takes.
  bool Holds(CUdeviceptr address, uint64_t num_bytes);

 private:
  // False: there is no range. With the mutex held.
  bool Reserve();

  const DriverTable& driver_;
  std::mutex mutex_;
  enum class State { kNotAsked, kReserved, kRefused } state_ = State::kNotAsked;  // guarded by mutex_, as below
  std::map<CUdeviceptr, uint64_t> free_;                                          // begin -> bytes; never adjoining
};

}  // namespace tally::server
