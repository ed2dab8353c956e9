#include "server/executor/session/session_state.h"

#include <algorithm>

#include "base/log.h"

namespace tally::server {
namespace {

// Results of calls like GraphChildGraphNodeGetGraph name objects that may have a name already.
bool IsByValue(shm::HandleKind kind) {
  switch (kind) {
    case shm::HandleKind::kEvent:
    case shm::HandleKind::kGraph:
    case shm::HandleKind::kGraphNode:
    case shm::HandleKind::kMemPool:
    case shm::HandleKind::kArray:
      return true;
    default:
      return false;
  }
}

}  // namespace

SessionState::SessionState(ExecutorCore& executor_core, std::shared_ptr<CallbackQueue> callback_queue, uid_t uid)
    : core(executor_core),
      driver(executor_core.driver),
      held(executor_core.session_held_limits, executor_core.user_held_limits, executor_core.held_by_users.Of(uid)),
      host_memory(executor_core.driver, executor_core.host_window, *executor_core.held_addresses, held),
      gate_tenant(executor_core.gate->AddTenant({})),
      coverage(executor_core.devices.get(), executor_core.gate->watch()),
      callbacks(std::move(callback_queue)),
      images(held),
      host_call_words(executor_core.driver),
      graph_memory(memory) {
  for (size_t kind = 0; kind < shm::kNumHandleKinds; ++kind) {
    const auto handle_kind = static_cast<shm::HandleKind>(kind);
    tables_.emplace_back(handle_kind, core.limits.handles_per_kind, IsByValue(handle_kind));
  }
}

SessionState::~SessionState() { Destroy(); }

ClientContext* SessionState::FindContext(uint32_t index) {
  if (const auto found = contexts.find(index); found != contexts.end()) return found->second.get();
  if (index >= shm::kMaxDevices || static_cast<int>(index) >= core.devices->count()) return nullptr;
  const auto device = static_cast<int>(index);
  auto context = std::make_unique<ClientContext>(driver, core.devices->completions(device), index, device, 0,
                                                 &num_captures, &awaited, stream_priorities());
  return contexts.emplace(index, std::move(context)).first->second.get();
}

void SessionState::Unload(LoadedImage* image) {
  // A library's module goes with it.
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i]->library_image == image) {
      Unload(loaded[i].get());
      i = static_cast<size_t>(-1);
    }
  }
  for (const auto& kernel : image->kernels) {
    AwaitVariants(*kernel);
    handles(kernel->function != nullptr ? shm::HandleKind::kFunction : shm::HandleKind::kKernel).Remove(kernel->handle);
    std::erase_if(kernel_of, [&](const auto& entry) { return entry.second == kernel.get(); });
  }
  memory.RemoveOwned(image);
  handles(image->is_library ? shm::HandleKind::kLibrary : shm::HandleKind::kModule).Remove(image->handle);
  if (image->is_library) {
    driver.cuLibraryUnload(image->library);
  } else if (!image->is_borrowed) {
    driver.cuModuleUnload(image->module);
  }
  if (image->bytes) images.Return(*image->bytes);
  std::erase_if(loaded, [&](const auto& owned) { return owned.get() == image; });
}

void SessionState::AwaitVariants(Kernel& kernel) {
  for (const auto& [device, on_device] : kernel.on_device) {
    const VariantDevice* gates_at = kernel.gate ? core.variants->FindDevice(device) : nullptr;
    if (gates_at != nullptr && gates_at->gated != nullptr) {
      CUfunction function = kernel.function;
      driver.cuCtxSetCurrent(gates_at->context);
      if (function != nullptr || driver.cuKernelGetFunction(&function, kernel.kernel) == CUDA_SUCCESS) {
        gates_at->gated->AwaitFunction(function);
      }
    }
    if (on_device.variants == nullptr || !on_device.variants->is_loaded()) continue;
    const VariantDevice* variant_device = core.variants->FindDevice(device);
    const CUfunction workers = on_device.variants->workers().function;
    if (variant_device->workers != nullptr && workers != nullptr) variant_device->workers->AwaitFunction(workers);
    const CUfunction gated = on_device.variants->gated().function;
    if (variant_device->gated != nullptr && gated != nullptr) variant_device->gated->AwaitFunction(gated);
  }
  kernel.on_device.clear();
}

