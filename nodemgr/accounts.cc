#include "nodemgr/accounts.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <filesystem>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr int kVersion = 1;  // of the table
constexpr std::int64_t kHour = 3600;

constexpr const char* kTable =
    "CREATE TABLE IF NOT EXISTS usage (hour INTEGER NOT NULL, job TEXT NOT NULL, "
    "name TEXT NOT NULL, user TEXT NOT NULL, team TEXT NOT NULL, held_gpu_ns REAL NOT NULL, "
    "needed_gpu_ns REAL NOT NULL, alone_ns REAL NOT NULL, lost_ns REAL NOT NULL, "
    "waited_ns REAL NOT NULL, PRIMARY KEY (hour, job)) WITHOUT ROWID";

constexpr const char* kAdd =
    "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) "
    "ON CONFLICT (hour, job) DO UPDATE SET held_gpu_ns = held_gpu_ns + ?6, "
    "needed_gpu_ns = needed_gpu_ns + ?7, alone_ns = alone_ns + ?8, lost_ns = lost_ns + ?9, "
    "waited_ns = waited_ns + ?10";

double in_ns(std::chrono::nanoseconds time) { return static_cast<double>(time.count()); }

std::chrono::nanoseconds from_ns(double ns) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
}

/// The columns that name a row, in the order of Owner.
const char* names_of(Accounts::By by) {
  switch (by) {
    case Accounts::By::kTeam:
      return "'', '', '', team";
    case Accounts::By::kUser:
      return "'', '', user, ''";
    case Accounts::By::kJob:
      break;
  }
  return "job, name, user, team";
}

const char* key_of(Accounts::By by) {
  return by == Accounts::By::kTeam ? "team" : by == Accounts::By::kUser ? "user" : "job";
}

Usage::Totals minus(const Usage::Totals& a, const Usage::Totals& b) {
  return {a.held_gpu_ns - b.held_gpu_ns, a.needed_gpu_ns - b.needed_gpu_ns, a.alone - b.alone,
          a.lost - b.lost, a.waited - b.waited};
}

void add(Usage::Totals& to, const Usage::Totals& more) {
  to.held_gpu_ns += more.held_gpu_ns;
  to.needed_gpu_ns += more.needed_gpu_ns;
  to.alone += more.alone;
  to.lost += more.lost;
  to.waited += more.waited;
}

absl::Status failed(const std::string& path, const SQLite::Exception& error) {
  switch (error.getErrorCode()) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(cat(path, " is damaged (", error.what(),
                                     "): move it away; the next manager begins a new one"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(cat(path, ": the disk is full"));
    default:
      return absl::UnavailableError(cat(path, ": ", error.what()));
  }
}

}  // namespace

std::int64_t hour_of(std::int64_t unix_s) { return unix_s - unix_s % kHour; }

Accounts::Accounts(std::string path) : path_(std::move(path)) {}
Accounts::~Accounts() = default;

absl::StatusOr<std::unique_ptr<Accounts>> Accounts::open(const std::string& path,
                                                         std::int64_t unix_s) {
  std::error_code ignored;  // opening the file tells
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::unique_ptr<Accounts> accounts(new Accounts(path));
  absl::Status status = accounts->prepare(unix_s);
  if (!status.ok()) return status;
  return accounts;
}

absl::Status Accounts::prepare(std::int64_t unix_s) try {
  file_ = std::make_unique<SQLite::Database>(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const int version = file_->execAndGet("PRAGMA user_version").getInt();
  if (version > kVersion) {
    return absl::FailedPreconditionError(
        cat(path_, " is of a newer version of PlexRL (", version, "): install that, or move it"));
  }
  // The log is flushed to disk when it is taken over only, so a write here waits for no disk.
  file_->exec("PRAGMA journal_mode = WAL");
  file_->exec("PRAGMA synchronous = NORMAL");
  file_->exec(kTable);
  file_->exec(cat("PRAGMA user_version = ", kVersion));
  SQLite::Statement drop(*file_, "DELETE FROM usage WHERE hour < ?");
  drop.bind(1, unix_s - kKept);
  drop.exec();
  return absl::OkStatus();
} catch (const SQLite::Exception& error) {
  return failed(path_, error);
}

void Accounts::book(const Owner& owner, const Usage::Totals& totals, std::int64_t unix_s) {
  Usage::Totals& seen = seen_[owner.job];
  Row& row = unwritten_[{hour_of(unix_s), owner.job}];
  row.owner = owner;
  add(row.totals, minus(totals, seen));
  seen = totals;
}

absl::Status Accounts::write() try {
  if (unwritten_.empty()) return absl::OkStatus();
  SQLite::Transaction all(*file_);
  SQLite::Statement add_row(*file_, kAdd);
  for (const auto& [hour, row] : unwritten_) {
    add_row.bind(1, hour.first);
    add_row.bind(2, row.owner.job);
    add_row.bind(3, row.owner.name);
    add_row.bind(4, row.owner.user);
    add_row.bind(5, row.owner.team);
    add_row.bind(6, row.totals.held_gpu_ns);
    add_row.bind(7, row.totals.needed_gpu_ns);
    add_row.bind(8, in_ns(row.totals.alone));
    add_row.bind(9, in_ns(row.totals.lost));
    add_row.bind(10, in_ns(row.totals.waited));
    add_row.exec();
    add_row.reset();
  }
  all.commit();
  unwritten_.clear();
  return absl::OkStatus();
} catch (const SQLite::Exception& error) {
  return failed(path_, error);
}

absl::StatusOr<std::vector<Accounts::Row>> Accounts::sums(std::int64_t since, By by) try {
  SQLite::Statement query(
      *file_, cat("SELECT ", names_of(by),
                  ", COUNT(DISTINCT job), SUM(held_gpu_ns) AS held, SUM(needed_gpu_ns), "
                  "SUM(alone_ns), SUM(lost_ns), SUM(waited_ns) FROM usage WHERE hour >= ? "
                  "GROUP BY ",
                  key_of(by), " ORDER BY held DESC, ", key_of(by)));
  query.bind(1, hour_of(since));
  std::vector<Row> rows;
  while (query.executeStep()) {
    Row& row = rows.emplace_back();
    row.owner = {query.getColumn(0).getString(), query.getColumn(1).getString(),
                 query.getColumn(2).getString(), query.getColumn(3).getString()};
    row.jobs = query.getColumn(4).getInt64();
    row.totals = {query.getColumn(5).getDouble(), query.getColumn(6).getDouble(),
                  from_ns(query.getColumn(7).getDouble()), from_ns(query.getColumn(8).getDouble()),
                  from_ns(query.getColumn(9).getDouble())};
  }
  return rows;
} catch (const SQLite::Exception& error) {
  return failed(path_, error);
}

}  // namespace plexrl::nodemgr
