// A client with a window over the software GPU, which starts a random one of what may start. Every shape that comes
// again is a graph.
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "proto/driver/generated/wire_ops.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/driver/driver_table.h"
#include "tests/server/executor/fakes/executor_fixture.h"
#include "tests/server/executor/fakes/put_kernel.h"

namespace tally::fakes {

using control::WindowEnd;
using control::WindowMode;
using shm::kLegacyStream;
using shm::kPerThreadStream;
using shm::Op;

class SessionWindowTest : public ExecutorFixture {
 protected:
  static void SetUpTestSuite() {
    ::setenv("TALLY_FORCE_WINDOW", "graphs", 1);
    ::setenv("TALLY_SIM_SHUFFLE", "3", 1);
    ::setenv("TALLY_SIM_DEVICES", "2", 1);
  }
  void Configure(server::ExecutorConfig& config) override {
    server::DriverLibraries libraries;
    libraries.choice = control::DriverChoice::kSim;
    libraries.sim_path = TALLY_SIM_DRIVER_PATH;
    auto sim = server::LoadDriver(libraries);
    ASSERT_TRUE(sim) << sim.error().ToString();
    sim_ = sim->table;
    table_ = sim_;
    table_.cuLaunchKernel = LaunchAtHome;
    config.driver_table_for_testing = &table_;
  }
  void SetUp() override {
    ExecutorFixture::SetUp();
    server::SessionIdentity identity;
    identity.window = WindowMode::kOn;
    Open(std::move(identity));
  }
  // As a GPU does: not for a stream of another context than the calling thread's.
  static CUresult LaunchAtHome(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z,
                               unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
    CUcontext current = nullptr, home = nullptr;
    sim_.cuCtxGetCurrent(&current);
    sim_.cuStreamGetCtx(stream, &home);
    if (current != home) return CUDA_ERROR_INVALID_HANDLE;
    return sim_.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                               parameters, extra);
  }

