// Litmus tests of pipelines/queue on a GPU: what goes in comes out, byte by byte, whoever is slow; and who died leaves
// nobody spinning. On the software GPU natively, in its own order and in drawn ones (CMakeLists.txt); on a real one,
// too.
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "pipelines/runtime/compiler.h"
#include "tests/pipelines/gpu.h"

namespace tally::pipelines {
namespace {

constexpr uint32_t kNever = ~0u;
constexpr uint32_t kStages = 4;
constexpr uint32_t kWordsPerLine = 32;

// As in queue_kernels.cuh.
struct Passing {
  void* slots = nullptr;
  uint32_t* words = nullptr;
  uint32_t* abort = nullptr;
  uint32_t* wrong = nullptr;
  uint32_t* taken = nullptr;
  void* output = nullptr;
  // Each warp has a part of each piece of a slot.
  uint32_t depth = 1, slot_bytes = 6144, consumers = 1, count = 20;
  uint32_t slow_producer = 0, slow_consumer = 0;
  uint32_t seed = 1;
  uint32_t producer_ends_at = kNever, consumer_ends_at = kNever, producer_aborts_at = kNever;
};

struct Form {
  const char* kernel;
  uint32_t puts;  // 0: no copies through global memory
  bool is_cluster;
};
constexpr Form kForms[] = {{"pass_plain", 0, false},         {"pass_bulk_1", 1, false},
                           {"pass_bulk_2", 2, false},        {"pass_bulk_4", 4, false},
                           {"pass_cluster_copies", 0, true}, {"pass_cluster_stores", 0, true}};

// A text without its includes of ours.
std::string Text(const std::string& path) {
  std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("#include") && !line.starts_with("#pragma once")) text << line << '\n';
  }
  return text.str();
}

const std::string& Ptx() {
  static const std::string ptx = [] {
    const auto compiled = Compile(Text("pipelines/queue/queue.cuh") + Text("pipelines/queue/cluster_queue.cuh") +
                                      Text("tests/pipelines/queue_kernels.cuh"),
                                  "compute_90a");
    EXPECT_TRUE(compiled) << compiled.error();
    return compiled ? std::string(compiled->data()) : std::string();
  }();
  return ptx;
}

struct Outcome {
  bool was_stuck = false;  // until the host wrote the abort word
  uint32_t wrong = 0;
  std::vector<uint32_t> taken{};   // of each consumer
  std::vector<uint32_t> output{};  // what was read, consumer after consumer
};

// 16 bytes of a slot; queue_kernels.cuh.
std::vector<uint32_t> Expected(const Passing& run, uint32_t queues) {
  std::vector<uint32_t> words;
  for (uint32_t consumer = 0; consumer < queues * run.consumers; ++consumer) {
    for (uint32_t slot = 0; slot < run.count; ++slot) {
      for (uint32_t vector = 0; vector < run.slot_bytes / 16; ++vector) {
        const uint32_t first = slot * 0x9e3779b1u + consumer / run.consumers * 0x85ebca6bu + vector * 4;
        words.insert(words.end(), {first, ~first, slot, vector});
      }
    }
  }
  return words;
}

