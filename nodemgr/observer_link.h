#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nodemgr/event_loop.h"
#include "nodemgr/gap_causes.h"
#include "nodemgr/observer_report.h"
#include "nodemgr/scoped_fd.h"
#include "nodemgr/switch_log.h"

namespace plexrl::nodemgr {

/// The connection of plexrl-observer, the privileged program that finds out what gangs do in their
/// gaps (nodemgr/bpf). It connects to observer.sock; who is neither root nor the manager's own user
/// is turned away, and so is a second one. Without it nothing is missing but the causes.
///
///     to the observer              {"welcome": {"version": 1}}
///                                  {"begin": {"gap": 7, "pids": [100, 101]}}
///                                  {"end": {"gap": 7, "thread": 103}}
///     from it (observer_report.h)  {"hello": …}  {"causes": …}  {"openers": …}
///
/// A gap has a number of its own. `begin` comes when the manager knows of the gap, a grace time
/// after it began, or when an observer connects; `end` when work is wanted again, with the thread
/// that wants it, where that is known. Pids and threads are as this manager sees them. The observer
/// may answer with causes while the gap goes on, and answers with final ones after `end`.
///
/// One thread, the loop's. Never waits: an observer that does not read is cut off.
class ObserverLink final : public GapWatcher {
 public:
  struct Gang {
    std::vector<pid_t> processes;
    pid_t ender = 0;  ///< the thread that gave it work last; 0: not known
  };
  /// `look`: a gang's processes now. The log outlives this.
  ObserverLink(EventLoop& loop, ScopedFd listener, SwitchLog& gaps,
               std::function<Gang(std::uint64_t gang)> look);
  ~ObserverLink() override;

  void gap_began(std::uint64_t gang, Instant since) override;
  bool gap_ended(std::uint64_t gang, Instant since) override;

  /// What becomes of the list of processes that have GPUs' files open; none when nobody tells it
  /// any more.
  void set_on_openers(std::function<void(std::optional<ObserverOpeners>)> call) {
    on_openers_ = std::move(call);
  }

  bool is_connected() const { return has_greeted_; }
  pid_t pid() const { return pid_; }
  /// What it can't see on this machine.
  const std::vector<std::string>& lacks() const { return lacks_; }

 private:
  struct Gap {
    std::uint64_t gang = 0;
    Instant since{0};
  };
  void accept_all();
  void greet(ScopedFd socket, pid_t pid);
  void ready(std::uint32_t events);
  bool receive();
  bool take(const std::string& line);
  void say(const std::string& line);
  void flush();
  void drop(const std::string& why);

  EventLoop& loop_;
  ScopedFd listener_;
  SwitchLog& gaps_;
  std::function<Gang(std::uint64_t)> look_;
  std::function<void(std::optional<ObserverOpeners>)> on_openers_;

  ScopedFd socket_;  ///< closed: there is no observer
  pid_t pid_ = 0;
  bool has_greeted_ = false;
  std::vector<std::string> lacks_;
  std::string in_, out_;
  bool waits_to_write_ = false;
  std::uint64_t last_gap_ = 0;
  std::map<std::uint64_t, Gap> told_;  ///< by number: begun, and not answered for good
};

}  // namespace plexrl::nodemgr
