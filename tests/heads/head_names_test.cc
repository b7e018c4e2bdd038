// SPDX-License-Identifier: MIT
#include "heads/head_names.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "heads/synthetic_heads.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

bool NamedRight(const SyntheticHead& head, const HeadName& name) {
  if (name.kind != head.truth) return false;
  if (name.kind == HeadKind::kOffset) return name.offset == head.offset;
  if (name.kind != HeadKind::kHybrid) return true;
  std::set<HeadKind> parts;
  for (const HeadPart& part : name.parts) parts.insert(part.kind);
  return parts == head.parts;
}

// Every kind, every kind of damage, from one token to 1024.
TEST(HeadNames, KnownPatternsAreNamed) {
  constexpr HeadKind kKinds[] = {
      HeadKind::kFirstToken, HeadKind::kSelf,      HeadKind::kPreviousToken,
      HeadKind::kOffset,     HeadKind::kInduction, HeadKind::kDuplicateToken,
      HeadKind::kStripes,    HeadKind::kDiffuse,   HeadKind::kFragments,
      HeadKind::kHybrid,     HeadKind::kNearEmpty};
  constexpr Spoil kSpoils[] = {Spoil::kNothing, Spoil::kNoise, Spoil::kClosedRows,
                               Spoil::kClosedFaint, Spoil::kNoiseAndGates};
  SyntheticHeads heads(20261);
  std::int64_t all = 0, right = 0;
  for (const HeadKind kind : kKinds) {
    std::int64_t of_kind = 0, right_of_kind = 0;
    std::map<std::string, int> wrong;
    for (const std::int64_t T :
         {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 28, 31, 48, 64, 101, 256, 1024}) {
      if (T < ShortestFor(kind)) continue;
      for (const Spoil spoil : kSpoils) {
        const int repeats = T > 300 ? 1 : T > 100 ? 3 : 20;
        for (int r = 0; r < repeats; ++r) {
          const SyntheticHead head = heads.Make(kind, T, spoil);
          const HeadName name = NameHead(head.Statistics());
          ++of_kind;
          if (NamedRight(head, name)) {
            ++right_of_kind;
          } else {
            ++wrong[fmt::format("T={} spoil={} as {}", T, static_cast<int>(spoil), name.name)];
          }
          EXPECT_GE(name.margin, 0);
          EXPECT_GE(name.score, 0);
          EXPECT_THAT(name.sentence, testing::EndsWith("."));
        }
      }
    }
    std::string list;
    for (const auto& [text, count] : wrong) list += fmt::format("\n  {} x {}", count, text);
    // No kind hides behind the others.
    EXPECT_GE(static_cast<double>(right_of_kind), 0.95 * static_cast<double>(of_kind))
        << KindName(kind) << ": " << right_of_kind << " of " << of_kind << list;
    all += of_kind;
    right += right_of_kind;
  }
  EXPECT_GE(static_cast<double>(right), 0.98 * static_cast<double>(all)) << right << " of " << all;
  RecordProperty("named_right", static_cast<int>(right));
  RecordProperty("named", static_cast<int>(all));
  std::cout << "named right: " << right << " of " << all << "\n";
}

HeadName NameOf(const std::vector<float>& map, std::int64_t T) {
  HeadAccumulator sums;
  sums.Add(map.data(), T, {});
  return NameHead(sums.Finish({0, 0}));
}

TEST(HeadNames, TwoTokensAreATossUp) {
  // Query 1 on key 0: the first and the previous token are one.
  const HeadName name = NameOf({1, 0, 1, 0}, 2);
  EXPECT_EQ(name.kind, HeadKind::kFirstToken);
  EXPECT_EQ(NameOf({1, 0, 0, 1}, 2).kind, HeadKind::kSelf);
  const HeadName one = NameOf({1}, 1);
  EXPECT_EQ(one.kind, HeadKind::kSelf);
  EXPECT_EQ(one.margin, 0);
  EXPECT_THAT(one.sentence, HasSubstr("One token"));
}

TEST(HeadNames, EmptyHeads) {
  const HeadName name = NameOf(std::vector<float>(25, 0.0f), 5);
  EXPECT_EQ(name.kind, HeadKind::kNearEmpty);
  EXPECT_EQ(name.score, 1.0);
  EXPECT_THAT(name.sentence, HasSubstr("no gate is open"));
  std::vector<float> faint(49, 0.0f);
  for (int i = 0; i < 7; ++i) faint[static_cast<std::size_t>(i * 7 + std::max(0, i - 1))] = 0.03f;
  EXPECT_THAT(NameOf(faint, 7).sentence, HasSubstr("token before"));
}

TEST(HeadNames, SharpButUnknownIsOther) {
  // Every query looks at one key, chosen by a hash.
  constexpr std::int64_t T = 60;
  std::vector<float> map(T * T, 0.0f);
  for (std::int64_t i = 0; i < T; ++i) {
    const auto key =
        HashCoordinates(3, {static_cast<std::uint64_t>(i)}) % static_cast<std::uint64_t>(i + 1);
    map[static_cast<std::size_t>(i * T) + key] = 1.0f;
  }
  EXPECT_EQ(NameOf(map, T).kind, HeadKind::kOther);
}

TEST(HeadNames, HybridTellsItsParts) {
  constexpr std::int64_t T = 40;
  std::vector<float> map(T * T, 0.0f);
  for (std::int64_t i = 0; i < T; ++i) {
    map[static_cast<std::size_t>(i * T)] += 0.55f;
    map[static_cast<std::size_t>(i * T + std::max<std::int64_t>(0, i - 1))] += 0.45f;
  }
  const HeadName name = NameOf(map, T);
  EXPECT_EQ(name.name, "hybrid (first-token + previous-token)");
  ASSERT_EQ(name.parts.size(), 2u);
  EXPECT_NEAR(name.parts[0].score, 0.55, 0.01);
  EXPECT_NEAR(name.parts[1].score, 0.45, 0.01);
  EXPECT_THAT(name.sentence, HasSubstr("Rests on the first token"));
  EXPECT_THAT(name.sentence, HasSubstr("looks at the token before"));
}

}  // namespace
}  // namespace clearhead
