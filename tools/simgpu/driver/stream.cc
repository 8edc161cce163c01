#include "tools/simgpu/driver/stream.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

std::atomic<std::uint64_t> next_stream_id{1};

std::mutex living_mutex;
auto& living = *new std::set<const Stream*>;

}  // namespace

std::thread start_quiet_thread(const char* name, std::function<void()> function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([name, function = std::move(function)] {
    prctl(PR_SET_NAME, name);
    function();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

Stream* make_stream(Context* context, Stream::Kind kind, int priority) {
  auto* const stream = new Stream(context, kind, priority);
  {
    const std::lock_guard lock(living_mutex);
    living.insert(stream);
  }
  const std::lock_guard lock(context->mutex);
  context->streams.push_back(stream);
  return stream;
}

bool is_stream(const Stream* stream) {
  const std::lock_guard lock(living_mutex);
  return living.count(stream) != 0;
}

bool retire_stream(Stream* stream) {
  {
    const std::lock_guard lock(living_mutex);
    if (living.erase(stream) == 0) return false;
  }
  leave_capture(stream);
  // Its own thread can't join itself (a host function that destroys its stream), and the caller
  // must not wait.
  start_quiet_thread("simgpu-retire", [stream] {
    stream->synchronize();
    Context* const context = stream->context();
    {
      const std::lock_guard lock(context->mutex);
      auto& all = context->streams;
      all.erase(std::remove(all.begin(), all.end(), stream), all.end());
    }
    delete stream;
  }).detach();
  return true;
}

void Completion::wait() const {
  if (is_done()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_done(); });
}

void Completion::finish(std::uint64_t end_ns) {
  const std::lock_guard lock(mutex_);
  end_ns_.store(end_ns, std::memory_order_relaxed);
  finished_ns_.store(now_ns(), std::memory_order_relaxed);
  done_.store(true, std::memory_order_release);
  changed_.notify_all();
}

Stream::Stream(Context* context, Kind kind, int priority)
    : context_(context), kind_(kind), priority_(priority), id_(next_stream_id.fetch_add(1)) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void finish_all_work(Context* context) {
  std::vector<CompletionPtr> ends;
  {
    const std::lock_guard lock(context->mutex);
    for (const Stream* stream : context->streams) {
      if (CompletionPtr end = stream->last(); end != nullptr) ends.push_back(std::move(end));
    }
  }
  for (const CompletionPtr& end : ends) end->wait();
}

CompletionPtr Stream::enqueue(std::unique_ptr<Operation> operation) {
  // The legacy stream waits for all blocking streams, and they for it: the order of enqueueing
  // decides, so it is made under the context's lock.
  std::vector<CompletionPtr> after;
  std::unique_lock<std::mutex> order;
  if (kind_ != Kind::kNonBlocking) {
    order = std::unique_lock(context_->mutex);
    for (Stream* other : context_->streams) {
      const bool orders = kind_ == Kind::kLegacy ? other->kind_ != Kind::kNonBlocking
                                                 : other->kind_ == Kind::kLegacy;
      if (other == this || !orders) continue;
      if (CompletionPtr last = other->last(); last != nullptr && !last->is_done())
        after.push_back(std::move(last));
    }
  }
  std::unique_lock lock(mutex_);
  const std::size_t depth = driver()->machine->spec().queue_depth;
  while (outstanding_ >= depth) {
    if (order.owns_lock()) order.unlock();
    changed_.wait(lock);
  }
  after.insert(after.end(), std::make_move_iterator(pending_waits_.begin()),
               std::make_move_iterator(pending_waits_.end()));
  pending_waits_.clear();
  last_ = std::make_shared<Completion>();
  queue_.push_back({std::move(operation), std::move(after), last_, now_ns()});
  ++outstanding_;
  if (!thread_.joinable()) thread_ = start_quiet_thread("simgpu-stream", [this] { work(); });
  changed_.notify_all();
  return last_;
}

void Stream::wait_for(CompletionPtr completion) {
  if (completion == nullptr || completion->is_done()) return;
  const std::lock_guard lock(mutex_);
  pending_waits_.push_back(std::move(completion));
}

CompletionPtr Stream::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

bool Stream::is_idle() const {
  const CompletionPtr end = last();
  return end == nullptr || end->is_done();
}

void Stream::synchronize() const {
  if (const CompletionPtr end = last(); end != nullptr) end->wait();
}

void Stream::work() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    run_item(item);
    const std::lock_guard lock(mutex_);
    --outstanding_;
    changed_.notify_all();
  }
}

std::uint64_t Stream::draw_stagger() {
  const Spec& spec = driver()->machine->spec();
  if (spec.stagger_ns == 0) return 0;
  std::seed_seq of{spec.seed, id_, staggered_++};
  std::mt19937 generator(of);
  return generator() % spec.stagger_ns;
}

void Stream::run_item(Item& item) {
  std::uint64_t start = std::max(ready_ns_, item.submitted_ns);
  std::uint64_t ready = finished_ns_;
  for (const CompletionPtr& earlier : item.after) {
    earlier->wait();
    start = std::max(start, earlier->end_ns());
    ready = std::max(ready, earlier->finished_ns());
  }
  if (const std::uint64_t later = draw_stagger(); later > 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(later));
    start += later;
    ready += later;
  }
  std::uint64_t end = start;
  {
    const WorkScope work;
    if (work.may_begin() && context_->error.load(std::memory_order_acquire) == CUDA_SUCCESS) {
      const CUresult result = item.operation->run({context_, this, start, ready}, &end);
      CUresult none = CUDA_SUCCESS;
      if (result != CUDA_SUCCESS) context_->error.compare_exchange_strong(none, result);
    }
    ready_ns_ = std::max(end, start);
    finished_ns_ = now_ns();
    // What the operation owns goes before the end is told: a module unloaded right after has no
    // user any more.
    item.operation.reset();
  }
  item.done->finish(ready_ns_);
}

}  // namespace plexrl::simgpu
