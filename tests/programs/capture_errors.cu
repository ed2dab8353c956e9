// What stream capture forbids: synchronising a captured stream, the legacy stream during a global capture or in one,
// ending a capture that is invalid, on the wrong stream or with a branch not joined.
#include "tests/programs/check.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.Add("codes", std::vector<int>{
                           cudaErrorStreamCaptureUnsupported,  // synchronise a stream that is captured
                           cudaErrorStreamCaptureInvalidated,  // and end it
                           cudaErrorStreamCaptureImplicit,     // legacy stream while a blocking stream is captured
                           cudaErrorStreamCaptureInvalidated,  // and end it
                           cudaErrorStreamCaptureImplicit,     // legacy stream waits for an event of a capture
                           cudaErrorStreamCaptureInvalidated,  // and end it
                           cudaErrorStreamCaptureUnjoined,     // end with a branch that was not joined
                           cudaErrorStreamCaptureUnmatched,    // end on the branch instead of the origin
                           cudaErrorStreamCaptureUnsupported,  // query a stream that is captured
                           cudaSuccess,                        // an ordinary launch afterwards
                       });
}

__global__ void Nothing() {}

void Device(Results& results) {
  cudaStream_t stream, branch;
  cudaEvent_t forked;
  CHECK_CUDA(cudaStreamCreate(&stream));
  CHECK_CUDA(cudaStreamCreate(&branch));
  CHECK_CUDA(cudaEventCreate(&forked));
  Nothing<<<1, 1, 0, stream>>>();
  CHECK_CUDA(cudaDeviceSynchronize());
  std::vector<int> codes;
  cudaGraph_t graph = nullptr;

  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  codes.push_back(cudaStreamSynchronize(stream));
  codes.push_back(cudaStreamEndCapture(stream, &graph));

  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaGetLastError();
  Nothing<<<1, 1>>>();
  codes.push_back(cudaGetLastError());
  codes.push_back(cudaStreamEndCapture(stream, &graph));

  cudaStream_t apart;
  CHECK_CUDA(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamBeginCapture(apart, cudaStreamCaptureModeGlobal));
  CHECK_CUDA(cudaEventRecord(forked, apart));
  codes.push_back(cudaStreamWaitEvent(nullptr, forked, 0));
  codes.push_back(cudaStreamEndCapture(apart, &graph));
  cudaGetLastError();

  auto fork = [&] {
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaEventRecord(forked, stream));
    CHECK_CUDA(cudaStreamWaitEvent(branch, forked, 0));
    Nothing<<<1, 1, 0, branch>>>();
  };
  fork();
  codes.push_back(cudaStreamEndCapture(stream, &graph));
  fork();
  codes.push_back(cudaStreamEndCapture(branch, &graph));
  cudaStreamEndCapture(stream, &graph);
  // The code is not documented: shown, and an error it must be.
  int never_begun = cudaStreamEndCapture(stream, &graph);
  printf("end of a capture that never began: %d\n", never_begun);
  if (never_begun == cudaSuccess) check::Fail("a capture that never began was ended");

  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  codes.push_back(cudaStreamQuery(stream));
  cudaStreamEndCapture(stream, &graph);
  cudaGetLastError();
  Nothing<<<1, 1>>>();
  CHECK_LAUNCH();
  codes.push_back(cudaDeviceSynchronize());
  results.Add("codes", codes);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
