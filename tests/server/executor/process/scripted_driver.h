// A GPU's driver as far as time slices go, for scripted_executor.cc: makes a context's GPU channel group as libcuda
// does, and carries out, or refuses, what server/executor/process/gpu_channel_groups.h asks for.
//
// By the environment's TALLY_SCRIPT_SLICES: accept; refuse (all but what the driver itself gives); hide (it makes its
// groups in a way that nobody sees). Without it there is no such driver: the executor is a software GPU's. Slices that
// are set go into the file TALLY_SCRIPT_NOTES, each as a line "PID MICROSECONDS".
#pragma once

namespace tally::server {

class ScriptedDriver {
 public:
  static bool IsScripted();
  // Again and again; there is one context on each device. The process has said whose context is made.
  static void MakeContext(int device);
  // From now on it refuses, and what it had accepted is no longer so.
  static void TakeBack();
};

}  // namespace tally::server
