// CompileProgram: parses texts, resolves names among them, lays out shared memory, lowers and assembles functions.

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "sim-driver/engine/assembly.h"
#include "sim-driver/engine/code.h"
#include "sim-driver/engine/initializer.h"
#include "sim-driver/engine/lowering.h"
#include "sim-driver/engine/machine.h"
#include "sim-driver/engine/shared_layout.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;
constexpr size_t kMaxStatements = size_t{1} << 20;  // of all texts together; that of one the parser bounds

struct Unit {
  ptx::Module module;
  std::unordered_map<std::string_view, Symbol> symbols;  // of this text; extern ones resolved
};

struct FunctionEntry {
  uint32_t unit = 0;
  const ptx::Function* node = nullptr;
  std::vector<uint32_t> callees;  // all functions it names
  std::vector<const ptx::Variable*> shared;
  bool calls_indirectly = false;
  bool uses_alloca = false;
};

struct VariableEntry {
  uint32_t unit = 0;
  const ptx::Variable* node = nullptr;
};

bool IsWeak(ptx::Linkage linkage) { return linkage == ptx::Linkage::kWeak || linkage == ptx::Linkage::kCommon; }

class UnitSymbols final : public SymbolTable {
 public:
  UnitSymbols(const Unit& unit, const std::unordered_map<const ptx::Variable*, uint32_t>& offsets)
      : unit_(unit), offsets_(offsets) {}
  Symbol Find(std::string_view name) const override {
    auto found = unit_.symbols.find(name);
    return found == unit_.symbols.end() ? Symbol() : found->second;
  }
  uint32_t SharedOffset(const ptx::Variable& variable) const override {
    auto found = offsets_.find(&variable);
    return found == offsets_.end() ? 0 : found->second;
  }

 private:
  const Unit& unit_;
  const std::unordered_map<const ptx::Variable*, uint32_t>& offsets_;
};

class Linker {
 public:
  Result<std::shared_ptr<const Program>> Link(std::span<const std::string_view> texts) {
    if (Status status = Prepare(texts); !status.ok()) return std::unexpected(status);
    for (uint32_t f = 0; f < functions_.size(); ++f)
      if (functions_[f].node->has_body) Scan(f);
    if (Status status = Translate(); !status.ok()) return std::unexpected(status);
    DescribeKernels();
    code_->constants = constants_.Take();
    return std::make_shared<const Program>(std::move(code_));
  }

 private:
  Status Prepare(std::span<const std::string_view> texts) {
    TALLY_RETURN_IF_ERROR(Parse(texts));
    TALLY_RETURN_IF_ERROR(Collect());
    return FillVariables();
  }

  Status Translate() {
    TALLY_RETURN_IF_ERROR(PlaceShared());
    return LowerAll();
  }

  Status Parse(std::span<const std::string_view> texts) {
    for (std::string_view text : texts) {
      ptx::ParseOptions options;
      options.max_source_bytes = kMaxTextBytes;
      auto module = ptx::ParseModule(std::string(text), options);
      if (!module) return module.error();
      num_statements_ += static_cast<size_t>(std::count(text.begin(), text.end(), ';'));
      if (num_statements_ > kMaxStatements) {
        return Status(StatusCode::kResourceExhausted,
                      Format("PTX texts have more than {} statements together", kMaxStatements));
      }
      if (module->address_size != 64) return Status(StatusCode::kInvalidArgument, "PTX for 32-bit addresses");
      code_->texts.push_back(std::make_unique<const std::string>(module->source()));
      units_.push_back(std::make_unique<Unit>(Unit{std::move(*module), {}}));
    }
    return OkStatus();
  }

