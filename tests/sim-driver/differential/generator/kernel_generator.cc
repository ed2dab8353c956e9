#include "tests/sim-driver/differential/generator/kernel_generator.h"

#include <algorithm>
#include <cstring>

namespace tally::differential {
namespace {

constexpr uint32_t kMaxThreadsOfGrid = 4096;

CodeWriter::Names RandomNames(RandomSource& random) {
  CodeWriter::Names names;
  if (random.Chance(20)) names.registers = {"%tally_r", "%tally_rd", "%h", "%tally_f", "%tally_p"};
  if (random.Chance(10)) names.registers = {"word", "$address", "%rs", "real_", "is_"};
  names.label = random.Pick({"$L_", "BB0_", "tally_", "$L__BB0_"});
  return names;
}

// ---------------------------------------------------------------- the launch

Dim3 RandomBlock(RandomSource& random) {
  switch (random.Below(4)) {
    case 0:
      return {random.Pick({1u, 7u, 31u, 33u, 48u, 95u, 100u, 130u}), 1, 1};
    case 1:
      return {random.Pick({4u, 8u, 16u, 5u}), random.Between(1, 7), random.Pick({1u, 1u, 2u, 3u})};
    default:
      return {random.Pick({32u, 64u, 64u, 96u, 128u, 160u, 256u}), 1, 1};
  }
}

Dim3 RandomGrid(RandomSource& random, uint32_t threads) {
  uint32_t limit = std::clamp(kMaxThreadsOfGrid / threads, 2u, 40u);
  uint32_t n = random.Between(1, limit);
  switch (random.Below(6)) {
    case 0:
      return {1, n, 1};
    case 1:
      return {1, 1, n};
    case 2: {
      uint32_t x = random.Between(1, std::min(n, 7u));
      return {x, std::max(1u, n / x), 1};
    }
    case 3: {
      uint32_t x = random.Between(1, 3);
      uint32_t y = random.Between(1, 3);
      return {x, y, std::max(1u, n / (x * y))};
    }
    default:
      return {n, 1, 1};
  }
}

// ---------------------------------------------------------------- parameters

std::vector<std::byte> RandomBytes(RandomSource& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
  return bytes;
}

// Declares what the kernel takes, in a random order; adds scalars and the struct to `traits`.
std::string DeclareParameters(RandomSource& random, GeneratedKernel& kernel, Traits& traits) {
  struct Declared {
    std::string text;
    GeneratedParameter parameter;
  };
  std::vector<Declared> all;
  for (size_t k = 0; k < kNumBuffers; ++k) {
    const char* attributes = random.Chance(20) ? ".ptr .global .align 4 " : "";
    all.push_back({fmt::format(".param .u64 {}buffer{}", attributes, k), {true, static_cast<Buffer>(k), {}}});
  }
  uint32_t num_scalars = random.Chance(5) ? random.Between(40, 120) : random.Below(5);
  for (uint32_t k = 0; k < num_scalars; ++k) {
    std::string name = fmt::format("scalar{}", k);
    uint32_t bytes = random.Pick({4u, 4u, 4u, 1u, 2u, 8u});
    const char* type = bytes == 4 ? "u32" : bytes == 1 ? "u8" : bytes == 2 ? "u16" : random.Pick({"f64", "u64"});
    if (bytes == 4) traits.scalars.push_back(name);
    all.push_back({fmt::format(".param .{} {}", type, name), {false, {}, RandomBytes(random, bytes)}});
  }
  if (random.Chance(20)) {
    traits.struct_words = random.Chance(20) ? random.Between(600, 850) : random.Between(1, 40);
    all.push_back(
        {fmt::format(".param .align {} .b8 block_of_words[{}]", random.Pick({4, 8, 16}), traits.struct_words * 4),
         {false, {}, RandomBytes(random, traits.struct_words * 4)}});
  }
  for (size_t k = all.size(); k > 1; --k) std::swap(all[k - 1], all[random.Below(static_cast<uint32_t>(k))]);
  std::string text;
  for (Declared& declared : all) {
    text += (text.empty() ? "\n\t" : ",\n\t") + declared.text;
    kernel.parameters.push_back(std::move(declared.parameter));
  }
  return text + "\n";
}

// ---------------------------------------------------------------- prologue

void LoadBuffers(Body& body, bool has_parameters) {
  std::string base;
  if (!has_parameters) {
    base = body.code.Long();
    body.code.Line("mov.u64 \t{}, {};", base, kRolesVariable);
  }
  for (size_t k = 0; k < kNumBuffers; ++k) {
    std::string address = body.code.Long();
    if (has_parameters) {
      body.code.Line("ld.param.u64 \t{}, [buffer{}];", address, k);
    } else {
      body.code.Line("ld.global.u64 \t{}, [{}+{}];", address, base, k * 8);
    }
    if (body.random.Chance(80)) {
      std::string global = body.code.Long();
      body.code.Line("cvta.to.global.u64 \t{}, {};", global, address);
      address = global;
    }
    body.buffers[k] = address;
  }
}

std::string Special(Body& body, const char* name, const char* axis, Spread spread) {
  std::string word = body.code.Word();
  body.code.Line("mov.u32 \t{}, %{}.{};", word, name, axis);
  body.Add(word, spread);
  return word;
}

// x + size_x * (y + size_y * z)
std::string Linear(Body& body, const std::string (&at)[3], const std::string (&size)[3]) {
  std::string linear = body.code.Word();
  body.code.Line("mad.lo.u32 \t{}, {}, {}, {};", linear, size[1], at[2], at[1]);
  body.code.Line("mad.lo.u32 \t{}, {}, {}, {};", linear, size[0], linear, at[0]);
  return linear;
}

// Counts the thread as started, and lets the first thread of the block take a ticket.
void CountBlock(Body& body, const std::string& linear_block) {
  CodeWriter& code = body.code;
  const std::string& probe = body.buffers[static_cast<size_t>(Buffer::kProbe)];
  std::string address = ElementAddress(body, body.buffers[static_cast<size_t>(Buffer::kCounts)], linear_block);
  code.Line("red.global.add.u32 \t[{}], 1;", address);
  std::string is_first = code.Predicate();
  std::string yields = code.Predicate();
  std::string ticket = code.Word();
  std::string wanted = code.Word();
  code.Line("setp.eq.u32 \t{}, {}, 0;", is_first, body.linear_thread);
  code.Line("mov.u32 \t{}, 0xffffffff;", ticket);
  code.Line("@{} atom.global.add.u32 \t{}, [{}], 1;", is_first, ticket, probe);
  code.Line("ld.relaxed.gpu.global.u32 \t{}, [{}+4];", wanted, probe);
  code.Line("setp.eq.u32 \t{}, {}, {};", yields, ticket, wanted);
  code.Line("@{} st.relaxed.gpu.global.u32 \t[{}+{}], 1;", yields, probe,
            static_cast<uint32_t>(ProbeWord::kYieldFlag) * 4);
}

void WritePrologue(Body& body, bool has_parameters) {
  CodeWriter& code = body.code;
  LoadBuffers(body, has_parameters);
  const std::string thread[3] = {Special(body, "tid", "x", Spread::kThread), Special(body, "tid", "y", Spread::kThread),
                                 Special(body, "tid", "z", Spread::kThread)};
  const std::string threads[3] = {Special(body, "ntid", "x", Spread::kBlock),
                                  Special(body, "ntid", "y", Spread::kBlock),
                                  Special(body, "ntid", "z", Spread::kBlock)};
  const std::string block[3] = {Special(body, "ctaid", "x", Spread::kBlock),
                                Special(body, "ctaid", "y", Spread::kBlock),
                                Special(body, "ctaid", "z", Spread::kBlock)};
  const std::string blocks[3] = {Special(body, "nctaid", "x", Spread::kBlock),
                                 Special(body, "nctaid", "y", Spread::kBlock),
                                 Special(body, "nctaid", "z", Spread::kBlock)};
  body.linear_thread = Linear(body, thread, threads);
  std::string linear_block = Linear(body, block, blocks);
  CountBlock(body, linear_block);
  body.warp_index = code.Word();
  code.Line("shr.u32 \t{}, {}, 5;", body.warp_index, body.linear_thread);
  body.Add(body.linear_thread, Spread::kThread);
  body.Add(linear_block, Spread::kBlock);
  body.Add(body.warp_index, Spread::kWarp);

  std::string first = code.Word();
  code.Line("mul.lo.u32 \t{}, {}, {};", first, linear_block, body.traits.NumThreads());
  body.block_words = code.Long();
  body.own_words = code.Long();
  code.Line("mad.wide.u32 \t{}, {}, {}, {};", body.block_words, first, kThreadWords * 4,
            body.buffers[static_cast<size_t>(Buffer::kThreads)]);
  code.Line("mad.wide.u32 \t{}, {}, {}, {};", body.own_words, body.linear_thread, kThreadWords * 4, body.block_words);

  for (uint32_t k = body.random.Between(2, 5); k > 0; --k) {
    std::string variable = code.Word();
    code.Line("mad.lo.u32 \t{}, {}, {}, {};", variable, linear_block, body.random.Next32() | 1, body.linear_thread);
    code.Line("xor.b32 \t{}, {}, {};", variable, variable, body.random.Next32());
    body.variables.push_back(variable);
  }
  if (body.traits.exits != EarlyExits::kWild) {
    body.mask = code.Word();
    if (body.traits.NumThreads() % 32 == 0) {
      code.Line("mov.u32 \t{}, -1;", body.mask);
    } else {  // as many ones as the warp has threads; a shift by 32 gives zero
      std::string left = code.Word();
      code.Line("and.b32 \t{}, {}, -32;", left, body.linear_thread);
      code.Line("sub.u32 \t{}, {}, {};", left, body.traits.NumThreads(), left);
      code.Line("min.u32 \t{}, {}, 32;", left, left);
      code.Line("shl.b32 \t{}, 1, {};", body.mask, left);
      code.Line("sub.u32 \t{}, {}, 1;", body.mask, body.mask);
    }
  }
}

void WriteLocalArray(Body& body) {
  std::string base = body.code.Long();
  body.code.Declare(".local .align 16 .b8 array_l[64];");
  body.code.Line("mov.u64 \t{}, array_l;", base);
  for (uint32_t k = 0; k < 4; ++k) {
    std::string a = body.Word().name;
    body.code.Line("st.local.v4.u32 \t[{}+{}], {{{}, {}, {}, {}}};", base, k * 16, a, body.Word().name, a,
                   body.Word().name);
  }
}

// Everything in shared memory is written before a barrier, so that nothing of an earlier block can be read.
void InitialiseShared(Body& body) {
  CodeWriter& code = body.code;
  body.shared_slots = code.Word();
  code.Line("mov.u32 \t{}, slots_s;", body.shared_slots);
  std::string address = code.Word();
  code.Line("mad.lo.u32 \t{}, {}, 4, {};", address, body.linear_thread, body.shared_slots);
  code.Line("st.shared.u32 \t[{}], {};", address, body.variables[0]);
  std::string index = code.Word();
  std::string base = code.Word();
  std::string done = code.Predicate();
  std::string head = code.Label();
  std::string end = code.Label();
  code.Line("mov.u32 \t{}, sums_s;", base);
  code.Line("mov.u32 \t{}, {};", index, body.linear_thread);
  code.Mark(head);
  code.Line("setp.ge.u32 \t{}, {}, {};", done, index, kSharedSums);
  code.Line("@{} bra \t{};", done, end);
  code.Line("mad.lo.u32 \t{}, {}, 4, {};", address, index, base);
  code.Line("st.shared.u32 \t[{}], {};", address, index);
  code.Line("add.u32 \t{}, {}, {};", index, index, body.traits.NumThreads());
  code.Line("bra \t{};", head);
  code.Mark(end);
  WriteBlockBarrier(body);
}

// ---------------------------------------------------------------- epilogue

void StoreResults(Body& body) {
  CodeWriter& code = body.code;
  Body::Scope scope(body, body.where, body.mask);  // a kernel may have two ends
  for (uint32_t k = 0; k < 3; ++k) {
    std::string mixed = code.Word();
    code.Line("add.u32 \t{}, {}, {};", mixed, body.Word().name, body.variables[k % body.variables.size()]);
    code.Line("st.global.u32 \t[{}+{}], {};", body.own_words, k * 4, mixed);
  }
  // Where the thread is in the whole grid.
  std::string at[3];
  std::string size[3];
  const char* axes[] = {"x", "y", "z"};
  for (size_t k = 0; k < 3; ++k) {
    std::string block = Special(body, "ctaid", axes[k], Spread::kBlock);
    std::string blocks = Special(body, "nctaid", axes[k], Spread::kBlock);
    std::string threads = Special(body, "ntid", axes[k], Spread::kBlock);
    std::string thread = Special(body, "tid", axes[k], Spread::kThread);
    at[k] = code.Word();
    size[k] = code.Word();
    code.Line("mad.lo.u32 \t{}, {}, {}, {};", at[k], block, threads, thread);
    code.Line("mul.lo.u32 \t{}, {}, {};", size[k], blocks, threads);
  }
  std::string cell = Linear(body, at, size);
  std::string address = ElementAddress(body, body.buffers[static_cast<size_t>(Buffer::kCells)], cell);
  code.Line("st.global.u32 \t[{}], {};", address, body.Word().name);
}

void WriteEnd(Body& body) {
  CodeWriter& code = body.code;
  switch (body.random.Below(5)) {
    case 0:
      code.Line("exit;");
      return;
    case 1: {  // two ends
      std::string other = code.Label();
      code.Line("@{} bra \t{};", body.Predicate().name, other);
      StoreResults(body);
      code.Line("{};", body.random.Pick({"ret", "exit"}));
      code.Mark(other);
      StoreResults(body);
      code.Line("ret;");
      return;
    }
    case 2:
      code.Line("@{} {};", body.Predicate().name, body.random.Pick({"ret", "exit"}));
      StoreResults(body);
      code.Line("ret;");
      return;
    default:
      StoreResults(body);
      code.Line("ret;");
  }
}

std::string TuningDirectives(RandomSource& random, const Dim3& block) {
  switch (random.Below(6)) {
    case 0:
      return fmt::format(".reqntid {}, {}, {}\n", block.x, block.y, block.z);
    case 1:
      return fmt::format(".maxntid {}, {}, {}\n{}", block.x, block.y, block.z,
                         random.Chance(50) ? ".minnctapersm 1\n" : "");
    default:
      return "";
  }
}

}  // namespace

std::string FunctionSignature(const FunctionPlan& plan) {
  std::string arguments;
  for (uint32_t k = 0; k < plan.num_arguments; ++k)
    arguments += fmt::format("{}.param .b32 a{}", k == 0 ? "" : ", ", k);
  return fmt::format("{}.func (.param .b32 result) {} ({})", plan.linkage, plan.name, arguments);
}

std::string WriteFunction(RandomSource& random, const FunctionPlan& plan, const ModuleTraits& module,
                          const std::vector<FunctionPlan>& callable) {
  Traits traits;
  traits.module = module;
  traits.is_kernel = false;
  traits.has_barriers = plan.has_barrier;
  traits.may_exit = plan.may_exit;
  traits.has_local = random.Chance(20);
  Body body(random, RandomNames(random), traits);
  body.callable = callable;
  body.where = plan.has_barrier ? Spread::kBlock : Spread::kThread;
  body.num_exits_left = random.Below(3);
  body.num_statements_left = random.Between(3, 14);
  for (uint32_t k = 0; k < plan.num_arguments; ++k) {
    std::string word = body.code.Word();
    body.code.Line("ld.param.b32 \t{}, [a{}];", word, k);
    body.Add(word, Spread::kThread);
  }
  std::string variable = body.code.Word();
  body.code.Line("mov.u32 \t{}, {};", variable, body.words[0].name);
  body.variables.push_back(variable);
  if (traits.has_local) WriteLocalArray(body);
  body.Statements(body.num_statements_left);
  std::string result = body.code.Word();
  body.code.Line("xor.b32 \t{}, {}, {};", result, variable, body.Word().name);
  body.code.Line("st.param.b32 \t[result+0], {};", result);
  body.code.Line("ret;");
  return fmt::format("{}\n{{\n{}}}\n\n", FunctionSignature(plan), body.code.Finish());
}

KernelText WriteKernel(RandomSource& random, const std::string& name, bool has_parameters, const ModuleTraits& module,
                       const std::vector<FunctionPlan>& callable) {
  KernelText written;
  GeneratedKernel& kernel = written.kernel;
  kernel.name = name;
  kernel.block = RandomBlock(random);
  kernel.grid = RandomGrid(random, static_cast<uint32_t>(kernel.block.Count()));
  Traits traits;
  traits.module = module;
  traits.block = kernel.block;
  traits.exits =
      random.Pick({EarlyExits::kNone, EarlyExits::kNone, EarlyExits::kTidy, EarlyExits::kWild, EarlyExits::kWild});
  traits.parts_warp_operations = random.Chance(45);
  traits.has_barriers = random.Chance(75);
  if (random.Chance(70)) traits.only_barrier = random.Pick({0u, 0u, 0u, 3u});
  traits.has_shared = traits.has_barriers && random.Chance(75);
  traits.slots_are_dynamic = traits.has_shared && random.Chance(35);
  traits.has_local = random.Chance(30);
  traits.reads_index_oddly = random.Chance(4);
  std::string parameters = has_parameters ? DeclareParameters(random, kernel, traits) : "";

  Body body(random, RandomNames(random), traits);
  body.callable = callable;
  body.num_exits_left = traits.exits == EarlyExits::kNone ? random.Below(2) : random.Between(1, 3);
  body.num_statements_left = random.Between(6, 40);
  WritePrologue(body, has_parameters);
  if (traits.has_local) WriteLocalArray(body);
  if (traits.has_shared) {
    InitialiseShared(body);
    uint32_t bytes = traits.NumThreads() * 4;
    if (traits.slots_are_dynamic) {
      kernel.dynamic_shared_bytes = bytes + random.Below(3) * 32;
      // All kernels' extern arrays start at the same place; one name serves them all.
      written.module_scope = ".extern .shared .align 16 .b8 slots_s[];\n";
    } else {
      body.code.Declare(fmt::format(".shared .align 4 .b8 slots_s[{}];", bytes));
    }
    body.code.Declare(fmt::format(".shared .align 4 .u32 sums_s[{}];", kSharedSums));
  }
  body.Statements(body.num_statements_left);
  WriteEnd(body);
  written.text = fmt::format("{}.entry {}({})\n{}{{\n{}}}\n\n", random.Pick({".visible ", ".visible ", ".weak ", ""}),
                             name, parameters, TuningDirectives(random, kernel.block), body.code.Finish());
  return written;
}

}  // namespace tally::differential
