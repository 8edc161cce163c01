#include "clustermgr/placement/virtual_cluster.h"

#include <algorithm>
#include <utility>

namespace plexrl::clustermgr::placement {
namespace {

/// How far ahead of the oldest unfinished task a job may be: enough for the steps that an
/// asynchronous job overlaps.
constexpr std::uint64_t kLookahead = 96;

}  // namespace

int VirtualCluster::add_node(VirtualNode node) {
  nodes_.push_back(std::move(node));
  owners_.emplace_back();
  node_next_.push_back(kNever);
  return static_cast<int>(nodes_.size()) - 1;
}

int VirtualCluster::add_job(std::vector<GangPlace> gangs, std::unique_ptr<TaskSource> source,
                            Instant at, std::size_t record) {
  int index = static_cast<int>(jobs_.size());
  Job& job = jobs_.emplace_back();
  job.source = std::move(source);
  job.record = record;
  job.totals.started = std::max(at, now_);
  for (std::size_t i = 0; i < gangs.size(); ++i) {
    LiveGang& live = job.gangs.emplace_back();
    live.node = gangs[i].node;
    live.id = nodes_[live.node].add(gangs[i].gang, now_);
    owners_[live.node][live.id] = {index, static_cast<int>(i)};
    touch(live.node);
  }
  refill(index);
  unblock(index);
  return index;
}

void VirtualCluster::remove_job(int index) {
  Job& job = jobs_[index];
  if (job.removed) return;
  job.removed = true;
  for (LiveGang& gang : job.gangs) {
    gang.kept = nodes_[gang.node].totals(gang.id, now_);
    nodes_[gang.node].remove(gang.id, now_);
    owners_[gang.node].erase(gang.id);
    touch(gang.node);
  }
  job.pieces.clear();
  job.source.reset();
}

GangTotals VirtualCluster::gang_totals(int job, int gang) const {
  const LiveGang& live = jobs_[job].gangs[gang];
  return jobs_[job].removed ? live.kept : nodes_[live.node].totals(live.id, now_);
}

std::uint64_t VirtualCluster::events() const {
  std::uint64_t sum = job_events_;
  for (const VirtualNode& node : nodes_) sum += node.events();
  return sum;
}

void VirtualCluster::touch(int node) {
  Instant at = nodes_[node].next();
  if (at == node_next_[node]) return;
  node_next_[node] = at;
  if (at != kNever) node_timers_.push({at, node});
}

void VirtualCluster::refill(int index) {
  Job& job = jobs_[index];
  while (!job.source_ended && job.unfinished < kLookahead) {
    Piece piece;
    if (!job.source->next(piece.task)) {
      job.source_ended = true;
      break;
    }
    job.pieces.push_back(piece);
    ++job.unfinished;
  }
  while (job.pieces.size() > kMaxBack + kLookahead &&
         job.pieces.front().state == Piece::State::kDone) {
    job.pieces.pop_front();
    ++job.first;
  }
}

void VirtualCluster::unblock(int index) {
  Job& job = jobs_[index];
  for (std::size_t i = 0; i < job.pieces.size(); ++i) {
    Piece& piece = job.pieces[i];
    if (piece.state != Piece::State::kBlocked) continue;
    Instant at = std::max(now_, job.totals.started);
    bool ready = true;
    for (const Task::After& after : piece.task.after) {
      if (after.back <= 0 || static_cast<std::size_t>(after.back) > i) continue;
      const Piece& before = job.pieces[i - static_cast<std::size_t>(after.back)];
      if (before.state != Piece::State::kDone) {
        ready = false;
        break;
      }
      at = std::max(at, before.ended + after.delay);
    }
    if (!ready) continue;
    if (at > now_) {
      piece.state = Piece::State::kTimed;
      timers_.push({at, order_++, index, job.first + i, false});
    } else {
      start(index, job.first + i);
    }
  }
}

void VirtualCluster::start(int index, std::uint64_t number) {
  Job& job = jobs_[index];
  Piece& piece = job.pieces[number - job.first];
  piece.state = Piece::State::kQueued;
  if (piece.task.gang < 0) {
    timers_.push({now_ + piece.task.work, order_++, index, number, true});
    return;
  }
  LiveGang& gang = job.gangs[piece.task.gang];
  gang.queue.push_back(number);
  if (gang.queue.size() == 1) feed(index, piece.task.gang);
}

void VirtualCluster::feed(int index, int gang_index) {
  Job& job = jobs_[index];
  LiveGang& gang = job.gangs[gang_index];
  const Piece& piece = job.pieces[gang.queue.front() - job.first];
  gang.wanted = now_;
  nodes_[gang.node].submit(gang.id, piece.task.work, now_);
  touch(gang.node);
}

void VirtualCluster::end(int index, std::uint64_t number) {
  Job& job = jobs_[index];
  Piece& piece = job.pieces[number - job.first];
  piece.state = Piece::State::kDone;
  piece.ended = now_;
  --job.unfinished;
  ++job_events_;
  if (piece.task.ends_step) job.totals.step_ends.push_back(now_);
  refill(index);
  unblock(index);
  if (job.source_ended && job.unfinished == 0) {
    job.totals.finished = true;
    job.totals.finished_at = now_;
    finished_.push_back(index);
  }
}

void VirtualCluster::finished_burst(int node, const VirtualNode::Finished& finished) {
  auto owner = owners_[node].find(finished.gang);
  if (owner == owners_[node].end()) return;
  auto [index, gang_index] = owner->second;
  LiveGang& gang = jobs_[index].gangs[gang_index];
  if (jobs_[index].record > 0) {
    gang.record.push_back({gang.wanted, finished.at, finished.work});
    if (gang.record.size() > jobs_[index].record) gang.record.pop_front();
  }
  std::uint64_t number = gang.queue.front();
  gang.queue.pop_front();
  if (!gang.queue.empty()) feed(index, gang_index);
  end(index, number);
}

void VirtualCluster::run_until(Instant until, const std::function<bool()>& stop) {
  std::vector<VirtualNode::Finished> finished;
  while (true) {
    while (!node_timers_.empty() && node_timers_.top().at != node_next_[node_timers_.top().node]) {
      node_timers_.pop();  // outdated
    }
    Instant at = kNever;
    if (!timers_.empty()) at = timers_.top().at;
    if (!node_timers_.empty()) at = std::min(at, node_timers_.top().at);
    if (at == kNever || at > until) {
      if (until != kNever) now_ = std::max(now_, until);
      return;
    }
    now_ = std::max(now_, at);
    if (!timers_.empty() && timers_.top().at <= now_) {
      Timer timer = timers_.top();
      timers_.pop();
      if (!jobs_[timer.job].removed) {
        timer.ends ? end(timer.job, timer.piece) : start(timer.job, timer.piece);
      }
    } else {
      int node = node_timers_.top().node;
      node_timers_.pop();
      node_next_[node] = kNever;
      finished.clear();
      nodes_[node].advance(now_, finished);
      touch(node);
      for (const VirtualNode::Finished& one : finished) finished_burst(node, one);
    }
    if (stop && stop()) return;
  }
}

}  // namespace plexrl::clustermgr::placement
