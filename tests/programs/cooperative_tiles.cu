// Cooperative groups inside a block: tiles of 4, 8 and 32 threads (shuffles, votes, reduce), coalesced groups in a
// branch, labelled partitions, and thread-block barriers split into arrive and wait.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>

#include "tests/programs/check.h"

namespace cg = cooperative_groups;
using check::Results;

namespace {

constexpr int kBlocks = 4, kThreads = 128, kForms = 7;

uint32_t Value(uint32_t thread) { return (thread * 2654435761u) >> 20; }

void Reference(Results& results) {
  std::vector<uint32_t> out;
  for (uint32_t thread = 0; thread < kBlocks * kThreads; ++thread) {
    uint32_t warp = thread / 32 * 32, lane = thread % 32, base4 = thread / 4 * 4, base8 = thread / 8 * 8;
    uint32_t sum4 = 0, high8 = 0, odd_rank = 0, odd_count = 0, label_sum = 0;
    for (uint32_t i = base4; i < base4 + 4; ++i) sum4 += Value(i);
    for (uint32_t i = base8; i < base8 + 8; ++i) high8 = std::max(high8, Value(i));
    for (uint32_t i = warp; i < warp + 32; ++i) {
      if (Value(i) % 2 == 1) {
        odd_rank += i < thread;
        ++odd_count;
      }
      if (i % 5 == thread % 5) label_sum += Value(i);
    }
    bool odd = Value(thread) % 2 == 1;
    uint32_t partner = thread / kThreads * kThreads + (kThreads - 1 - thread % kThreads);
    out.insert(out.end(), {sum4, high8, Value(warp + (lane ^ 9)), odd ? odd_rank : 1000, odd ? odd_count : 1000,
                           label_sum, Value(partner) + thread % 4});
  }
  results.Add("tiles", out);
}

__global__ void Tiles(uint32_t* out) {
  __shared__ uint32_t values[kThreads];
  cg::thread_block block = cg::this_thread_block();
  uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, value = (thread * 2654435761u) >> 20;
  uint32_t* mine = out + thread * kForms;
  auto tile4 = cg::tiled_partition<4>(block);
  auto tile8 = cg::tiled_partition<8>(block);
  auto tile32 = cg::tiled_partition<32>(block);
  uint32_t sum = value;
  for (int offset = 2; offset > 0; offset /= 2) sum += tile4.shfl_xor(sum, offset);
  mine[0] = sum;
  mine[1] = cg::reduce(tile8, value, cg::greater<uint32_t>());
  mine[2] = tile32.shfl_xor(value, 9);
  mine[3] = mine[4] = 1000;
  if (value % 2 == 1) {
    cg::coalesced_group odd = cg::coalesced_threads();
    mine[3] = odd.thread_rank();
    mine[4] = odd.size();
  }
  tile32.sync();
  auto same_label = cg::labeled_partition(tile32, static_cast<int>(thread % 5));
  mine[5] = cg::reduce(same_label, value, cg::plus<uint32_t>());
  values[block.thread_rank()] = value;
  auto token = block.barrier_arrive();
  uint32_t rank = tile4.thread_rank();
  block.barrier_wait(std::move(token));
  mine[6] = values[kThreads - 1 - block.thread_rank()] + rank;
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> out(kBlocks * kThreads * kForms);
  Tiles<<<kBlocks, kThreads>>>(out.get());
  CHECK_LAUNCH();
  results.Add("tiles", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
