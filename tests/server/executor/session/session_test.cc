#include "server/executor/session/session.h"

#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include "proto/driver/generated/driver_symbols.h"
#include "proto/driver/generated/wire_ops.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;
using ::tally::server::SessionSnapshot;

constexpr uint32_t Place(shm::Place place) { return static_cast<uint32_t>(place); }

class SessionTest : public ExecutorFixture {
 protected:
  void SetUp() override {
    ExecutorFixture::SetUp();
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
  }
  uint64_t CreateStream(uint32_t flags) {
    return channel_->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{flags, 0})).Get<uint64_t>();
  }
  uint32_t Synchronize() { return channel_->Call(Op::kSynchronizeContext).result; }
  // From the record itself; `flags`: shm::RequestFlags.
  void PostUpload(uint64_t device, uint64_t stream, uint16_t flags) {
    const std::string bytes(16, 'b');
    const shm::Copy up{device, 0, bytes.size(), stream, Place(shm::Place::kAddress), Place(shm::Place::kInline)};
    channel_->Publish(static_cast<uint16_t>(Op::kCopy), Payload().Put(up).PutBytes(bytes.data(), bytes.size()), flags,
                      0);
  }

  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
};

TEST_F(SessionTest, DescribesDevicesWithWhatTallyCannotDoTurnedOff) {
  const Answer answer = channel_->Call(Op::kDescribeDevices, {}, shm::kNoContext);
  ASSERT_EQ(answer.result, 0u);
  EXPECT_EQ(answer.Get<uint32_t>(0), 1u);
  EXPECT_EQ(answer.Get<uint32_t>(4), 13000u);
  const auto device = answer.Get<shm::DeviceDescription>(8);
  EXPECT_STREQ(device.name, "Fake GPU");
  EXPECT_EQ(device.attribute[CU_DEVICE_ATTRIBUTE_WARP_SIZE], CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  EXPECT_EQ(device.attribute[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS], 0);
  EXPECT_EQ(device.attribute[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED], 0);
  EXPECT_EQ(device.attribute[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED], 0);
  EXPECT_EQ(device.attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED], 1);
}

// The fake driver's devices can do everything.
TEST_F(SessionTest, NoAttributeAdvertisesWhatIsRefused) {
  const struct {
    CUdevice_attribute attribute;
    const char* function;
  } kFamilies[] = {
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "cuMemHostRegister_v2"},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "cuMemMap"},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "cuMemImportFromShareableHandle"},
      {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, "cuMemPoolImportFromShareableHandle"},
      {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, "cuIpcOpenEventHandle"},
      {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, "cuMulticastBindMem"},
      {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, "cuMemGetHandleForAddressRange"},
      {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, "cuFlushGPUDirectRDMAWrites"},
      {CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, "cuSignalExternalSemaphoresAsync"},
      {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, "cuMemMapArrayAsync"},
      {CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, "cuMemMapArrayAsync"},
      {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, "cuMemBatchDecompressAsync"},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, "cuLibraryGetUnifiedFunction"},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, "cuLaunchCooperativeKernelMultiDevice"},
      {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, "cuTensorMapEncodeTiled"},
  };
  const auto device = channel_->Call(Op::kDescribeDevices, {}, shm::kNoContext).Get<shm::DeviceDescription>(8);
  for (const auto& family : kFamilies) {
    const size_t symbol = FindDriverSymbol(family.function);
    ASSERT_LT(symbol, kNumDriverSymbols) << family.function;
    EXPECT_EQ(device.attribute_valid[family.attribute], 1) << family.function;
    if (kDriverSymbols[symbol].verdict == Verdict::kRefused) {
      EXPECT_EQ(device.attribute[family.attribute], 0) << family.function << " is refused";
    }
  }
}

TEST_F(SessionTest, RefusalsOfTheClientAreCounted) {
  const auto multicast = static_cast<uint32_t>(FindDriverSymbol("cuMulticastCreate"));
  for (int i = 0; i < 2; ++i) {
    channel_->Post(Op::kNoteRefusal, Payload().Put(shm::NoteRefusal{multicast, 0}), shm::kNoContext);
  }
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(executor_->Snapshot().at(0).figures["refused_calls"], 2u);
  const auto functions = executor_->RefusedFunctions();
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_EQ(functions[0].symbol_index, multicast);
  EXPECT_EQ(functions[0].num_calls, 2u);
  channel_->Post(Op::kNoteRefusal, Payload().Put(shm::NoteRefusal{uint32_t{kNumDriverSymbols}, 0}), shm::kNoContext);
  client_->WaitUntilOver();  // no such function: nonsense
}

