#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "clustermgr/tls/authority.h"
#include "clustermgr/tls/tls_folder.h"
#include "clustermgr/tls/verifier.h"
#include "tests/unit/own_folder.h"

namespace plexrl::clustermgr::tls {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::time_t kNow = 1'800'000'000;
constexpr std::time_t kDay = 24 * 60 * 60;

template <typename Value>
std::string message_of(const absl::StatusOr<Value>& value) {
  return std::string(value.status().message());
}

struct Tls : ::testing::Test {
  const KeyPair authority = make_authority({kNow - kDay, kNow + 1000 * kDay}).value();
  const Verifier verifier = Verifier::make(authority.certificate).value();

  KeyPair node(const Validity& validity = {kNow - kDay, kNow + kDay}) const {
    return issue(authority, {Role::kNode, "a1"}, {}, validity).value();
  }
};

TEST_F(Tls, ACertificateSaysWhoItIsFor) {
  EXPECT_EQ(verifier.check(node().certificate, kNow).value(), (Identity{Role::kNode, "a1"}));
  const KeyPair manager = issue(authority, {Role::kManager, "head"},
                                {"head.cluster", "10.0.0.1", "::1"}, {kNow, kNow + kDay})
                              .value();
  EXPECT_EQ(text_of(verifier.check(manager.certificate, kNow).value()), "manager/head");
}

TEST_F(Tls, AnExpiredOneSaysSinceWhenAndWhatToDo) {
  EXPECT_THAT(message_of(verifier.check(node().certificate, kNow + 2 * kDay)),
              AllOf(HasSubstr("the certificate of node/a1 expired at 2027-01-16T08:00:00Z"),
                    HasSubstr("the cluster manager's clock says 2027-01-17T08:00:00Z"),
                    HasSubstr("plexrl-ctl tls init DIR --node a1")));
}

TEST_F(Tls, OneOfTheFutureSpeaksOfClocks) {
  EXPECT_THAT(message_of(verifier.check(node().certificate, kNow - 2 * kDay)),
              HasSubstr("set the clocks right"));
}

TEST_F(Tls, OneOfAnotherAuthorityIsRefused) {
  const KeyPair other = make_authority({kNow - kDay, kNow + kDay}).value();
  const KeyPair foreign =
      issue(other, {Role::kAdmin, "eve"}, {}, {kNow - kDay, kNow + kDay}).value();
  EXPECT_THAT(message_of(verifier.check(foreign.certificate, kNow)),
              HasSubstr("the certificate of admin/eve is not one of this cluster's authority"));
}

TEST_F(Tls, AnAuthorityItselfIsNobody) {
  EXPECT_FALSE(verifier.check(authority.certificate, kNow).ok());
  EXPECT_THAT(message_of(identity_of(authority.certificate)), HasSubstr("has no role"));
  EXPECT_FALSE(verifier.check("no certificate", kNow).ok());
}

TEST_F(Tls, WhatACertificateSignedIsNotTrusted) {
  // A node signs a certificate of an administrator with its own key.
  const KeyPair forged =
      issue(node(), {Role::kAdmin, "eve"}, {}, {kNow - kDay, kNow + kDay}).value();
  EXPECT_FALSE(verifier.check(forged.certificate, kNow).ok());
}

TEST_F(Tls, NamesCannotSmuggleInOthers) {
  for (const char* name : {"a,URI:plexrl:admin/eve", "", "a b", "../a", "-a", "a\n"}) {
    EXPECT_FALSE(issue(authority, {Role::kNode, name}, {}, {kNow, kNow + kDay}).ok()) << name;
  }
  EXPECT_FALSE(issue(authority, {Role::kManager, "m"}, {"h,DNS:other"}, {kNow, kNow + kDay}).ok());
}

TEST_F(Tls, OnlyManagersNameHosts) {
  EXPECT_FALSE(issue(authority, {Role::kNode, "a1"}, {"head"}, {kNow, kNow + kDay}).ok());
  EXPECT_FALSE(issue(authority, {Role::kManager, "head"}, {}, {kNow, kNow + kDay}).ok());
}

TEST(TlsIdentity, AUriThatIsNoRoleIsQuoted) {
  EXPECT_EQ(parse_uri("plexrl:user/ann.b_c-1").value(), (Identity{Role::kUser, "ann.b_c-1"}));
  for (const char* uri : {"plexrl:root/ann", "plexrl:user/", "plexrl:user/a/b", "user/ann", ""}) {
    EXPECT_THAT(message_of(parse_uri(uri)), HasSubstr(std::string("'") + uri + "'"));
  }
}

struct TlsFolder : Tls {
  const OwnFolder own;
  const std::string folder = own.path();
  TlsFolder() {
    const KeyPair pair = node();
    put("ca.pem", authority.certificate);
    put("cert.pem", pair.certificate);
    put("key.pem", pair.key);
  }
  void put(const char* name, const std::string& text, unsigned mode = 0600) const {
    EXPECT_TRUE(write_file(folder + "/" + name, text, mode).ok());
  }
};

TEST_F(TlsFolder, ItsThreeFilesAreReadTogether) {
  EXPECT_EQ(read_tls_folder(folder)->authorities, authority.certificate);
}

TEST_F(TlsFolder, AMissingFileIsNamedWithWhatToDo) {
  std::filesystem::remove(folder + "/cert.pem");
  EXPECT_THAT(message_of(read_tls_folder(folder)),
              AllOf(HasSubstr("/cert.pem"), HasSubstr("plexrl-ctl tls init DIR")));
}

TEST_F(TlsFolder, AKeyThatEverybodyMayReadIsRefused) {
  put("key.pem", node().key, 0644);
  EXPECT_THAT(message_of(read_tls_folder(folder)), HasSubstr("chmod 600"));
}

TEST_F(TlsFolder, TheKeyOfAnotherCertificateIsRefused) {
  put("key.pem", node().key);
  EXPECT_THAT(message_of(read_tls_folder(folder)), HasSubstr("not that of the certificate"));
}

}  // namespace
}  // namespace plexrl::clustermgr::tls
