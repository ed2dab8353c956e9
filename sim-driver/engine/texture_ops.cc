// Textures and surfaces: tex, tld4, txq, suld, sust, suq. What a fetch returns is texture.h's business.

#include <algorithm>
#include <memory>

#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/memory_view.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"
#include "sim-driver/engine/texture.h"

namespace tally::sim_driver {
namespace {

// Instruction::x: the shape that the instruction names.
constexpr uint32_t kDimensionsMask = 3;
constexpr uint32_t kIsLayered = 4;
// Instruction::y of a fetch.
constexpr uint32_t kHasIntegerCoordinates = 1;
constexpr uint32_t kHasLevel = 2;
constexpr uint32_t kIsGather = 4;
constexpr uint32_t kGatherShift = 4;  // component from here
// Instruction::y of a surface access: number of elements, and what happens outside.
constexpr uint32_t kCountMask = 7;
constexpr uint32_t kOutsideShift = 4;
enum class Outside : uint32_t { kTrap, kClamp, kZero };

struct Coordinates {
  uint32_t x, y, z, layer;  // bits
};

// b = x | y << 32, c = z | layer << 32.
Coordinates CoordinatesOf(const Warp& w, const Instruction& i, uint32_t lane) {
  const uint64_t xy = Source<uint64_t>(w, i.b)[lane];
  const uint64_t z_layer = Source<uint64_t>(w, i.c)[lane];
  return {static_cast<uint32_t>(xy), static_cast<uint32_t>(xy >> 32), static_cast<uint32_t>(z_layer),
          static_cast<uint32_t>(z_layer >> 32)};
}

// Lanes mostly use one image: it is looked up again only when the handle changes.
class ImageFinder {
 public:
  ImageFinder(Warp& w, const Instruction& i) : warp_(w), instruction_(i) {}

  // Null after raising the fault.
  const Image* Find(uint32_t lane) {
    const uint64_t handle = Source<uint64_t>(warp_, instruction_.a)[lane];
    if (image_ == nullptr || handle != handle_) {
      handle_ = handle;
      image_ = warp_.block->cluster->grid->request.memory->FindImage(handle);
    }
    if (image_ == nullptr) {
      RaiseFault(warp_, instruction_, lane, kFaultIllegalAddress,
                 Format("{:#x} is no texture or surface object", handle));
      return nullptr;
    }
    const uint32_t wanted = instruction_.x & kDimensionsMask;
    const bool is_layered = (instruction_.x & kIsLayered) != 0;
    if (wanted != 0 && (image_->num_dimensions != wanted || (image_->num_layers != 0) != is_layered)) {
      RaiseFault(warp_, instruction_, lane, kFaultIllegalInstruction,
                 Format("the object has {} dimensions and {} layers", image_->num_dimensions, image_->num_layers));
      return nullptr;
    }
    return image_.get();
  }

