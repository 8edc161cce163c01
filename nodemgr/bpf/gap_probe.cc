#include "nodemgr/bpf/gap_probe.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "gap.skel.h"
#include "nodemgr/bpf/gap_events.h"
#include "nodemgr/scoped_fd.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::observer {
namespace {

using nodemgr::cat;
using nodemgr::ScopedFd;

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The last thing that libbpf complained of.
std::string& complaint() {
  static std::string text;
  return text;
}

int keep_complaint(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN) return 0;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty() && text.find('\n') == std::string::npos) complaint() = text;
  return 0;
}

std::string name_of(const char (&name)[PLEXRL_NAME]) {
  return std::string(name, ::strnlen(name, sizeof name));
}

Doing doing_of(const plexrl_cause& cause) {
  Doing doing;
  doing.kind = static_cast<Kind>(cause.kind);
  if (doing.kind == Kind::kNetwork) {
    std::array<std::uint8_t, 16> address{};
    std::copy(std::begin(cause.address), std::end(cause.address), address.begin());
    doing.what = address_text(cause.family, address, cause.port);
    return doing;
  }
  doing.what = name_of(cause.name);
  doing.number = cause.number;
  if (doing.kind == Kind::kPipe) doing.inode = cause.inode;
  return doing;
}

/// All entries of a map whose processes are among these. Entries that come meanwhile may be missed.
template <typename Key, typename Value, typename IsOurs>
std::vector<std::pair<Key, Value>> entries(bpf_map* map, IsOurs is_ours) {
  std::vector<std::pair<Key, Value>> found;
  Key key{};
  Key next{};
  const Key* at = nullptr;
  while (bpf_map__get_next_key(map, at, &next, sizeof next) == 0) {
    key = next;
    at = &key;
    Value value{};
    if (bpf_map__lookup_elem(map, &key, sizeof key, &value, sizeof value, 0) != 0) continue;
    if (is_ours(key, value)) found.emplace_back(key, value);
  }
  return found;
}

std::string what_to_do(int error) {
  if (error == EPERM || error == EACCES) return ": it needs root (CAP_BPF, CAP_PERFMON)";
  return "";
}

absl::Status why(const char* what, int error) {
  return nodemgr::failed(what, ": ", std::strerror(error), what_to_do(error),
                         complaint().empty() ? "" : "; ", complaint());
}

}  // namespace

struct GapProbe::Parts {
  gap* skeleton = nullptr;
  std::vector<bpf_link*> links;
  bpf_link* iterator = nullptr;

  ~Parts() {
    for (bpf_link* link : links) bpf_link__destroy(link);
    bpf_link__destroy(iterator);
    gap::destroy(skeleton);
  }
};

GapProbe::GapProbe(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
GapProbe::~GapProbe() = default;

absl::StatusOr<std::unique_ptr<GapProbe>> GapProbe::load() {
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    return nodemgr::failed(
        "this kernel has no /sys/kernel/btf/vmlinux: it needs one built with "
        "CONFIG_DEBUG_INFO_BTF");
  }
  libbpf_set_print(keep_complaint);
  complaint().clear();
  auto parts = std::make_unique<Parts>();
  parts->skeleton = gap::open();
  if (parts->skeleton == nullptr) return why("BPF programs can't be read", errno);
  if (const int error = gap::load(parts->skeleton); error != 0) {
    return why("BPF programs can't be loaded", -error);
  }
  parts->iterator = bpf_program__attach_iter(parts->skeleton->progs.note_threads, nullptr);
  if (parts->iterator == nullptr) return why("no iterator over threads", errno);
  return std::unique_ptr<GapProbe>(new GapProbe(std::move(parts)));
}

bool GapProbe::is_attached() const { return !parts_->links.empty(); }

absl::Status GapProbe::attach() {
  if (is_attached()) return absl::OkStatus();
  struct Wanted {
    bpf_program* program;
    const char* without;  ///< what is not seen without it; null: it must be there
  };
  auto& programs = parts_->skeleton->progs;
  const Wanted wanted[] = {
      {programs.on_switch, nullptr},
      {programs.on_waking, "which thread ends a wait for a lock"},
  };
  lacks_.clear();
  for (const Wanted& one : wanted) {
    complaint().clear();
    if (bpf_link* link = bpf_program__attach(one.program)) {
      parts_->links.push_back(link);
    } else if (one.without == nullptr) {
      return why("the scheduler's events can't be seen", errno);
    } else {
      lacks_.push_back(cat(one.without, " (", std::strerror(errno), ")"));
    }
  }
  return absl::OkStatus();
}

void GapProbe::rest() {
  for (bpf_link* link : parts_->links) bpf_link__destroy(link);
  parts_->links.clear();
}

void GapProbe::note_threads() {
  const ScopedFd run(bpf_iter_create(bpf_link__fd(parts_->iterator)));
  char nothing[64];
  while (run.is_open() && ::read(run.get(), nothing, sizeof nothing) > 0) continue;
}

