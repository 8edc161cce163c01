#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shim/connection.h"
#include "shim/wire.h"

namespace plexrl::shim::testing {

/// The other end of a shim's socket. A thread answers what is a question (hello, attach, charge,
/// slab, rank of a communicator); all else waits for the test, which plays the policy.
class FakeManager {
 public:
  FakeManager();
  ~FakeManager();
  FakeManager(const FakeManager&) = delete;
  FakeManager& operator=(const FakeManager&) = delete;

  /// For Client: a new connection to this manager; invalid while it is down.
  ScopedFd dial();
  /// The same for a process that connected by itself.
  void adopt(ScopedFd socket);
  /// The manager dies and is away until `start`; its generation goes up.
  void die();
  void start();

  /// The next message of `type` from the process; waits for it. Others stay.
  std::unique_ptr<Packet> wait_for(wire::Type type);
  /// Whether a message of `type` has come and was not taken.
  bool has(wire::Type type);

  template <typename T>
  void send(wire::Type type, const T& body, std::uint64_t request = 0) {
    connection_.send(type, body, request);
  }
  /// Grants GPU 0 under a new epoch.
  wire::Epoch grant(std::uint32_t flags = 0);
  /// Grant, loaded, run.
  wire::Epoch grant_and_run();
  void send_raw(const void* bytes, std::size_t count);

  // Set before use, or while nothing is asked.
  std::uint64_t promised = std::uint64_t{1} << 30;
  std::uint64_t grace_ns = 5'000'000;
  std::uint64_t drain_budget_ns = 20'000'000;
  std::uint64_t chunk_bytes = std::uint64_t{4} << 20;
  bool refuses = false;
  std::uint32_t refusal = wire::kErrorSecret;
  bool refuses_pins = false;  ///< and charges of what stays in HBM
  /// They wait for the test, which answers with kCharged.
  bool delays_pins = false;
  std::atomic<int> charges_refused{0};
  std::atomic<int> asked_to_unpin{0};  ///< by who waited for the answer
  /// Memory of another process that kImport finds, by id.
  std::map<std::uint64_t, wire::Imported> importable;
  /// kExportEnded is answered with "others have it still".
  bool has_importers = false;
  /// Sent once, before the next attach is answered.
  std::optional<wire::Evict> evicts_before_attached;
  std::uint64_t features = wire::kFeatureSlabs | wire::kFeatureSlabsHeld;  ///< of its welcome
  bool sends_malformed_welcome = false;
  /// A hello gets no answer.
  bool is_silent = false;
  std::uint64_t generation = 1;

  std::uint64_t used() const;
  /// Of those, what has to stay in HBM.
  std::uint64_t unpageable() const;
  void send_with_fds(wire::Type type, const void* body, std::size_t bytes, std::uint64_t request,
                     const std::vector<int>& fds);
  wire::Hello last_hello() const;

 private:
  void serve();
  void answer(std::unique_ptr<Packet> packet);
  void welcome(const Packet& packet);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Connection connection_;
  std::deque<std::unique_ptr<Packet>> inbox_;
  bool is_up_ = true;
  bool stopped_ = false;
  std::uint64_t used_ = 0;
  std::uint64_t unpageable_ = 0;
  std::uint64_t next_export_ = 1;
  std::uint64_t counter_ = 0;
  std::uint64_t next_slab_ = 1;
  wire::Hello hello_{};
  std::thread thread_;
};

}  // namespace plexrl::shim::testing
