#include "nodemgr/disk/file_io.h"

#include <liburing.h>
#include <unistd.h>

#include <cerrno>

namespace plexrl::nodemgr::disk {
namespace {

class PlainIo final : public FileIo {
 public:
  void start(Attempt* attempt) override {
    const auto offset = static_cast<off_t>(attempt->offset);
    ssize_t result = 0;
    do {
      result = attempt->way == Attempt::Way::kRead
                   ? ::pread(attempt->fd, attempt->data, attempt->bytes, offset)
                   : ::pwrite(attempt->fd, attempt->data, attempt->bytes, offset);
    } while (result < 0 && errno == EINTR);
    attempt->result = result < 0 ? -errno : result;
    attempt->has_ended = true;
  }
  void finish(Attempt*) override {}
};

class RingIo final : public FileIo {
 public:
  explicit RingIo(const io_uring& ring) : ring_(ring) {}
  ~RingIo() override { io_uring_queue_exit(&ring_); }

  void start(Attempt* attempt) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return end(attempt, -EBUSY);  // more than `depth`
    const auto bytes = static_cast<unsigned>(attempt->bytes);
    if (attempt->way == Attempt::Way::kRead) {
      io_uring_prep_read(entry, attempt->fd, attempt->data, bytes, attempt->offset);
    } else {
      io_uring_prep_write(entry, attempt->fd, attempt->data, bytes, attempt->offset);
    }
    io_uring_sqe_set_data(entry, attempt);
    submit();
  }

  void finish(Attempt* attempt) override {
    while (!attempt->has_ended) {
      submit();  // what the kernel did not take at once
      io_uring_cqe* ended = nullptr;
      // Interrupted, or short of memory for a moment: the entry is still the kernel's.
      if (io_uring_wait_cqe(&ring_, &ended) != 0) continue;
      end(static_cast<Attempt*>(io_uring_cqe_get_data(ended)), ended->res);
      io_uring_cqe_seen(&ring_, ended);
    }
  }

 private:
  static void end(Attempt* attempt, int result) {
    attempt->result = result;
    attempt->has_ended = true;
  }
  void submit() {
    if (io_uring_sq_ready(&ring_) != 0) io_uring_submit(&ring_);
  }

  io_uring ring_;
};

}  // namespace

std::unique_ptr<FileIo> make_ring_io(unsigned depth) {
  io_uring ring{};
  if (io_uring_queue_init(depth, &ring, 0) != 0) return nullptr;
  // The ring is there, but a filter may still refuse what goes through it.
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
  const bool can = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  if (probe != nullptr) io_uring_free_probe(probe);
  if (can) return std::make_unique<RingIo>(ring);
  io_uring_queue_exit(&ring);
  return nullptr;
}

std::unique_ptr<FileIo> make_plain_io() { return std::make_unique<PlainIo>(); }

}  // namespace plexrl::nodemgr::disk
