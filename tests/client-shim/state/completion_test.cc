// Questions about streams and events that are answered without the executor, and those that must not be.
#include "client-shim/state/completion.h"

#include <gtest/gtest.h>

#include <thread>

#include "proto/driver/generated/wire_ops.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

struct Streams {
  CUcontext context = nullptr;
  CUstream legacy = nullptr, blocking = nullptr, non_blocking = nullptr, other = nullptr;
  CUevent event = nullptr;
};

int Open(Streams* out) {
  REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuDevicePrimaryCtxRetain)(&out->context, 0) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuCtxSetCurrent)(out->context) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuStreamCreate)(&out->blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuStreamCreate)(&out->non_blocking, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuStreamCreate)(&out->other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuEventCreate)(&out->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  return 0;
}

// An executor whose streams and events are never ready: success can only come from what the client knows itself.
class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    executor_.On(shm::Op::kCreateStream, [this](const FakeRequest&, FakeReply* reply) {
      reply->Append(shm::MakeHandle(shm::HandleKind::kStream, 0, true, ++num_streams_));
    });
    const auto not_ready = [](const FakeRequest&, FakeReply* reply) { reply->result = CUDA_ERROR_NOT_READY; };
    executor_.On(kOp_cuEventQuery, not_ready);
    executor_.On(kOp_cuStreamQuery, not_ready);
  }
  int Run(const std::function<int(const Streams&)>& body) {
    return RunInChild(executor_.socket_path(), [&] {
      Streams streams;
      if (const int failed = Open(&streams); failed != 0) return failed;
      return body(streams);
    });
  }
  size_t NumRequests(uint16_t op) { return executor_.NumRequests(op); }

  FakeExecutor executor_;
  uint64_t num_streams_ = 0;
};

bool Knows(CUevent event) { return SHIM(cuEventQuery)(event) == CUDA_SUCCESS; }

TEST_F(CompletionTest, AWaitForTheStreamAnswersForItsEvents) {
  EXPECT_EQ(Run([](const Streams& s) {
              REQUIRE(!Knows(s.event));  // never recorded: the executor is asked
              REQUIRE(SHIM(cuEventRecord)(s.event, s.non_blocking) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));
              REQUIRE(SHIM(cuStreamSynchronize)(s.other) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));
              REQUIRE(SHIM(cuStreamSynchronize)(s.legacy) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));  // the legacy stream does not wait for non-blocking ones
              REQUIRE(SHIM(cuStreamSynchronize)(s.non_blocking) == CUDA_SUCCESS);
              REQUIRE(Knows(s.event));
              REQUIRE(SHIM(cuEventRecord)(s.event, s.non_blocking) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));  // recorded anew
              REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
              REQUIRE(Knows(s.event) && Knows(s.event));
              return 0;
            }),
            0);
  EXPECT_EQ(NumRequests(kOp_cuEventQuery), 5u);
}

TEST_F(CompletionTest, AWaitForTheLegacyStreamAnswersForBlockingOnes) {
  EXPECT_EQ(Run([](const Streams& s) {
              REQUIRE(SHIM(cuEventRecord)(s.event, s.blocking) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuStreamSynchronize)(s.legacy) == CUDA_SUCCESS);
              REQUIRE(Knows(s.event));
              REQUIRE(SHIM(cuEventRecord)(s.event, s.legacy) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuStreamSynchronize)(s.blocking) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));  // not the other way round
              return 0;
            }),
            0);
}

TEST_F(CompletionTest, AWaitForTheEventAnswersForItself) {
  EXPECT_EQ(Run([](const Streams& s) {
              REQUIRE(SHIM(cuEventRecord)(s.event, s.legacy) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuEventSynchronize)(s.event) == CUDA_SUCCESS);
              REQUIRE(Knows(s.event));
              REQUIRE(SHIM(cuEventSynchronize)(s.event) == CUDA_SUCCESS);
              return 0;
            }),
            0);
  EXPECT_EQ(NumRequests(kOp_cuEventQuery), 0u);
  EXPECT_EQ(NumRequests(static_cast<uint16_t>(shm::Op::kSynchronizeEvent)), 1u);
}

TEST_F(CompletionTest, EventsThatOthersMayRecordAreAlwaysAskedFor) {
  EXPECT_EQ(Run([](const Streams& s) {
              CUgraphNode node =
                  reinterpret_cast<CUgraphNode>(shm::MakeHandle(shm::HandleKind::kGraphNode, 0, true, 1));
              REQUIRE(SHIM(cuGraphEventRecordNodeSetEvent)(node, s.event) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuEventRecord)(s.event, s.legacy) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuStreamSynchronize)(s.legacy) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));
              CUevent captured = nullptr;
              REQUIRE(SHIM(cuEventCreate)(&captured, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuStreamBeginCapture_v2)(s.other, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuEventRecord)(captured, s.other) == CUDA_SUCCESS);
              CUgraph graph = nullptr;
              static_cast<void>(SHIM(cuStreamEndCapture)(s.other, &graph));
              REQUIRE(SHIM(cuEventRecord)(captured, s.legacy) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
              REQUIRE(!Knows(captured));
              return 0;
            }),
            0);
}

