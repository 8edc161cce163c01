#include "tools/ctl/verb_tls.h"

#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "clustermgr/tls/authority.h"
#include "clustermgr/tls/tls_folder.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"
#include "tools/cli/exit_status.h"

namespace plexrl::ctl {
namespace {

namespace tls = clustermgr::tls;
using nodemgr::cat;

constexpr std::time_t kDay = 24 * 60 * 60;
constexpr std::time_t kAuthorityDays = 3650;
constexpr unsigned kSecret = 0600;
constexpr unsigned kPublic = 0644;

/// Before `now`, so that a machine whose clock is a little behind takes a new certificate.
tls::Validity validity_of(std::time_t now, std::time_t seconds) {
  constexpr std::time_t kClockSkew = 60 * 60;
  return {now - kClockSkew, now + seconds};
}

absl::Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  return error ? nodemgr::failed(folder, ": can't be made: ", error.message()) : absl::OkStatus();
}

absl::StatusOr<tls::KeyPair> authority_in(const std::string& folder, std::time_t now) {
  const std::string certificate = folder + "/ca.pem";
  const std::string key = folder + "/ca-key.pem";
  if (std::filesystem::exists(certificate) || std::filesystem::exists(key)) {
    absl::StatusOr<std::string> certificate_text = tls::read_file(certificate);
    if (!certificate_text.ok()) return certificate_text.status();
    absl::StatusOr<std::string> key_text = tls::read_file(key);
    if (!key_text.ok()) return key_text.status();
    return tls::KeyPair{*std::move(certificate_text), *std::move(key_text)};
  }
  absl::StatusOr<tls::KeyPair> made = tls::make_authority(validity_of(now, kAuthorityDays * kDay));
  if (!made.ok()) return made;
  absl::Status status = tls::write_file(key, made->key, kSecret);
  if (status.ok()) status = tls::write_file(certificate, made->certificate, kPublic);
  if (!status.ok()) return status;
  return made;
}

absl::StatusOr<std::string> make_one(const TlsRequest& request, const tls::KeyPair& authority,
                                     const tls::Identity& who, std::time_t now) {
  const absl::StatusOr<tls::KeyPair> made = tls::issue(
      authority, who,
      who.role == tls::Role::kManager ? request.manager_hosts : std::vector<std::string>(),
      validity_of(now, request.valid_s));
  if (!made.ok()) return made.status();
  const std::string folder = cat(request.folder, "/", tls::name_of(who.role), "-", who.name);
  absl::Status status = make_folder(folder);
  if (status.ok()) status = tls::write_file(folder + "/key.pem", made->key, kSecret);
  if (status.ok()) status = tls::write_file(folder + "/cert.pem", made->certificate, kPublic);
  if (status.ok()) status = tls::write_file(folder + "/ca.pem", authority.certificate, kPublic);
  if (!status.ok()) return status;
  return folder;
}

std::string own_host() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string own_user() {
  const passwd* const entry = ::getpwuid(::getuid());  // NOLINT(concurrency-mt-unsafe): one thread
  return entry == nullptr ? cat("uid", ::getuid()) : entry->pw_name;
}

constexpr char kFooter[] = R"(
Without --manager, --node, --user and --admin: all four, for this host and this user.
Each certificate gets a folder ROLE-NAME with ca.pem, cert.pem and key.pem: copy it to /etc/plexrl/tls of that machine, or for
a user to ~/.config/plexrl/tls. ca-key.pem stays here: who has it can make any certificate. Run it again to add others
or to renew.

Example:
  plexrl-ctl tls init ca --manager head.cluster --node a1 --node a2 --user ann --admin root
)";

struct Names {
  std::vector<std::string> managers, nodes, users, admins;
};

absl::StatusOr<TlsRequest> request_of(const std::string& folder, const std::string& valid,
                                      Names names) {
  const auto time = nodemgr::settings::parse_duration(valid);
  if (!time.ok()) return nodemgr::invalid("--valid: ", nodemgr::message_of(time.status()));
  TlsRequest request{folder, std::move(names.managers), {}, 0};
  request.valid_s = std::chrono::duration_cast<std::chrono::seconds>(*time).count();
  if (request.valid_s <= 0) return nodemgr::invalid("--valid must be a second or more");
  if (request.manager_hosts.empty() && names.nodes.empty() && names.users.empty() &&
      names.admins.empty()) {
    request.manager_hosts = {own_host()};
    names.nodes = {own_host()};
    names.users = names.admins = {own_user()};
  }
  if (!request.manager_hosts.empty()) {
    request.others.push_back({tls::Role::kManager, request.manager_hosts.front()});
    // Clients on its own machine may call it so.
    std::vector<std::string>& hosts = request.manager_hosts;
    for (const char* local : {"localhost", "127.0.0.1", "::1"}) {
      if (std::find(hosts.begin(), hosts.end(), local) == hosts.end()) hosts.emplace_back(local);
    }
  }
  for (std::string& name : names.nodes) request.others.push_back({tls::Role::kNode, name});
  for (std::string& name : names.users) request.others.push_back({tls::Role::kUser, name});
  for (std::string& name : names.admins) request.others.push_back({tls::Role::kAdmin, name});
  return request;
}

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-ctl: " << what << "\n";
  return status;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> make_certificates(const TlsRequest& request,
                                                           std::time_t now) {
  absl::Status status = make_folder(request.folder);
  if (!status.ok()) return status;
  const absl::StatusOr<tls::KeyPair> authority = authority_in(request.folder, now);
  if (!authority.ok()) return authority.status();
  std::vector<std::string> folders;
  for (const tls::Identity& who : request.others) {
    absl::StatusOr<std::string> folder = make_one(request, *authority, who, now);
    if (!folder.ok()) return folder.status();
    folders.push_back(*std::move(folder));
  }
  return folders;
}

int run_tls(int argc, char** argv) {
  CLI::App app("Certificates of a cluster.", "plexrl-ctl");
  CLI::App* const verb =
      app.add_subcommand("tls", "certificates of a cluster")->require_subcommand(1);
  CLI::App* const init = verb->add_subcommand("init", "makes an authority and certificates");
  app.require_subcommand(1);
  init->footer(kFooter);
  std::string folder;
  std::string valid = "365d";
  Names names;
  init->add_option("DIR", folder, "folder of the authority; made if it is not there")->required();
  init->add_option("--manager", names.managers,
                   "host of the cluster manager; again for its other names and addresses");
  init->add_option("--node", names.nodes, "name of a node");
  init->add_option("--user", names.users, "name of a user");
  init->add_option("--admin", names.admins, "name of an administrator");
  init->add_option("--valid", valid, "for how long [365d]");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(cli::kUsage, error.what());
  }
  const absl::StatusOr<TlsRequest> request = request_of(folder, valid, std::move(names));
  if (!request.ok()) return complain(cli::kUsage, nodemgr::message_of(request.status()));
  const auto folders = make_certificates(*request, std::time(nullptr));
  if (!folders.ok()) return complain(cli::kFailed, nodemgr::message_of(folders.status()));
  for (const std::string& made : *folders) std::cout << made << "\n";
  return std::cout.flush() ? cli::kDone : complain(cli::kFailed, "stdout: can't be written");
}

}  // namespace plexrl::ctl
