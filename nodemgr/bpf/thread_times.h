#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

/// What threads did while their gang was in a gap: what the kernel half gathers, as values.
namespace plexrl::observer {

/// As plexrl_kind in gap_events.h.
enum class Kind {
  kCpu = 1,
  kCpuQueue,
  kSleep,
  kLock,
  kNetwork,
  kPipe,
  kSubprocess,
  kDisk,
  kGpu,
  kPageFault,
  kStopped,
  kOther,
};
inline constexpr int kKinds = 13;

/// The word for it in JSON and traces: cpu cpu_queue sleep lock network pipe subprocess disk gpu
/// page_fault stopped other.
const char* kind_word(Kind kind);

/// Of what a thread did at a time. Fields that its kind has no use for are empty.
struct Doing {
  Kind kind = Kind::kOther;
  std::string what;          ///< command, file, or address and port
  std::uint32_t number = 0;  ///< kOther: the system call; kPipe: a pid at the other end
  std::uint64_t inode = 0;   ///< kPipe: of the pipe or socket

  auto operator<=>(const Doing&) const = default;
};

struct ThreadTimes {
  pid_t process = 0, thread = 0;
  std::string name;
  std::uint64_t runs = 0;  ///< how often it got a CPU
  std::map<Doing, std::chrono::nanoseconds> did;
  /// Of its waits for locks: which threads of its process ended them.
  std::map<pid_t, std::chrono::nanoseconds> woken_by;
};

/// "10.0.0.3:8000", "[2001:db8::1]:443"; "" without a family. A mapped IPv4 address is shown as
/// such.
std::string address_text(int family, const std::array<std::uint8_t, 16>& address, int port);

}  // namespace plexrl::observer