  void Open(server::SessionIdentity identity) {
    if (client_ != nullptr) {
      client_->Hangup();
      WaitForEnds(1);
    }
    client_ = Connect(std::move(identity));
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    other_channel_ = client_->OpenChannel();
    first_channel_ = client_->OpenChannel();
    ASSERT_TRUE(channel_ != nullptr && other_channel_ != nullptr && first_channel_ != nullptr);
    ASSERT_EQ(channel_->Call(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0})).result, 0u);
    kernel_ = LoadKernel(*channel_, "put", &module_, 1, kPut);
    ASSERT_NE(kernel_, 0u);
    word_ = NewWord();
  }
  uint64_t NewWord(uint32_t context = 0) {
    const uint64_t word = Allocate(*channel_, kWordBytes, context);
    // A fill that wants a reply is not held.
    EXPECT_EQ(channel_->Call(Op::kFill, Payload().Put(shm::Fill{word, 0, 1, 1, kLegacyStream, 0, kWordBytes}), context)
                  .result,
              0u);
    EXPECT_EQ(channel_->Call(Op::kSynchronizeContext, {}, context).result, 0u);
    return word;
  }
  uint64_t CreateStream(uint32_t flags) {
    return channel_->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{flags, 0})).Get<uint64_t>();
  }

  Payload Put(uint32_t factor, uint32_t addend, uint64_t stream = kLegacyStream) const {
    return PutAt(kernel_, word_, factor, addend, stream);
  }
  static Payload PutAt(uint64_t kernel, uint64_t word, uint32_t factor, uint32_t addend,
                       uint64_t stream = kLegacyStream) {
    std::string parameters(16, '\0');
    std::memcpy(parameters.data(), &word, sizeof(word));
    std::memcpy(parameters.data() + 8, &factor, sizeof(factor));
    std::memcpy(parameters.data() + 12, &addend, sizeof(addend));
    return LaunchOf(kernel, stream, parameters);
  }
  // It is held, and no driver takes it.
  Payload Refused() const {
    Payload launch = Put(1, 1);
    reinterpret_cast<shm::Launch*>(const_cast<std::byte*>(launch.bytes().data()))->shared_bytes = 1 << 20;
    return launch;
  }

  // What is posted until LetGo is carried out at a stretch: no channel is idle in between.
  void HoldBack() { held_back_ = client_->header().next_sequence_number.fetch_add(1); }
  void LetGo() {
    first_channel_->Publish(kOp_cuEventRecord, Payload().PutWord(kFirstEvent).PutWord(kLegacyStream), 0, 0, held_back_);
  }
  static void Ask(ScriptedChannel& channel, Op op, const Payload& payload = {}, uint32_t context = 0) {
    channel.Publish(static_cast<uint16_t>(op), payload, shm::kWantReply, context);
  }

  uint64_t Figure(control::Figure name) { return executor_->Snapshot().back().figures[name]; }
  uint64_t Batches(WindowEnd why) {
    return executor_->Snapshot().back().figures.entries("window_batches")[static_cast<size_t>(why)];
  }
  uint64_t Batches() {
    uint64_t sum = 0;
    for (const WindowEnd why : {WindowEnd::kFull, WindowEnd::kStep, WindowEnd::kRequest, WindowEnd::kIdle}) {
      sum += Batches(why);
    }
    return sum;
  }
  // Issued by a channel that found nothing to do.
  bool AwaitIdleBatches(uint64_t count) {
    for (int i = 0; i < 10000 && Batches(WindowEnd::kIdle) < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Batches(WindowEnd::kIdle) == count;
  }
  uint32_t AsyncError() { return client_->header().async_error.load(); }
  uint32_t Read(uint64_t word, uint32_t context = 0) {
    Ask(*channel_, Op::kCopy, CopyOf(word), context);
    return AwaitWord(*channel_);
  }
  static Payload CopyOf(uint64_t word) {
    const shm::Copy down{0,
                         word,
                         kWordBytes,
                         kLegacyStream,
                         static_cast<uint32_t>(shm::Place::kArena),
                         static_cast<uint32_t>(shm::Place::kAddress)};
    return Payload().Put(down);
  }
  static uint32_t AwaitWord(ScriptedChannel& channel) {
    EXPECT_EQ(channel.Await().result, 0u);
    uint32_t value = 0;
    std::memcpy(&value, channel.arena(), sizeof(value));
    return value;
  }
  // Of a library: launched as a kernel without a context.
  uint64_t LoadLibraryKernel() {
    const std::string text = kPut;
    const shm::WriteImage piece{9, static_cast<uint32_t>(text.size() + 1), text.size() + 1, 0};
    channel_->Post(Op::kWriteImage, Payload().Put(piece).PutBytes(text.c_str(), text.size() + 1));
    shm::LoadImage load{};
    load.image = 9;
    load.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
    const Answer loaded = channel_->Call(Op::kLoadLibrary, Payload().Put(load));
    const shm::GetByName get{loaded.Get<shm::LoadedImage>().handle, 3, 0};
    return channel_->Call(Op::kGetKernel, Payload().Put(get).PutBytes("put", 3)).Get<shm::KernelDescription>().handle;
  }
  // Two launches that a graph is remembered for from their second time on.
  void IssueShape() {
    HoldBack();
    channel_->Post(Op::kLaunch, Put(1, 1));
    channel_->Post(Op::kLaunch, Put(1, 1));
    Ask(*channel_, Op::kSynchronizeContext);
    LetGo();
    EXPECT_EQ(channel_->Await().result, 0u);
  }
  // Graphs that were built: one, and another if it was forgotten meanwhile.
  void ExpectForgotten() {
    IssueShape();
    EXPECT_EQ(Figure("window_shapes"), 2u);
    IssueShape();
    EXPECT_EQ(Figure("window_shapes"), 2u) << "it is remembered again";
    EXPECT_EQ(AsyncError(), 0u);
  }
  void RememberShape() {
    for (int i = 0; i < 3; ++i) IssueShape();
    ASSERT_EQ(Figure("window_shapes"), 1u);
    ASSERT_EQ(Figure("window_graphs"), 2u);
  }

  static inline server::DriverTable sim_;
  server::DriverTable table_;
  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_, other_channel_, first_channel_;
  uint64_t module_ = 0, kernel_ = 0, word_ = 0;
  uint64_t held_back_ = 0;
};

}  // namespace tally::fakes
