#include "tests/bench/programs/against_stub.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "shim/wire.h"
#include "tests/unit/shim/fake_manager.h"

namespace plexrl::bench {
namespace {

constexpr const char* kChild = "--child";
constexpr std::uint64_t kPromised = std::uint64_t{1} << 45;

shim::ScopedFd listen_at(const std::string& path) {
  shim::ScopedFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    std::perror("listen");
    return {};
  }
  return listener;
}

[[noreturn]] void run_child(const std::string& socket) {
  const std::string stub = std::filesystem::path(PLEXRL_STUB).parent_path();
  ::setenv("LD_PRELOAD", PLEXRL_PRELOAD, 1);
  ::setenv("LD_LIBRARY_PATH", stub.c_str(), 1);
  ::setenv("PLEXRL_JOB_ID", "00000000000000000000000000000001", 1);
  ::setenv("PLEXRL_JOB_SECRET", "00000000000000000000000000000001", 1);
  ::setenv("PLEXRL_SOCKET", socket.c_str(), 1);
  ::execl("/proc/self/exe", "/proc/self/exe", kChild, nullptr);
  std::perror("exec");
  ::_exit(1);
}

}  // namespace

int run_against_stub(int argc, char** argv, int (*measure)()) {
  if (argc == 2 && std::strcmp(argv[1], kChild) == 0) return measure();
  char folder[] = "/tmp/plexrl-bench.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  const std::string socket = std::string(folder) + "/s";
  const auto listener = listen_at(socket);
  const pid_t child = listener.valid() ? ::fork() : -1;
  if (child == 0) run_child(socket);
  int status = 1;
  if (child > 0) {
    shim::testing::FakeManager manager;
    manager.promised = kPromised;
    std::thread([&] {
      manager.adopt(shim::ScopedFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      manager.wait_for(wire::Type::kWantLease);
      manager.grant(wire::kGrantRunNow);
    }).detach();
    ::waitpid(child, &status, 0);
    std::filesystem::remove_all(folder);
    std::_Exit(status == 0 ? 0 : 1);  // the thread may still wait for a child that never came
  }
  std::filesystem::remove_all(folder);
  return 1;
}

void find_both(const char* name, void** caught, void** bare) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::_Exit(1);
  }
  *caught = dlsym(library, name);
  *bare = dlsym(library, (std::string("bare_") + name).c_str());
  if (*caught != nullptr && *bare != nullptr && *caught != *bare) return;
  std::fprintf(stderr, "%s: the preload is not in the way, or the stub lacks it\n", name);
  std::_Exit(1);
}

}  // namespace plexrl::bench
