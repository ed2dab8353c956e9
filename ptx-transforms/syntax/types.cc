#include "ptx-transforms/syntax/types.h"

#include <array>
#include <utility>

namespace tally::ptx_transforms {
namespace {

struct TypeRow {
  std::string_view name;
  ScalarType type;
  size_t bytes;
};

constexpr std::array<TypeRow, 24> kTypes = {{
    {"b32", ScalarType::kB32, 4},
    {"b64", ScalarType::kB64, 8},
    {"f32", ScalarType::kF32, 4},
    {"pred", ScalarType::kPred, 1},
    {"b16", ScalarType::kB16, 2},
    {"f64", ScalarType::kF64, 8},
    {"b8", ScalarType::kB8, 1},
    {"u32", ScalarType::kU32, 4},
    {"u64", ScalarType::kU64, 8},
    {"s32", ScalarType::kS32, 4},
    {"s64", ScalarType::kS64, 8},
    {"u8", ScalarType::kU8, 1},
    {"u16", ScalarType::kU16, 2},
    {"s8", ScalarType::kS8, 1},
    {"s16", ScalarType::kS16, 2},
    {"b128", ScalarType::kB128, 16},
    {"f16", ScalarType::kF16, 2},
    {"f16x2", ScalarType::kF16x2, 4},
    {"bf16", ScalarType::kBf16, 2},
    {"bf16x2", ScalarType::kBf16x2, 4},
    {"tf32", ScalarType::kTf32, 4},
    {"texref", ScalarType::kTexref, 8},
    {"samplerref", ScalarType::kSamplerref, 8},
    {"surfref", ScalarType::kSurfref, 8},
}};

constexpr std::array<std::pair<std::string_view, StateSpace>, 7> kSpaces = {{
    {"reg", StateSpace::kReg},
    {"param", StateSpace::kParam},
    {"local", StateSpace::kLocal},
    {"shared", StateSpace::kShared},
    {"global", StateSpace::kGlobal},
    {"const", StateSpace::kConst},
    {"tex", StateSpace::kTex},
}};

}  // namespace

ScalarType ScalarTypeFromName(std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (row.name == name) return row.type;
  return ScalarType::kNone;
}

std::string_view ScalarTypeName(ScalarType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row.name;
  return {};
}

size_t ScalarTypeBytes(ScalarType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row.bytes;
  return 0;
}

StateSpace StateSpaceFromName(std::string_view name) {
  name = name.substr(0, name.find("::"));
  for (const auto& [text, space] : kSpaces)
    if (text == name) return space;
  return StateSpace::kNone;
}

std::string_view StateSpaceName(StateSpace space) {
  for (const auto& [text, value] : kSpaces)
    if (value == space) return text;
  return {};
}

std::string_view LinkageName(Linkage linkage) {
  switch (linkage) {
    case Linkage::kInternal:
      return {};
    case Linkage::kExtern:
      return "extern";
    case Linkage::kVisible:
      return "visible";
    case Linkage::kWeak:
      return "weak";
    case Linkage::kCommon:
      return "common";
  }
  return {};
}

}  // namespace tally::ptx_transforms
