// Which names of a function are registers. PTX lets a register be called anything (inline assembly does: `p`, `tmp`),
// so operands can only be told apart by what was declared in the scopes around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tally::ptx_transforms {

// Whether `name` is predefined: "%tid", "%laneid", "%envreg3". With its %, without a component.
bool IsSpecialRegister(std::string_view name);

// Names are views into the source text. Lookup is O(1) whatever the nesting.
class RegisterNames {
 public:
  void OpenScope() { scope_starts_.push_back(declared_.size()); }
  void CloseScope();
  void Declare(std::string_view name, bool is_range);
  // A variable may begin with % too.
  void DeclareVariable(std::string_view name);

  bool IsRegister(std::string_view name) const;

 private:
  struct Declared {
    std::string_view name;
    bool is_range;
  };
  std::vector<Declared> declared_;
  std::vector<size_t> scope_starts_;
  std::unordered_map<std::string_view, uint32_t> num_names_;     // open declarations of a name without %
  std::unordered_map<std::string_view, uint32_t> num_prefixes_;  // the same for name<N>
  std::unordered_map<std::string_view, uint32_t> percent_variables_;
};

}  // namespace tally::ptx_transforms