 private:
  Warp& warp_;
  const Instruction& instruction_;
  uint64_t handle_ = 0;
  std::shared_ptr<const Image> image_;
};

const std::byte* TexelAt(Warp& w, const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes) {
  MemoryView::Range& range = w.memory->RangeFor(&i);
  if (range.Contains(address, bytes)) return reinterpret_cast<const std::byte*>(address);
  return ResolveAddress(w, i, lane, Space::kGlobal, address, bytes, 1, false, &range);
}

uint64_t AddressOfTap(const Image& image, const Image::Level& level, const Footprint::Tap& tap, uint32_t layer) {
  const uint64_t slice = image.num_layers != 0 ? std::min(layer, image.num_layers - 1) : static_cast<uint64_t>(tap.z);
  return level.base + slice * level.slice_bytes + static_cast<uint64_t>(tap.y) * level.row_bytes +
         static_cast<uint64_t>(tap.x) * image.texel_bytes();
}

bool ReturnsFloats(const Image& image) {
  if (image.format == TexelFormat::kF16 || image.format == TexelFormat::kF32) return true;
  return !image.reads_integers && image.format != TexelFormat::kU32 && image.format != TexelFormat::kS32;
}

uint32_t BorderValue(const Image& image, uint32_t channel) {
  if (image.is_linear_memory || channel >= image.num_channels) return 0;
  const float color = image.border[channel];
  return ReturnsFloats(image) ? std::bit_cast<uint32_t>(color) : static_cast<uint32_t>(static_cast<int32_t>(color));
}

// One channel of one tap; false after a fault.
bool TapValue(Warp& w, const Instruction& i, uint32_t lane, const Image& image, const Image::Level& level,
              const Footprint::Tap& tap, uint32_t layer, std::array<uint32_t, 4>* values) {
  const std::byte* texel = nullptr;
  if (!tap.is_border) {
    texel = TexelAt(w, i, lane, AddressOfTap(image, level, tap, layer), image.texel_bytes());
    if (texel == nullptr) return false;
  }
  for (uint32_t channel = 0; channel < 4; ++channel) {
    (*values)[channel] = tap.is_border ? BorderValue(image, channel) : TexelValue(image, texel, channel);
  }
  return true;
}

// All taps of one level, weighted.
bool FetchLevel(Warp& w, const Instruction& i, uint32_t lane, const Image& image, const Image::Level& level,
                const Footprint& footprint, uint32_t layer, std::array<uint32_t, 4>* values) {
  if (footprint.num_taps == 1) return TapValue(w, i, lane, image, level, footprint.taps[0], layer, values);
  std::array<double, 4> sums{};
  for (uint32_t k = 0; k < footprint.num_taps; ++k) {
    const Footprint::Tap& tap = footprint.taps[k];
    if (tap.weight == 0) continue;
    std::array<uint32_t, 4> texel;
    if (!TapValue(w, i, lane, image, level, tap, layer, &texel)) return false;
    for (uint32_t channel = 0; channel < 4; ++channel) {
      sums[channel] += double{tap.weight} * std::bit_cast<float>(texel[channel]);
    }
  }
  for (uint32_t channel = 0; channel < 4; ++channel) {
    (*values)[channel] = std::bit_cast<uint32_t>(static_cast<float>(sums[channel]));
  }
  return true;
}

bool Fetch(Warp& w, const Instruction& i, uint32_t lane, const Image& image, std::array<uint32_t, 4>* values) {
  const Coordinates at = CoordinatesOf(w, i, lane);
  if ((i.y & kHasIntegerCoordinates) != 0) {
    const std::array<int32_t, 3> texel = {static_cast<int32_t>(at.x), static_cast<int32_t>(at.y),
                                          static_cast<int32_t>(at.z)};
    const size_t last = image.levels.size() - 1;
    const uint32_t lod = (i.y & kHasLevel) != 0 ? Source<uint32_t>(w, i.f)[lane] : 0;
    const Image::Level& level = image.levels[std::min<size_t>(lod, last)];
    return FetchLevel(w, i, lane, image, level, FootprintOf(image, level, texel), at.layer, values);
  }
  const std::array<float, 3> point = {std::bit_cast<float>(at.x), std::bit_cast<float>(at.y),
                                      std::bit_cast<float>(at.z)};
  if ((i.y & kIsGather) != 0) {
    const Image::Level& level = image.levels[0];
    const Footprint corners = GatherFootprint(image, level, point);
    const uint32_t component = i.y >> kGatherShift & 3;
    for (uint32_t k = 0; k < 4; ++k) {
      std::array<uint32_t, 4> texel;
      if (!TapValue(w, i, lane, image, level, corners.taps[k], at.layer, &texel)) return false;
      (*values)[k] = texel[component];
    }
    return true;
  }
  // Without an explicit level nothing is smaller than a pixel here: the largest one, as far as the object allows.
  const float lod = (i.y & kHasLevel) != 0 ? Source<float>(w, i.f)[lane] : 0;
  const LevelChoice choice = ChooseLevels(image, lod);
  const auto fetch = [&](uint32_t index, std::array<uint32_t, 4>* into) {
    const Image::Level& level = image.levels[index];
    return FetchLevel(w, i, lane, image, level, FootprintOf(image, level, point, image.filters_linearly), at.layer,
                      into);
  };
  if (!fetch(choice.first, values)) return false;
  if (choice.second_weight == 0) return true;
  std::array<uint32_t, 4> second;
  if (!fetch(choice.second, &second)) return false;
  for (uint32_t channel = 0; channel < 4; ++channel) {
    const double mixed = (1.0 - choice.second_weight) * std::bit_cast<float>((*values)[channel]) +
                         double{choice.second_weight} * std::bit_cast<float>(second[channel]);
    (*values)[channel] = std::bit_cast<uint32_t>(static_cast<float>(mixed));
  }
  return true;
}

// a = object, b and c = coordinates, f = level, list = four registers written.
void OpFetch(Warp& w, const Instruction& i) {
  ImageFinder images(w, i);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const Image* image = images.Find(lane);
    std::array<uint32_t, 4> values{};
    if (image == nullptr || !Fetch(w, i, lane, *image, &values)) return;
    for (uint32_t k = 0; k < 4; ++k) Target<uint32_t>(w, i.list[k])[lane] = values[k];
  }
}

// ---------------------------------------------------------------- surfaces

enum class Place { kInside, kOutside, kFault };

// The address of `bytes` at the lane's coordinates.
Place SurfaceAddress(Warp& w, const Instruction& i, uint32_t lane, const Image& image, uint32_t bytes,
                     uint64_t* address) {
  const Image::Level& level = image.levels[0];
  const Coordinates at = CoordinatesOf(w, i, lane);
  int64_t index[3] = {static_cast<int32_t>(at.x), static_cast<int32_t>(at.y), static_cast<int32_t>(at.z)};
  if (image.num_dimensions < 2) index[1] = 0;
  if (image.num_dimensions < 3) index[2] = image.num_layers != 0 ? static_cast<int32_t>(at.layer) : 0;
  const int64_t row_bytes = int64_t{level.width} * image.texel_bytes();
  const int64_t last[3] = {row_bytes - bytes, int64_t{level.height} - 1,
                           int64_t{image.num_layers != 0 ? image.num_layers : level.depth} - 1};
  for (int d = 0; d < 3; ++d) {
    if (index[d] >= 0 && index[d] <= last[d]) continue;
    switch (static_cast<Outside>(i.y >> kOutsideShift)) {
      case Outside::kZero:
        return Place::kOutside;
      case Outside::kClamp:
        index[d] = std::clamp<int64_t>(index[d], 0, std::max<int64_t>(last[d], 0));
        break;
      case Outside::kTrap:
        RaiseFault(w, i, lane, kFaultIllegalAddress,
                   Format("surface coordinate {} is outside 0 to {}{}", index[d], last[d], d == 0 ? " bytes" : ""));
        return Place::kFault;
    }
  }
  if (index[0] % bytes != 0) {
    RaiseFault(w, i, lane, kFaultMisalignedAddress,
               Format("surface coordinate of {} bytes is not a multiple of {}", index[0], bytes));
    return Place::kFault;
  }
  *address = level.base + static_cast<uint64_t>(index[2]) * level.slice_bytes +
             static_cast<uint64_t>(index[1]) * level.row_bytes + static_cast<uint64_t>(index[0]);
  return Place::kInside;
}

// T = register, M = what is in memory.
template <typename T, typename M>
void OpSurfaceLoad(Warp& w, const Instruction& i) {
  const uint32_t count = i.y & kCountMask;
  const auto bytes = static_cast<uint32_t>(count * sizeof(M));
  ImageFinder images(w, i);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const Image* image = images.Find(lane);
    if (image == nullptr) return;
    uint64_t address = 0;
    const Place place = SurfaceAddress(w, i, lane, *image, bytes, &address);
    if (place == Place::kFault) return;
    T values[4] = {};
    if (place == Place::kInside) {
      const std::byte* from = ResolveAddress(w, i, lane, Space::kGlobal, address, bytes, 1, false);
      if (from == nullptr) return;
      for (uint32_t k = 0; k < count; ++k) values[k] = AtomicLoad(reinterpret_cast<const M*>(from) + k);
    }
    for (uint32_t k = 0; k < count; ++k) Target<T>(w, i.list[k])[lane] = values[k];
  }
}

