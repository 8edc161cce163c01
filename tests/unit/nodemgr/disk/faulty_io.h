#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "nodemgr/disk/file_io.h"

namespace plexrl::nodemgr::disk {

/// A FileIo that lets some attempts go wrong.
class FaultyIo final : public FileIo {
 public:
  /// What becomes of the attempt that is number `index` (from 0) of those of its way, before it
  /// begins: may make it shorter, or end it with an error instead. True: it is ended.
  using Fault = std::function<bool(Attempt* attempt, int index)>;

  FaultyIo(std::unique_ptr<FileIo> real, Fault fault)
      : real_(std::move(real)), fault_(std::move(fault)) {}

  void start(Attempt* attempt) override {
    const int index = started_[attempt->way == Attempt::Way::kWrite]++;
    if (!fault_(attempt, index)) real_->start(attempt);
  }
  void finish(Attempt* attempt) override {
    if (!attempt->has_ended) real_->finish(attempt);
  }

 private:
  std::unique_ptr<FileIo> real_;
  Fault fault_;
  int started_[2] = {};
};

}  // namespace plexrl::nodemgr::disk