  // Gives an index to every function and variable that is defined, and to extern functions that are not.
  Status Collect() {
    std::unordered_map<std::string_view, Symbol> visible;
    for (uint32_t u = 0; u < units_.size(); ++u) {
      for (const ptx::Item& item : units_[u]->module.items()) {
        if (const auto* function = std::get_if<ptx::Function>(&item.node)) {
          if (!function->has_body) continue;
          TALLY_RETURN_IF_ERROR(DefineFunction(u, *function, visible));
        } else if (const auto* declaration = std::get_if<ptx::VariableDeclaration>(&item.node)) {
          for (const ptx::Variable& variable : declaration->variables)
            TALLY_RETURN_IF_ERROR(DefineVariable(u, variable, visible));
        }
      }
    }
    for (uint32_t u = 0; u < units_.size(); ++u) ResolveExterns(u, visible);
    return OkStatus();
  }

  Status DefineFunction(uint32_t u, const ptx::Function& function,
                        std::unordered_map<std::string_view, Symbol>& visible) {
    Unit& unit = *units_[u];
    bool is_internal = function.linkage == ptx::Linkage::kInternal && !function.is_entry;
    if (!is_internal) {
      auto found = visible.find(function.name);
      if (found != visible.end()) {
        const FunctionEntry& old = functions_[found->second.index];
        if (found->second.kind != Symbol::Kind::kFunction || (!IsWeak(function.linkage) && !IsWeak(old.node->linkage)))
          return Status(StatusCode::kInvalidArgument, Format("{} is defined twice", function.name));
        if (IsWeak(function.linkage)) {
          unit.symbols[function.name] = found->second;
          return OkStatus();
        }
        functions_[found->second.index] = {u, &function, {}, {}, false, false};  // strong replaces weak
        found->second.declaration = &function;
        unit.symbols[function.name] = found->second;
        return OkStatus();
      }
    } else if (unit.symbols.contains(function.name)) {
      return Status(StatusCode::kInvalidArgument, Format("{} is defined twice", function.name));
    }
    Symbol symbol{
        .kind = Symbol::Kind::kFunction, .index = static_cast<uint32_t>(functions_.size()), .declaration = &function};
    functions_.push_back({u, &function, {}, {}, false, false});
    unit.symbols[function.name] = symbol;
    if (!is_internal) visible[function.name] = symbol;
    return OkStatus();
  }

  Status DefineVariable(uint32_t u, const ptx::Variable& variable,
                        std::unordered_map<std::string_view, Symbol>& visible) {
    Unit& unit = *units_[u];
    if (variable.linkage == ptx::Linkage::kExtern) return OkStatus();
    if (variable.space == ptx::StateSpace::kShared) {
      Symbol symbol{.kind = Symbol::Kind::kShared, .shared = &variable};
      if (variable.linkage != ptx::Linkage::kInternal)
        symbol = visible.try_emplace(variable.name, symbol).first->second;
      unit.symbols[variable.name] = symbol;
      return OkStatus();
    }
    if (variable.space != ptx::StateSpace::kGlobal && variable.space != ptx::StateSpace::kConst) return OkStatus();
    if (MemoryBytes(variable.type) == 0 || variable.type == ScalarType::kTexref ||
        variable.type == ScalarType::kSurfref || variable.type == ScalarType::kSamplerref)
      return OkStatus();  // textures: refused where used, as unknown names would be
    bool is_internal = variable.linkage == ptx::Linkage::kInternal;
    if (!is_internal) {
      auto found = visible.find(variable.name);
      if (found != visible.end()) {
        if (found->second.kind != Symbol::Kind::kGlobal)
          return Status(StatusCode::kInvalidArgument, Format("{} is defined twice", variable.name));
        const ptx::Variable& old = *variables_[found->second.index].node;
        if (!IsWeak(variable.linkage) && !IsWeak(old.linkage))
          return Status(StatusCode::kInvalidArgument, Format("{} is defined twice", variable.name));
        if (!IsWeak(variable.linkage)) variables_[found->second.index] = {u, &variable};
        unit.symbols[variable.name] = found->second;
        return OkStatus();
      }
    } else if (unit.symbols.contains(variable.name)) {
      return Status(StatusCode::kInvalidArgument, Format("{} is defined twice", variable.name));
    }
    Symbol symbol{.kind = Symbol::Kind::kGlobal, .index = static_cast<uint32_t>(variables_.size())};
    variables_.push_back({u, &variable});
    unit.symbols[variable.name] = symbol;
    if (!is_internal) visible[variable.name] = symbol;
    return OkStatus();
  }

