#include "shim/lease_keeper.h"

#include <algorithm>
#include <cstring>

#include "shim/absence.h"
#include "shim/boottime.h"
#include "shim/fault_points.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "lease";
constexpr std::uint64_t kShortestRetryNs = 1'000'000;
constexpr std::uint64_t kLongestRetryNs = 20'000'000;
constexpr std::uint64_t kLackPauseNs = 200'000'000;

unsigned long as_ulong(std::uint64_t value) { return static_cast<unsigned long>(value); }

}  // namespace

wire::Epoch LeaseKeeper::held() const noexcept {
  const bool holds = state_ == State::kHeld || state_ == State::kDraining;
  return holds ? epoch_ : wire::Epoch{};
}

bool LeaseKeeper::covers_all() const { return (parts_.devices.mask() & ~held_mask_) == 0; }

Activity::Look LeaseKeeper::look() {
  const Activity::Look look = parts_.activity.look();
  if (look.finished) parts_.on_quiet();
  return look;
}

// ---- messages

void LeaseKeeper::handle(const Packet& packet) {
  const auto* const reference = packet.as<wire::LeaseRef>();
  const bool is_ours = reference != nullptr && reference->epoch == epoch_;
  switch (packet.type) {
    case wire::Type::kGrant:
      if (const auto* grant = packet.as<wire::Grant>()) on_grant(*grant);
      break;
    case wire::Type::kWithdraw:
      if (const auto* withdraw = packet.as<wire::Withdraw>()) on_withdraw(*withdraw);
      break;
    case wire::Type::kEvict:
      if (const auto* evict = packet.as<wire::Evict>()) on_evict(*evict, packet.request);
      break;
    case wire::Type::kPrefetch:
      if (const auto* prefetch = packet.as<wire::Prefetch>()) on_prefetch(*prefetch);
      break;
    case wire::Type::kRun:
      if (is_ours && (state_ == State::kLoaded || state_ == State::kLoading)) {
        state_ = State::kHeld;
      }
      break;
    case wire::Type::kReopen:
      if (is_ours && (state_ == State::kDraining || state_ == State::kDrained)) end_drain();
      break;
    case wire::Type::kRevoked:
      if (is_ours) on_revoked();
      break;
    case wire::Type::kLeaveGpu:
      if (const auto* leave = packet.as<wire::LeaveGpu>()) on_leave_gpu(*leave);
      break;
    case wire::Type::kBackOnGpu:
      parts_.back_on_gpu();
      break;
    case wire::Type::kSlabReturn:
      if (const auto* slab = packet.as<wire::Slab>()) owed_host_ = slab->bytes;
      break;
    default:
      break;
  }
}

void LeaseKeeper::on_grant(const wire::Grant& grant) {
  if (grant.epoch <= epoch_) {
    PLEXRL_INFO(kFile, "old grant dropped epoch=%lu.%lu", as_ulong(grant.epoch.generation),
                as_ulong(grant.epoch.counter));
    return;
  }
  PLEXRL_INFO(kFile, "grant epoch=%lu.%lu gpus=0x%lx", as_ulong(grant.epoch.generation),
              as_ulong(grant.epoch.counter), as_ulong(grant.gpus));
  end_prefetch();
  epoch_ = grant.epoch;
  held_mask_ = grant.gpus;
  want_sent_ = false;
  loaded_ = {};
  loaded_.epoch = grant.epoch;
  loaded_.start_ns = boottime_ns();
  load_figures_ = {};
  load_backoff_ns_ = 0;
  const bool run_now = (grant.flags & wire::kGrantRunNow) != 0;
  loaded_due_ = !run_now;
  // A holder that is granted again (after a restart of the manager, or because it lacked memory)
  // keeps running; what it lacks is loaded all the same.
  if (state_ != State::kHeld) state_ = run_now ? State::kHeld : State::kLoading;
}

