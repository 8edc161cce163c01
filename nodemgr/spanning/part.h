#pragma once

#include "nodemgr/policy/state.h"
#include "nodemgr/spanning/messages.h"

namespace plexrl::nodemgr::spanning {

struct PartConfig {
  /// GPUs are taken for a vote for so long at most: then the vote is no, and they are let go.
  Duration take_bound = std::chrono::seconds(10);
  /// Silent for so long the coordinator is away.
  Duration away_after = std::chrono::seconds(10);
};

/// What the node's policy shows of the part's gang.
struct PartState {
  bool exists = false;  ///< a process of the job uses a GPU
  GpuMask gpus = 0;
  bool wants = false;
  bool holds = false;      ///< a lease
  bool turn = false;       ///< called, and it would get its GPUs now
  bool kept = false;       ///< taken, and its GPUs are kept for it with room for its memory
  bool loaded = false;     ///< lease and memory are there; running or not
  bool running = false;    ///< gates are open
  bool drained = false;    ///< withdrawn, gates closed, nothing outstanding
  bool undrained = false;  ///< the last attempt to withdraw it has failed
  bool idle = true;
  bool exiting = false;
  Release release = Release::kNone;
  std::string why;  ///< it waits
};

/// Of the gang as the policy has it; null: there is none. `wants` is left to the caller: the policy
/// has a part want what others of its job want.
PartState state_of(const policy::Gang* gang);

/// One part's side of the protocol: from orders and time to what the policy may do with the gang
/// (`standing`), and from the policy's state to what is reported. Reads no clock.
///
/// While the coordinator is away the node decides alone, so that nobody waits for a machine that is
/// gone. A slot that was started goes on as an ordinary gang that takes its turns with those of the
/// node: other spanning gangs have no slot on its GPUs, so it waits for none of them. GPUs that
/// were taken, or leased and not started, are lent to others of the node. All others of its kind
/// wait.
class Part {
 public:
  Part(std::string job, int nodes, const PartConfig& config, Instant now)
      : job_(std::move(job)), nodes_(nodes), config_(config), heard_(now) {}

  void hear(const Order& order, Instant now);
  /// The gang may do this now. kBarred before the first order, and then its lease goes on.
  policy::Standing standing(Instant now) const;
  /// A lease that it has is to be given back, wherever the other parts are.
  bool is_over(Instant now) const;
  /// To be called before `report`, as time goes on.
  void look(const PartState& state, Instant now);
  PartReport report(const PartState& state) const;
  /// When `standing` changes though nothing is heard.
  Instant wake_at(Instant now) const;
  bool is_away(Instant now) const { return now >= heard_ + config_.away_after; }
  const Order& order() const { return order_; }
  /// For the user: why it does not run. Empty: not because of its slot.
  std::string words(const PartState& state, Instant now) const;

 private:
  std::string job_;
  int nodes_;
  PartConfig config_;
  Order order_;
  bool is_told_ = false;
  Instant heard_;     ///< when an order came, new or not; before that, since when it is there
  Instant since_{0};  ///< this one is acted on
  bool failed_ = false, voted_ = false, is_exiting_ = false;
};

}  // namespace plexrl::nodemgr::spanning