template <typename T, typename M>
void OpSurfaceStore(Warp& w, const Instruction& i) {
  const uint32_t count = i.y & kCountMask;
  const auto bytes = static_cast<uint32_t>(count * sizeof(M));
  ImageFinder images(w, i);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const Image* image = images.Find(lane);
    if (image == nullptr) return;
    uint64_t address = 0;
    const Place place = SurfaceAddress(w, i, lane, *image, bytes, &address);
    if (place == Place::kFault) return;
    if (place == Place::kOutside) continue;
    std::byte* to = ResolveAddress(w, i, lane, Space::kGlobal, address, bytes, 1, true);
    if (to == nullptr) return;
    for (uint32_t k = 0; k < count; ++k) {
      AtomicStore(reinterpret_cast<M*>(to) + k, static_cast<M>(Source<T>(w, i.list[k])[lane]));
    }
  }
}

// ---------------------------------------------------------------- queries

enum class Query : uint32_t { kWidth, kHeight, kDepth, kLayers, kLevels };

void OpQuery(Warp& w, const Instruction& i) {  // y = Query
  ImageFinder images(w, i);
  uint32_t* d = Target<uint32_t>(w, i.d);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const Image* image = images.Find(lane);
    if (image == nullptr) return;
    const Image::Level& level = image->levels[0];
    switch (static_cast<Query>(i.y)) {
      case Query::kWidth:
        d[lane] = level.width;
        break;
      case Query::kHeight:
        d[lane] = level.height;
        break;
      case Query::kDepth:
        d[lane] = level.depth;
        break;
      case Query::kLayers:
        d[lane] = image->num_layers;
        break;
      case Query::kLevels:
        d[lane] = static_cast<uint32_t>(image->levels.size());
        break;
    }
  }
}

