#include "tests/server/executor/mirror/task_shapes.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace tally::server {
namespace {

using scheduler::Access;
using scheduler::AccessKind;
using scheduler::Box;
using scheduler::Task;

constexpr uint32_t kMostInputs = 15;

// As the kernel's parameters lie.
struct CombineParameters {
  uint64_t out = 0;
  uint32_t num_inputs = 0;
  uint32_t pitch = kTilePitch;
  uint32_t seed = 0;
  uint32_t reserved = 0;
  uint64_t input[kMostInputs] = {};
};

Box TileOf(uint64_t cell, std::span<const MirroredAllocation> matrices) {
  const uint64_t tile = cell / 2;
  const uint64_t offset = tile / 8 * 32 * kTilePitch + tile % 8 * 128;
  return *Box::Rows(matrices[cell % 2].address + offset, 128, 32, kTilePitch);
}

// A word of a matrix by its address.
uint32_t& WordAt(uint64_t address, std::span<const MirroredAllocation> matrices,
                 std::vector<std::vector<uint32_t>>& words) {
  const size_t k = address - matrices[0].address < matrices[0].num_bytes ? 0 : 1;
  return words[k][(address - matrices[k].address) / sizeof(uint32_t)];
}

}  // namespace

const std::vector<std::string>& TaskKernels() {
  static const std::vector<std::string> names = {"combine", "wait_for_word"};
  return names;
}

std::string TaskImage() {
  std::string text = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry wait_for_word(.param .u64 word)
{
  .reg .pred %p;
  .reg .b32 %r;
  .reg .b64 %rd;
  ld.param.u64 %rd, [word];
$again:
  ld.volatile.global.u32 %r, [%rd];
  setp.eq.u32 %p, %r, 0;
  @%p bra $again;
  ret;
}
.visible .entry combine(.param .u64 out, .param .u32 n, .param .u32 pitch, .param .u32 seed, .param .u32 reserved)";
  for (uint32_t k = 0; k < kMostInputs; ++k) text += fmt::format(", .param .u64 in{}", k);
  text += R"()
{
  .reg .pred %p;
  .reg .b32 %w, %row, %column, %n, %pitch, %sum, %value, %t;
  .reg .b64 %offset, %address, %part;
  mov.u32 %w, %ctaid.x;
  mov.u32 %t, %ntid.x;
  mul.lo.u32 %w, %w, %t;
  mov.u32 %t, %tid.x;
  add.u32 %w, %w, %t;
  shr.u32 %row, %w, 5;
  and.b32 %column, %w, 31;
  ld.param.u32 %n, [n];
  ld.param.u32 %pitch, [pitch];
  ld.param.u32 %sum, [seed];
  mul.wide.u32 %offset, %row, %pitch;
  mul.wide.u32 %part, %column, 4;
  add.u64 %offset, %offset, %part;
  add.u32 %sum, %sum, %w;
)";
  for (uint32_t k = 0; k < kMostInputs; ++k) {
    text += fmt::format(R"(  setp.le.u32 %p, %n, {0};
  @%p bra $done;
  ld.param.u64 %address, [in{0}];
  add.u64 %address, %address, %offset;
  ld.global.u32 %value, [%address];
  mad.lo.u32 %sum, %sum, 1664525, %value;
)",
                        k);
  }
  return text + R"($done:
  ld.param.u64 %address, [out];
  add.u64 %address, %address, %offset;
  st.global.u32 [%address], %sum;
  ret;
}
)";
}

TileTasks MakeTileTasks(scheduler::GraphShape shape, std::mt19937& random,
                        std::span<const MirroredAllocation> matrices) {
  TileTasks made;
  made.tasks = scheduler::ShapeMaker(random).Make(shape);
  for (Task& task : made.tasks) {
    CombineParameters parameters;
    parameters.seed = static_cast<uint32_t>(random());
    for (Access& access : task.touches.accesses) {
      access.box = TileOf(access.box.begin() / scheduler::kCellBytes, matrices);
      if (Reads(access.kind)) parameters.input[parameters.num_inputs++] = access.box.begin();
      if (Writes(access.kind)) parameters.out = access.box.begin();
    }
    StepCommand work;
    work.command.kind = shm::MirrorCommandKind::kLaunch;
    work.command.function = 0;
    work.command.grid[0] = kTileWords / 256;
    work.command.block[0] = 256;
    work.command.grid[1] = work.command.grid[2] = work.command.block[1] = work.command.block[2] = 1;
    work.bytes.resize(sizeof parameters);
    std::memcpy(work.bytes.data(), &parameters, sizeof parameters);
    made.work.push_back({.commands = {std::move(work)}});
  }
  return made;
}

void RunInOrder(const TileTasks& tasks, std::span<const MirroredAllocation> matrices,
                std::vector<std::vector<uint32_t>>& words) {
  for (const TaskWork& work : tasks.work) {
    CombineParameters parameters;
    std::memcpy(&parameters, work.commands[0].bytes.data(), sizeof parameters);
    for (uint32_t w = 0; w < kTileWords; ++w) {
      const uint64_t offset = w / 32 * kTilePitch + w % 32 * sizeof(uint32_t);
      uint32_t sum = parameters.seed + w;
      for (uint32_t k = 0; k < parameters.num_inputs; ++k) {
        sum = sum * 1664525 + WordAt(parameters.input[k] + offset, matrices, words);
      }
      WordAt(parameters.out + offset, matrices, words) = sum;
    }
  }
}

std::vector<scheduler::GraphEdge> TrueEdges(std::span<const Task> tasks) {
  std::vector<scheduler::GraphEdge> edges;
  const auto meet = [](const Task& before, const Task& behind) {
    for (const Access& a : before.touches.accesses)
      for (const Access& b : behind.touches.accesses)
        if ((Writes(a.kind) || Writes(b.kind)) && a.box.Overlaps(b.box)) return true;
    return false;
  };
  for (uint32_t to = 0; to < tasks.size(); ++to)
    for (uint32_t from = 0; from < to; ++from)
      if (meet(tasks[from], tasks[to])) edges.push_back({from, to});
  return edges;
}

}  // namespace tally::server
