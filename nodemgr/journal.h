#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// One thing that must survive the manager: a word and its fields, all text.
struct JournalRecord {
  std::string kind;
  std::map<std::string, std::string, std::less<>> fields;

  const std::string& operator[](std::string_view name) const;  ///< "" when absent
  std::uint64_t number(std::string_view name) const;           ///< 0 when absent or no number
};

/// An append-only file of records: u32 length, u32 CRC-32C of the payload (little-endian), payload
/// `kind name=value …` with values percent-encoded.
///
/// When append has returned OK, the record outlives the manager, however that ends. It need not
/// outlive the machine, whose end is that of all processes told of here: nothing waits for the
/// disk. Reading stops at the first record that is cut short or fails its checksum: what was being
/// written when the manager or the machine died.
class Journal {
 public:
  struct Contents {
    std::vector<JournalRecord> records;
    bool damaged = false;  ///< something followed the last good record
  };
  /// A missing file is an empty journal.
  [[nodiscard]] static absl::StatusOr<Contents> read(const std::string& path);

  explicit Journal(std::string path) : path_(std::move(path)) {}

  /// Replaces the file by these records, atomically and durably, and continues behind them.
  [[nodiscard]] absl::Status rewrite(const std::vector<JournalRecord>& records);
  /// Fails on a full or read-only disk; the caller goes on without.
  [[nodiscard]] absl::Status append(const JournalRecord& record);

  std::uint64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  ScopedFd file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace plexrl::nodemgr
