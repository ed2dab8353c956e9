// The socket of one resource, and its registration with kubelet. The plugin's thread owns it.
#pragma once

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/device-plugin/device_service.h"
#include "server/device-plugin/kubelet.h"
#include "server/device-plugin/registration_pace.h"

namespace tally::device_plugin {

class ResourceServer {
 public:
  // Both must outlive it.
  ResourceServer(Resource resource, const ContainerPlaces& places, DeviceGrants& grants, const Kubelet& kubelet);
  ~ResourceServer();

  const Resource& resource() const { return resource_; }
  void SetDevices(const std::map<std::string, bool>& gpus);
  // Serves and registers if kubelet, or the socket, is another one than the last time. Does nothing while it waits.
  void Tend(RegistrationPace::Time now);

 private:
  bool Serve();
  void StopServing();

  const Resource resource_;
  const ContainerPlaces places_;
  DeviceGrants& grants_;
  const Kubelet& kubelet_;
  std::map<std::string, bool> devices_;
  std::unique_ptr<DeviceService> service_;
  std::unique_ptr<grpc::Server> server_;
  SocketStamp own_;         // of the socket that server_ listens at
  SocketStamp registered_;  // of the kubelet that knows it
  RegistrationPace pace_;
  std::string last_problem_;
};

}  // namespace tally::device_plugin
