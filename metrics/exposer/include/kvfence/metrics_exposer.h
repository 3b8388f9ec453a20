// An HTTP port for Prometheus to scrape: GET /metrics answers with Metrics' text.
//
// For tools and stand-alone runs. An engine that already serves metrics gives out
// Metrics::RenderText() by its own server instead, and does not link this library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kvfence/metrics.h"
#include "kvfence/status.h"

namespace kvfence {

class MetricsExposer {
 public:
  struct Options {
    uint16_t port = 0;  // 0: any free one, see port()
    // Numeric IPv4 or IPv6 address. The port shows no secrets but has no password either, so other
    // machines see it only if asked for ("0.0.0.0").
    std::string address = "127.0.0.1";
  };

  // Starts serving on threads of its own. kInvalidArgument: not a numeric address.
  // kUnavailable: the port can't be bound (taken, privileged, no such address).
  static Result<std::unique_ptr<MetricsExposer>> Start(const Metrics& metrics, Options options);

  // Stops serving and joins the threads, which takes up to two seconds (the server looks that often
  // whether it shall stop). May outlive the Metrics: shows their last state.
  ~MetricsExposer();
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;

  // The port that is being listened on.
  int port() const;

 private:
  struct Server;
  explicit MetricsExposer(std::unique_ptr<Server> server);

  std::unique_ptr<Server> server_;
};

}  // namespace kvfence