void LeaseKeeper::on_withdraw(const wire::Withdraw& withdraw) {
  if (withdraw.epoch != epoch_ || state_ == State::kNone) return;
  attempt_ = withdraw.attempt;
  if (const char* const reason = exclusive_reason_.load(std::memory_order_acquire)) {
    wire::NotDrained refusal{};
    refusal.epoch = epoch_;
    refusal.attempt = attempt_;
    std::strncpy(refusal.obstacle, reason, sizeof refusal.obstacle - 1);
    parts_.client.connection().send(wire::Type::kNotDrained, refusal);
    return;
  }
  parts_.gate.close();
  PLEXRL_FAULT_POINT("gate.closed");
  drain_.emplace(boottime_ns(), parts_.client.welcome().drain_budget_ns);
  state_ = State::kDraining;
}

void LeaseKeeper::on_evict(const wire::Evict& evict, std::uint64_t request) {
  end_prefetch();
  wire::Evicted answer{};
  answer.gpu = evict.gpu;
  answer.start_ns = boottime_ns();
  const auto device = parts_.devices.device_of(evict.gpu);
  const bool at_rest = quiet_.load(std::memory_order_relaxed) &&
                       (state_ == State::kNone || state_ == State::kDrained);
  if (device && at_rest) {
    const Pager::EvictFigures figures = parts_.pager.evict(*device, evict.bytes);
    wire::Paged more{};
    more.repeated_bytes = figures.repeated_bytes;
    more.unchanged_bytes = figures.unchanged_bytes;
    more.hash_ns = figures.hash_ns;
    more.link_ns = figures.link_ns;
    say_disk(0, figures.disk_bytes, figures.disk_ns);
    parts_.client.connection().send(wire::Type::kPaged, more);
    answer.failed = figures.failed ? 1 : 0;
    answer.freed_bytes = figures.freed_bytes;
    answer.moved_bytes = figures.moved_bytes;
    answer.untouched_bytes = figures.untouched_bytes;
    answer.copy_ns = figures.copy_ns;
    answer.unmap_ns = figures.unmap_ns;
    answer.resident_bytes = resident_bytes(*device);
  } else {
    answer.failed = 1;
  }
  answer.end_ns = boottime_ns();
  PLEXRL_INFO(kFile, "evicted gpu=%u wanted=%lu freed=%lu moved=%lu failed=%u", evict.gpu,
              as_ulong(evict.bytes), as_ulong(answer.freed_bytes), as_ulong(answer.moved_bytes),
              answer.failed);
  PLEXRL_FAULT_POINT("evict.before_reply");
  parts_.client.connection().send(wire::Type::kEvicted, answer, request);
}

void LeaseKeeper::say_disk(std::uint32_t is_load, std::uint64_t bytes, std::uint64_t wait_ns) {
  if (bytes == 0 && wait_ns == 0) return;
  if ((parts_.client.welcome().features & wire::kFeatureDisk) == 0) return;
  parts_.client.connection().send(wire::Type::kDiskPaged,
                                  wire::DiskPaged{is_load, 0, bytes, wait_ns});
}

std::uint64_t LeaseKeeper::resident_bytes(CUdevice device) const {
  const RangeTable::Totals totals = parts_.ranges.totals(device);
  return totals.resident - std::min(totals.resident, totals.pinned);
}

void LeaseKeeper::on_prefetch(const wire::Prefetch& prefetch) {
  end_prefetch();
  wire::Prefetched answer{};
  answer.gpu = prefetch.gpu;
  answer.start_ns = boottime_ns();
  const auto device = parts_.devices.device_of(prefetch.gpu);
  if (!device) {  // never attached
    answer.end_ns = answer.start_ns;
    parts_.client.connection().send(wire::Type::kPrefetched, answer);
    return;
  }
  prefetching_ = {*device, prefetch.bytes, prefetch.bytes_per_s, answer, {}};
  PLEXRL_INFO(kFile, "prefetch gpu=%u bytes=%lu", prefetch.gpu, as_ulong(prefetch.bytes));
  if (!is_at_rest() || absence.is_on()) end_prefetch();
}