TEST_F(SessionTest, CopiesThroughEveryPlace) {
  const uint64_t device = Allocate(*channel_, 4096);
  ASSERT_NE(device, 0u);
  const std::string text = "inline bytes that travel in the record";
  const shm::Copy up{device, 0, text.size(), 1, Place(shm::Place::kAddress), Place(shm::Place::kInline)};
  channel_->Post(Op::kCopy, Payload().Put(up).PutBytes(text.data(), text.size()));
  const shm::Copy down{4096, device, text.size(), 1, Place(shm::Place::kArena), Place(shm::Place::kAddress)};
  EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(down)).result, 0u);
  EXPECT_EQ(std::memcmp(channel_->arena() + 4096, text.data(), text.size()), 0);
  EXPECT_EQ(channel_->Call(Op::kAwaitArena, Payload().PutWord(0)).result, 0u);

  UniqueFd fd;
  const auto pinned = client_->Request(shm::SessionRequestKind::kAllocateHost, 10000, 0, 0, &fd);
  ASSERT_TRUE(pinned && pinned->cuda_result == 0);
  EXPECT_EQ(pinned->value[1], 12288u);
  // Same process: the executor's mapping is at the agreed address already.
  auto* host = reinterpret_cast<char*>(pinned->value[0]);
  const shm::Copy to_pinned{pinned->value[0], device, text.size(), 1, 0, 0};
  EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(to_pinned)).result, 0u);
  EXPECT_EQ(std::string(host, text.size()), text);

  const SessionSnapshot snapshot = executor_->Snapshot().at(0);
  EXPECT_EQ(snapshot.figures["host_to_device_bytes"], text.size());
  EXPECT_EQ(snapshot.figures["device_to_host_bytes"], 2 * text.size());
  EXPECT_EQ(snapshot.figures["pinned_memory_bytes"], 12288u);
  EXPECT_EQ(channel_->Call(Op::kFreeHost, Payload().PutWord(pinned->value[0])).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kFree, Payload().PutWord(device)).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kFree, Payload().PutWord(device)).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SessionTest, BoxesStayInsideBothSides) {
  const uint64_t device = Allocate(*channel_, 1024);
  shm::CopyBox box{};
  box.width_bytes = 16;
  box.height = 4;
  box.depth = 1;
  box.stream = 1;
  box.destination = {device, 0, 0, 0, 256, 4, Place(shm::Place::kAddress), 0};
  box.source = {0, 0, 0, 0, 0, 0, Place(shm::Place::kInline), 0};
  box.inline_bytes = 64;
  const std::string bytes(64, 'b');
  const auto call = [&] { return channel_->Call(Op::kCopyBox, Payload().Put(box).PutBytes(bytes.data(), 64)).result; };
  EXPECT_EQ(call(), 0u);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(device) + 768, 17), std::string(16, 'b') + '\0');
  box.destination.y = 1;  // the last row would end at 1040
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE);
  box.destination.y = UINT64_MAX;
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE);
  box.destination.y = 0;
  box.destination.z = uint64_t{1} << 39;
  box.destination.pitch_bytes = uint64_t{1} << 39;
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SessionTest, FillsOneAndTwoDimensions) {
  const uint64_t device = Allocate(*channel_, 1024);
  EXPECT_EQ(channel_->Call(Op::kFill, Payload().Put(shm::Fill{device, 0, 256, 1, 1, 0x01020304, 4})).result, 0u);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(device + 1020), 0x01020304u);
  EXPECT_EQ(channel_->Call(Op::kFill, Payload().Put(shm::Fill{device, 256, 3, 4, 1, 0x55, 1})).result, 0u);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(device + 768), 0x01555555u);
  EXPECT_EQ(channel_->Call(Op::kFill, Payload().Put(shm::Fill{device, 0, 257, 1, 1, 0, 4})).result,
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SessionTest, LaunchesWithParametersAtTheKernelsOffsets) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  ASSERT_NE(kernel, 0u);
  std::string bytes(24, '.');
  bytes.replace(0, 8, "pointer1").replace(8, 4, "int2").replace(16, 8, "pointer3");
  channel_->Post(Op::kLaunch, LaunchOf(kernel, 1, bytes));
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(driver_.last_parameters(), (std::vector<std::string>{"pointer1", "int2", "pointer3"}));
  EXPECT_EQ(executor_->Snapshot().at(0).figures["kernel_launches"], 1u);
}

