// The body of a function while it is being generated: what may be used, and who runs the code that comes next.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/sim-driver/differential/generator/code_writer.h"
#include "tests/sim-driver/differential/generator/generated_module.h"
#include "tests/sim-driver/differential/generator/random_source.h"

namespace tally::differential {

// Among which threads a value is the same, or which threads run a piece of code together. A larger one says less.
enum class Spread : uint8_t { kBlock, kWarp, kThread };

struct Value {
  std::string name;
  Spread spread = Spread::kThread;
};

// Threads that leave a kernel early.
enum class EarlyExits : uint8_t {
  kNone,  // whole blocks at most: barriers may count threads
  kTidy,  // where the lanes that stay are known: warp operations name them
  kWild,  // anywhere, also in functions: no warp operations
};

struct FunctionPlan {
  std::string name;
  uint32_t num_arguments = 0;
  std::string linkage;       // ".visible ", or nothing
  bool has_barrier = false;  // only where the whole block calls it
  bool may_exit = false;     // only from kernels with wild exits
};

// Of the module.
struct ModuleTraits {
  uint32_t version = 80;      // of PTX, times ten
  uint32_t target = 80;       // sm_
  bool has_tables = false;    // .const table_c[64] and .global table_g[64], .global counters_g[16]
  bool has_pointers = false;  // .global pointer_g with the address of table_g
};

struct Traits {
  ModuleTraits module;
  bool is_kernel = true;
  Dim3 block;  // of a kernel: it is always launched so
  uint32_t NumThreads() const { return static_cast<uint32_t>(block.Count()); }
  uint32_t NumWarps() const { return (NumThreads() + 31) / 32; }
  EarlyExits exits = EarlyExits::kNone;
  bool has_shared = false;         // kernels: slots_s (a word per thread) and sums_s (kSharedSums words)
  bool slots_are_dynamic = false;  // slots_s is the dynamic shared memory
  bool reads_index_oddly = false;  // %ctaid as 16 or 64 bits
  bool has_local = false;          // array_l, 16 words
  bool has_barriers = true;
  bool parts_warp_operations = true;     // also where lanes of a warp are apart
  std::optional<uint32_t> only_barrier;  // every barrier for all threads is this one
  bool may_exit = false;                 // functions
  uint32_t struct_words = 0;             // kernels: parameter `block_of_words`
  std::vector<std::string> scalars;      // kernels: parameters of type .u32
};
inline constexpr uint32_t kSharedSums = 24;

class Body {
 public:
  Body(RandomSource& source, CodeWriter::Names names, Traits body_traits)
      : random(source), code(std::move(names)), traits(std::move(body_traits)) {}

  RandomSource& random;
  CodeWriter code;
  const Traits traits;
  std::vector<FunctionPlan> callable;

  // Where the code is.
  Spread where = Spread::kBlock;
  uint32_t depth = 0;
  // Register with the lanes of the warp that are here; empty: not known. Below Spread::kThread it is the register that
  // the kernel started with, so that lanes which leave are taken out of it once for all enclosing scopes.
  std::string mask;
  uint32_t num_exits_left = 0;
  uint32_t num_statements_left = 0;

  // Immutable words in scope, all of them written.
  std::vector<Value> words;
  // Words that statements assign to; they belong to each thread.
  std::vector<std::string> variables;

  // Addresses (generic-free, .global) and indices of a kernel.
  std::string buffers[kNumBuffers];
  std::string own_words;       // of this thread in Buffer::kThreads
  std::string block_words;     // of the block's first thread
  std::string linear_thread;   // word: index in the block
  std::string warp_index;      // word
  std::string shared_slots;    // word: address of slots_s
  std::string result_address;  // functions: unused by kernels

  // A word that is in scope (or a variable, or a fresh constant) and spread at most so far.
  Value Word(Spread at_most = Spread::kThread);
  // A predicate that is now and then true; exactly what is compared depends on the spread.
  Value Predicate(Spread at_most = Spread::kThread);
  void Add(std::string word, Spread spread) { words.push_back({std::move(word), spread}); }
  Spread Join(Spread a, Spread b) const { return a > b ? a : b; }
  bool KnowsLanes() const { return !mask.empty(); }

  // As many random statements, fewer when the budget of the body runs out.
  void Statements(uint32_t count);

  // Values of a nested scope are forgotten at its end, and where the code is goes back.
  class Scope {
   public:
    Scope(Body& body, Spread where, std::string mask)
        : body_(body), num_words_(body.words.size()), where_(body.where), mask_(body.mask) {
      body.where = where;
      body.mask = std::move(mask);
      ++body.depth;
    }
    ~Scope() {
      body_.words.resize(num_words_);
      body_.where = where_;
      body_.mask = mask_;
      --body_.depth;
    }
    Scope(const Scope&) = delete;

   private:
    Body& body_;
    size_t num_words_;
    Spread where_;
    std::string mask_;
  };
};

// One kind of statement: how often, where it may stand, and how it is written.
struct StatementKind {
  uint32_t weight;
  bool (*applies)(const Body& body);
  void (*write)(Body& body);
};
std::span<const StatementKind> ArithmeticStatements();
std::span<const StatementKind> BarrierStatements();
std::span<const StatementKind> CallStatements();
std::span<const StatementKind> ControlStatements();
std::span<const StatementKind> MemoryStatements();
std::span<const StatementKind> WarpStatements();

// Used by several families.
// All threads of the block meet. Only where the whole block is.
void WriteBlockBarrier(Body& body);
// Makes a 64-bit address: `base` plus four times the word `index`.
std::string ElementAddress(Body& body, const std::string& base, const std::string& index);
// A new word: `index` modulo `count`.
std::string Bounded(Body& body, const std::string& index, uint32_t count);
// The mask of an operation for the lanes that are here. Where all of the warp are that have not left, also one with
// more lanes: nobody waits for those.
std::string NamedLanes(Body& body);
// The lanes of `mask` whose predicate is true (or false).
std::string LanesWhere(Body& body, const std::string& predicate, bool is_true);

}  // namespace tally::differential