void LeaseKeeper::end_prefetch() {
  if (!prefetching_) return;
  wire::Prefetched& answer = prefetching_->answer;
  const Pager::LoadFigures& figures = prefetching_->figures;
  answer.moved_bytes = figures.moved_bytes;
  answer.zero_bytes = figures.zero_bytes;
  answer.repeated_bytes = figures.repeated_bytes;
  answer.link_ns = figures.link_ns;
  answer.resident_bytes = resident_bytes(prefetching_->device);
  answer.end_ns = boottime_ns();
  PLEXRL_INFO(kFile, "prefetched gpu=%u moved=%lu", answer.gpu, as_ulong(answer.moved_bytes));
  PLEXRL_FAULT_POINT("prefetch.before_reply");
  parts_.client.connection().send(wire::Type::kPrefetched, answer);
  prefetching_.reset();
}

void LeaseKeeper::on_revoked() {
  PLEXRL_INFO(kFile, "revoked epoch=%lu.%lu", as_ulong(epoch_.generation),
              as_ulong(epoch_.counter));
  parts_.gate.close();
  drain_.reset();
  state_ = State::kNone;
  held_mask_ = 0;
  want_sent_ = false;
  if (epoch_.generation != parts_.client.welcome().generation) epoch_ = {};  // see connected()
}

void LeaseKeeper::on_leave_gpu(const wire::LeaveGpu& leave) {
  end_prefetch();
  wire::LeftGpu answer{};
  answer.operation = leave.operation;
  const char* why_not = is_at_rest() ? nullptr : "it has a lease";
  for (const Devices::Attached& attached : parts_.devices.all()) {
    const RangeTable::Totals totals = parts_.ranges.totals(attached.device);
    if (totals.resident + totals.moving != 0) why_not = "its memory is in HBM";
  }
  if (parts_.gate.waiters() != 0) why_not = "a thread waits for the GPU";
  if (why_not == nullptr) why_not = parts_.leave_gpu(leave.quiet_ns);
  if (why_not != nullptr) {
    answer.refused = 1;
    std::strncpy(answer.reason, why_not, sizeof answer.reason - 1);
  }
  PLEXRL_INFO(kFile, "leaving the gpu: %s", why_not == nullptr ? "ready" : why_not);
  PLEXRL_FAULT_POINT("leave.before_left");
  parts_.client.connection().send(wire::Type::kLeftGpu, answer);
}

// ---- what is due

std::uint64_t LeaseKeeper::step() {
  if (!exclusive_sent_) send_exclusive();
  const std::uint64_t pause = step_state();
  if (owed_host_ != 0) give_back_host();
  return pause;
}

std::uint64_t LeaseKeeper::step_state() {
  switch (state_) {
    case State::kNone:
      return step_none();
    case State::kLoading:
      return step_loading();
    case State::kHeld:
      return step_held();
    case State::kDraining:
      return step_draining();
    case State::kLoaded:
    case State::kDrained:
      break;
  }
  return kForever;
}

std::uint64_t LeaseKeeper::step_none() {
  if (parts_.gate.waiters() != 0 || absence.waiters() != 0) want_lease();
  if (quiet_.load(std::memory_order_relaxed)) {
    return prefetching_ ? step_prefetching() : kForever;
  }
  // The lease ended without a drain of ours: nothing may be moved before all is at rest.
  if (look().finished) {
    parts_.pager.finish_loads(&load_figures_);
    quiet_.store(true, std::memory_order_release);
  }
  return kShortestRetryNs;
}