// The rest would be what an earlier record left there.
TEST_F(SessionTest, FewerParameterBytesThanTheKernelTakesEndTheSession) {
  constexpr size_t kBytes = kFakeParameters[2][0] + kFakeParameters[2][1];
  for (const size_t bytes : {size_t{0}, kBytes - 8, kBytes - 1}) {
    auto client = Connect();
    auto channel = client->OpenChannel();
    const uint64_t kernel = LoadKernel(*channel, "kernel");
    ASSERT_FALSE(channel->Call(Op::kLaunch, LaunchOf(kernel, 1, std::string(bytes, 'x'))).arrived) << bytes;
    WaitForEnds(1);
    EXPECT_NE(ends().back().reason.find("fewer parameter bytes"), std::string::npos) << ends().back().reason;
  }
  EXPECT_EQ(driver_.num_launches(), 0u);
}

TEST_F(SessionTest, FailureOfAnAsynchronousCallIsLatchedOnce) {
  channel_->Post(Op::kLaunch, LaunchOf(shm::MakeHandle(shm::HandleKind::kFunction, 1, true, 77), 1));
  channel_->Post(Op::kFill, Payload().Put(shm::Fill{1234, 0, 1, 1, 1, 0, 1}));
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(client_->header().async_error.exchange(0), static_cast<uint32_t>(CUDA_ERROR_INVALID_HANDLE));
  EXPECT_EQ(executor_->Snapshot().at(0).figures["failed_calls"], 2u);
}

TEST_F(SessionTest, LegacyStreamJoinsBlockingStreamsOnlyWhenBothAreUsed) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  const uint64_t blocking = CreateStream(CU_STREAM_DEFAULT);          // s1
  const uint64_t independent = CreateStream(CU_STREAM_NON_BLOCKING);  // s2
  driver_.TakeTrace();
  channel_->Post(Op::kLaunch, LaunchOf(kernel, blocking));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, independent));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, blocking));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));  // s3
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, independent));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, blocking));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, blocking));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kPerThreadStream));  // s4
  EXPECT_EQ(channel_->Call(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0})).result, 0u);
  EXPECT_EQ(driver_.TakeTrace(),
            (std::vector<std::string>{"launch s1", "launch s2", "launch s1",      //
                                      "record s1 e1", "wait s3 e1", "launch s3",  // legacy after blocking
                                      "launch s3", "launch s2",                   // nothing to join
                                      "record s3 e2", "wait s1 e2", "launch s1",  // blocking after legacy
                                      "launch s1", "wait s4 e2", "launch s4"}));
}

