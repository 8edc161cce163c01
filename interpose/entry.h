#pragma once

#include <atomic>

namespace plexrl::interpose {

/// The address of one function of a real library, called like the function itself.
///
/// Starts as a resolver that finds the function at its first call, stores it here and calls it;
/// where the library lacks the function the resolver stays and returns the library's "not
/// supported". So a call is one load and one indirect jump, needs no start-up order, and never
/// meets a null pointer.
///
/// Threads: any. Every writer stores the same address, so relaxed order is enough: the code behind
/// it was published by the dynamic loader before anyone could learn the address.
template <typename Function>
class Entry;

template <typename R, typename... A>
class Entry<R(A...)> {
 public:
  using Pointer = R (*)(A...);

  constexpr explicit(false) Entry(Pointer resolver) noexcept : pointer_(resolver) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  /// Tests put their own function here.
  Entry& operator=(Pointer function) noexcept {
    pointer_.store(function, std::memory_order_relaxed);
    return *this;
  }

  [[gnu::always_inline]] R operator()(A... arguments) const { return get()(arguments...); }
  [[gnu::always_inline]] Pointer get() const noexcept {
    return pointer_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<Pointer> pointer_;
};

}  // namespace plexrl::interpose
