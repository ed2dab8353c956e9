// From a PTX type to the C++ type that an operation is instantiated for.
#pragma once

#include "sim-driver/engine/instruction.h"
#include "sim-driver/engine/lowering.h"

namespace tally::sim_driver {

// Operations that do the same for signed and unsigned are made once.
inline ScalarType Unsigned(ScalarType type) {
  switch (type) {
    case ScalarType::kS16:
    case ScalarType::kB16:
      return ScalarType::kU16;
    case ScalarType::kS32:
    case ScalarType::kB32:
      return ScalarType::kU32;
    case ScalarType::kS64:
    case ScalarType::kB64:
      return ScalarType::kU64;
    default:
      return type;
  }
}

// choose(T{}) for the integer type; null for others.
template <typename Choose>
OpFunction ForInteger(ScalarType type, Choose choose) {
  switch (type) {
    case ScalarType::kU16:
    case ScalarType::kB16:
      return choose(uint16_t{});
    case ScalarType::kS16:
      return choose(int16_t{});
    case ScalarType::kU32:
    case ScalarType::kB32:
      return choose(uint32_t{});
    case ScalarType::kS32:
      return choose(int32_t{});
    case ScalarType::kU64:
    case ScalarType::kB64:
      return choose(uint64_t{});
    case ScalarType::kS64:
      return choose(int64_t{});
    default:
      return nullptr;
  }
}

template <typename Choose>
OpFunction ForNarrowInteger(ScalarType type, Choose choose) {
  switch (type) {
    case ScalarType::kU16:
      return choose(uint16_t{});
    case ScalarType::kS16:
      return choose(int16_t{});
    case ScalarType::kU32:
      return choose(uint32_t{});
    case ScalarType::kS32:
      return choose(int32_t{});
    default:
      return nullptr;
  }
}

template <typename Choose>
OpFunction ForSignedInteger(ScalarType type, Choose choose) {
  switch (type) {
    case ScalarType::kS16:
      return choose(int16_t{});
    case ScalarType::kS32:
      return choose(int32_t{});
    case ScalarType::kS64:
      return choose(int64_t{});
    default:
      return nullptr;
  }
}

// The unsigned type as wide as a register class (or type); null for predicates and 128 bits.
template <typename Choose>
OpFunction ForWidth(uint32_t bytes, Choose choose) {
  switch (bytes) {
    case 2:
      return choose(uint16_t{});
    case 4:
      return choose(uint32_t{});
    case 8:
      return choose(uint64_t{});
    default:
      return nullptr;
  }
}

}  // namespace tally::sim_driver
