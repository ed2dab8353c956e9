#include "client-shim/state/completion.h"

#include "client-shim/state/process.h"

namespace tally::client_shim {
namespace {

bool IsDefaultStream(uint64_t word) { return word <= shm::kPerThreadStream; }

}  // namespace

void NoteStreamComplete(Process* process, uint64_t stream_word, uint64_t sequence_number) {
  if (IsDefaultStream(stream_word)) {
    // The legacy stream is ordered after all earlier work of the blocking streams of its context. A per-thread stream
    // is one of many; what is known about it is not worth a table.
    if (stream_word != shm::kPerThreadStream)
      process->contexts[t_thread.context].blocking_completed.Raise(sequence_number);
    return;
  }
  if (Stream* stream = process->streams.Find(stream_word); stream != nullptr) stream->completed.Raise(sequence_number);
}

void NoteContextComplete(Process* process, uint32_t context, uint64_t sequence_number) {
  process->contexts[context].completed.Raise(sequence_number);
}

bool IsKnownIdle(const Process& process, const Channel& channel, uint64_t stream_word) {
  return !process.captures.any() && channel.WasFoundIdle(stream_word, ContextOfStream(stream_word));
}

bool IsKnownComplete(const Process& process, const Event& event) {
  const Recording recording = event.LatestRecording();
  // While anything is captured the executor's answer may be an error.
  if (recording.sequence_number_plus_1 == 0 || process.captures.any()) return false;
  const Context& context = process.contexts[recording.context];
  if (!process.contexts.IsActive(recording.context) || context.epoch.load() != recording.epoch) return false;
  const uint64_t sequence_number = recording.sequence_number_plus_1 - 1;
  if (event.WasFoundComplete(recording) || context.completed.Covers(sequence_number)) return true;
  if (IsDefaultStream(recording.stream)) return context.blocking_completed.Covers(sequence_number);
  const Stream* stream = process.streams.Find(recording.stream);
  if (stream == nullptr) return false;
  return stream->completed.Covers(sequence_number) ||
         ((stream->flags & CU_STREAM_NON_BLOCKING) == 0 && context.blocking_completed.Covers(sequence_number));
}

}  // namespace tally::client_shim