std::uint64_t LeaseKeeper::step_prefetching() {
  Prefetching& its = *prefetching_;
  const std::uint64_t has =
      its.figures.moved_bytes + its.figures.zero_bytes + its.figures.repeated_bytes;
  if (its.bytes_per_s != 0) {
    // The next run begins when those before have taken as long as they were allowed to; what needs
    // no copy needs the driver.
    const double due_s = static_cast<double>(has) / static_cast<double>(its.bytes_per_s);
    const std::uint64_t due_ns = its.answer.start_ns + static_cast<std::uint64_t>(due_s * 1e9);
    const std::uint64_t now = boottime_ns();
    if (due_ns > now) return due_ns - now;
  }
  const std::uint64_t left = its.bytes - std::min(its.bytes, has);
  const auto progress = parts_.pager.prefetch_step(its.device, left, &its.figures);
  if (progress == Pager::Progress::kMore) return 0;
  end_prefetch();
  return kForever;
}

void LeaseKeeper::want_lease() {
  const std::uint64_t mask = parts_.devices.mask();
  if (mask == 0 || (want_sent_ && want_mask_ == mask) || !parts_.client.is_connected()) return;
  wire::WantLease want{};
  want.gpus = mask;
  want.since_ns = boottime_ns();
  want_sent_ = parts_.client.connection().send(wire::Type::kWantLease, want);
  want_mask_ = mask;
}

/// The driver refuses memory that was granted: a holder that asks says so, and others are evicted.
void LeaseKeeper::lack_memory() {
  const std::uint64_t now = boottime_ns();
  if (now - lack_told_ns_ < kLackPauseNs) return;
  lack_told_ns_ = now;
  want_sent_ = false;
  want_lease();
}

/// Loads one run on each device of the lease. True when nothing is missing there; else `*pause`
/// says when to go on.
bool LeaseKeeper::load_some(std::uint64_t* pause) {
  bool done = true;
  bool waits = false;
  for (const CUdevice device : parts_.devices.devices_in(held_mask_)) {
    const Pager::Progress progress = parts_.pager.load_step(
        device, &load_figures_, owed_host_ != 0 ? Pager::Order::kBySlab : Pager::Order::kByAddress);
    done = done && progress == Pager::Progress::kDone;
    waits = waits || progress == Pager::Progress::kNoMemory;
  }
  if (waits) {
    load_backoff_ns_ = std::clamp(load_backoff_ns_ * 2, kShortestRetryNs, kLongestRetryNs);
    loaded_.blocked_ns += load_backoff_ns_;
    lack_memory();
  } else {
    load_backoff_ns_ = 0;
  }
  *pause = load_backoff_ns_;
  return done;
}

std::uint64_t LeaseKeeper::step_loading() {
  std::uint64_t pause = 0;
  if (!load_some(&pause)) return pause;
  if (!parts_.ranges.has_all_imports()) return kForever;  // its owner hands it out when it has it
  send_loaded();
  state_ = State::kLoaded;
  return kForever;
}

void LeaseKeeper::send_loaded() {
  // A lease that was to begin at once may have found memory missing: what moved is always told.
  if (!loaded_due_ && load_figures_.moved_bytes + load_figures_.repeated_bytes == 0) return;
  loaded_due_ = false;
  loaded_.end_ns = boottime_ns();
  loaded_.moved_bytes = load_figures_.moved_bytes;
  loaded_.zero_bytes = load_figures_.zero_bytes;
  loaded_.create_ns = load_figures_.create_ns;
  loaded_.map_ns = load_figures_.map_ns;
  loaded_.copy_ns = load_figures_.copy_ns;
  wire::Paged more{};
  more.is_load = 1;
  more.repeated_bytes = load_figures_.repeated_bytes;
  more.link_ns = load_figures_.link_ns;
  PLEXRL_FAULT_POINT("load.before_loaded");
  say_disk(1, load_figures_.disk_bytes, load_figures_.disk_ns);
  parts_.client.connection().send(wire::Type::kPaged, more);
  parts_.client.connection().send(wire::Type::kLoaded, loaded_);
  load_figures_ = {};
  loaded_.start_ns = loaded_.end_ns;
  loaded_.blocked_ns = 0;
}