// The call has returned: a non-blocking stream, in no order with the legacy one, finds the bytes all the same.
TEST_F(SessionTest, EveryStreamComesBehindABlockingCopyThatReturnedEarly) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel"), device = Allocate(*channel_, 4096);
  const uint64_t blocking = CreateStream(CU_STREAM_DEFAULT);          // s1
  const uint64_t independent = CreateStream(CU_STREAM_NON_BLOCKING);  // s2
  const auto copy = [&](uint64_t stream, uint16_t flags) { PostUpload(device, stream, flags); };
  const auto launch = [&](uint64_t stream) { channel_->Post(Op::kLaunch, LaunchOf(kernel, stream)); };
  const auto take_trace = [&] {
    EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
    return driver_.TakeTrace();
  };
  using Trace = std::vector<std::string>;
  take_trace();
  copy(shm::kLegacyStream, 0);  // s3: not a blocking one
  launch(independent);
  EXPECT_EQ(take_trace(), (Trace{"copy s3", "launch s2"}));
  // The place is that of the copy: what is put behind it may wait for the stream that does not wait for it.
  copy(shm::kLegacyStream, shm::kReturnsEarly);
  launch(shm::kLegacyStream);
  launch(independent);
  launch(independent);
  EXPECT_EQ(take_trace(), (Trace{"copy s3", "record s3 e1", "launch s3", "wait s2 e1", "launch s2", "launch s2"}));
  // A blocking stream has an order with the legacy stream, and needs no second one.
  launch(blocking);
  EXPECT_EQ(take_trace(), (Trace{"record s3 e2", "wait s1 e2", "launch s1"}));
  // A stream that is made later, and a copy on a thread's own stream (s5).
  launch(CreateStream(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(take_trace(), (Trace{"wait s4 e1", "launch s4"}));
  copy(shm::kPerThreadStream, shm::kReturnsEarly);
  launch(independent);
  const Trace trace = take_trace();
  ASSERT_GE(trace.size(), 3u);
  EXPECT_EQ(trace[trace.size() - 3], "record s5 e3");
  EXPECT_EQ(trace[trace.size() - 2], "wait s2 e3");
}

// Its graph is a thing of its own: it may run at any time.
TEST_F(SessionTest, AStreamThatIsBeingCapturedWaitsForABlockingCopyOnlyAfterwards) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel"), device = Allocate(*channel_, 4096);
  const uint64_t captured = CreateStream(CU_STREAM_NON_BLOCKING);  // s1
  EXPECT_EQ(channel_
                ->Call(Op::kBeginCapture,
                       Payload().Put(shm::BeginCapture{captured, 0, CU_STREAM_CAPTURE_MODE_RELAXED, 0, 0, 0}))
                .result,
            0u);
  PostUpload(device, shm::kLegacyStream, shm::kReturnsEarly);
  driver_.TakeTrace();
  channel_->Post(Op::kLaunch, LaunchOf(kernel, captured));
  EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
  EXPECT_EQ(std::ranges::count_if(driver_.TakeTrace(), [](const auto& line) { return line.starts_with("wait"); }), 0);
  EXPECT_EQ(channel_->Call(Op::kEndCapture, Payload().PutWord(captured)).result, 0u);
  driver_.TakeTrace();
  channel_->Post(Op::kLaunch, LaunchOf(kernel, captured));
  EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
  EXPECT_EQ(std::ranges::count_if(driver_.TakeTrace(), [](const auto& line) { return line.starts_with("wait s1 "); }),
            1);
}

// Natively it is work of the context like any other: that nobody can name its stream any more changes nothing.
TEST_F(SessionTest, LegacyStreamWaitsForABusyBlockingStreamThatWasDestroyed) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  for (const bool is_there_before : {false, true}) {
    if (is_there_before) channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));
    const uint64_t blocking = CreateStream(CU_STREAM_DEFAULT);
    channel_->Post(Op::kLaunch, LaunchOf(kernel, blocking));
    EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
    const std::string launched = driver_.TakeTrace().back();  // "launch sN"
    channel_->Post(Op::kDestroyStream, Payload().PutWord(blocking));
    channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));
    EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
    const std::vector<std::string> trace = driver_.TakeTrace();
    ASSERT_FALSE(trace.empty());
    const std::string recorded = "record " + launched.substr(7) + " e";
    EXPECT_EQ(trace.front().substr(0, recorded.size()), recorded) << is_there_before;
    const std::string event = trace.front().substr(recorded.size() - 1);
    const std::string legacy = trace.back().substr(7);
    EXPECT_EQ(trace.back(), "launch " + legacy);
    const auto waits = std::ranges::count(trace, "wait " + legacy + " " + event);
    EXPECT_EQ(waits, 1) << "the legacy stream " << (is_there_before ? "was there before" : "came later");
  }
}

TEST_F(SessionTest, AStreamThatIsMadeBehindAPendingWaitOfItsContextWaitsToo) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  EXPECT_EQ(channel_->Call(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0})).result, 0u);  // e1
  channel_->Post(Op::kWaitContextEvent, Payload().PutWord(kFirstEvent));
  EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
  // The event comes before whatever stands for all that the context does from now on.
  const std::vector<std::string> waited = driver_.TakeTrace();
  ASSERT_EQ(waited, (std::vector<std::string>{"wait s1 e1", "record s1 e2"}));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, CreateStream(CU_STREAM_NON_BLOCKING)));
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));
  EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
  EXPECT_EQ(driver_.TakeTrace(), (std::vector<std::string>{"wait s2 e2", "launch s2", "wait s3 e2", "launch s3"}));
  // Once it is known to have happened there is nothing to wait for.
  EXPECT_EQ(Synchronize(), 0u);
  driver_.TakeTrace();
  channel_->Post(Op::kLaunch, LaunchOf(kernel, CreateStream(CU_STREAM_NON_BLOCKING)));
  EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
  EXPECT_EQ(driver_.TakeTrace(), (std::vector<std::string>{"launch s4"}));
}