void SessionState::ReloadLibraries() {
  for (const HandleTable::Entry& entry : handles(shm::HandleKind::kLibrary).Entries()) {
    Reload(*static_cast<LoadedImage*>(entry.value));
  }
}

void SessionState::Reload(LoadedImage& library) {
  CUlibrary fresh = nullptr;
  if (LoadLibraryData(driver, library.gated != nullptr ? library.gated->image.data() : library.bytes->pointer(),
                      library.jit_options.data(), library.jit_values.data(),
                      static_cast<unsigned int>(library.jit_options.size()), &fresh) != CUDA_SUCCESS) {
    return;  // the old one goes on, with what its variables hold
  }
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i]->library_image != &library) continue;
    Unload(loaded[i].get());
    i = static_cast<size_t>(-1);
  }
  for (const auto& kernel : library.kernels) {
    if (kernel->function != nullptr) handles(shm::HandleKind::kFunction).Remove(kernel->handle);
    std::erase_if(kernel_of, [&](const auto& entry) { return entry.second == kernel.get(); });
  }
  for (const auto& kernel : library.kernels) AwaitVariants(*kernel);
  std::erase_if(library.kernels, [](const auto& kernel) { return kernel->function != nullptr; });
  for (const auto& [name, kernel] : library.by_name) {
    kernel->function_of_kernel = nullptr;
    if (driver.cuLibraryGetKernel(&kernel->kernel, fresh, name.c_str()) == CUDA_SUCCESS) {
      kernel_of[kernel->kernel] = kernel;
    }
  }
  memory.RemoveOwned(&library);
  driver.cuLibraryUnload(library.library);
  library.library = fresh;
}

void SessionState::ForgetGraphs(const NestedGraphs::Contents& gone) {
  HandleTable& graphs = handles(shm::HandleKind::kGraph);
  HandleTable& nodes = handles(shm::HandleKind::kGraphNode);
  for (const CUgraphNode node : gone.nodes) nodes.Remove(nodes.FindHandle(node));
  for (const CUgraph graph : gone.graphs) {
    const uint64_t handle = graphs.FindHandle(graph);
    graph_memory.OnDestroyed(graph);
    if (handle == 0) continue;  // the client never saw it
    ForgetUserReferences(handle);
    std::erase_if(conditionals, [&](const auto& entry) { return entry.second == handle; });
    graphs.Remove(handle);
  }
  nested_graphs.Forget(gone);
}

void SessionState::ForgetUnlessHeld(UserObject* object) {
  if (object->num_client_references != 0 || !object->of_graph.empty()) return;
  handles(shm::HandleKind::kUserObject).Remove(object->handle);
  std::erase_if(user_objects, [&](const auto& owned) { return owned.get() == object; });
}

void SessionState::ForgetUserReferences(uint64_t graph) {
  for (size_t i = user_objects.size(); i-- > 0;) {
    UserObject* object = user_objects[i].get();
    if (object->of_graph.erase(graph) != 0) ForgetUnlessHeld(object);
  }
}

bool SessionState::IsCapturingInto(const NestedGraphs::Contents& contents) const {
  if (num_captures == 0) return false;
  const auto shares_one = [](const auto& some, const auto& others) {
    return std::find_first_of(some.begin(), some.end(), others.begin(), others.end()) != some.end();
  };
  for (const auto& [index, context] : contexts) {
    for (const auto& stream : context->streams()) {
      const CUgraph graph = stream->began_capture ? context->CapturedGraph(*stream) : nullptr;
      if (graph == nullptr) continue;
      if (shares_one(contents.graphs, std::array{graph})) return true;
      if (shares_one(contents.nodes, nested_graphs.ContentsOf(graph).nodes)) return true;
    }
  }
  return false;
}

void SessionState::AbandonCapture(Stream& stream) {
  if (!stream.began_capture) return;
  stream.began_capture = false;
  --num_captures;
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream.real, &graph) != CUDA_SUCCESS || graph == nullptr) return;
  // A graph that was handed to BeginCaptureToGraph is the client's own and goes with its handles.
  if (handles(shm::HandleKind::kGraph).FindHandle(graph) != 0) return;
  graph_memory.OnDestroyed(graph);
  driver.cuGraphDestroy(graph);
}

