#include "nodemgr/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {

absl::StatusOr<SharedPage> SharedPage::make(const char* name, int protection, int more_seals) {
  SharedPage page;
  page.fd_.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!page.fd_.is_open() || ::ftruncate(page.fd_.get(), kBytes) != 0) {
    return failed("shared page '", name, "': ", std::strerror(errno));
  }
  void* data = ::mmap(nullptr, kBytes, protection, MAP_SHARED, page.fd_.get(), 0);
  if (data == MAP_FAILED) return failed("map shared page '", name, "': ", std::strerror(errno));
  page.data_ = data;
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | more_seals;
  // Sealing against future writers comes after our own mapping; F_SEAL_SEAL last, for both at once.
  if (::fcntl(page.fd_.get(), F_ADD_SEALS, seals) != 0 ||
      ::fcntl(page.fd_.get(), F_ADD_SEALS, F_SEAL_SEAL) != 0) {
    return failed("seal shared page '", name, "': ", std::strerror(errno));
  }
  return page;
}

absl::StatusOr<SharedPage> SharedPage::written_here(const char* name) {
  return make(name, PROT_READ | PROT_WRITE, F_SEAL_FUTURE_WRITE);
}

absl::StatusOr<SharedPage> SharedPage::written_there(const char* name) {
  return make(name, PROT_READ, 0);
}

SharedPage::SharedPage(SharedPage&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)) {}

SharedPage& SharedPage::operator=(SharedPage&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, kBytes);
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

SharedPage::~SharedPage() {
  if (data_ != nullptr) ::munmap(data_, kBytes);
}

}  // namespace plexrl::nodemgr