TEST_F(SessionTest, ContextsHaveLegacyStreamsOfTheirOwn) {
  EXPECT_EQ(channel_->Call(Op::kOpenContext, Payload().Put(shm::OpenContext{64, 0, 0, 0}), shm::kNoContext).result, 0u);
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream), 0);
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kPerThreadStream), 64);
  channel_->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream), 0);
  EXPECT_EQ(channel_->Call(Op::kSynchronizeContext, {}, 64).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kCloseContext, Payload().Put(shm::CloseContext{64, 0}), shm::kNoContext).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kSynchronizeContext, {}, 64).result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver_.live()["stream"], 1);
}

TEST_F(SessionTest, CallsWithoutContextSayItIsMissing) {
  EXPECT_EQ(channel_->Call(Op::kAllocate, Payload().Put(shm::Allocate{16, 0, 0, 0}), shm::kNoContext).result,
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(channel_->Call(Op::kSynchronizeContext, {}, 999).result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SessionTest, GeneratedCallsWork) {
  const Answer limit = channel_->CallNumber(kOp_cuCtxGetLimit, Payload().PutWord(0));
  EXPECT_EQ(limit.result, 0u);
  EXPECT_EQ(limit.Get<uint64_t>(), 1024u);
  const Answer graph = channel_->CallNumber(kOp_cuGraphCreate, Payload().PutWord(0));
  ASSERT_EQ(graph.result, 0u);
  EXPECT_EQ(shm::HandleKindOf(graph.Get<uint64_t>()), shm::HandleKind::kGraph);
  EXPECT_EQ(channel_->CallNumber(kOp_cuGraphDestroy, Payload().PutWord(graph.Get<uint64_t>())).result, 0u);
  EXPECT_EQ(channel_->CallNumber(kOp_cuGraphDestroy, Payload().PutWord(graph.Get<uint64_t>())).result,
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(channel_->CallNumber(kOp_cuArrayDestroy, Payload().PutWord(0)).result, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(executor_->Snapshot().at(0).figures["refused_calls"], 1u);
}

TEST_F(SessionTest, HostFunctionsRunInTheClientInOrder) {
  auto callbacks = client_->OpenChannel();
  std::vector<uint64_t> seen;
  std::thread runner([&] {
    uint64_t finished = 0;
    for (;;) {
      const Answer answer = callbacks->Call(Op::kAwaitCallback, Payload().PutWord(finished));
      if (!answer.arrived) return;
      seen.push_back(answer.Get<uint64_t>());
      finished = seen.back();
    }
  });
  for (uint64_t token = 1; token <= 5; ++token) {
    channel_->Post(Op::kLaunchHostFunction, Payload().Put(shm::LaunchHostFunction{1, token, 0, 0}));
  }
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(executor_->Evict(1, "test").ok());
  runner.join();
}

TEST_F(SessionTest, EverythingOfADeadClientIsGone) {
  const auto before = driver_.live();
  for (int i = 0; i < 100; ++i) {
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    auto channel = client->OpenChannel();
    const uint64_t kernel = LoadKernel(*channel, "kernel");
    Allocate(*channel, 1000);
    channel->Post(Op::kLaunch, LaunchOf(kernel, 1));
    channel->Post(Op::kLaunch, LaunchOf(kernel, 2));
    channel->Call(Op::kAllocateAsync, Payload().Put(shm::AllocateAsync{64, 0, 1}));
    channel->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{0, 0}));
    channel->CallNumber(kOp_cuGraphCreate, Payload().PutWord(0));
    channel->Post(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0}));
    client->Request(shm::SessionRequestKind::kAllocateHost, 4096, 0);
    const auto rejected = client->Request(shm::SessionRequestKind::kAllocateHost, 4096, 0);
    client->Request(shm::SessionRequestKind::kRejectHost, rejected->value[0]);
    const std::string text(100, 'x');
    const shm::Copy copy{Allocate(*channel, 100), 0, 100, 1, 0, Place(shm::Place::kArena)};
    EXPECT_EQ(channel->Call(Op::kCopy, Payload().Put(copy)).result, 0u);
    // A host function that nobody will ever run: released when the client dies.
    channel->Post(Op::kLaunchHostFunction, Payload().Put(shm::LaunchHostFunction{1, 9, 0, 0}));
    channel->Publish(static_cast<uint16_t>(Op::kSynchronizeContext), {}, shm::kWantReply, 0);
  }
  WaitForEnds(100);
  // Wait points are kept for the next session: a bounded pool of events, not a leak of one.
  auto after = driver_.live();
  EXPECT_LE(after["event"], 8);
  after.erase("event");
  EXPECT_EQ(after, before);
  EXPECT_EQ(executor_->Snapshot().size(), 1u);
}

