#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/reader.h"

namespace plexrl::trace {
namespace {

using ::testing::HasSubstr;

std::string frame(const std::string& job, std::int64_t at) {
  return encode_frame(FakeTrace().job(job, at).chunk());
}

TEST(Crc32c, IsTheOneOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
}

TEST(SegmentParser, ReadsWhatWasEncoded) {
  const std::string bytes = frame("a", 1) + frame("b", 2);
  SegmentParser parser(bytes);
  TraceChunk chunk;
  ASSERT_TRUE(parser.next(&chunk));
  EXPECT_EQ(chunk.records(0).session().job_id(), "a");
  ASSERT_TRUE(parser.next(&chunk));
  EXPECT_EQ(chunk.records(0).session().job_id(), "b");
  EXPECT_FALSE(parser.next(&chunk));
  EXPECT_EQ(parser.problem(), "");
}

TEST(SegmentParser, StopsAtEveryCutWithTheOffsetOfTheFrame) {
  const std::string first = frame("a", 1), both = first + frame("b", 2);
  for (size_t cut = first.size() + 1; cut < both.size(); ++cut) {
    const std::string bytes = both.substr(0, cut);
    SegmentParser parser(bytes);
    TraceChunk chunk;
    ASSERT_TRUE(parser.next(&chunk));
    ASSERT_FALSE(parser.next(&chunk)) << cut;
    EXPECT_THAT(parser.problem(), HasSubstr("cut short at byte " + std::to_string(first.size())));
  }
}

TEST(SegmentParser, StopsAtEveryFlippedBit) {
  const std::string good = frame("a", 1);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    SegmentParser parser(bad);
    TraceChunk chunk;
    EXPECT_FALSE(parser.next(&chunk)) << bit;
    EXPECT_EQ(chunk.records_size(), 0);
    EXPECT_NE(parser.problem(), "") << bit;
  }
}

TEST(ReadTrace, MergesTheSegmentsOfARunInOrderOfTime) {
  ScratchFolder folder;
  folder.write("run/000001.plxt", frame("b", 20));
  folder.write("run/000000.plxt", frame("c", 30) + frame("a", 10));
  folder.write("run/notes.txt", "not a segment");
  const auto trace = read_trace({folder.path("run")});
  ASSERT_TRUE(trace.ok()) << trace.status();
  std::string order;
  for (const auto& record : trace->records) order += record.session().job_id();
  EXPECT_EQ(order, "abc");
  EXPECT_TRUE(trace->warnings.empty());
}

TEST(ReadTrace, ATruncatedSegmentIsReadAsFarAsItGoesAndSaysSo) {
  ScratchFolder folder;
  const std::string bytes = frame("a", 1) + frame("b", 2);
  folder.write("000000.plxt", bytes.substr(0, bytes.size() - 1));
  const auto trace = read_trace({folder.path("000000.plxt")});
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->records.size(), 1u);
  ASSERT_EQ(trace->warnings.size(), 1u);
  EXPECT_THAT(trace->warnings[0], HasSubstr("000000.plxt: a frame is cut short"));
}

TEST(ReadTrace, RecordsWithTimesThatNoClockShowsAreLeftOutAndCounted) {
  ScratchFolder folder;
  TraceChunk chunk;
  const std::uint64_t never = std::uint64_t{1} << 62;
  chunk.add_records()->set_at_ns(5);
  chunk.add_records()->set_at_ns(never);
  GapRecord* gap = chunk.add_records()->mutable_gap();
  gap->set_start_ns(1);
  gap->set_end_ns(never);
  chunk.add_records()->mutable_switch_()->set_drain_ns(never);
  folder.write("000000.plxt", encode_frame(chunk));
  const auto trace = read_trace({folder.path("000000.plxt")});
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->records.size(), 1u);
  EXPECT_EQ(trace->records[0].at_ns(), 5u);
  ASSERT_EQ(trace->warnings.size(), 1u);
  EXPECT_THAT(trace->warnings[0], HasSubstr("000000.plxt: 3 records left out"));
}

TEST(ReadTrace, AnEmptySegmentIsOneThatWasJustBegun) {
  ScratchFolder folder;
  folder.write("000000.plxt", "");
  const auto trace = read_trace({folder.path("000000.plxt")});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->records.empty());
  EXPECT_TRUE(trace->warnings.empty());
}

TEST(ReadTrace, AFolderOfRunsMeansTheNewest) {
  ScratchFolder folder;
  folder.write("old/000000.plxt", frame("old", 1));
  folder.write("new/000000.plxt", frame("new", 1));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(folder.path("old/000000.plxt"), now - std::chrono::hours(1));
  const auto trace = read_trace({folder.path()});
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->records.size(), 1u);
  EXPECT_EQ(trace->records[0].session().job_id(), "new");
}

TEST(ReadTrace, NamesAPathThatHoldsNothing) {
  ScratchFolder folder;
  EXPECT_THAT(std::string(read_trace({folder.path()}).status().message()),
              HasSubstr("holds no trace"));
  EXPECT_THAT(std::string(read_trace({folder.path("none")}).status().message()),
              HasSubstr("none does not exist"));
}

TEST(ReadTrace, RecordsAndFieldsOfALaterVersionAreKept) {
  FakeTrace later;
  TraceRecord* record = later.add(1);
  record->GetReflection()->MutableUnknownFields(record)->AddVarint(1000, 42);
  ScratchFolder folder;
  folder.write("000000.plxt", encode_frame(later.job("a", 2).chunk()));
  const auto trace = read_trace({folder.path("000000.plxt")});
  ASSERT_TRUE(trace.ok());
  const auto& unknown = trace->records[0].GetReflection()->GetUnknownFields(trace->records[0]);
  ASSERT_EQ(unknown.field_count(), 1);
  EXPECT_EQ(unknown.field(0).varint(), 42u);
  const Model model = build_model(*trace);
  EXPECT_EQ(model.unknown_records, 1u);
  EXPECT_EQ(model.jobs.size(), 1u);
}

}  // namespace
}  // namespace plexrl::trace
