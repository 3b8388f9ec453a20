// prometheus-cpp's web server around our Collectable; its exceptions become Statuses here.
#include "kvfence/metrics_exposer.h"

#include <arpa/inet.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>
#include <vector>

#include "state.h"

namespace kvfence {
namespace {

// "host:port" as the server wants it, or empty. Strict, since the server reads commas as further
// listeners and letters as flags.
std::string BindText(const std::string& address, uint16_t port) {
  in6_addr parsed{};  // large enough for both
  if (inet_pton(AF_INET, address.c_str(), &parsed) == 1) {
    return address + ":" + std::to_string(port);
  }
  if (inet_pton(AF_INET6, address.c_str(), &parsed) == 1) {
    return "[" + address + "]:" + std::to_string(port);
  }
  return "";
}

}  // namespace

// The server holds the state weakly and is declared last, so it stops before the state goes.
struct MetricsExposer::Server {
  Server(std::shared_ptr<MetricsState> shown, const std::string& bind)
      : state(std::move(shown)), exposer(bind) {
    exposer.RegisterCollectable(state);
  }
  std::shared_ptr<MetricsState> state;
  prometheus::Exposer exposer;
};

Result<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(const Metrics& metrics,
                                                              Options options) {
  const std::string bind = BindText(options.address, options.port);
  if (bind.empty()) {
    return Status::Invalid("metrics address \"" + options.address +
                           "\" is not a numeric IPv4 or IPv6 address");
  }
  try {
    auto server = std::make_unique<Server>(metrics.state_, bind);
    return std::unique_ptr<MetricsExposer>(new MetricsExposer(std::move(server)));
  } catch (const std::exception& error) {
    return Status(StatusCode::kUnavailable, "can't serve metrics on " + bind + ": " + error.what());
  }
}

MetricsExposer::MetricsExposer(std::unique_ptr<Server> server) : server_(std::move(server)) {}
MetricsExposer::~MetricsExposer() = default;

int MetricsExposer::port() const {
  const std::vector<int> ports = server_->exposer.GetListeningPorts();
  return ports.empty() ? 0 : ports.front();
}

}  // namespace kvfence