TEST_F(SessionTest, AFaultIsEverybodysAndFinal) {
  auto other = Connect();
  auto other_channel = other->OpenChannel();
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  driver_.BreakContext(CUDA_ERROR_ILLEGAL_ADDRESS);
  channel_->Post(Op::kLaunch, LaunchOf(kernel, 1));
  EXPECT_EQ(Synchronize(), static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_TRUE(executor_->faulted());
  EXPECT_EQ(other->header().sticky_error.load(), static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_EQ(other_channel->Call(Op::kAllocate, Payload().Put(shm::Allocate{16, 0, 0, 0})).result,
            static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_EQ(Connect(), nullptr);
  EXPECT_EQ(faults_.size(), 1u);
}

TEST_F(SessionTest, LimitsAreErrorsAndNonsenseEndsOnlyItsOwnSession) {
  auto bad = Connect();
  auto bad_channel = bad->OpenChannel();
  bad_channel->CallNumber(250);  // no such operation
  bad->WaitUntilOver();
  EXPECT_NE(bad->header().sticky_error.load(), 0u);
  WaitForEnds(1);
  EXPECT_TRUE(ends().at(0).evicted);
  EXPECT_NE(ends().at(0).reason.find("unknown operation"), std::string::npos) << ends().at(0).reason;
  EXPECT_EQ(channel_->Call(Op::kAllocate, Payload().Put(shm::Allocate{uint64_t{1} << 60, 0, 0, 0})).result,
            static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(client_->Request(shm::SessionRequestKind::kAllocateHost, uint64_t{1} << 60, 0)->cuda_result,
            static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
}

// Several client threads, each with its channel: what the device sees must be in the order of the sequence numbers.
TEST_F(SessionTest, ChannelsAreServedInTheOrderOfSequenceNumbers) {
  constexpr int kChannels = 4;
  constexpr int kEach = 500;
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  const uint64_t cell = Allocate(*channel_, 8);
  std::vector<std::unique_ptr<ScriptedChannel>> channels;
  for (int i = 0; i < kChannels; ++i) channels.push_back(client_->OpenChannel());
  // Under one lock each thread takes the next sequence number and the next value: the last write must win.
  std::mutex mutex;
  uint64_t next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kChannels; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < kEach; ++n) {
        uint64_t sequence_number = 0;
        uint64_t value = 0;
        {
          const std::lock_guard lock(mutex);
          sequence_number = client_->header().next_sequence_number.fetch_add(1);
          value = ++next;
        }
        const shm::Copy copy{cell, 0, 8, 1, 0, Place(shm::Place::kInline)};
        channels[i]->Publish(static_cast<uint16_t>(Op::kCopy), Payload().Put(copy).PutWord(value), 0, 0,
                             sequence_number);
        if (n % 100 != 99) continue;
        EXPECT_EQ(channels[i]->Call(Op::kSynchronizeStream, Payload().PutWord(1)).result, 0u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  channel_->Post(Op::kLaunch, LaunchOf(kernel, 1));
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(cell), uint64_t{kChannels} * kEach);
  EXPECT_EQ(client_->header().async_error.load(), 0u);
}

}  // namespace
}  // namespace tally::fakes