  void ResolveExterns(uint32_t u, std::unordered_map<std::string_view, Symbol>& visible) {
    Unit& unit = *units_[u];
    for (const ptx::Item& item : unit.module.items()) {
      if (const auto* function = std::get_if<ptx::Function>(&item.node)) {
        if (function->has_body || unit.symbols.contains(function->name)) continue;
        auto found = visible.find(function->name);
        if (found == visible.end()) {
          Symbol symbol{.kind = Symbol::Kind::kFunction,
                        .index = static_cast<uint32_t>(functions_.size()),
                        .declaration = function};
          functions_.push_back({u, function, {}, {}, false, false});
          found = visible.emplace(function->name, symbol).first;
        }
        unit.symbols[function->name] = found->second;
      } else if (const auto* declaration = std::get_if<ptx::VariableDeclaration>(&item.node)) {
        for (const ptx::Variable& variable : declaration->variables) {
          if (variable.linkage != ptx::Linkage::kExtern || unit.symbols.contains(variable.name)) continue;
          auto found = visible.find(variable.name);
          if (found != visible.end()) {
            unit.symbols[variable.name] = found->second;
          } else if (variable.space == ptx::StateSpace::kShared) {
            unit.symbols[variable.name] = {.kind = Symbol::Kind::kDynamicShared};
            dynamic_align_ = std::max(dynamic_align_, std::min(variable.Alignment(), 128u));
          }
        }
      }
    }
    for (const ptx::Item& item : unit.module.items()) {
      const auto* alias = std::get_if<ptx::Alias>(&item.node);
      if (alias == nullptr) continue;
      auto target = unit.symbols.find(alias->target);
      if (target != unit.symbols.end()) unit.symbols[alias->name] = Symbol(target->second);
    }
  }

  Status FillVariables() {
    for (const VariableEntry& entry : variables_) {
      const ptx::Variable& node = *entry.node;
      Variable& variable = code_->variables.emplace_back();
      variable.name = node.name;
      variable.space = node.space == ptx::StateSpace::kConst ? VariableSpace::kConstant : VariableSpace::kGlobal;
      variable.align = std::max(1u, node.Alignment());
      for (std::string_view attribute : node.attributes) variable.is_managed |= attribute.starts_with(".managed");
      variable.is_visible = node.linkage != ptx::Linkage::kInternal;
      const Unit& unit = *units_[entry.unit];
      auto find = [&](std::string_view name) -> InitializerTarget {
        auto found = unit.symbols.find(name);
        if (found == unit.symbols.end()) return {};
        if (found->second.kind == Symbol::Kind::kFunction) {
          address_taken_.insert(found->second.index);
          return {true, true, found->second.index};
        }
        return {found->second.kind == Symbol::Kind::kGlobal, false, found->second.index};
      };
      Status status = FillVariable(node, find, variable);
      if (!status.ok()) return status;
      auto index = static_cast<uint32_t>(code_->variables.size() - 1);
      auto [slot, is_new] = code_->variable_names.try_emplace(variable.name, index);
      if (!is_new && variable.is_visible) slot->second = index;
    }
    return OkStatus();
  }

  // ---- what each function names

