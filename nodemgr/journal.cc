#include "nodemgr/journal.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "nodemgr/settings/cat.h"
#include "proto/segment.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::uint32_t kMaxRecordBytes = 1 << 20;

std::string encode_value(const std::string& value) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (char c : value) {
    auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == '%' || byte == '=' || byte == 0x7f) {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

std::string decode_value(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ec == std::errc{}) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string encode(const JournalRecord& record) {
  std::string payload = record.kind;
  for (const auto& [name, value] : record.fields) {
    payload += cat(' ', name, '=', encode_value(value));
  }
  std::uint32_t head[2] = {static_cast<std::uint32_t>(payload.size()), trace::crc32c(payload)};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + payload;
}

JournalRecord decode(const std::string& payload) {
  std::istringstream words(payload);
  JournalRecord record;
  words >> record.kind;
  std::string word;
  while (words >> word) {
    std::size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    record.fields[word.substr(0, equals)] = decode_value(std::string_view(word).substr(equals + 1));
  }
  return record;
}

absl::StatusOr<std::string> read_all(const std::string& path) {
  ScopedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    if (errno == ENOENT) return std::string();
    return failed("journal '", path, "': ", std::strerror(errno));
  }
  std::string text;
  char buffer[65536];
  ssize_t got = 0;
  while ((got = ::read(file.get(), buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  if (got < 0) return failed("journal '", path, "': ", std::strerror(errno));
  return text;
}

absl::Status write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return failed("journal: ", std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
  return absl::OkStatus();
}

}  // namespace

const std::string& JournalRecord::operator[](std::string_view name) const {
  static const std::string kNone;
  auto it = fields.find(name);
  return it == fields.end() ? kNone : it->second;
}

std::uint64_t JournalRecord::number(std::string_view name) const {
  const std::string& text = (*this)[name];
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

absl::StatusOr<Journal::Contents> Journal::read(const std::string& path) {
  absl::StatusOr<std::string> text = read_all(path);
  if (!text.ok()) return text.status();
  Contents contents;
  std::size_t at = 0;
  while (at < text->size()) {
    std::uint32_t head[2];
    contents.damaged = true;
    if (text->size() - at < sizeof head) break;
    std::memcpy(head, text->data() + at, sizeof head);
    at += sizeof head;
    if (head[0] > kMaxRecordBytes || text->size() - at < head[0]) break;
    std::string payload = text->substr(at, head[0]);
    if (trace::crc32c(payload) != head[1]) break;
    at += head[0];
    contents.records.push_back(decode(payload));
    contents.damaged = false;
  }
  return contents;
}

absl::Status Journal::rewrite(const std::vector<JournalRecord>& records) {
  std::string text;
  for (const JournalRecord& record : records) text += encode(record);
  std::string fresh = path_ + ".new";
  ScopedFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.is_open()) return failed("journal '", fresh, "': ", std::strerror(errno));
  absl::Status status = write_all(file.get(), text);
  if (!status.ok()) return status;
  if (::fdatasync(file.get()) != 0 || ::rename(fresh.c_str(), path_.c_str()) != 0) {
    return failed("journal '", path_, "': ", std::strerror(errno));
  }
  std::string folder = std::filesystem::path(path_).parent_path();
  ScopedFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.is_open()) ::fsync(directory.get());
  file_ = std::move(file);
  bytes_ = text.size();
  return absl::OkStatus();
}

absl::Status Journal::append(const JournalRecord& record) {
  if (!file_.is_open()) return failed("journal '", path_, "' is not open");
  std::string text = encode(record);
  absl::Status status = write_all(file_.get(), text);
  if (!status.ok()) {
    // Cut off what was written in part, or everything behind it would be unreadable.
    if (::ftruncate(file_.get(), static_cast<off_t>(bytes_)) == 0) {
      ::lseek(file_.get(), static_cast<off_t>(bytes_), SEEK_SET);
    }
    return status;
  }
  bytes_ += text.size();
  return absl::OkStatus();
}

}  // namespace plexrl::nodemgr
