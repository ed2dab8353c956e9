#include "sim-driver/engine/initializer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim-driver/engine/half.h"
#include "sim-driver/engine/lowering.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

using ptx_transforms::Initializer;

constexpr uint64_t kMaxVariableBytes = uint64_t{2} << 30;

class Filler {
 public:
  Filler(const ptx::Variable& declaration, const std::function<InitializerTarget(std::string_view)>& find,
         Variable& variable)
      : declaration_(declaration), find_(find), variable_(variable), element_bytes_(MemoryBytes(declaration.type)) {}

  // Writes `value` at `offset`; `depth` is how many dimensions are left behind. Returns the end of what it may take.
  Status Fill(const Initializer& value, uint64_t offset, size_t depth) {
    if (value.kind == Initializer::Kind::kList) {
      uint64_t step = StepAt(depth);
      for (const Initializer& element : value.elements) {
        TALLY_RETURN_IF_ERROR(Fill(element, offset, depth + 1));
        offset += element.kind == Initializer::Kind::kList ? step : element_bytes_;
      }
      return OkStatus();
    }
    if (offset + element_bytes_ > variable_.size_bytes)
      return Status(StatusCode::kInvalidArgument, Format("too many initial values for {}", variable_.name));
    if (variable_.initial_bytes.size() < offset + element_bytes_)
      variable_.initial_bytes.resize(offset + element_bytes_);
    if (value.kind == Initializer::Kind::kSymbol || value.kind == Initializer::Kind::kMask)
      return Relocate(value, offset);
    uint64_t bits = ScalarBits(value);
    std::memcpy(variable_.initial_bytes.data() + offset, &bits, std::min<size_t>(element_bytes_, 8));
    return OkStatus();
  }

 private:
  // Bytes of one element of the list at this depth.
  uint64_t StepAt(size_t depth) const {
    uint64_t bytes = uint64_t{element_bytes_} * declaration_.vector_width;
    for (size_t k = depth + 1; k < declaration_.dimensions.size(); ++k) bytes *= declaration_.dimensions[k];
    return bytes;
  }

  uint64_t ScalarBits(const Initializer& value) const {
    if (value.kind == Initializer::Kind::kInteger) {
      if (declaration_.type == ScalarType::kF32)
        return std::bit_cast<uint32_t>(static_cast<float>(int64_t(value.bits)));
      if (declaration_.type == ScalarType::kF64)
        return std::bit_cast<uint64_t>(static_cast<double>(int64_t(value.bits)));
      return value.bits;
    }
    double number = value.kind == Initializer::Kind::kFloat32
                        ? double{std::bit_cast<float>(static_cast<uint32_t>(value.bits))}
                        : std::bit_cast<double>(value.bits);
    switch (declaration_.type) {
      case ScalarType::kF64:
        return std::bit_cast<uint64_t>(number);
      case ScalarType::kF32:
        return std::bit_cast<uint32_t>(static_cast<float>(number));
      default:
        return value.bits;
    }
  }

  Status Relocate(const Initializer& value, uint64_t offset) {
    InitializerTarget target = find_(value.name);
    if (!target.is_known)
      return Status(StatusCode::kNotFound,
                    Format("{}, named in the initial value of {}, is nowhere defined", value.name, variable_.name));
    uint32_t shift = value.kind == Initializer::Kind::kMask && value.bits != 0
                         ? static_cast<uint32_t>(std::countr_zero(value.bits))
                         : 0;
    variable_.relocations.push_back({.offset_bytes = static_cast<uint32_t>(offset),
                                     .size_bytes = std::min(element_bytes_, 8u),
                                     .shift_bits = shift,
                                     .is_function = target.is_function,
                                     .index = target.index,
                                     .addend = value.offset});
    return OkStatus();
  }

  const ptx::Variable& declaration_;
  const std::function<InitializerTarget(std::string_view)>& find_;
  Variable& variable_;
  uint32_t element_bytes_;
};

}  // namespace

Status FillVariable(const ptx::Variable& declaration, const std::function<InitializerTarget(std::string_view)>& find,
                    Variable& variable) {
  uint32_t element_bytes = MemoryBytes(declaration.type);
  if (element_bytes == 0)
    return Status(StatusCode::kInvalidArgument,
                  Format("variable {} of type .{}", declaration.name, declaration.type_name));
  variable.size_bytes = declaration.SizeBytes();
  if (variable.size_bytes == 0 && declaration.has_initializer) {  // int a[] = {...}
    uint64_t row = uint64_t{element_bytes} * declaration.vector_width;
    for (size_t k = 1; k < declaration.dimensions.size(); ++k) row *= declaration.dimensions[k];
    variable.size_bytes = row * declaration.initializer.elements.size();
  }
  if (variable.size_bytes > kMaxVariableBytes)
    return Status(StatusCode::kInvalidArgument, Format("variable {} is too big", declaration.name));
  if (!declaration.has_initializer) return OkStatus();
  return Filler(declaration, find, variable).Fill(declaration.initializer, 0, 0);
}

}  // namespace tally::sim_driver
