// Activations of functions: frames of registers and parameters, and what a call copies.
#pragma once

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// A frame for `function`, its registers zeroed; null if the call depth or the local memory is used up.
Frame* EnterFrame(Warp& w, const FunctionCode& function, Frame* parent, uint32_t lanes);
void ReleaseFrame(Warp& w, Frame* frame);
// For `lanes` that return from `frame`: its return values go to the caller's parameter area.
void CopyReturnValues(Warp& w, Frame* frame, uint32_t lanes);

// Lanes of a split (given by its frame and record) end: they leave records and frames, which may wake others.
void ExitLanes(Warp& w, uint32_t lanes, Frame* frame, Record* record);

}  // namespace tally::sim_driver