void OpPair(Warp& w, const Instruction& i) {  // d = a | b << 32
  const uint32_t* a = Source<uint32_t>(w, i.a);
  const uint32_t* b = Source<uint32_t>(w, i.b);
  uint64_t* d = Target<uint64_t>(w, i.d);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = uint64_t{b[l]} << 32 | a[l]; });
}

// ---------------------------------------------------------------- decoding

// Instruction::x from .1d, .2d, .3d, .a1d, .a2d; 0 for shapes that are not done.
uint32_t ShapeOf(const Lowering& l) {
  if (l.Has("1d")) return 1;
  if (l.Has("2d")) return 2;
  if (l.Has("3d")) return 3;
  if (l.Has("a1d")) return 1 | kIsLayered;
  if (l.Has("a2d")) return 2 | kIsLayered;
  return 0;
}

VirtualOperand Pair(Lowering& l, VirtualOperand low, VirtualOperand high) {
  const VirtualOperand pair = l.Temporary(8);
  l.Emit(&OpPair, pair, low, high);
  return pair;
}

// The object and the coordinates of `[object, {coordinates}]`.
struct Sample {
  VirtualOperand object = kNoOperand;
  VirtualOperand xy = kNoOperand;
  VirtualOperand z_layer = kNoOperand;
};
bool DecodeSample(Lowering& l, const ptx::Operand& memory, uint32_t shape, ScalarType type, Sample* sample) {
  if (memory.kind != OperandKind::kMemory || memory.base_kind != OperandKind::kRegister || memory.parts.size() != 1) {
    return l.Unsupported("textures and surfaces that are not objects");
  }
  sample->object = l.WideAddress(l.AddressOf(memory, StateSpace::kNone));
  const ptx::Operand& vector = memory.parts[0];
  const bool is_vector = vector.kind == OperandKind::kVector;
  const size_t given = is_vector ? vector.parts.size() : 1;
  const uint32_t num_dimensions = shape & kDimensionsMask;
  const uint32_t first = (shape & kIsLayered) != 0 ? 1 : 0;
  if (given < first + num_dimensions) return l.Invalid("fewer coordinates than the shape has");
  const VirtualOperand zero = l.Constant(4, 0);
  VirtualOperand coordinates[3] = {zero, zero, zero};
  for (uint32_t d = 0; d < num_dimensions; ++d) {
    coordinates[d] = l.Use(is_vector ? vector.parts[first + d] : vector, type);
  }
  const VirtualOperand layer = first != 0 ? l.Use(vector.parts[0], ScalarType::kU32) : zero;
  sample->xy = Pair(l, coordinates[0], coordinates[1]);
  sample->z_layer = Pair(l, coordinates[2], layer);
  return true;
}

bool DecodeFetch(Lowering& l, bool is_gather) {
  const uint32_t shape = ShapeOf(l);
  if (shape == 0) return l.Unsupported("cube maps and multi-sample textures");
  if (l.Has("grad")) return l.Unsupported("tex.grad");
  const ScalarType type = l.Type(0);
  const ScalarType coordinate_type = l.Type(1);
  if (!l.Has("v4") || TypeBytes(type) != 4 ||
      (coordinate_type != ScalarType::kF32 && coordinate_type != ScalarType::kS32)) {
    return l.Unsupported("texture fetches of these types");
  }
  const ptx::Operand& destination = l.operand(0);
  if (destination.kind != OperandKind::kVector || destination.parts.size() != 4) {
    return l.Invalid("a fetch returns four registers");
  }
  const bool has_level = l.Has("level");
  if (l.num_operands() != (has_level ? 3u : 2u)) return l.Unsupported("texture offsets and comparisons");
  Sample sample;
  if (!DecodeSample(l, l.operand(1), shape, coordinate_type, &sample)) return false;
  VirtualOperand level = kNoOperand;
  if (has_level) level = l.Use(2, coordinate_type);
  std::vector<VirtualOperand> list;
  for (const ptx::Operand& part : destination.parts) list.push_back(l.Define(part, type));
  LoweredInstruction& lowered = l.Emit(&OpFetch, kNoOperand, sample.object, sample.xy, sample.z_layer);
  lowered.i.f = level;
  lowered.i.x = shape;
  lowered.i.y = (coordinate_type == ScalarType::kS32 ? kHasIntegerCoordinates : 0) | (has_level ? kHasLevel : 0);
  if (is_gather) {
    const uint32_t component = l.Has("g") ? 1 : l.Has("b") ? 2 : l.Has("a") ? 3 : 0;
    lowered.i.y |= kIsGather | component << kGatherShift;
  }
  lowered.list = std::move(list);
  lowered.num_defined = static_cast<uint32_t>(lowered.list.size());
  return true;
}

