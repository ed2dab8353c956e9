// Tasks on several streams, ordered by events: launched as they are, or captured into one graph.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/taskgraph/check.h"
#include "bench/taskgraph/graph_shape.h"

namespace taskgraph {

class OnStreams {
 public:
  static constexpr size_t kStreams = 8;

  OnStreams() {
    for (cudaStream_t& stream : streams_) Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  }
  ~OnStreams() {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  OnStreams(const OnStreams&) = delete;
  OnStreams& operator=(const OnStreams&) = delete;

  cudaStream_t first() const { return streams_[0]; }
  cudaStream_t stream(size_t index) const { return streams_[index]; }

  // Puts the task on the stream of that number.
  using Launch = std::function<void(uint32_t task, size_t stream)>;
  // All of it, behind what is on the first stream and in front of what comes there next.
  void Issue(const Shape& shape, const Launch& launch) {
    while (events_.size() < shape.size() + kStreams + 1) {
      Check(cudaEventCreateWithFlags(&events_.emplace_back(), cudaEventDisableTiming), "an event");
    }
    const cudaEvent_t begin = events_[shape.size()];
    Check(cudaEventRecord(begin, first()), "record");
    for (size_t i = 1; i < kStreams; ++i) Check(cudaStreamWaitEvent(streams_[i], begin, 0), "wait");
    std::vector<size_t> stream_of(shape.size());
    std::vector<bool> is_continued(shape.size());
    size_t next = 0;
    for (uint32_t task = 0; task < shape.size(); ++task) {
      // Behind one of those that it waits for, if nobody else has gone on there.
      size_t stream = kStreams;
      for (const uint32_t before : shape[task]) {
        if (stream != kStreams || is_continued[before]) continue;
        stream = stream_of[before];
        is_continued[before] = true;
      }
      if (stream == kStreams) stream = next++ % kStreams;
      stream_of[task] = stream;
      for (const uint32_t before : shape[task]) {
        if (stream_of[before] != stream) Check(cudaStreamWaitEvent(streams_[stream], events_[before], 0), "wait");
      }
      launch(task, stream);
      Check(cudaEventRecord(events_[task], streams_[stream]), "record");
    }
    for (size_t i = 1; i < kStreams; ++i) {
      const cudaEvent_t end = events_[shape.size() + i];
      Check(cudaEventRecord(end, streams_[i]), "record");
      Check(cudaStreamWaitEvent(first(), end, 0), "wait");
    }
  }
  // The same as an executable graph; the caller destroys it.
  cudaGraphExec_t Capture(const Shape& shape, const Launch& launch) {
    Check(cudaStreamBeginCapture(first(), cudaStreamCaptureModeRelaxed), "begin capture");
    Issue(shape, launch);
    cudaGraph_t graph = nullptr;
    Check(cudaStreamEndCapture(first(), &graph), "end capture");
    cudaGraphExec_t exec = nullptr;
    Check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    Check(cudaGraphDestroy(graph), "destroy a graph");
    return exec;
  }

 private:
  cudaStream_t streams_[kStreams] = {};
  std::vector<cudaEvent_t> events_;
};

}  // namespace taskgraph