std::uint64_t LeaseKeeper::step_held() {
  if (lacking_.exchange(false, std::memory_order_acq_rel)) lack_memory();
  if (parts_.gate.is_open()) {
    send_loaded();
    return watch_idleness();
  }
  if (!covers_all()) {
    // A GPU was attached since: ask for all of them together, and give back on request.
    want_lease();
    return kForever;
  }
  if (try_open()) return 0;
  std::uint64_t pause = 0;
  if (load_some(&pause)) pause = kShortestRetryNs;  // a job thread is about to settle its chunks
  return pause;
}

bool LeaseKeeper::try_open() {
  quiet_.store(false, std::memory_order_release);
  PLEXRL_FAULT_POINT("run.before_open");
  const bool opened = parts_.ranges.when_complete([&] {
    parts_.ranges.note_gate_open();
    parts_.gate.open();
  });
  if (!opened) return false;
  want_sent_ = false;
  owed_host_ = 0;  // who still lacks it asks again
  send_loaded();
  watch_.busy();
  edge(true, boottime_ns());
  return true;
}

std::uint64_t LeaseKeeper::watch_idleness() {
  const std::uint64_t busy_since = busy_since_ns_.exchange(0, std::memory_order_acq_rel);
  if (busy_since != 0) {
    edge(true, busy_since);
    watch_.busy();
  }
  if (!covers_all()) {
    parts_.gate.close();
    return 0;
  }
  if (parts_.gate.is_armed()) return kForever;
  const std::uint64_t calls = Gate::calls();
  const auto idle_since = watch_.step(boottime_ns(), look(), calls);
  if (!idle_since) return watch_.pause_ns(boottime_ns());
  if (!parts_.gate.arm()) return 0;
  // Something may have slipped in before the gate was armed.
  if (Gate::calls() != calls || !look().finished) {
    parts_.gate.disarm();
    watch_.busy();
    return watch_.pause_ns(boottime_ns());
  }
  edge(false, *idle_since);
  parts_.on_rest();
  return kForever;
}

std::uint64_t LeaseKeeper::step_draining() {
  const std::uint64_t now = boottime_ns();
  switch (drain_->step(now, look())) {
    case Drain::State::kPending:
      return drain_->pause_ns(now);
    case Drain::State::kFailed: {
      wire::NotDrained refusal{};
      refusal.epoch = epoch_;
      refusal.attempt = attempt_;
      std::strncpy(refusal.obstacle, drain_->obstacle().c_str(), sizeof refusal.obstacle - 1);
      PLEXRL_INFO(kFile, "not drained obstacle='%s'", refusal.obstacle);
      parts_.client.connection().send(wire::Type::kNotDrained, refusal);
      // Nothing more to find out; kReopen follows.
      state_ = State::kDrained;
      return kForever;
    }
    case Drain::State::kDrained:
      break;
  }
  parts_.pager.finish_loads(&load_figures_);  // what the lease lacked may have been on its way
  if (!loaded_due_) send_loaded();
  quiet_.store(true, std::memory_order_release);
  parts_.on_quiet();  // with the gate closed nothing can have been submitted since the look
  parts_.on_rest();
  wire::Drained drained{};
  drained.epoch = epoch_;
  drained.attempt = attempt_;
  drained.gate_closed_ns = drain_->closed_ns();
  drained.last_completion_ns = drain_->last_completion_ns();
  PLEXRL_FAULT_POINT("drain.before_drained");
  edge(false, drained.last_completion_ns);
  parts_.client.connection().send(wire::Type::kDrained, drained);
  state_ = State::kDrained;
  return kForever;
}

void LeaseKeeper::end_drain() {
  drain_.reset();
  state_ = State::kHeld;
}

// ---- edges and states that come from elsewhere

