// The variants of one loaded kernel in one context: modules beside the program's own, sharing its variables.
//
// Loaded on the compiler's thread, used by channels of the session that owns the program's module (with the session's
// sequencer).
#pragma once

#include <cuda.h>

#include <atomic>
#include <functional>
#include <memory>

#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/compiled_variants.h"
#include "server/executor/issue/kernel_profile.h"

namespace tally::server {

class VariantModule {
 public:
  // `driver` and `context` outlive this.
  VariantModule(const DriverTable& driver, CUcontext context, std::shared_ptr<const CompiledVariants> variants)
      : driver_(driver), context_(context), variants_(std::move(variants)) {}
  // Unloads. No launch may be in flight.
  ~VariantModule();
  VariantModule(const VariantModule&) = delete;
  VariantModule& operator=(const VariantModule&) = delete;

  // Loads what exists of a kernel with `num_parameters`; once, on any thread. Afterwards is_loaded() is true,
  // successful or not.
  void Load(size_t num_parameters);
  bool is_loaded() const { return is_loaded_.load(std::memory_order_acquire); }

  // Fills the import tables; once, after loading, with the context current. `address_of` finds a variable of the
  // program's module, 0 if there is none of that name. A form whose variables cannot all be found is not usable.
  void Bind(const std::function<CUdeviceptr(const std::string&)>& address_of);
  bool is_bound() const { return is_bound_; }

  struct Form {
    CUmodule module = nullptr;
    CUfunction function = nullptr;    // null: not usable
    size_t hidden_offset = 0;         // of the parameter that the pass has appended, in the parameter buffer
    uint32_t extra_shared_bytes = 0;  // that a launch must ask for
    bool needs_warp_rows = false;
    bool waits_for_blocks = false;
    bool gates_clusters = false;
    uint32_t shared_bytes = 0;  // the most dynamic shared memory it was prepared for
  };
  Form& slices() { return slices_; }
  Form& persistent_blocks() { return persistent_blocks_; }
  Form& gated() { return gated_; }
  // Whether `form` can be launched with such blocks and that much dynamic shared memory of the program's. Beyond the
  // default the function is told.
  bool Prepare(Form& form, const LaunchShape& shape);

 private:
  void LoadForm(const CompiledForm& compiled, size_t num_parameters, size_t hidden_bytes, Form* form);
  void BindForm(const CompiledForm& compiled, const std::function<CUdeviceptr(const std::string&)>& address_of,
                Form* form);

  const DriverTable& driver_;
  const CUcontext context_;
  const std::shared_ptr<const CompiledVariants> variants_;
  Form slices_;
  Form persistent_blocks_;
  Form gated_;
  std::atomic<bool> is_loaded_{false};
  bool is_bound_ = false;
};

}  // namespace tally::server