  void ScanName(FunctionEntry& entry, std::string_view name, bool is_call_target) {
    const Unit& unit = *units_[entry.unit];
    auto found = unit.symbols.find(name);
    if (found == unit.symbols.end()) return;
    if (found->second.kind == Symbol::Kind::kFunction) {
      entry.callees.push_back(found->second.index);
      if (!is_call_target) address_taken_.insert(found->second.index);
    } else if (found->second.kind == Symbol::Kind::kShared) {
      entry.shared.push_back(found->second.shared);
    }
  }

  void ScanOperand(FunctionEntry& entry, const ptx::Operand& operand, bool is_call_target) {
    if (!operand.name.empty()) ScanName(entry, operand.name, is_call_target);
    for (const ptx::Operand& part : operand.parts) ScanOperand(entry, part, false);
  }

  void ScanStatements(FunctionEntry& entry, const std::vector<ptx::Statement>& statements) {
    for (const ptx::Statement& statement : statements) {
      if (const auto* instruction = std::get_if<ptx::Instruction>(&statement.node)) {
        bool is_call = instruction->opcode == "call";
        entry.uses_alloca |= instruction->opcode == "alloca";
        size_t target =
            is_call && !instruction->operands.empty() && instruction->operands[0].kind == OperandKind::kGroup;
        for (size_t k = 0; k < instruction->operands.size(); ++k) {
          const ptx::Operand& operand = instruction->operands[k];
          bool is_target = is_call && k == target;
          if (is_target &&
              (operand.kind == OperandKind::kRegister || !units_[entry.unit]->symbols.contains(operand.name)))
            entry.calls_indirectly = true;
          ScanOperand(entry, operand, is_target);
        }
      } else if (const auto* block = std::get_if<ptx::Block>(&statement.node)) {
        ScanStatements(entry, block->statements);
      } else if (const auto* declaration = std::get_if<ptx::VariableDeclaration>(&statement.node)) {
        for (const ptx::Variable& variable : declaration->variables)
          if (variable.space == ptx::StateSpace::kShared && variable.linkage != ptx::Linkage::kExtern)
            entry.shared.push_back(&variable);
      }
    }
  }

  void Scan(uint32_t index) {
    FunctionEntry& entry = functions_[index];
    ScanStatements(entry, entry.node->body);
    std::sort(entry.callees.begin(), entry.callees.end());
    entry.callees.erase(std::unique(entry.callees.begin(), entry.callees.end()), entry.callees.end());
  }

  // All functions that `root` can reach, itself first.
  std::vector<uint32_t> Reach(uint32_t root) const {
    std::vector<uint32_t> reached{root};
    std::vector<bool> seen(functions_.size(), false);
    seen[root] = true;
    bool indirect = false;
    for (size_t k = 0; k < reached.size(); ++k) {
      auto visit = [&](uint32_t f) {
        if (seen[f]) return;
        seen[f] = true;
        reached.push_back(f);
      };
      const FunctionEntry& entry = functions_[reached[k]];
      for (uint32_t f : entry.callees) visit(f);
      if (entry.calls_indirectly && !indirect) {
        indirect = true;
        for (uint32_t f : address_taken_) visit(f);
      }
    }
    return reached;
  }

  Status PlaceShared() {
    std::vector<SharedVariable> places;
    std::vector<const ptx::Variable*> nodes;
    std::unordered_map<const ptx::Variable*, size_t> index_of;
    for (uint32_t f = 0; f < functions_.size(); ++f) {
      if (!functions_[f].node->has_body || !functions_[f].node->is_entry) continue;
      auto kernel = static_cast<uint32_t>(kernels_.size());
      kernels_.push_back({f, Reach(f)});
      for (uint32_t reached : kernels_.back().reached) {
        for (const ptx::Variable* variable : functions_[reached].shared) {
          auto [slot, is_new] = index_of.try_emplace(variable, places.size());
          if (is_new) {
            places.push_back(
                {.size_bytes = variable->SizeBytes(), .align = std::max(1u, variable->Alignment()), .kernels = {}});
            nodes.push_back(variable);
          }
          auto& kernels = places[slot->second].kernels;
          if (kernels.empty() || kernels.back() != kernel) kernels.push_back(kernel);
        }
      }
    }
    if (!LayOutShared(places)) return Status(StatusCode::kInvalidArgument, "too much shared memory");
    for (size_t k = 0; k < places.size(); ++k) {
      shared_offsets_[nodes[k]] = places[k].offset_bytes;
      auto end = static_cast<uint32_t>(places[k].offset_bytes + places[k].size_bytes);
      for (uint32_t kernel : places[k].kernels)
        kernels_[kernel].shared_bytes = std::max(kernels_[kernel].shared_bytes, end);
    }
    return OkStatus();
  }