bool DecodeTexture(Lowering& l) { return DecodeFetch(l, false); }
bool DecodeGather(Lowering& l) {
  if (ShapeOf(l) != 2) return l.Unsupported("tld4 of other than .2d");
  return DecodeFetch(l, true);
}

template <bool kIsLoad>
OpFunction SurfaceOp(uint32_t bytes) {
  switch (bytes) {
    case 1:
      return kIsLoad ? &OpSurfaceLoad<uint16_t, uint8_t> : &OpSurfaceStore<uint16_t, uint8_t>;
    case 2:
      return kIsLoad ? &OpSurfaceLoad<uint16_t, uint16_t> : &OpSurfaceStore<uint16_t, uint16_t>;
    case 4:
      return kIsLoad ? &OpSurfaceLoad<uint32_t, uint32_t> : &OpSurfaceStore<uint32_t, uint32_t>;
    case 8:
      return kIsLoad ? &OpSurfaceLoad<uint64_t, uint64_t> : &OpSurfaceStore<uint64_t, uint64_t>;
    default:
      return nullptr;
  }
}

template <bool kIsLoad>
bool DecodeSurface(Lowering& l) {
  const uint32_t shape = ShapeOf(l);
  if (shape == 0) return l.Unsupported("surfaces of cube maps");
  const ScalarType type = l.Type();
  const OpFunction op = SurfaceOp<kIsLoad>(MemoryBytes(type));
  if (!l.Has("b") || op == nullptr) return l.Unsupported("surface accesses of this type");
  Sample sample;
  if (!DecodeSample(l, l.operand(kIsLoad ? 1 : 0), shape, ScalarType::kS32, &sample)) return false;
  const ptx::Operand& values = l.operand(kIsLoad ? 0 : 1);
  std::vector<VirtualOperand> list;
  const auto add = [&](const ptx::Operand& part) {
    list.push_back(kIsLoad ? l.Define(part, type) : l.Use(part, type));
  };
  if (values.kind == OperandKind::kVector) {
    for (const ptx::Operand& part : values.parts) add(part);
  } else {
    add(values);
  }
  if (list.empty() || list.size() > 4) return l.Invalid("one, two or four elements");
  const Outside outside = l.Has("clamp") ? Outside::kClamp : l.Has("zero") ? Outside::kZero : Outside::kTrap;
  LoweredInstruction& lowered = l.Emit(op, kNoOperand, sample.object, sample.xy, sample.z_layer);
  lowered.i.x = shape;
  lowered.i.y = static_cast<uint32_t>(list.size()) | static_cast<uint32_t>(outside) << kOutsideShift;
  lowered.list = std::move(list);
  lowered.num_defined = kIsLoad ? static_cast<uint32_t>(lowered.list.size()) : 0;
  return true;
}

bool DecodeQuery(Lowering& l) {
  constexpr struct {
    std::string_view name;
    Query query;
  } kQueries[] = {{"width", Query::kWidth},
                  {"height", Query::kHeight},
                  {"depth", Query::kDepth},
                  {"array_size", Query::kLayers},
                  {"num_mipmap_levels", Query::kLevels}};
  for (const auto& known : kQueries) {
    if (!l.Has(known.name) || l.Has("level")) continue;
    const ptx::Operand& object = l.operand(1);
    if (object.kind != OperandKind::kMemory || object.base_kind != OperandKind::kRegister) break;
    const VirtualOperand a = l.WideAddress(l.AddressOf(object, StateSpace::kNone));
    l.Emit(&OpQuery, l.Define(0, ScalarType::kB32), a).i.y = static_cast<uint32_t>(known.query);
    return true;
  }
  return l.Unsupported("this query of a texture or surface");
}

}  // namespace

void AddTextureOpcodes(OpcodeTable& table) {
  // Several steps each: under a guard they are branched around.
  table["tex"] = {&DecodeTexture, true};
  table["tld4"] = {&DecodeGather, true};
  table["suld"] = {&DecodeSurface<true>, true};
  table["sust"] = {&DecodeSurface<false>, true};
  table["txq"] = {&DecodeQuery};
  table["suq"] = {&DecodeQuery};
}

}  // namespace tally::sim_driver
