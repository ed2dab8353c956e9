#include "server/device-plugin/device_service.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

#include "base/log.h"

namespace tally::device_plugin {
namespace {

// How soon a stream notices that kubelet has hung up.
constexpr std::chrono::milliseconds kHangUpLook{500};

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  LOG_WARNING("kubelet is told: {}", status.message());
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

}  // namespace

void DeviceService::SetDevices(std::map<std::string, bool> devices) {
  const std::lock_guard lock(mutex_);
  if (edition_ != 0 && devices == devices_) return;
  devices_ = std::move(devices);
  ++edition_;
  changed_.notify_all();
}

void DeviceService::EndStreams() {
  const std::lock_guard lock(mutex_);
  is_ending_ = true;
  changed_.notify_all();
}

grpc::Status DeviceService::GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions*) {
  return grpc::Status::OK;  // neither of them
}

grpc::Status DeviceService::ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                                         grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) {
  uint64_t said = 0;
  std::unique_lock lock(mutex_);
  while (!is_ending_ && !context->IsCancelled()) {
    if (said == edition_) {
      changed_.wait_for(lock, kHangUpLook);
      continue;
    }
    said = edition_;
    v1beta1::ListAndWatchResponse response;
    for (const auto& [id, is_well] : devices_) {
      v1beta1::Device& device = *response.add_devices();
      device.set_id(id);
      device.set_health(is_well ? "Healthy" : "Unhealthy");
    }
    lock.unlock();
    if (!writer->Write(response)) return grpc::Status::OK;
    lock.lock();
  }
  return grpc::Status::OK;
}

grpc::Status DeviceService::Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* response) {
  std::map<std::string, bool> devices;
  {
    const std::lock_guard lock(mutex_);
    devices = devices_;
  }
  // All of it is looked at before anything of it is done.
  std::set<std::string> asked;
  for (const v1beta1::ContainerAllocateRequest& container : request->container_requests()) {
    const std::vector<std::string> ids(container.devicesids().begin(), container.devicesids().end());
    if (const Status checked = CheckWish(resource_, ids, devices); !checked.ok()) return ToGrpc(checked);
    if (!asked.insert(ids.front()).second) {
      return ToGrpc(Status(StatusCode::kInvalidArgument,
                           fmt::format("two containers ask for one device of {}, '{}'", resource_.name, ids.front())));
    }
  }
  for (const v1beta1::ContainerAllocateRequest& container : request->container_requests()) {
    const std::string& device = container.devicesids(0);
    const auto socket = grants_.GiveOut(resource_, device);
    if (!socket) return ToGrpc(socket.error());
    auto furnished = Furnish(places_, TenantOf(resource_, device), *socket);
    if (!furnished) return ToGrpc(furnished.error());
    *response->add_container_responses() = std::move(*furnished);
    LOG_INFO("device {} of {} is given out: {}", device, resource_.name, *socket);
  }
  return grpc::Status::OK;
}

grpc::Status DeviceService::GetPreferredAllocation(grpc::ServerContext*, const v1beta1::PreferredAllocationRequest*,
                                                   v1beta1::PreferredAllocationResponse*) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "tally-device-plugin prefers no device, and its options say so");
}

grpc::Status DeviceService::PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest*,
                                              v1beta1::PreStartContainerResponse*) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      "tally-device-plugin does nothing before a container starts, and its options say so");
}

}  // namespace tally::device_plugin
