// NVIDIA's libnvidia-ml.so.1, if the machine has one: everything that we do not answer goes there.
//
// Opened by its full path, as our own has the same name. Never closed. Thread-safe.
#pragma once

namespace tally::nvml {

// Its function, or null: there is no such library, or no such function in it.
void* RealFunction(const char* name) noexcept;

template <typename Function>
Function* RealFunctionAs(const char* name) {
  return reinterpret_cast<Function*>(RealFunction(name));
}

}  // namespace tally::nvml
