// A kubelet for tests: what it says to device plugins and what they say to it, without pods.
//
//   fake_kubelet DIRECTORY POD_RESOURCES_SOCKET [keep]
//
// Removes all sockets in DIRECTORY when it starts, as kubelet does; not with "keep". Commands are lines of standard
// input; whatever happens is a line of JSON on standard output:
//
//   allocate RESOURCE IDS     IDS: "a,b" for one container, "a;b" for two; "" for none
//   prefer RESOURCE NUMBER    asks which devices it would rather give out
//   pod NAMESPACE NAME CONTAINER RESOURCE ID    a container that has a device from now on
//   refuse SENTENCE           registrations from now on; without a sentence they are taken again
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/kubelet/device_plugin.grpc.pb.h"
#include "proto/kubelet/pod_resources.grpc.pb.h"

namespace {

using Json = nlohmann::ordered_json;

void Say(const Json& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cout << line.dump() << std::endl;
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

Json ErrorOf(const grpc::Status& status) {
  return {{"error", {{"code", static_cast<int>(status.error_code())}, {"sentence", status.error_message()}}}};
}

class FakeKubelet final : public v1beta1::Registration::Service, public v1::PodResourcesLister::Service {
 public:
  explicit FakeKubelet(std::string directory) : directory_(std::move(directory)) {}

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request, v1beta1::Empty*) override {
    std::string refusal;
    {
      const std::lock_guard lock(mutex_);
      refusal = refusal_;
    }
    Say({{refusal.empty() ? "registered" : "refused", request->resource_name()},
         {"version", request->version()},
         {"endpoint", request->endpoint()}});
    if (!refusal.empty()) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, refusal);
    // It dials back from another thread, as kubelet does.
    std::thread([this, resource = request->resource_name(), endpoint = request->endpoint()] {
      Follow(resource, endpoint);
    }).detach();
    return grpc::Status::OK;
  }

  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    const std::lock_guard lock(mutex_);
    *response = pods_;
    return grpc::Status::OK;
  }

  void Carry(const std::string& line) {
    const std::vector<std::string> words = Split(line, ' ');
    if (words.empty()) return;
    if (words[0] == "allocate") return Allocate(words.at(1), words.size() > 2 ? words[2] : "");
    if (words[0] == "prefer") return Prefer(words.at(1), std::stoi(words.at(2)));
    const std::lock_guard lock(mutex_);
    if (words[0] == "refuse") refusal_ = words.size() > 1 ? line.substr(7) : "";
    if (words[0] != "pod") return;
    v1::PodResources& pod = *pods_.add_pod_resources();
    pod.set_namespace_(words.at(1));
    pod.set_name(words.at(2));
    v1::ContainerResources& container = *pod.add_containers();
    container.set_name(words.at(3));
    v1::ContainerDevices& devices = *container.add_devices();
    devices.set_resource_name(words.at(4));
    devices.add_device_ids(words.at(5));
  }

 private:
  std::shared_ptr<v1beta1::DevicePlugin::Stub> StubOf(const std::string& resource) {
    const std::lock_guard lock(mutex_);
    return stubs_[resource];
  }

  void Follow(const std::string& resource, const std::string& endpoint) {
    const std::shared_ptr<v1beta1::DevicePlugin::Stub> stub = v1beta1::DevicePlugin::NewStub(
        grpc::CreateChannel("unix:" + directory_ + "/" + endpoint, grpc::InsecureChannelCredentials()));
    {
      const std::lock_guard lock(mutex_);
      stubs_[resource] = stub;
    }
    v1beta1::DevicePluginOptions options;
    grpc::ClientContext options_context, list_context;
    if (const auto asked = stub->GetDevicePluginOptions(&options_context, {}, &options); !asked.ok()) {
      return Say(ErrorOf(asked));
    }
    const auto reader = stub->ListAndWatch(&list_context, {});
    for (v1beta1::ListAndWatchResponse response; reader->Read(&response);) {
      Json devices = Json::object();
      for (const v1beta1::Device& device : response.devices()) devices[device.id()] = device.health();
      Say({{"devices", devices}, {"resource", resource}});
    }
    Say({{"ended", resource}});
  }

  void Allocate(const std::string& resource, const std::string& containers) {
    v1beta1::AllocateRequest request;
    for (const std::string& ids : Split(containers, ';')) {
      v1beta1::ContainerAllocateRequest& container = *request.add_container_requests();
      for (const std::string& id : Split(ids, ',')) container.add_devicesids(id);
    }
    if (containers.empty()) request.add_container_requests();
    v1beta1::AllocateResponse response;
    grpc::ClientContext context;
    if (const auto asked = StubOf(resource)->Allocate(&context, request, &response); !asked.ok()) {
      return Say(ErrorOf(asked));
    }
    Json allocated = Json::array();
    for (const v1beta1::ContainerAllocateResponse& container : response.container_responses()) {
      Json mounts = Json::object(), devices = Json::array(), variables = Json::object();
      for (const v1beta1::Mount& mount : container.mounts()) {
        mounts[mount.container_path()] = {{"from", mount.host_path()}, {"read_only", mount.read_only()}};
      }
      for (const v1beta1::CDIDevice& device : container.cdi_devices()) devices.push_back(device.name());
      for (const auto& [name, value] : container.envs()) variables[name] = value;
      allocated.push_back({{"mounts", mounts}, {"cdi", devices}, {"variables", variables}});
    }
    Say({{"allocated", allocated}});
  }

  void Prefer(const std::string& resource, int size) {
    v1beta1::PreferredAllocationRequest request;
    request.add_container_requests()->set_allocation_size(size);
    v1beta1::PreferredAllocationResponse response;
    grpc::ClientContext context;
    const auto asked = StubOf(resource)->GetPreferredAllocation(&context, request, &response);
    Say(asked.ok() ? Json{{"preferred", response.container_responses_size()}} : ErrorOf(asked));
  }

  const std::string directory_;
  std::mutex mutex_;  // guards what follows
  std::string refusal_;
  v1::ListPodResourcesResponse pods_;
  std::map<std::string, std::shared_ptr<v1beta1::DevicePlugin::Stub>> stubs_;
};

std::unique_ptr<grpc::Server> Serve(const std::string& path, grpc::Service& service) {
  ::unlink(path.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  return builder.BuildAndStart();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argv[1];
  std::filesystem::create_directories(directory);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_socket() && argc < 4) std::filesystem::remove(entry.path());
  }
  FakeKubelet kubelet(directory);
  const auto pods = Serve(argv[2], static_cast<v1::PodResourcesLister::Service&>(kubelet));
  const auto plugins = Serve(directory + "/kubelet.sock", static_cast<v1beta1::Registration::Service&>(kubelet));
  if (pods == nullptr || plugins == nullptr) return 1;
  Say({{"kubelet", "serves"}});
  for (std::string line; std::getline(std::cin, line);) kubelet.Carry(line);
  std::_Exit(0);  // with streams open, as when it is killed
}