TEST_F(CompletionTest, AResetForgets) {
  EXPECT_EQ(Run([](const Streams& s) {
              REQUIRE(SHIM(cuEventRecord)(s.event, s.legacy) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
              REQUIRE(Knows(s.event));
              REQUIRE(SHIM(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));
              // The one that begins anew was waited for; what was recorded in the last one is none of its.
              CUcontext anew = nullptr;
              REQUIRE(SHIM(cuDevicePrimaryCtxRetain)(&anew, 0) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuCtxSetCurrent)(anew) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
              REQUIRE(!Knows(s.event));
              return 0;
            }),
            0);
}

TEST_F(CompletionTest, AnIdleStreamIsNotAskedForAgainWhileNothingHappens) {
  EXPECT_EQ(Run([](const Streams& s) {
              const auto idle = [](CUstream stream) { return SHIM(cuStreamQuery)(stream) == CUDA_SUCCESS; };
              REQUIRE(!idle(s.other));
              REQUIRE(SHIM(cuStreamSynchronize)(s.other) == CUDA_SUCCESS);
              REQUIRE(idle(s.other) && idle(s.other));
              REQUIRE(SHIM(cuStreamSynchronize)(s.other) == CUDA_SUCCESS);
              REQUIRE(idle(s.other));
              REQUIRE(!idle(s.non_blocking));  // nothing is known of that one, and asking is a request
              REQUIRE(!idle(s.other));
              REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
              REQUIRE(idle(s.other) && idle(s.non_blocking) && idle(s.legacy) && idle(s.blocking));
              REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
              // Work of any thread ends what is known.
              std::thread([&] {
                SHIM(cuCtxSetCurrent)(s.context);
                SHIM(cuEventRecord)(s.event, s.other);
              }).join();
              REQUIRE(!idle(s.other));
              return 0;
            }),
            0);
  EXPECT_EQ(NumRequests(static_cast<uint16_t>(shm::Op::kSynchronizeStream)), 1u);
  EXPECT_EQ(NumRequests(static_cast<uint16_t>(shm::Op::kSynchronizeContext)), 1u);
}

TEST_F(CompletionTest, AWaitThatFailedSaysNothing) {
  executor_.On(shm::Op::kSynchronizeStream,
               [](const FakeRequest&, FakeReply* reply) { reply->result = CUDA_ERROR_LAUNCH_FAILED; });
  EXPECT_EQ(Run([](const Streams& s) {
              REQUIRE(SHIM(cuEventRecord)(s.event, s.other) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuStreamSynchronize)(s.other) == CUDA_ERROR_LAUNCH_FAILED);
              REQUIRE(SHIM(cuStreamQuery)(s.other) == CUDA_ERROR_NOT_READY);
              REQUIRE(!Knows(s.event));
              return 0;
            }),
            0);
}

TEST(CompletedBeforeTest, OnlyGrows) {
  CompletedBefore completed;
  EXPECT_FALSE(completed.Covers(0));
  completed.Raise(5);
  completed.Raise(3);
  EXPECT_TRUE(completed.Covers(4));
  EXPECT_FALSE(completed.Covers(5));
}

// The launch records it whenever it gets there.
TEST_F(CompletionTest, AnEventInALaunchsAttributesIsNotKnown) {
  ScriptKernel(&executor_);
  EXPECT_EQ(
      Run([](const Streams& streams) {
        CUfunction function = nullptr;
        if (GetKernel(&function) != 0) return 1;
        LaunchWithAttribute arguments;
        arguments.config.hStream = streams.blocking;
        for (const auto id : {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT}) {
          CUevent event = nullptr;
          REQUIRE(SHIM(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
          REQUIRE(SHIM(cuEventRecord)(event, streams.other) == CUDA_SUCCESS);
          REQUIRE(SHIM(cuStreamSynchronize)(streams.other) == CUDA_SUCCESS);
          REQUIRE(Knows(event));
          arguments.attribute.id = id;
          if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
            arguments.attribute.value.programmaticEvent.event = event;
          } else {
            arguments.attribute.value.launchCompletionEvent.event = event;
          }
          REQUIRE(arguments.Launch(function) == CUDA_SUCCESS);
          REQUIRE(!Knows(event));
        }
        return 0;
      }),
      0);
}

TEST_F(CompletionTest, AnEventThatIsRecordedOfAWholeContextIsNotKnown) {
  EXPECT_EQ(Run([](const Streams& streams) {
              REQUIRE(SHIM(cuEventRecord)(streams.event, streams.blocking) == CUDA_SUCCESS);
              REQUIRE(SHIM(cuStreamSynchronize)(streams.blocking) == CUDA_SUCCESS);
              REQUIRE(Knows(streams.event));
              REQUIRE(SHIM(cuCtxWaitEvent)(streams.context, streams.event) == CUDA_SUCCESS);
              REQUIRE(Knows(streams.event));
              REQUIRE(SHIM(cuCtxRecordEvent)(streams.context, streams.event) == CUDA_SUCCESS);
              REQUIRE(!Knows(streams.event));
              return 0;
            }),
            0);
}

// One that was waited for says nothing of another.
TEST_F(CompletionTest, AContextIsIdleByItself) {
  EXPECT_EQ(Run([](const Streams& streams) {
              CUcontext other = nullptr;
              REQUIRE(SHIM(cuCtxCreate_v2)(&other, 0, 0) == CUDA_SUCCESS);
              for (const CUcontext context : {other, streams.context, streams.context}) {
                REQUIRE(SHIM(cuCtxSynchronize_v2)(context) == CUDA_SUCCESS);
              }
              return 0;
            }),
            0);
  EXPECT_EQ(NumRequests(static_cast<uint16_t>(shm::Op::kSynchronizeContext)), 2u) << "the third call knows";
}

}  // namespace
}  // namespace tally::client_shim
