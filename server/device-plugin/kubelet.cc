#include "server/device-plugin/kubelet.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>

#include "proto/kubelet/device_plugin.grpc.pb.h"
#include "proto/kubelet/pod_resources.grpc.pb.h"

namespace tally::device_plugin {
namespace {

constexpr std::chrono::seconds kKubeletLimit{5};
constexpr int kLargestList = 64 << 20;  // of pods, in bytes; gRPC's own limit is small for a full node

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLargestList);
  // Else a connection to a kubelet that was there before is what gRPC waits for.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

void SetLimit(grpc::ClientContext& context) { context.set_deadline(std::chrono::system_clock::now() + kKubeletLimit); }

Status FromGrpc(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.error_code()), what + ": " + status.error_message());
}

}  // namespace

SocketStamp StampOf(const std::string& path) {
  struct stat state {};
  if (::lstat(path.c_str(), &state) != 0 || !S_ISSOCK(state.st_mode)) return {};
  return {state.st_dev, state.st_ino, state.st_ctim.tv_sec * 1'000'000'000 + state.st_ctim.tv_nsec};
}

Status Kubelet::Register(const Resource& resource) const {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(resource.endpoint);
  request.set_resource_name(resource.name);
  request.mutable_options();
  const auto stub = v1beta1::Registration::NewStub(ChannelTo(PathOf("kubelet.sock")));
  grpc::ClientContext context;
  SetLimit(context);
  v1beta1::Empty response;
  return FromGrpc(stub->Register(&context, request, &response), fmt::format("kubelet does not take {}", resource.name));
}

Result<Kubelet::Holders> Kubelet::WhoHasWhat() const {
  const auto stub = v1::PodResourcesLister::NewStub(ChannelTo(pod_resources_));
  grpc::ClientContext context;
  SetLimit(context);
  v1::ListPodResourcesResponse response;
  const Status asked = FromGrpc(stub->List(&context, {}, &response), "kubelet does not say which pod has what");
  if (!asked.ok()) return std::unexpected(asked);
  Holders holders;
  for (const v1::PodResources& pod : response.pod_resources()) {
    for (const v1::ContainerResources& container : pod.containers()) {
      for (const v1::ContainerDevices& devices : container.devices()) {
        for (const std::string& id : devices.device_ids()) {
          holders[devices.resource_name()][id] = {pod.namespace_(), pod.name(), container.name()};
        }
      }
    }
  }
  return holders;
}

}  // namespace tally::device_plugin
