#include "nodemgr/slabs.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace plexrl::nodemgr {
namespace {

/// Zeroing pages is what takes the time; more threads than this fill the memory bus, not slabs.
constexpr unsigned kMostThreads = 4;
/// Of the first slab of the first manager: the generation is above 32 bits (Manager).
constexpr std::uint64_t kLeastId = std::uint64_t{1} << 32;

/// A slab in memory, all its pages there, unable to change its size; closed when it can't be had.
ScopedFd make_slab(std::uint64_t bytes) {
  ScopedFd fd(::memfd_create(kSlabName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) return fd;
  bool made = ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0 &&
              ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0 &&
              ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (!made) fd.reset();
  return fd;
}

}  // namespace

Slabs::Slabs(std::uint64_t budget_bytes, std::uint64_t first_id,
             std::function<std::uint64_t()> host_left)
    : first_id_(first_id),
      host_left_(std::move(host_left)),
      budget_(budget_bytes),
      next_id_(first_id),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // Half of the processors: the others are the jobs'.
  unsigned count = std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMostThreads);
  for (unsigned i = 0; i < count; ++i) {
    threads_.emplace_back([this] {
      ::prctl(PR_SET_NAME, "plexrl-slabs");
      populate_loop();
    });
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Slabs::~Slabs() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Slabs::wake_loop() { ::eventfd_write(event_.get(), 1); }

void Slabs::populate_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !to_do_.empty(); });
    if (stop_) return;
    auto next = std::find_if(to_do_.begin(), to_do_.end(),
                             [](const Work& work) { return work.is_awaited; });
    if (next == to_do_.end()) next = to_do_.begin();
    Work work = std::move(*next);
    to_do_.erase(next);
    lock.unlock();
    work.fd = make_slab(work.bytes);
    lock.lock();
    done_.push_back(std::move(work));
    wake_loop();
  }
}

Slabs::Slab& Slabs::make(JobKey job, std::uint64_t bytes, bool is_awaited) {
  in_use_ += bytes;
  making_ += bytes;
  std::uint64_t id = next_id_++;
  Slab& slab = slabs_[id];
  slab.bytes = bytes;
  slab.job = job;
  {
    std::lock_guard lock(mutex_);
    to_do_.push_back({id, bytes, is_awaited, ScopedFd()});
  }
  changed_.notify_one();
  return slab;
}

void Slabs::hasten(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  for (Work& work : to_do_) {
    if (work.id == id) work.is_awaited = true;
  }
}

bool Slabs::ask(SessionKey session, JobKey job, std::uint64_t bytes, std::uint64_t request) {
  Slab* in_making = nullptr;
  std::uint64_t in_making_id = 0;
  for (auto& [id, slab] : slabs_) {
    if (slab.session != 0 || slab.job != job || slab.bytes != bytes) continue;
    if (slab.fd.is_open()) {
      slab.session = session;
      at_once_.push_back({id, bytes, session, request, slab.fd.get()});
      wake_loop();
      return true;
    }
    if (in_making == nullptr) {
      in_making = &slab;
      in_making_id = id;
    }
  }
  if (in_making != nullptr) {
    hasten(in_making_id);
  } else {
    if (bytes > budget_) return false;
    if (bytes > room()) drop_kept();
    if (bytes > room()) return false;
    in_making = &make(job, bytes, true);
  }
  in_making->session = session;
  in_making->request = request;
  return true;
}

void Slabs::ask_staging(SessionKey session, JobKey job, std::uint64_t bytes,
                        std::uint64_t request) {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    const bool is_its = it->second.is_staging && it->second.session == session;
    it = is_its ? drop(it) : std::next(it);
  }
  Slab& slab = make(job, bytes, true);
  slab.session = session;
  slab.request = request;
  slab.is_staging = true;
  staging_ += bytes;
}

std::uint64_t Slabs::room() const {
  const std::uint64_t taken = in_use_ - staging_ + std::max(staging_, aside_);
  const std::uint64_t left = host_left_();
  return std::min(budget_ - std::min(budget_, taken), left - std::min(left, making_));
}

std::map<std::uint64_t, Slabs::Slab>::iterator Slabs::drop(
    std::map<std::uint64_t, Slab>::iterator slab) {
  in_use_ -= slab->second.bytes;
  if (slab->second.is_staging) staging_ -= slab->second.bytes;
  return slabs_.erase(slab);
}

