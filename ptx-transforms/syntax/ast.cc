#include "ptx-transforms/syntax/ast.h"

#include <algorithm>
#include <limits>

#include "ptx-transforms/syntax/diagnostic.h"

namespace tally::ptx_transforms {

std::string SourcePosition::ToString() const { return std::to_string(line) + ":" + std::to_string(column); }

std::string Diagnostic::ToString(std::string_view source_name) const {
  return std::string(source_name) + ":" + position.ToString() + ": " + message;
}

bool Instruction::HasModifier(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

uint32_t Variable::Alignment() const {
  if (align != 0) return align;
  return std::max<uint32_t>(1, static_cast<uint32_t>(ScalarTypeBytes(type)) * vector_width);
}

uint64_t Variable::SizeBytes() const {
  uint64_t size = ScalarTypeBytes(type) * vector_width;
  for (const uint64_t dimension : dimensions) {
    if (dimension == kUnspecifiedDimension) return 0;
    if (__builtin_mul_overflow(size, dimension, &size)) return std::numeric_limits<uint64_t>::max();
  }
  return size;
}

const FunctionDirective* Function::FindDirective(std::string_view directive) const {
  for (const FunctionDirective& candidate : directives)
    if (candidate.name == directive) return &candidate;
  return nullptr;
}

}  // namespace tally::ptx_transforms
