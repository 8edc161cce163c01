#include "shim/manager_disk.h"

#include <string.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "disk";
constexpr std::size_t kPageBytes = 4096;

wire::DiskFile* make_locked_page() noexcept {
  const int saved_errno = errno;
  void* const page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    if (::mlock(page, kPageBytes) != 0) {
      PLEXRL_WARN(kFile, "the key of memory on disk can't be locked errno=%d, it may reach swap",
                  errno);
    }
    ::madvise(page, kPageBytes, MADV_DONTDUMP);
    ::madvise(page, kPageBytes, MADV_DONTFORK);
  }
  errno = saved_errno;
  return page == MAP_FAILED ? nullptr : static_cast<wire::DiskFile*>(page);
}

}  // namespace

bool ManagerDisk::is_on() const { return (client_.welcome().features & wire::kFeatureDisk) != 0; }

bool ManagerDisk::open_file() {
  if (file_ != nullptr) return true;
  const auto answer = client_.ask(wire::Type::kDiskFile);
  if (answer == nullptr || answer->type != wire::Type::kDiskFile) return false;
  const bool kept = keep(*answer);
  ::explicit_bzero(answer->body.data(), sizeof(wire::DiskFile));
  return kept;
}

bool ManagerDisk::keep(Packet& answer) {
  const auto* const told = answer.as<wire::DiskFile>();
  if (told == nullptr || !answer.fds[0].valid()) return false;
  wire::DiskFile* const page = make_locked_page();
  if (page == nullptr) return false;
  *page = *told;
  file_ = page;
  name_ = std::move(answer.fds[0]);
  return true;
}

std::optional<SlabSource::Slab> ManagerDisk::staging(std::size_t bytes) {
  auto answer = client_.ask(wire::Type::kDiskStaging, wire::SlabRequest{bytes});
  if (answer == nullptr || answer->type != wire::Type::kSlab) return std::nullopt;
  const auto* const slab = answer->as<wire::Slab>();
  if (slab == nullptr || !answer->fds[0].valid()) return std::nullopt;
  return SlabSource::Slab{slab->id, slab->bytes, std::move(answer->fds[0])};
}

DiskLink::Ticket ManagerDisk::begin(Way way, int memory, const wire::DiskMove& move) {
  const wire::Type type = way == Way::kWrite ? wire::Type::kDiskWrite : wire::Type::kDiskRead;
  return client_.begin_ask(type, &move, sizeof move, memory);
}

std::optional<wire::DiskMoved> ManagerDisk::finish(Ticket ticket) {
  const auto answer = client_.finish_ask(ticket);
  if (answer == nullptr) return std::nullopt;
  if (const auto* const moved = answer->as<wire::DiskMoved>();
      moved != nullptr && answer->type == wire::Type::kDiskMoved) {
    return *moved;
  }
  wire::DiskMoved failed{};
  failed.outcome = wire::kDiskFailed;
  return failed;
}

bool ManagerDisk::discard(std::uint64_t file_offset, std::uint64_t bytes) {
  return client_.connection().send(wire::Type::kDiskDiscard, wire::DiskPlace{file_offset, bytes});
}

void ManagerDisk::resume(Connection& fresh, const EachFree& each_free) {
  if (file_ == nullptr || !is_on()) return;
  const int name = name_.get();
  if (!fresh.send_with_fds(wire::Type::kDiskHeld, file_, sizeof *file_, &name, 1)) return;
  each_free([&](std::uint64_t offset, std::uint64_t bytes) {
    fresh.send(wire::Type::kDiskDiscard, wire::DiskPlace{offset, bytes});
  });
}

}  // namespace plexrl::shim
