// disk_tier FOLDER BYTES CHUNK_BYTES: writes so many bytes of memory as sealed chunks into FOLDER
// and reads them back, as the node manager does; prints the ns of each, then 1 if the page cache
// was passed by, else 0.
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "nodemgr/disk/disk_store.h"

using plexrl::nodemgr::ScopedFd;
using plexrl::nodemgr::disk::DiskStore;

namespace {

constexpr DiskStore::Owner kOwner = 1;

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "disk_tier: %s: %s\n", what, why);
  std::_Exit(1);
}

std::map<std::uint64_t, DiskStore::Result> results(DiskStore& store, std::uint64_t count) {
  std::map<std::uint64_t, DiskStore::Result> by_request;
  while (by_request.size() < count) {
    pollfd wait{store.event_fd(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    for (auto& result : store.finished()) {
      if (result.outcome != DiskStore::Outcome::kDone) fail("a chunk", result.text.c_str());
      by_request[result.request] = result;
    }
  }
  return by_request;
}

long long ns_since(std::chrono::steady_clock::time_point start) {
  return (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage", "disk_tier FOLDER BYTES CHUNK_BYTES");
  const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
  const std::uint64_t chunk = std::strtoull(argv[3], nullptr, 10);
  const std::uint64_t count = bytes / chunk;
  DiskStore::Options options;
  options.folder = argv[1];
  options.limit_bytes = 2 * bytes;
  auto opened = DiskStore::open(std::move(options));
  if (!opened.ok()) fail("open", std::string(opened.status().message()).c_str());
  DiskStore& store = **opened;

  const ScopedFd memory(::memfd_create("chunks", MFD_CLOEXEC));
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) fail("memory", "ftruncate");
  void* const mapped = ::mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) fail("memory", "mmap");
  auto* const words = static_cast<std::uint64_t*>(mapped);
  for (std::uint64_t i = 0; i < bytes / sizeof *words; ++i) words[i] = i * 0x9e3779b97f4a7c15;

  const auto place = [&](std::uint64_t i) { return DiskStore::Place{i * chunk, chunk, i * chunk}; };
  const auto write_start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    store.write(kOwner, i, ScopedFd(::dup(memory.get())), place(i));
  }
  const auto written = results(store, count);
  const long long write_ns = ns_since(write_start);
  const auto read_start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    store.read(kOwner, i, ScopedFd(::dup(memory.get())), place(i), written.at(i).seal);
  }
  results(store, count);
  std::printf("%lld %lld %d\n", write_ns, ns_since(read_start), store.is_direct() ? 1 : 0);
  return 0;
}