void Slabs::reserve(JobKey job, std::uint64_t bytes, std::uint64_t count) {
  std::uint64_t have = 0;
  for (const auto& [id, slab] : slabs_) {
    if (slab.job == job && !slab.is_staging) have += slab.bytes;
  }
  for (std::uint64_t left = room(); have < count * bytes && bytes <= left; left -= bytes) {
    make(job, bytes, false);
    have += bytes;
  }
}

std::vector<Slabs::Ready> Slabs::finished() {
  eventfd_t ignored;
  ::eventfd_read(event_.get(), &ignored);
  std::vector<Ready> ready = std::exchange(at_once_, {});
  std::vector<Work> done;
  {
    std::lock_guard lock(mutex_);
    done = std::exchange(done_, {});
  }
  for (Work& work : done) {
    making_ -= work.bytes;
    auto it = slabs_.find(work.id);
    if (it == slabs_.end()) {  // dropped meanwhile
      continue;
    }
    Slab& slab = it->second;
    Ready result{work.id, work.bytes, slab.session, slab.request, -1};
    if (work.fd.is_open()) {
      slab.fd = std::move(work.fd);
      result.fd = slab.fd.get();
    } else {
      result.id = 0;
      drop(it);
    }
    if (result.session != 0) ready.push_back(result);  // else it was made ahead
  }
  return ready;
}

bool Slabs::give_back(SessionKey session, std::uint64_t id, std::uint64_t bytes) {
  auto it = slabs_.find(id);
  if (it == slabs_.end()) {
    if (id >= first_id_ || id < kLeastId) return false;
    // Counted is what evicted bytes the process said it had, which may be less than its slabs.
    for (auto& [own_id, slab] : slabs_) {
      if (slab.session != session || !slab.foreign) continue;
      const std::uint64_t counted = std::min(slab.bytes, bytes);
      slab.bytes -= counted;
      in_use_ -= counted;
      break;
    }
    return true;
  }
  if (it->second.session != session || !it->second.fd.is_open()) return false;
  if (it->second.is_staging) return false;
  it->second.session = 0;
  return true;
}

int Slabs::hand_over(std::uint64_t id, SessionKey from, SessionKey to, std::uint64_t* bytes) {
  auto it = slabs_.find(id);
  if (it == slabs_.end() || !it->second.fd.is_open()) return -1;
  if (it->second.session != from && it->second.session != to) return -1;
  it->second.session = to;
  *bytes = it->second.bytes;
  return it->second.fd.get();
}

void Slabs::drop_kept() {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    if (it->second.session == 0) {
      it = drop(it);
    } else {
      ++it;
    }
  }
}

void Slabs::drop_session(SessionKey session) {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    Slab& slab = it->second;
    if (slab.session == session && session != 0) {
      slab.session = 0;
      if (slab.foreign || slab.is_staging) {  // it goes with the process
        it = drop(it);
        continue;
      }
    }
    ++it;
  }
}

void Slabs::drop_job(JobKey job) {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    if (it->second.job == job) {
      it = drop(it);
    } else {
      ++it;
    }
  }
}

void Slabs::count_held(SessionKey session, JobKey job, std::uint64_t bytes) {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    const Slab& slab = it->second;
    if (slab.session != session) {
      ++it;
    } else if (slab.foreign) {
      it = drop(it);
    } else {
      bytes -= std::min(bytes, slab.bytes);
      ++it;
    }
  }
  if (bytes == 0) return;
  Slab& slab = slabs_[next_id_++];
  slab.bytes = bytes;
  slab.job = job;
  slab.session = session;
  slab.foreign = true;
  in_use_ += bytes;
}

std::uint64_t Slabs::bytes_of(JobKey job) const {
  std::uint64_t sum = 0;
  for (const auto& [id, slab] : slabs_) {
    if (slab.job == job) sum += slab.bytes;
  }
  return sum;
}

std::uint64_t Slabs::bytes_with(SessionKey session) const {
  std::uint64_t sum = 0;
  for (const auto& [id, slab] : slabs_) {
    if (slab.session == session && !slab.is_staging) sum += slab.bytes;
  }
  return sum;
}

}  // namespace plexrl::nodemgr