absl::Status GapProbe::watch(const std::vector<pid_t>& processes) {
  absl::Status status = attach();
  if (!status.ok()) return status;
  const std::uint8_t yes = 1;
  for (const pid_t process : processes) {
    const auto key = static_cast<std::uint32_t>(process);
    if (bpf_map__update_elem(parts_->skeleton->maps.watched, &key, sizeof key, &yes, sizeof yes,
                             BPF_ANY) != 0) {
      return why("too many processes are in gaps", errno);
    }
  }
  note_threads();
  return absl::OkStatus();
}

/// What the tables have of some processes. To go through one costs some 50 us, however little is in
/// it: once for each look.
struct GapProbe::Tables {
  std::vector<std::pair<std::uint32_t, plexrl_thread>> threads;
  std::vector<std::pair<plexrl_total, std::uint64_t>> totals;
  std::vector<std::pair<plexrl_wake, std::uint64_t>> wakes;
  std::uint64_t at_ns = 0;  ///< when the threads were looked at
};

GapProbe::Tables GapProbe::look(const std::set<std::uint32_t>& processes) {
  auto& maps = parts_->skeleton->maps;
  Tables tables;
  // Threads first: what is booked in between counts twice, which is less than a look takes.
  tables.threads = entries<std::uint32_t, plexrl_thread>(
      maps.threads,
      [&](std::uint32_t, const plexrl_thread& t) { return processes.contains(t.tgid); });
  tables.at_ns = monotonic_ns();
  tables.totals = entries<plexrl_total, std::uint64_t>(
      maps.totals,
      [&](const plexrl_total& t, std::uint64_t) { return processes.contains(t.tgid); });
  tables.wakes = entries<plexrl_wake, std::uint64_t>(
      maps.wakers, [&](const plexrl_wake& w, std::uint64_t) { return processes.contains(w.tgid); });
  return tables;
}

std::vector<ThreadTimes> GapProbe::times_of(const Tables& tables) {
  std::map<pid_t, ThreadTimes> found;
  for (const auto& [tid, thread] : tables.threads) {
    ThreadTimes& its = found[static_cast<pid_t>(tid)];
    its.process = static_cast<pid_t>(thread.tgid);
    its.thread = static_cast<pid_t>(tid);
    its.name = name_of(thread.name);
    its.runs = thread.runs;
    if (thread.now.kind == 0) continue;
    const std::uint64_t open =
        tables.at_ns - std::min<std::uint64_t>(tables.at_ns, thread.since_ns);
    its.did[doing_of(thread.now)] += std::chrono::nanoseconds(open);
  }
  for (const auto& [key, ns] : tables.totals) {
    const auto its = found.find(static_cast<pid_t>(key.tid));
    if (its == found.end()) continue;
    its->second.did[doing_of(key.cause)] += std::chrono::nanoseconds(ns);
  }
  for (const auto& [key, ns] : tables.wakes) {
    const auto its = found.find(static_cast<pid_t>(key.tid));
    if (its == found.end()) continue;
    its->second.woken_by[static_cast<pid_t>(key.waker)] += std::chrono::nanoseconds(ns);
  }
  std::vector<ThreadTimes> times;
  for (auto& [tid, thread] : found) times.push_back(std::move(thread));
  return times;
}

std::vector<ThreadTimes> GapProbe::read(const std::vector<pid_t>& processes) {
  return times_of(look({processes.begin(), processes.end()}));
}

std::vector<ThreadTimes> GapProbe::read_and_forget(const std::vector<pid_t>& processes) {
  const std::set<std::uint32_t> ours(processes.begin(), processes.end());
  auto& maps = parts_->skeleton->maps;
  // From here on nothing more is booked for them.
  for (const std::uint32_t process : ours) {
    bpf_map__delete_elem(maps.watched, &process, sizeof process, 0);
  }
  const Tables tables = look(ours);
  const auto remove = [](bpf_map* map, const auto& list) {
    for (const auto& [key, value] : list) bpf_map__delete_elem(map, &key, sizeof key, 0);
  };
  remove(maps.threads, tables.threads);
  remove(maps.totals, tables.totals);
  remove(maps.wakers, tables.wakes);
  return times_of(tables);
}

void GapProbe::set_gpus(const std::vector<dev_t>& devices) {
  bpf_map* map = parts_->skeleton->maps.gpus;
  for (const auto& [key, value] : entries<std::uint32_t, std::uint8_t>(
           map, [](std::uint32_t, std::uint8_t) { return true; })) {
    bpf_map__delete_elem(map, &key, sizeof key, 0);
  }
  const std::uint8_t yes = 1;
  for (const dev_t device : devices) {
    // The kernel's own form of a device number: 12 bits and 20.
    const std::uint32_t key = ::major(device) << 20 | ::minor(device);
    bpf_map__update_elem(map, &key, sizeof key, &yes, sizeof yes, BPF_ANY);
  }
}

std::uint64_t GapProbe::lost() const { return parts_->skeleton->bss->lost; }

}  // namespace plexrl::observer
