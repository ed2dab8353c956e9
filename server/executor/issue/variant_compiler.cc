#include "server/executor/issue/variant_compiler.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/log.h"
#include "base/thread.h"
#include "ptx-transforms/transform.h"
#include "server/executor/driver/driver_linker.h"

namespace tally::server {
namespace {

constexpr uint64_t kMostVariantBytes = uint64_t{512} << 20;
constexpr int kLowestCpuPriority = 19;

}  // namespace

VariantCompiler::VariantCompiler(const DriverTable& driver, std::string cache_directory)
    : driver_(driver), cache_(std::move(cache_directory), kMostVariantBytes) {}

VariantCompiler::~VariantCompiler() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void VariantCompiler::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) {
      auto thread = StartThread("variants", [this] { Run(); });
      if (!thread) {
        LOG_WARNING("kernels run as they are for now: {}", thread.error().message());
        return;
      }
      thread_ = std::move(*thread);
    }
  }
  changed_.notify_one();
}

void VariantCompiler::Run() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLowestCpuPriority);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

void VariantCompiler::Compile(CompileRequest request, std::function<void(CompiledVariants)> done) {
  Post([this, request = std::move(request), done = std::move(done)] { done(Make(request)); });
}

CompiledVariants VariantCompiler::Make(const CompileRequest& request) {
  const std::array<uint32_t, 3> numbers = {kVariantVersion, request.arch, DriverVersion(driver_)};
  const std::string passes = ptx_transforms::PassesVersion();
  const FileCache::Key key =
      FileCache::KeyOf({std::as_bytes(std::span(request.image_key.digest)), FileCache::BytesOf(request.kernel),
                        std::as_bytes(std::span(numbers)), FileCache::BytesOf(passes)});
  if (const auto kept = cache_.Find(key)) {
    if (auto variants = DeserializeVariants(kept->span())) return std::move(*variants);
  }
  CompiledVariants variants;
  const auto ptx = PtxOfKernel(request.image, request.kernel, request.arch);
  if (!ptx) {
    variants.slices.refusal = variants.persistent_blocks.refusal = variants.gated.refusal = ptx.error().message();
  } else {
    driver_.cuCtxSetCurrent(request.context);
    variants.slices = Link(request, MakeVariant(*ptx, request.kernel, {"slice_grid", "import_globals"}));
    variants.persistent_blocks =
        Link(request, MakeVariant(*ptx, request.kernel, {"persistent_blocks", "yield_check", "import_globals"}));
    variants.gated = Link(request, MakeVariant(*ptx, request.kernel, {"gate_entry", "import_globals"}));
  }
  cache_.Keep(key, Serialize(variants));
  return variants;
}

CompiledForm VariantCompiler::Link(const CompileRequest& request, Result<VariantText> text) const {
  CompiledForm form;
  if (!text) {
    form.refusal = text.error().message();
    return form;
  }
  const auto ptx = std::as_bytes(std::span(text->ptx.c_str(), text->ptx.size() + 1));
  auto image = LinkWithDriver(driver_, CU_JIT_INPUT_PTX, ptx, request.kernel);
  if (!image) {
    form.refusal = image.error().message();
    LOG_WARNING("variant of {}: {}", request.kernel, form.refusal);
    return form;
  }
  form.image = std::move(*image);
  form.entry = std::move(text->entry);
  form.import_table = std::move(text->import_table);
  form.imports = std::move(text->imports);
  form.extra_shared_bytes = text->extra_shared_bytes;
  form.needs_warp_rows = text->needs_warp_rows;
  form.waits_for_blocks = text->waits_for_blocks;
  form.gates_clusters = text->gates_clusters;
  return form;
}

}  // namespace tally::server