void SessionState::WaitForStreams(uint32_t context) {
  for (const auto& [index, owner] : contexts) {
    if (context != shm::kNoContext && context != index) continue;
    for (const auto& stream : owner->streams()) AbandonCapture(*stream);
    for (const auto& stream : owner->streams()) {
      if (!stream->HasUnfinishedWork()) continue;
      CUcontext real = nullptr;
      if (stream->gated != nullptr && core.devices->Context(owner->device(), &real) == CUDA_SUCCESS &&
          driver.cuCtxSetCurrent(real) == CUDA_SUCCESS) {
        stream->Seal();
      }
      driver.cuStreamSynchronize(stream->real);
      *stream->num_waited = stream->num_issued;
    }
  }
}

bool SessionState::LetGoOfEvent(uint64_t handle, CUevent event) {
  const bool is_owner = opened_events.erase(handle) == 0;
  return core.shared.Drop(shm::SharedKind::kEvent, reinterpret_cast<uint64_t>(event), is_owner) &&
         !awaited.PutOffDestruction(event);
}

void SessionState::ForgetPool(CUmemoryPool pool) {
  opened_pools.erase(pool);
  if (exportable_pools.erase(pool) != 0) {
    // Nobody else holds a pool; it can be opened no more.
    static_cast<void>(core.shared.Drop(shm::SharedKind::kPool, reinterpret_cast<uint64_t>(pool), true));
  }
}

void SessionState::DestroyHandles(uint32_t context) {
  const auto each = [&](shm::HandleKind kind, auto destroy) {
    for (const HandleTable::Entry& entry : handles(kind).Entries()) {
      if (context != shm::kNoContext && entry.context != context) continue;
      if (handles(kind).Find(entry.handle) == nullptr) continue;  // went with another one
      destroy(entry.value);
      handles(kind).Remove(entry.handle);
    }
  };
  if (context == shm::kNoContext) {
    // What graphs allocated and nobody freed; of what is not there now the driver says so.
    for (const MemoryRange& range : memory.Ranges()) {
      if (range.kind == MemoryKind::kGraph) driver.cuMemFree_v2(range.address);
    }
  }
  each(shm::HandleKind::kGraphExec, [&](void* value) {
    graph_memory.OnDestroyed(static_cast<CUgraphExec>(value));
    graph_replays.OnDestroyed(static_cast<CUgraphExec>(value));
    driver.cuGraphExecDestroy(static_cast<CUgraphExec>(value));
  });
  for (const HandleTable::Entry& entry : handles(shm::HandleKind::kGraph).Entries()) {
    if (context != shm::kNoContext && entry.context != context) continue;
    const auto graph = static_cast<CUgraph>(entry.value);
    // Those that belong to a node go with it.
    if (handles(shm::HandleKind::kGraph).Find(entry.handle) == nullptr || nested_graphs.Contains(graph)) continue;
    const NestedGraphs::Contents contents = ContentsOf(graph);
    if (IsCapturingInto(contents)) continue;  // a stream of another context: the graph outlives this one
    ForgetGraphs(contents);
    driver.cuGraphDestroy(graph);
  }
  if (context == shm::kNoContext) {
    for (const auto& object : user_objects) {
      if (object->num_client_references != 0) {
        driver.cuUserObjectRelease(object->real, static_cast<unsigned int>(object->num_client_references));
      }
      handles(shm::HandleKind::kUserObject).Remove(object->handle);
    }
    user_objects.clear();
  }
  each(shm::HandleKind::kGraphNode, [](void*) {});
  for (const HandleTable::Entry& entry : handles(shm::HandleKind::kEvent).Entries()) {
    if (context != shm::kNoContext && entry.context != context) continue;
    handles(shm::HandleKind::kEvent).Remove(entry.handle);
    const auto event = static_cast<CUevent>(entry.value);
    if (LetGoOfEvent(entry.handle, event)) driver.cuEventDestroy_v2(event);
  }
  each(shm::HandleKind::kLinkState, [&](void* value) {
    const std::unique_ptr<LinkState> link(static_cast<LinkState*>(value));
    driver.cuLinkDestroy(link->link);
    for (const auto& input : link->inputs) images.Return(*input);
  });
  DestroySamplingObjects(*this, context);
  each(shm::HandleKind::kMipmappedArray, [&](void* value) {
    ForgetArray(*this, value);
    driver.cuMipmappedArrayDestroy(static_cast<CUmipmappedArray>(value));
  });
  each(shm::HandleKind::kArray, [&](void* value) {
    if (borrowed_arrays.erase(static_cast<CUarray>(value)) != 0) return;
    ForgetArray(*this, value);
    driver.cuArrayDestroy(static_cast<CUarray>(value));
  });
  each(shm::HandleKind::kModule, [&](void* value) { Unload(static_cast<LoadedImage*>(value)); });
  if (context == shm::kNoContext) {
    each(shm::HandleKind::kLibrary, [&](void* value) { Unload(static_cast<LoadedImage*>(value)); });
  }
}

