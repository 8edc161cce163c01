#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// A page shared with one client: a sealed memfd, mapped here. It can neither shrink nor grow, so
/// no access can fault. The descriptor is what the client gets.
class SharedPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  /// We write; whoever gets the descriptor can only map it read-only (F_SEAL_FUTURE_WRITE).
  [[nodiscard]] static absl::StatusOr<SharedPage> written_here(const char* name);
  /// The client writes; here it is mapped read-only.
  [[nodiscard]] static absl::StatusOr<SharedPage> written_there(const char* name);

  SharedPage() = default;
  SharedPage(SharedPage&& other) noexcept;
  SharedPage& operator=(SharedPage&& other) noexcept;
  ~SharedPage();

  void* data() const { return data_; }
  int fd() const { return fd_.get(); }
  /// When the client has it, to have one descriptor less here for each of many.
  void close_descriptor() { fd_.reset(); }

 private:
  [[nodiscard]] static absl::StatusOr<SharedPage> make(const char* name, int protection,
                                                       int more_seals);
  ScopedFd fd_;
  void* data_ = nullptr;
};

}  // namespace plexrl::nodemgr
