#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace plexrl::clustermgr {

/// What Prometheus reads at http://LISTEN/metrics; names begin with `plexrl_cluster_`. Any thread.
class Metrics {
 public:
  /// `listen`: HOST:PORT, port 0: one that is free; "off": counts, and serves nothing.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Metrics>> serve(const std::string& listen);

  ~Metrics();
  int port() const;  ///< 0 when it serves nothing

  /// `method`: of our own services, so that there are few; `code`: gRPC's name, "OK".
  void count_request(const std::string& method, const std::string& code);
  void count_refused_caller();
  void count_store_write(bool good);
  void set_ready(bool ready);
  void set_generation(std::uint64_t generation);
  void set_nodes(int joined, int lost, int gpus);
  /// Jobs on the nodes and requests for places, by state. One that is not named counts none.
  void set_jobs(const std::map<std::string, int>& by_state);
  void set_placements(const std::map<std::string, int>& by_state);
  /// About one job's place: `result` is "placed", "queued" or "refused".
  void count_decision(const std::string& result, std::chrono::nanoseconds took);
  void set_certificate_expiry(std::time_t expiry);

 private:
  struct Parts;
  explicit Metrics(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace plexrl::clustermgr