void SessionState::FreeMemory(uint32_t context) {
  for (const MemoryRange& range : memory.Ranges()) {
    if (context != shm::kNoContext && range.context != context) continue;
    switch (range.kind) {
      case MemoryKind::kDevice:
      case MemoryKind::kAsync:
      case MemoryKind::kOpened:
        num_opens.erase(range.address);
        if (core.shared.Drop(shm::SharedKind::kAllocation, range.address, range.kind != MemoryKind::kOpened)) {
          driver.cuMemFree_v2(range.address);
        }
        break;
      case MemoryKind::kPinned:
        host_memory.Free(range.address);
        break;
      case MemoryKind::kGlobal:
      case MemoryKind::kGraph:
      case MemoryKind::kMapped:
        continue;
    }
    memory.Take(range.address, range.kind, range.kind);
  }
}

void SessionState::DestroyContents(uint32_t context) {
  WaitForStreams(context);
  // Urgent: whoever needs the memory may be the one for whom the others were stopped.
  const VariantRegistry::ContextCall call(core.variants.get(), /*is_urgent=*/true);
  const ContextCalls::Call waiting(core.context_calls, this);
  DestroyHandles(context);
  FreeMemory(context);
  if (context == shm::kNoContext) {
    virtual_memory.DestroyAll(driver);
    for (const HandleTable::Entry& entry : handles(shm::HandleKind::kMemPool).Entries()) {
      const auto pool = static_cast<CUmemoryPool>(entry.value);
      const bool is_default = std::any_of(default_pools.begin(), default_pools.end(),
                                          [&](const auto& known) { return known.second == pool; });
      ForgetPool(pool);
      if (!is_default) driver.cuMemPoolDestroy(pool);
      handles(shm::HandleKind::kMemPool).Remove(entry.handle);
    }
    for (const auto& [device, pool] : default_pools) driver.cuMemPoolDestroy(pool);
    default_pools.clear();
  }
  // Stream handles point into the contexts.
  for (const HandleTable::Entry& entry : handles(shm::HandleKind::kStream).Entries()) {
    if (context == shm::kNoContext || static_cast<Stream*>(entry.value)->context->index() == context) {
      handles(shm::HandleKind::kStream).Remove(entry.handle);
    }
  }
  std::erase_if(contexts, [&](const auto& entry) { return context == shm::kNoContext || entry.first == context; });
}

void SessionState::Destroy() {
  if (destroyed_) return;
  destroyed_ = true;
  // Calls that name no context need one that is current; any will do for destroying.
  CUcontext current = nullptr;
  const int device = contexts.empty() ? 0 : contexts.begin()->second->device();
  const bool used = !contexts.empty() || !loaded.empty() || !virtual_memory.empty() || memory.device_bytes() != 0 ||
                    memory.pinned_bytes() != 0 || !host_call_words.empty();
  if (used && core.devices->Context(device, &current) == CUDA_SUCCESS) driver.cuCtxSetCurrent(current);
  DestroyContents(shm::kNoContext);
  core.device_output->Leave(output);
  host_call_words.FreeAll();
  host_memory.FreeAll();
  coverage.Close();
  gate_tenant->End();
}

}  // namespace tally::server
