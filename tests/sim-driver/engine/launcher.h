// Runs kernels of PTX texts on a Machine, for tests: buffers, launches, results.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "sim-driver/engine/machine.h"
#include "sim-driver/engine/program.h"
#include "tests/sim-driver/engine/test_memory.h"

namespace tally::sim_driver {

// What a launch ended with.
struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::optional<Fault> fault;
  std::string printed;

  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
  }
};

class Launcher {
 public:
  explicit Launcher(const MachineOptions& options = {}) : memory_(std::make_shared<TestMemory>()) {
    auto machine = Machine::Create(options);
    if (!machine) ADD_FAILURE() << machine.error().ToString();
    machine_ = std::move(*machine);
  }

  TestMemory& memory() { return *memory_; }
  Machine& machine() { return *machine_; }

  // Compiles and places variables; null after a test failure.
  std::shared_ptr<const Program> Load(std::vector<std::string_view> texts) {
    auto program = CompileProgram(texts);
    if (!program) {
      ADD_FAILURE() << program.error().ToString();
      return nullptr;
    }
    variables_.clear();
    for (const Variable& variable : (*program)->variables()) {
      variables_.push_back(memory_->Allocate(std::max<uint64_t>(variable.size_bytes, 16)));
    }
    for (uint32_t k = 0; k < variables_.size(); ++k) {
      auto bytes = (*program)->InitialBytes(k, variables_);
      std::memcpy(reinterpret_cast<void*>(variables_[k]), bytes.data(), bytes.size());
    }
    return *program;
  }
  const std::vector<uint64_t>& variables() const { return variables_; }

  template <typename... Arguments>
  LaunchRequest Request(const std::shared_ptr<const Program>& program, std::string_view kernel, Dim3 grid, Dim3 block,
                        Arguments... arguments) {
    LaunchRequest request;
    request.program = program;
    auto index = program->FindKernel(kernel);
    EXPECT_TRUE(index.has_value()) << kernel;
    request.kernel_index = index.value_or(0);
    request.grid = grid;
    request.block = block;
    request.memory = memory_;
    request.variable_addresses = variables_;
    size_t at = 0;
    (Append(request, program->kernels()[request.kernel_index], at++, arguments), ...);
    return request;
  }

  std::shared_ptr<Outcome> Submit(LaunchRequest request, uint64_t* id = nullptr) {
    auto outcome = std::make_shared<Outcome>();
    request.on_printf = [outcome](std::string_view text) {
      std::lock_guard lock(outcome->mutex);
      outcome->printed += text;
    };
    uint64_t grid_id = machine_->Submit(std::move(request), [outcome](const std::optional<Fault>& fault) {
      std::lock_guard lock(outcome->mutex);
      outcome->fault = fault;
      outcome->is_done = true;
      outcome->changed.notify_all();
    });
    if (id != nullptr) *id = grid_id;
    return outcome;
  }

  // Runs to the end; the fault, if any.
  std::optional<Fault> Run(LaunchRequest request) {
    auto outcome = Submit(std::move(request));
    outcome->Wait();
    printed_ = outcome->printed;
    return outcome->fault;
  }
  const std::string& printed() const { return printed_; }

  template <typename T>
  uint64_t Upload(const std::vector<T>& values) {
    uint64_t address = memory_->Allocate(std::max<size_t>(values.size() * sizeof(T), 16));
    if (!values.empty()) std::memcpy(reinterpret_cast<void*>(address), values.data(), values.size() * sizeof(T));
    return address;
  }
  template <typename T>
  std::vector<T> Download(uint64_t address, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), reinterpret_cast<const void*>(address), count * sizeof(T));
    return values;
  }

 private:
  template <typename T>
  static void Append(LaunchRequest& request, const Kernel& kernel, size_t index, T value) {
    ASSERT_LT(index, kernel.parameters.size());
    ASSERT_EQ(kernel.parameters[index].size_bytes, sizeof(T));
    uint32_t offset = kernel.parameters[index].offset_bytes;
    request.parameters.resize(std::max<size_t>(request.parameters.size(), offset + sizeof(T)));
    std::memcpy(request.parameters.data() + offset, &value, sizeof(T));
  }

  std::shared_ptr<TestMemory> memory_;
  std::vector<uint64_t> variables_;
  std::unique_ptr<Machine> machine_;
  std::string printed_;
};

inline std::string PtxHeader() { return ".version 8.7\n.target sm_90\n.address_size 64\n"; }

// A kernel `k` that loads a, b, c (element `thread` of three arrays), runs `body` on %a, %b, %c and stores %d.
// `in` and `out` are memory types ("u32"), `in_register` and `out_register` register types ("b32").
inline std::string ElementKernel(const std::string& in, const std::string& in_register, const std::string& out,
                                 const std::string& out_register, const std::string& body) {
  auto bytes = [](const std::string& type) { return std::to_string(std::stoi(type.substr(1)) / 8); };
  return PtxHeader() + ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd){\n" +
         ".reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .pred %p<20>; .reg .b16 %rs<20>; .reg .f32 %f<20>; .reg .f64 "
         "%fd<20>;\n.reg ." +
         in_register + " %a, %b, %c; .reg ." + out_register + " %d;\n" +
         "ld.param.u64 %rd1,[pa]; ld.param.u64 %rd2,[pb]; ld.param.u64 %rd3,[pc]; ld.param.u64 %rd4,[pd];\n" +
         "mov.u32 %r1,%ctaid.x; mov.u32 %r2,%ntid.x; mov.u32 %r3,%tid.x; mad.lo.u32 %r4,%r1,%r2,%r3;\n" +
         "mul.wide.u32 %rd5,%r4," + bytes(in) +
         "; add.u64 %rd1,%rd1,%rd5; add.u64 %rd2,%rd2,%rd5; add.u64 %rd3,%rd3,%rd5;\n" + "ld.global." + in +
         " %a,[%rd1]; ld.global." + in + " %b,[%rd2]; ld.global." + in + " %c,[%rd3];\n" + body +
         "\nmul.wide.u32 %rd6,%r4," + bytes(out) + "; add.u64 %rd4,%rd4,%rd6; st.global." + out +
         " [%rd4],%d; ret; }\n";
}

}  // namespace tally::sim_driver