  Status LowerAll() {
    uses_printf_.resize(functions_.size(), false);
    for (uint32_t f = 0; f < functions_.size(); ++f) {
      const FunctionEntry& entry = functions_[f];
      auto& function = *code_->functions.emplace_back(std::make_unique<FunctionCode>());
      function.name = entry.node->name;
      function.index = f;
      function.is_kernel = entry.node->is_entry;
      function.is_defined = entry.node->has_body;
      if (!entry.node->has_body) {
        function.unsupported = Format("extern function {}", function.name);
        continue;
      }
      UnitSymbols symbols(*units_[entry.unit], shared_offsets_);
      Lowering lowering(units_[entry.unit]->module, entry.unit, *entry.node, symbols, constants_, entry.node->is_entry);
      lowering.LowerBody();
      if (!lowering.invalid.empty()) return Status(StatusCode::kInvalidArgument, lowering.invalid);
      uses_printf_[f] = lowering.uses_printf;
      function.parameters = lowering.parameters;
      function.unsupported = lowering.unsupported;
      if (lowering.unsupported.empty()) {
        TALLY_RETURN_IF_ERROR(Assemble(lowering, function).With(function.name));
      } else {
        function.local_bytes = lowering.local_bytes;
      }
    }
    return OkStatus();
  }

  static std::array<uint32_t, 3> Triple(const ptx::FunctionDirective* directive) {
    if (directive == nullptr) return {};
    std::array<uint32_t, 3> values{1, 1, 1};
    for (size_t k = 0; k < 3 && k < directive->values.size(); ++k)
      values[k] = static_cast<uint32_t>(std::min<uint64_t>(directive->values[k], 1u << 20));
    return values;
  }

  // Of a thread, so that a block of so many runs, as compilers promise: each of four partitions has a quarter of the
  // registers, and holds whole warps; a thread has a multiple of 8.
  static uint32_t MostRegisters(uint32_t threads_per_block) {
    constexpr uint32_t kPartitions = 4;
    const uint32_t warps = (threads_per_block + MachineLimits::kWarpSize - 1) / MachineLimits::kWarpSize;
    const uint32_t in_partition = std::max((warps + kPartitions - 1) / kPartitions, 1U);
    return MachineLimits::kRegistersPerSm / kPartitions / in_partition / MachineLimits::kWarpSize / 8 * 8;
  }

  // What ptxas gives a kernel that contains setmaxnreg: as many as its bounds allow. Without bounds it ignores them
  // (C7508). If nobody asks for more than this it may give less, but then nobody waits either.
  static uint32_t EntryRegisters(const ptx::Function& node, const Kernel& kernel) {
    if (const auto* most = node.FindDirective("maxnreg"); most && !most->values.empty())
      return static_cast<uint32_t>(most->values[0]);
    if (kernel.max_threads_per_block == 0 || kernel.min_blocks_per_sm == 0) return 0;
    const uint32_t warps = (kernel.max_threads_per_block + MachineLimits::kWarpSize - 1) / MachineLimits::kWarpSize;
    const uint32_t blocks = std::min(kernel.min_blocks_per_sm, MachineLimits::kMaxBlocksPerSm);
    return MostRegisters(warps * blocks * MachineLimits::kWarpSize);
  }

