#include "clustermgr/sqlite_store.h"

#include <sqlite3.h>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;

/// "PxCM": a file of another program is not taken for ours.
constexpr int kApplicationId = 0x5078434d;
/// Raised when older managers could misread what newer ones write.
constexpr int kVersion = 1;

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  void bind(int place, const std::string& bytes, bool is_blob) {
    if (code_ != SQLITE_OK) return;
    code_ = is_blob
                ? sqlite3_bind_blob64(statement_, place, bytes.data(), bytes.size(), SQLITE_STATIC)
                : sqlite3_bind_text64(statement_, place, bytes.data(), bytes.size(), SQLITE_STATIC,
                                      SQLITE_UTF8);
  }
  /// SQLITE_ROW, SQLITE_DONE, or what went wrong, then or before.
  int step() { return code_ != SQLITE_OK ? code_ : sqlite3_step(statement_); }

  std::string bytes(int column) {
    const void* const data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr
               ? ""
               : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
  }
  int number(int column) { return sqlite3_column_int(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

}  // namespace

absl::Status SqliteStore::error(int code, const char* doing) const {
  const char* const words = db_ != nullptr ? sqlite3_errmsg(db_) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          cat(path_, ": can't ", doing,
              ": the disk is full; nothing of what was stored is lost: "
              "make room there"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(
          cat(path_, ": is damaged (", words,
              "), and was left as it is: put a backup in its place, "
              "or move it away and save what can be read with `sqlite3 FILE .recover`"));
    case SQLITE_BUSY:
      return absl::FailedPreconditionError(
          cat(path_,
              ": another cluster manager uses it: stop that one, or give this one another "
              "--state-dir"));
    default:
      return absl::UnavailableError(cat(path_, ": can't ", doing, ": ", words));
  }
}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& path) {
  std::unique_ptr<SqliteStore> store(new SqliteStore(path));
  const int code = sqlite3_open_v2(
      path.c_str(), &store->db_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_NOFOLLOW,
      nullptr);
  if (code != SQLITE_OK) return store->error(code, "open the store");
  sqlite3_extended_result_codes(store->db_, 1);
  absl::Status status = store->begin_use();
  if (!status.ok()) return status;
  return store;
}

SqliteStore::~SqliteStore() { sqlite3_close(db_); }

/// Nothing is written before the file is known to be ours, whole, and of a version that we read.
absl::Status SqliteStore::begin_use() {
  absl::Status status = run("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT");
  if (status.ok()) status = check_version();
  if (status.ok()) status = check_whole();
  // FULL: a commit has reached the disk when it returns, write-ahead log or not.
  if (status.ok()) status = run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
  if (!status.ok()) return status;
  return run(cat("BEGIN IMMEDIATE; PRAGMA application_id = ", kApplicationId,
                 "; PRAGMA user_version = ", kVersion,
                 "; CREATE TABLE IF NOT EXISTS entries(key TEXT PRIMARY KEY, value BLOB NOT NULL) "
                 "WITHOUT ROWID; COMMIT")
                 .c_str());
}

absl::Status SqliteStore::check_version() {
  Statement id(db_, "PRAGMA application_id");
  if (const int code = id.step(); code != SQLITE_ROW) return error(code, "read the store");
  Statement tables(db_, "SELECT count(*) FROM sqlite_master");
  if (const int code = tables.step(); code != SQLITE_ROW) return error(code, "read the store");
  const bool is_new = id.number(0) == 0 && tables.number(0) == 0;
  if (!is_new && id.number(0) != kApplicationId) {
    return absl::FailedPreconditionError(
        cat(path_, ": is a database of another program: give another --state-dir"));
  }
  Statement version(db_, "PRAGMA user_version");
  if (const int code = version.step(); code != SQLITE_ROW) return error(code, "read the store");
  if (version.number(0) <= kVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      cat(path_, ": is of version ", version.number(0),
          ", made by a newer cluster manager; this one reads up to ", kVersion,
          ": install that version again, or put a backup in its place"));
}

absl::Status SqliteStore::check_whole() {
  Statement check(db_, "PRAGMA quick_check(1)");
  if (const int code = check.step(); code != SQLITE_ROW) return error(code, "check the store");
  if (check.bytes(0) == "ok") return absl::OkStatus();
  return absl::DataLossError(
      cat(path_, ": is damaged (", check.bytes(0),
          "), and was left as it is: put a backup in its "
          "place, or move it away and save what can be read with `sqlite3 FILE .recover`"));
}

absl::Status SqliteStore::run(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  absl::Status status = error(code, "write to the store");
  if (sqlite3_get_autocommit(db_) == 0) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  return status;
}

absl::Status SqliteStore::write(const Change& change) {
  Statement statement(db_, change.value ? "INSERT INTO entries(key, value) VALUES(?1, ?2) "
                                          "ON CONFLICT(key) DO UPDATE SET value = excluded.value"
                                        : "DELETE FROM entries WHERE key = ?1");
  statement.bind(1, change.key, false);
  if (change.value) statement.bind(2, *change.value, true);
  const int code = statement.step();
  return code == SQLITE_DONE ? absl::OkStatus() : error(code, "write to the store");
}

absl::Status SqliteStore::apply(std::span<const Change> changes) {
  const std::lock_guard lock(mu_);
  absl::Status status = run("BEGIN IMMEDIATE");
  for (const Change& change : changes) {
    if (status.ok()) status = write(change);
  }
  if (status.ok()) status = run("COMMIT");
  // Some errors have rolled back already.
  if (!status.ok() && sqlite3_get_autocommit(db_) == 0) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  return status;
}

absl::StatusOr<std::optional<std::string>> SqliteStore::get(const std::string& key) {
  const std::lock_guard lock(mu_);
  Statement statement(db_, "SELECT value FROM entries WHERE key = ?1");
  statement.bind(1, key, false);
  const int code = statement.step();
  if (code == SQLITE_ROW) return statement.bytes(0);
  if (code == SQLITE_DONE) return std::nullopt;
  return error(code, "read the store");
}

absl::StatusOr<std::map<std::string, std::string>> SqliteStore::list(const std::string& prefix) {
  const std::lock_guard lock(mu_);
  Statement statement(db_, "SELECT key, value FROM entries WHERE substr(key, 1, length(?1)) = ?1");
  statement.bind(1, prefix, false);
  std::map<std::string, std::string> entries;
  for (;;) {
    const int code = statement.step();
    if (code == SQLITE_DONE) return entries;
    if (code != SQLITE_ROW) return error(code, "read the store");
    entries.emplace(statement.bytes(0), statement.bytes(1));
  }
}

}  // namespace plexrl::clustermgr
