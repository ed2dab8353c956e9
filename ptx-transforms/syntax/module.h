// A parsed PTX module: owner of the source text, of the tree and of the tree's memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ptx-transforms/syntax/ast.h"
#include "ptx-transforms/syntax/diagnostic.h"

namespace tally::ptx_transforms {

// Movable; nodes keep their addresses of text and Lists across a move. Not thread-safe while being edited; any number
// of threads may read.
class Module {
 public:
  explicit Module(std::string source);
  Module(Module&&) noexcept;
  Module& operator=(Module&&) noexcept;
  ~Module();

  std::string_view source() const { return *source_; }
  std::string_view Text(TextRange range) const { return source().substr(range.begin, range.size()); }
  // Line and column of a byte of the source. O(log lines).
  SourcePosition PositionAt(uint32_t offset) const;

  // Everything at module scope, in order.
  std::vector<Item>& items() { return items_; }
  const std::vector<Item>& items() const { return items_; }

  // From .version, .target and .address_size. Editing those items does not change these.
  VersionDirective version;
  List<std::string_view> targets;
  uint32_t address_size = 64;

  // The definition of that name, else its first declaration, else null. O(items).
  const Function* FindFunction(std::string_view name) const;
  Function* FindFunction(std::string_view name);

  // White space and comments after the last item.
  TextRange trailing;
  // What was kept opaque and why; at most ParseOptions::max_diagnostics.
  std::vector<Diagnostic> warnings;

  // Memory for nodes and names made by passes.
  Arena& arena() { return *arena_; }

 private:
  std::unique_ptr<const std::string> source_;
  std::unique_ptr<Arena> arena_;
  std::vector<uint32_t> line_starts_;
  std::vector<Item> items_;
};

}  // namespace tally::ptx_transforms