void LeaseKeeper::edge(bool is_busy, std::uint64_t at_ns) {
  if (is_busy == is_busy_) return;
  is_busy_ = is_busy;
  if (wire::ActivityPage* const page = parts_.client.activity()) {
    __atomic_store_n(&page->submitted, Gate::calls(), __ATOMIC_RELAXED);
    __atomic_store_n(&page->edge_ns, at_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&page->busy, is_busy ? 1u : 0u, __ATOMIC_RELAXED);
  }
  wire::Activity message{};
  message.count = 1;
  message.first_is_busy = is_busy ? 1 : 0;
  message.submitted = Gate::calls();
  message.at_ns[0] = at_ns;
  parts_.client.connection().send(wire::Type::kActivity, message);
}

void LeaseKeeper::busy_again() noexcept {
  busy_since_ns_.store(boottime_ns(), std::memory_order_release);
}

void LeaseKeeper::set_exclusive(const char* reason) noexcept {
  const char* expected = nullptr;
  exclusive_reason_.compare_exchange_strong(expected, reason, std::memory_order_acq_rel);
}

void LeaseKeeper::send_exclusive() {
  const char* const reason = exclusive_reason_.load(std::memory_order_acquire);
  if (reason == nullptr || !parts_.client.is_connected()) return;
  wire::Exclusive message{};
  std::strncpy(message.reason, reason, sizeof message.reason - 1);
  exclusive_sent_ = parts_.client.connection().send(wire::Type::kExclusive, message);
}

/// What is loaded after this makes good for what is not there yet. Not while the job computes: to
/// end a registration may wait for that.
void LeaseKeeper::give_back_host() {
  const bool is_quiet = quiet_.load(std::memory_order_acquire) || parts_.gate.is_armed() ||
                        (!parts_.gate.is_open() && look().finished);
  if (!is_quiet) return;
  owed_host_ -= std::min<std::uint64_t>(owed_host_, parts_.pager.give_back_host(owed_host_));
}

void LeaseKeeper::connection_lost() {
  owed_host_ = 0;
  want_sent_ = false;
  exclusive_sent_ = false;
  loaded_due_ = false;
  switch (state_) {
    case State::kDraining:
      end_drain();  // nobody is left to hand the GPU on
      break;
    case State::kDrained:
      if (!quiet_.load(std::memory_order_relaxed)) {
        end_drain();  // the attempt had failed
        break;
      }
      // We have said that we are drained: the GPU may be another's by now (invariant 3).
      drain_.reset();
      state_ = State::kNone;
      held_mask_ = 0;
      break;
    case State::kLoading:
    case State::kLoaded:
      parts_.pager.finish_loads(&load_figures_);  // nothing stays on its way until the next lease
      state_ = State::kNone;
      held_mask_ = 0;
      break;
    case State::kNone:
      prefetching_.reset();
      break;
    case State::kHeld:
      break;
  }
}

void LeaseKeeper::connected() {
  want_sent_ = false;
  // Nothing of an earlier connection can still arrive, and a manager that lost its journal counts
  // its generations from the first.
  if (state_ == State::kNone) epoch_ = {};
  // A manager takes a process without a lease for idle, and one with a lease for busy, until it
  // says what it is.
  if (state_ == State::kNone && !is_busy_) return;
  const bool is_busy = is_busy_;
  is_busy_ = !is_busy;
  edge(is_busy, boottime_ns());
}

void LeaseKeeper::go_alone() {
  if (parts_.back_on_gpu) parts_.back_on_gpu();
  // Handles of other processes come through the manager. A program that uses memory which never
  // came gets the driver's error for it; one that does not goes on.
  if (!parts_.ranges.has_all_imports()) {
    log_user("memory of another process of the job is not mapped here, and can't be any more");
    parts_.ranges.give_up_imports();
  }
  parts_.pager.leave_disk();
  held_mask_ = ~std::uint64_t{0};
  drain_.reset();
  state_ = State::kHeld;
}

}  // namespace plexrl::shim
