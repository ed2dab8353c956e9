// The closed vocabularies of PTX declarations: fundamental types, state spaces, linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tally::ptx_transforms {

enum class ScalarType : uint8_t {
  kNone,  // not a type, or one that this version does not know (its name is kept beside it)
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kTf32,
  kF32,
  kF64,
  kPred,
  kTexref,
  kSamplerref,
  kSurfref,
};

// `name` without the dot ("u32"). kNone if it is not a fundamental type of a variable or register.
ScalarType ScalarTypeFromName(std::string_view name);
// Without the dot; empty for kNone.
std::string_view ScalarTypeName(ScalarType type);
// Bytes in memory: 1 for kPred, 8 for the opaque texture types, 0 for kNone.
size_t ScalarTypeBytes(ScalarType type);

enum class StateSpace : uint8_t { kNone, kReg, kConst, kGlobal, kLocal, kParam, kShared, kTex };
StateSpace StateSpaceFromName(
    std::string_view name);  // "shared", also "shared::cta" and "param::entry"; kNone if not one
std::string_view StateSpaceName(StateSpace space);

enum class Linkage : uint8_t { kInternal, kExtern, kVisible, kWeak, kCommon };
std::string_view LinkageName(Linkage linkage);  // without the dot; empty for kInternal

}  // namespace tally::ptx_transforms
