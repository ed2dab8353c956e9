// Device addresses that several processes can all have: of one range, which each of them reserves whole and divides.
//
// A driver need not grant the address that is asked for. An H200's (580.159) grants it for 4 GiB, and puts 2 MiB where
// it has room in what it reserved before, in each process elsewhere. So small pieces are cut from a large range here:
//
//      home     [ a | b |   | c |                  ]  0x600000000000, 1 TiB      Take, Give
//      mirror   [ a'| b'|   | c'|                  ]  the same                   Holds
//
// What a process has for itself lies in another one (kApart): neither what home takes later nor what a kernel looks for
// at home's addresses by mistake is there.
//
// The range is reserved at the first use: the first of those wished for that the driver grants. If it grants none,
// nothing is taken, and nothing is held. Thread-safe.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class AddressArena {
 public:
  struct Range {
    CUdeviceptr begin = 0;
    uint64_t num_bytes = 0;

    bool Contains(CUdeviceptr address, uint64_t bytes) const {
      return address >= begin && address - begin <= num_bytes && bytes <= num_bytes - (address - begin);
    }
  };
  // In the order of the wishes; the last is for the software GPU, whose addresses are few.
  using Ranges = std::array<Range, 2>;
  static constexpr Ranges kOfHome{{{0x600000000000, uint64_t{1} << 40}, {0x7c1000000000, uint64_t{64} << 30}}};
  static constexpr Ranges kApart{{{0x680000000000, uint64_t{1} << 40}, {0x7c2800000000, uint64_t{64} << 30}}};

  AddressArena(const DriverTable& driver, const Ranges& wishes) : driver_(driver), wishes_(wishes) {}
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
  bool Reserve(const Range& wish);

  const DriverTable& driver_;
  const Ranges& wishes_;
  std::mutex mutex_;
  bool was_asked_ = false;                // guarded by mutex_, as below
  Range range_;                           // no bytes: there is none
  std::map<CUdeviceptr, uint64_t> free_;  // begin -> bytes; never adjoining
};

}  // namespace tally::server
