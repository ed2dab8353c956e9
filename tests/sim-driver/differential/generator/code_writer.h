// Writes the body of one function: registers and labels get names, instructions become lines.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

namespace tally::differential {

enum class RegisterKind : uint8_t { kWord, kLong, kShort, kFloat, kPredicate };

class CodeWriter {
 public:
  // What names of registers and labels start with. Programs may use any name, also those that passes like.
  struct Names {
    std::array<std::string, 5> registers{"%r", "%rd", "%rs", "%f", "%p"};
    std::string label = "$L_";
  };
  explicit CodeWriter(Names names) : names_(std::move(names)) {}

  std::string New(RegisterKind kind) {
    auto k = static_cast<size_t>(kind);
    return fmt::format("{}{}", names_.registers[k], counts_[k]++);
  }
  std::string Word() { return New(RegisterKind::kWord); }
  std::string Long() { return New(RegisterKind::kLong); }
  std::string Predicate() { return New(RegisterKind::kPredicate); }
  std::string Label() { return fmt::format("{}{}", names_.label, num_labels_++); }

  template <typename... Arguments>
  void Line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += '\t';
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }
  void Mark(const std::string& label) { text_ += label + ":\n"; }

  // Declarations of all registers, then the lines.
  std::string Finish() const {
    static constexpr const char* kTypes[] = {".b32", ".b64", ".b16", ".f32", ".pred"};
    std::string declarations;
    for (size_t k = 0; k < counts_.size(); ++k)
      if (counts_[k] > 0)
        declarations += fmt::format("\t.reg {} \t{}<{}>;\n", kTypes[k], names_.registers[k], counts_[k]);
    return declarations + text_;
  }
  // Lines that go before everything written so far: variables of the function.
  void Declare(const std::string& line) { text_.insert(0, "\t" + line + "\n"); }

 private:
  Names names_;
  std::array<uint32_t, 5> counts_{};
  uint32_t num_labels_ = 0;
  std::string text_;
};

}  // namespace tally::differential
