// One resource as kubelet sees it: v1beta1.DevicePlugin on a socket of its own. gRPC's threads call it; the plugin's
// thread tells it which devices there are.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "proto/kubelet/device_plugin.grpc.pb.h"
#include "server/device-plugin/container_places.h"
#include "server/device-plugin/device_grants.h"
#include "server/device-plugin/virtual_devices.h"

namespace tally::device_plugin {

class DeviceService final : public v1beta1::DevicePlugin::Service {
 public:
  // `grants` must outlive it.
  DeviceService(Resource resource, ContainerPlaces places, DeviceGrants& grants)
      : resource_(std::move(resource)), places_(std::move(places)), grants_(grants) {}

  const Resource& resource() const { return resource_; }
  // Whoever listens hears of it if anything is new.
  void SetDevices(std::map<std::string, bool> devices);
  // Streams end, so that the server can.
  void EndStreams();

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions*) override;
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override;
  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override;
  grpc::Status GetPreferredAllocation(grpc::ServerContext*, const v1beta1::PreferredAllocationRequest*,
                                      v1beta1::PreferredAllocationResponse*) override;
  grpc::Status PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest*,
                                 v1beta1::PreStartContainerResponse*) override;

 private:
  const Resource resource_;
  const ContainerPlaces places_;
  DeviceGrants& grants_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, bool> devices_;
  uint64_t edition_ = 0;  // of devices_
  bool is_ending_ = false;
};

}  // namespace tally::device_plugin
