#include "tools/simgpu/driver/shared_event.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tools/simgpu/driver/process_start.h"

namespace plexrl::simgpu {
namespace {

constexpr char kPrefix[] = "event-";
constexpr std::uint64_t kRecords = 64;  // records whose state is kept; older ones count as reached

std::string path_of(const std::string& folder, std::uint64_t tag) {
  char name[32];
  std::snprintf(name, sizeof name, "/%s%016llx", kPrefix, static_cast<unsigned long long>(tag));
  return folder + name;
}

}  // namespace

/// The file. Zeros: never recorded.
struct SharedEvent::Words {
  std::atomic<std::uint32_t> changes;  ///< the futex: raised when a record is reached
  std::atomic<std::int32_t> pid;       ///< who recorded last
  std::atomic<std::uint64_t> start_ticks;
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> reached[kRecords];  ///< [number % kRecords]: the number when reached
};

std::shared_ptr<SharedEvent> SharedEvent::map(int fd, const std::string& path, std::uint64_t tag) {
  struct stat file {};
  void* memory = MAP_FAILED;
  if (fstat(fd, &file) == 0 && file.st_size >= static_cast<off_t>(sizeof(Words)))
    memory = mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  std::shared_ptr<SharedEvent> event(new SharedEvent);
  if (!event->recorders_.open(path)) {
    munmap(memory, sizeof(Words));
    return nullptr;
  }
  event->tag_ = tag;
  event->words_ = static_cast<Words*>(memory);
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::make(const std::string& folder) {
  std::uint64_t tag = 0;
  if (getrandom(&tag, sizeof tag, 0) != sizeof tag) return nullptr;
  const std::string path = path_of(folder, tag);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  if (ftruncate(fd, sizeof(Words)) != 0) {
    close(fd);
    unlink(path.c_str());
    return nullptr;
  }
  std::shared_ptr<SharedEvent> event = map(fd, path, tag);
  if (event != nullptr) event->made_path_ = path;
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::open(const std::string& folder, std::uint64_t tag) {
  const std::string path = path_of(folder, tag);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  return fd < 0 ? nullptr : map(fd, path, tag);
}

SharedEvent::~SharedEvent() {
  munmap(words_, sizeof(Words));
  if (!made_path_.empty()) unlink(made_path_.c_str());
}

std::uint64_t SharedEvent::begin_record() {
  // Before another thread's record is told too: who looks must find the mark.
  std::call_once(taken_, [this] {
    recorders_.take(getpid());
    has_recorded_.store(true);
  });
  words_->start_ticks.store(start_ticks(getpid()), std::memory_order_relaxed);
  words_->pid.store(getpid(), std::memory_order_relaxed);
  return words_->recorded.fetch_add(1, std::memory_order_release) + 1;  // pairs with recorded()
}

void SharedEvent::finish_record(std::uint64_t number) {
  std::atomic<std::uint64_t>& word = words_->reached[number % kRecords];
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < number && !word.compare_exchange_weak(seen, number, std::memory_order_release)) {
  }
  words_->changes.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &words_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint64_t SharedEvent::recorded() const {
  return words_->recorded.load(std::memory_order_acquire);
}

bool SharedEvent::is_reached(std::uint64_t number) const {
  if (number == 0 || words_->reached[number % kRecords].load(std::memory_order_acquire) >= number)
    return true;
  const pid_t pid = words_->pid.load(std::memory_order_relaxed);
  const std::uint64_t ticks = words_->start_ticks.load(std::memory_order_relaxed);
  if (pid == getpid() && has_recorded_) return false;
  // The start too: a child of fork may have the mark of a process that has gone.
  return !recorders_.is_taken(pid) || start_ticks(pid) != ticks;
}

void SharedEvent::wait(std::uint64_t number, std::uint64_t ns) const {
  const std::uint32_t changes = words_->changes.load(std::memory_order_acquire);
  if (is_reached(number)) return;
  const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, &words_->changes, FUTEX_WAIT, changes, &time, nullptr, 0);
}

void remove_shared_events(const std::string& folder) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kPrefix) || name.starts_with(kCommunicatorPrefix))
      unlink((folder + "/" + entry->d_name).c_str());
  }
  closedir(entries);
}

}  // namespace plexrl::simgpu