class Queues : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(Ptx().empty());
    ASSERT_EQ(Gpu::Find<decltype(::cuModuleLoadData)>("cuModuleLoadData")(&module_, Ptx().c_str()), CUDA_SUCCESS);
    void* at = nullptr;
    ASSERT_EQ(Gpu::Find<decltype(::cuMemHostAlloc)>("cuMemHostAlloc")(&at, 4096, CU_MEMHOSTALLOC_DEVICEMAP),
              CUDA_SUCCESS);
    abort_ = static_cast<volatile uint32_t*>(at);
    taken_ = abort_ + kWordsPerLine;
  }
  void TearDown() override {
    Gpu::Find<decltype(::cuMemFreeHost)>("cuMemFreeHost")(const_cast<uint32_t*>(abort_));
    Gpu::Find<decltype(::cuModuleUnload)>("cuModuleUnload")(module_);
  }

  // Whoever still waits so long after the first consumer has taken `least` slots is stuck.
  Outcome Pass(const Form& form, Passing run, uint32_t queues = 2,
               std::chrono::milliseconds patience = std::chrono::seconds(60), uint32_t least = 0) {
    const uint32_t threads = 96, consumers = queues * run.consumers;
    const size_t ring_bytes = size_t{run.depth} * run.slot_bytes;
    const std::vector<uint32_t> words(queues * (1 + run.consumers) * kWordsPerLine), zeroes(1);
    Outcome outcome{.output = std::vector<uint32_t>(size_t{consumers} * run.count * run.slot_bytes / 4)};
    *abort_ = 0;
    for (uint32_t consumer = 0; consumer < consumers; ++consumer) taken_[consumer] = 0;
    CUdeviceptr abort = 0;
    Gpu::Find<decltype(::cuMemHostGetDevicePointer_v2)>("cuMemHostGetDevicePointer_v2")(
        &abort, const_cast<uint32_t*>(abort_), 0);
    run.abort = reinterpret_cast<uint32_t*>(abort);
    run.slots = gpu_.Allocate(queues * ring_bytes);
    run.words = static_cast<uint32_t*>(gpu_.Upload(words));
    run.wrong = static_cast<uint32_t*>(gpu_.Upload(zeroes));
    run.taken = run.abort + kWordsPerLine;
    run.output = gpu_.Upload(outcome.output);
    const size_t shared = form.is_cluster ? ring_bytes + 8 * (2 * run.depth + 1)
                          : form.puts > 0 ? kStages * (run.slot_bytes / form.puts + 8)
                                          : 0;
    CUfunction function = nullptr;
    void* parameters[] = {&run};
    EXPECT_EQ(Gpu::Find<decltype(::cuModuleGetFunction)>("cuModuleGetFunction")(&function, module_, form.kernel), 0);
    EXPECT_EQ(Gpu::Find<decltype(::cuFuncSetAttribute)>("cuFuncSetAttribute")(
                  function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared)),
              CUDA_SUCCESS);
    EXPECT_EQ(Gpu::Find<decltype(::cuLaunchKernel)>("cuLaunchKernel")(function, queues * (1 + run.consumers), 1, 1,
                                                                      threads, 1, 1, static_cast<unsigned>(shared),
                                                                      nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    auto deadline = std::chrono::steady_clock::now() + patience;
    while (Gpu::Find<decltype(::cuStreamQuery)>("cuStreamQuery")(nullptr) == CUDA_ERROR_NOT_READY) {
      if (taken_[0] < least) deadline = std::chrono::steady_clock::now() + patience;
      if (!outcome.was_stuck && std::chrono::steady_clock::now() > deadline) {
        outcome.was_stuck = true;
        *abort_ = 1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(gpu_.Synchronize(), CUDA_SUCCESS);
    gpu_.Read(&outcome.wrong, run.wrong, sizeof(outcome.wrong));
    outcome.taken.assign(taken_, taken_ + consumers);
    gpu_.Read(outcome.output.data(), run.output, outcome.output.size() * 4);
    return outcome;
  }
  void ExpectAllPasses(const Form& form, const Passing& run, uint32_t queues = 2) {
    SCOPED_TRACE(testing::Message() << form.kernel << ", depth " << run.depth << ", " << run.slot_bytes
                                    << " bytes, seed " << run.seed << ", slow " << run.slow_producer << " "
                                    << run.slow_consumer);
    const Outcome outcome = Pass(form, run, queues);
    EXPECT_FALSE(outcome.was_stuck);
    EXPECT_EQ(outcome.wrong, 0u);
    EXPECT_EQ(outcome.taken, std::vector(queues * run.consumers, run.count));
    EXPECT_TRUE(outcome.output == Expected(run, queues));
  }

  Gpu gpu_;
  CUmodule module_ = nullptr;
  volatile uint32_t* abort_ = nullptr;
  volatile uint32_t* taken_ = nullptr;  // behind it
};

TEST_F(Queues, MessagesPassAcrossWraps) {
  for (const Form& form : kForms) {
    for (const uint32_t depth : {1u, 2u, 3u, 5u}) {
      ExpectAllPasses(form, {.depth = depth, .count = 4 * depth + 3});
      if (HasFailure()) return;
    }
  }
}

TEST_F(Queues, SlowEndsHoldTheOthersUp) {
  for (const Form& form : kForms) {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
      Passing run{.depth = 1 + seed / 2 % 3, .seed = seed};
      (seed % 2 == 0 ? run.slow_producer : run.slow_consumer) = 400000;
      if (seed % 3 == 0) run.slow_producer = run.slow_consumer = 100000;
      ExpectAllPasses(form, run, 1);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Queues, SlotsOfOtherSizes) {
  for (const Form& form : kForms) {
    for (const uint32_t bytes : {64u, 4096u, 12288u}) {
      ExpectAllPasses(form, {.depth = 2, .slot_bytes = bytes, .count = 5});
      if (HasFailure()) return;
    }
  }
}

TEST_F(Queues, EachConsumerGetsEachSlot) {
  for (const Form& form : kForms) {
    if (form.is_cluster) continue;  // has one consumer
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      ExpectAllPasses(form, {.depth = seed, .consumers = 3, .slow_consumer = 20000, .seed = seed}, 1);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Queues, AbortEndsWhoWaits) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.kernel);
    const Outcome outcome = Pass(form, {.depth = 2, .producer_aborts_at = 7});
    EXPECT_FALSE(outcome.was_stuck);
    EXPECT_EQ(outcome.wrong, 0u);
    for (const uint32_t taken : outcome.taken) EXPECT_LE(taken, 7u);
    if (HasFailure()) return;
  }
}

// Also while copies are on their way that nobody takes.
TEST_F(Queues, HostEndsWhoWaitsForTheDead) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.kernel);
    const auto patience = std::chrono::milliseconds(200);
    // With copies, the slots that are held while it waits for one more are not looked at.
    const uint32_t least = form.puts == 0 ? 7 : 5;
    const Outcome no_producer = Pass(form, {.depth = 2, .producer_ends_at = 7}, 1, patience, least);
    EXPECT_TRUE(no_producer.was_stuck);
    EXPECT_EQ(no_producer.wrong, 0u);
    EXPECT_LE(no_producer.taken[0], 7u);
    EXPECT_GE(no_producer.taken[0], least);
    const Outcome no_consumer = Pass(form, {.depth = 3, .consumer_ends_at = 4}, 1, patience, 4);
    EXPECT_TRUE(no_consumer.was_stuck);
    EXPECT_EQ(no_consumer.wrong, 0u);
    EXPECT_EQ(no_consumer.taken[0], 4u);
    if (HasFailure()) return;
  }
}

// The software GPU keeps all memory in order, so that a missing release or acquire would show nowhere else.
TEST(QueueText, WordsAreReleasedAndAcquired) {
  const std::string& ptx = Ptx();
  for (const char* order :
       {"st.release.gpu", "ld.acquire.gpu", "try_wait.parity.acquire.cluster", "mbarrier.arrive.release.cluster",
        "mbarrier.arrive.expect_tx.release.cluster", "fence.proxy.async.shared::cta", "cp.async.bulk.wait_group 0"}) {
    EXPECT_NE(ptx.find(order), std::string::npos) << order;
  }
}

}  // namespace
}  // namespace tally::pipelines
