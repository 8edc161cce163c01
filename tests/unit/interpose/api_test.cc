#include "interpose/api.h"

#include <gtest/gtest.h>

#include <string>

namespace plexrl::interpose {
namespace {

TEST(Api, FindsEveryRowByItsName) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const Api api = static_cast<Api>(i);
    EXPECT_EQ(find_api(name(api)), api) << name(api);
  }
}

TEST(Api, KnowsNoOtherNames) {
  EXPECT_EQ(find_api(""), Api::kCount);
  EXPECT_EQ(find_api("cuMemAlloc_v9"), Api::kCount);
  EXPECT_EQ(find_api("cudaMalloc"), Api::kCount);
  EXPECT_EQ(find_api("cuLaunchKerne"), Api::kCount);
}

TEST(Api, OnlyUnbuiltRowsHaveAReasonToPass) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const ApiRow& r = row(static_cast<Api>(i));
    EXPECT_EQ(r.passes_because != nullptr, r.cls == ApiClass::unbuilt) << r.name;
  }
}

// A form and its per-thread sibling differ in the default stream only.
TEST(Api, PerThreadFormsHaveTheClassOfTheirLegacyForm) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const std::string symbol = row(static_cast<Api>(i)).name;
    if (!symbol.ends_with("_ptsz") && !symbol.ends_with("_ptds")) continue;
    const Api legacy = find_api(symbol.substr(0, symbol.size() - 5));
    ASSERT_NE(legacy, Api::kCount) << symbol;
    EXPECT_EQ(row(legacy).cls, row(static_cast<Api>(i)).cls) << symbol;
  }
}

TEST(Api, WhatSubmitsWorkIsGated) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const ApiRow& r = row(static_cast<Api>(i));
    const std::string symbol = r.name;
    const bool is_work = symbol.starts_with("cuLaunch") || symbol.starts_with("cuMemcpy") ||
                         symbol.starts_with("cuMemset") || symbol.starts_with("cuGraphLaunch") ||
                         symbol.starts_with("cuMemPrefetch");
    if (!is_work) continue;
    EXPECT_EQ(r.cls, ApiClass::gate) << symbol;
  }
}

TEST(Api, HarmlessNamesAreNotInTheTable) {
  EXPECT_TRUE(is_harmless("cuGraphGetId"));
  EXPECT_EQ(find_api("cuGraphGetId"), Api::kCount);
  EXPECT_FALSE(is_harmless("cuLaunchKernel"));
}

}  // namespace
}  // namespace plexrl::interpose
