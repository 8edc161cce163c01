#include "nodemgr/bpf/thread_times.h"

#include <arpa/inet.h>

#include <algorithm>

#include "nodemgr/settings/cat.h"

namespace plexrl::observer {

const char* kind_word(Kind kind) {
  switch (kind) {
    case Kind::kCpu:
      return "cpu";
    case Kind::kCpuQueue:
      return "cpu_queue";
    case Kind::kSleep:
      return "sleep";
    case Kind::kLock:
      return "lock";
    case Kind::kNetwork:
      return "network";
    case Kind::kPipe:
      return "pipe";
    case Kind::kSubprocess:
      return "subprocess";
    case Kind::kDisk:
      return "disk";
    case Kind::kGpu:
      return "gpu";
    case Kind::kPageFault:
      return "page_fault";
    case Kind::kStopped:
      return "stopped";
    case Kind::kOther:
      break;
  }
  return "other";
}

std::string address_text(int family, const std::array<std::uint8_t, 16>& address, int port) {
  if (family != 4 && family != 6) return "";
  constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const std::uint8_t* bytes = address.data();
  if (family == 6 && std::equal(kMapped.begin(), kMapped.end(), bytes)) {
    family = 4;
    bytes += kMapped.size();
  }
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
  return family == 4 ? nodemgr::cat(text, ":", port) : nodemgr::cat("[", text, "]:", port);
}

}  // namespace plexrl::observer
