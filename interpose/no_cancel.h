#pragma once

#include <pthread.h>

namespace plexrl::interpose {

/// While one lives, its thread can't be cancelled: pthread_cancel takes effect at the job's own
/// next cancellation point. Where our code waits for the manager or for a lease, it would otherwise
/// be unwound half-way, out of functions that don't throw, and end the process. Two exchanges of a
/// word of the thread; not for the open gate.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace plexrl::interpose
