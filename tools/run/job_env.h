#pragma once

#include <string>
#include <vector>

namespace plexrl::run {

/// An environment block that is built before a fork: "NAME=VALUE" strings, each name once.
class EnvBlock {
 public:
  EnvBlock() = default;
  /// Copies a null-terminated block such as `environ`.
  explicit EnvBlock(const char* const* block);

  /// Null when unset; valid until the next change.
  const char* get(const std::string& name) const;
  /// All of it.
  const std::vector<std::string>& entries() const { return entries_; }
  void set(const std::string& name, const std::string& value);
  void unset(const std::string& name);

  /// For execve: pointers into this object, null-terminated; valid until the next change.
  std::vector<char*> pointers();

 private:
  std::vector<std::string> entries_;
};

/// Puts `library` in front of LD_PRELOAD, and takes out every other mention of a libplexrl.so: it
/// is to be loaded once, also below a plexrl-run inside a plexrl-run.
void preload(EnvBlock& env, const std::string& library);

/// The other way: no libplexrl.so in LD_PRELOAD (unset when that leaves nothing), and none of the
/// names that make a process part of a job.
void leave_job(EnvBlock& env);

/// Puts `folder` in front of LD_LIBRARY_PATH, once.
void search_first(EnvBlock& env, const std::string& folder);

}  // namespace plexrl::run
