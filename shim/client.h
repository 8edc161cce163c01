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

#include "shim/connection.h"
#include "shim/host_store.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// Who this process is, from the environment that plexrl-run set.
struct Identity {
  wire::Id128 job{};
  wire::Id128 secret{};
};

/// The conversation with the node manager, below leases: handshake, questions and their answers,
/// charges, slabs, shared pages.
///
/// Job threads ask and wait; the agent receives and hands answers out. Frees are only counted by
/// job threads and sent by the agent or before the next question, in order, so they never wait.
/// Without a connection questions are answered by "none", and the caller decides by what it knows.
class Client final : public SlabSource {
 public:
  using Dial = std::function<ScopedFd()>;

  /// kNobody: nobody listens. kLost: who listened has gone before it answered.
  enum class Handshake { kAdmitted, kNobody, kLost, kRefused };

  Client(Identity identity, Dial dial) : identity_(identity), dial_(std::move(dial)) {}

  /// Connects and says hello. `resume`: as a process that was there before; it is called after the
  /// welcome, to send what has to come first. `*why` is for the user when refused. Agent, or the
  /// first thread before there is one. Waits for the answer as long as the
  /// manager lives: of many that start at once each has its turn, however long that takes.
  Handshake connect(const std::function<void(Connection&)>* resume, wire::Error* why);
  bool is_connected() const noexcept { return connection_.is_open(); }
  void disconnect();
  const wire::Welcome& welcome() const noexcept { return welcome_; }

  const wire::Id128& job() const noexcept { return identity_.job; }

  Connection& connection() noexcept { return connection_; }

  /// Job threads: sends and waits for the answer. None: the connection broke or there is none.
  template <typename Question>
  std::unique_ptr<Packet> ask(wire::Type type, const Question& question) {
    return ask(type, &question, sizeof question);
  }
  /// The same without a body.
  std::unique_ptr<Packet> ask(wire::Type type) { return ask(type, nullptr, 0); }
  // Agent: a question with a descriptor, which stays the caller's, and its answer later.
  /// Returns the question's name; 0: there is no connection.
  std::uint64_t begin_ask(wire::Type type, const void* question, std::size_t bytes, int fd);
  /// Each once. None: the connection broke.
  std::unique_ptr<Packet> finish_ask(std::uint64_t request);
  /// Job threads: waits until there is a connection.
  void wait_connected();

  /// Agent: the next packet that is not an answer to someone; null when nothing is left. Sets
  /// `*closed` when the connection broke.
  std::unique_ptr<Packet> next(bool* closed);
  /// Packets that came while the agent asked: `next` has them, the socket does not. Agent only.
  bool has_postponed() const noexcept { return !postponed_.empty(); }

  /// Bytes given back on GPU `gpu`: counted, sent later.
  void uncharge(std::uint32_t gpu, std::uint64_t bytes, bool unpageable);
  void flush_uncharges();
  bool has_uncharges() const noexcept { return uncharged_.load(std::memory_order_relaxed) != 0; }

  // SlabSource. Any thread.
  std::optional<Slab> request(std::size_t bytes) override;
  void give_back(std::uint64_t id, std::size_t bytes) override;

  /// Of the manager, read-only; null when never admitted.
  const wire::ControlPage* control() const noexcept { return control_; }
  /// Of this process.
  wire::ActivityPage* activity() const noexcept { return activity_; }

  /// The thread that runs the agent, so that it pumps instead of waiting for itself.
  void set_agent_thread() noexcept;

 private:
  struct Waiting {
    std::unique_ptr<Packet> answer;
    bool done = false;
  };

  std::unique_ptr<Packet> ask(wire::Type type, const void* question, std::size_t bytes);
  std::unique_ptr<Packet> pump_for(std::uint64_t request);
  std::unique_ptr<Packet> receive_raw(bool* closed);
  bool hand_out(std::unique_ptr<Packet>* packet);
  bool map_pages(Packet& welcome);
  void fail_waiting();

  const Identity identity_;
  const Dial dial_;
  Connection connection_;
  wire::Welcome welcome_{};
  const wire::ControlPage* control_ = nullptr;
  wire::ActivityPage* activity_ = nullptr;

  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::map<std::uint64_t, Waiting*> waiting_;
  std::map<std::uint64_t, Waiting> begun_;  ///< by the agent; of waiting_, too
  std::uint64_t next_request_ = 1;
  std::deque<std::unique_ptr<Packet>> postponed_;  ///< came while the agent pumped; agent only

  std::mutex uncharge_mutex_;
  std::map<std::pair<std::uint32_t, bool>, std::uint64_t> uncharges_;
  std::atomic<std::uint64_t> uncharged_{0};
};

/// The job's id and secret from PLEXRL_JOB_ID and PLEXRL_JOB_SECRET (32 hex digits each).
std::optional<Identity> identity_from_environment();

}  // namespace plexrl::shim