  void DescribeKernels() {
    for (const KernelEntry& entry : kernels_) {
      const ptx::Function& node = *functions_[entry.function].node;
      const FunctionCode& code = *code_->functions[entry.function];
      Kernel& kernel = code_->kernels.emplace_back();
      kernel.name = node.name;
      for (const FormalSlot& slot : code.parameters) {
        kernel.parameters.push_back({slot.offset_bytes, slot.size_bytes});
        kernel.parameter_bytes = std::max(kernel.parameter_bytes, slot.offset_bytes + slot.size_bytes);
      }
      kernel.num_registers = std::clamp(code.frame_bytes / 128, 16u, 255u);
      kernel.static_shared_bytes = entry.shared_bytes;
      kernel.dynamic_shared_offset_bytes = (entry.shared_bytes + dynamic_align_ - 1) / dynamic_align_ * dynamic_align_;
      kernel.required_block = Triple(node.FindDirective("reqntid"));
      kernel.required_cluster = Triple(node.FindDirective("reqnctapercluster"));
      kernel.is_explicit_cluster = node.FindDirective("explicitcluster") != nullptr;
      auto most = Triple(node.FindDirective("maxntid"));
      if (kernel.required_block[0] != 0) most = kernel.required_block;
      if (most[0] != 0) {
        kernel.max_threads_per_block =
            static_cast<uint32_t>(std::min<uint64_t>(1024, uint64_t{most[0]} * most[1] * most[2]));
        kernel.num_registers = std::min(kernel.num_registers, MostRegisters(kernel.max_threads_per_block));
      }
      if (const auto* blocks = node.FindDirective("minnctapersm"); blocks && !blocks->values.empty())
        kernel.min_blocks_per_sm = static_cast<uint32_t>(blocks->values[0]);
      kernel.entry_registers = EntryRegisters(node, kernel);
      uint32_t local = 16;
      bool needs_stack = false;
      for (uint32_t reached : entry.reached) {
        const FunctionCode& function = *code_->functions[reached];
        local += function.local_bytes + 16;
        kernel.uses_printf |= uses_printf_[reached];
        // Unresolved functions count only where they are called, which the caller's own reason says.
        if (function.is_defined && kernel.unsupported.empty() && !function.unsupported.empty())
          kernel.unsupported = function.unsupported;
        needs_stack |= functions_[reached].calls_indirectly || functions_[reached].uses_alloca || IsRecursive(reached);
      }
      kernel.local_bytes_per_thread = local - 16;
      code_->kernel_needs_stack.push_back(needs_stack);
      code_->kernel_functions.push_back(entry.function);
      code_->kernel_names[kernel.name] = static_cast<uint32_t>(code_->kernels.size() - 1);
    }
  }

  bool IsRecursive(uint32_t function) const {
    for (uint32_t callee : functions_[function].callees) {
      std::vector<uint32_t> reached = Reach(callee);
      if (std::find(reached.begin(), reached.end(), function) != reached.end()) return true;
    }
    return false;
  }

  struct KernelEntry {
    uint32_t function = 0;
    std::vector<uint32_t> reached;
    uint32_t shared_bytes = 0;
  };

  std::unique_ptr<ProgramCode> code_ = std::make_unique<ProgramCode>();
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<FunctionEntry> functions_;
  std::vector<VariableEntry> variables_;
  std::vector<KernelEntry> kernels_;
  std::set<uint32_t> address_taken_;
  std::vector<bool> uses_printf_;
  std::unordered_map<const ptx::Variable*, uint32_t> shared_offsets_;
  uint32_t dynamic_align_ = 16;
  size_t num_statements_ = 0;
  ConstantPool constants_;
};

}  // namespace

Result<std::shared_ptr<const Program>> CompileProgram(std::span<const std::string_view> ptx_texts) {
  return Linker().Link(ptx_texts);
}

}  // namespace tally::sim_driver
