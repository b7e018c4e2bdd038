// SPDX-License-Identifier: MIT
// Loss against edges from the files of a run: what is read, what is best, what is refused.
#include "train/frontier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

FrontierPoint At(double above, double edges) {
  return {.above = above, .edge_fraction = edges, .edges_per_query = 100.0 * edges};
}

std::vector<double> Losses(const std::vector<FrontierPoint>& points) {
  std::vector<double> losses;
  for (const FrontierPoint& point : points) losses.push_back(point.above);
  return losses;
}

TEST(Frontier, KeepsWhatNoOtherPointBeatsInBoth) {
  const std::vector<FrontierPoint> points = {At(0.05, 0.10), At(0.01, 0.30), At(0.02, 0.40),
                                             At(0.05, 0.08), At(0.20, 0.02), At(0.30, 0.02)};
  EXPECT_THAT(Losses(Frontier(points)), ElementsAre(0.01, 0.05, 0.20));
  EXPECT_EQ(Frontier(points)[1].edge_fraction, 0.08);
  EXPECT_TRUE(Frontier({}).empty());
}

TEST(Frontier, FewestEdgesWithinATolerance) {
  const std::vector<FrontierPoint> points = {At(0.05, 0.10), At(0.01, 0.30)};
  EXPECT_EQ(FewestEdges(points, 0.0), nullptr);
  EXPECT_EQ(FewestEdges(points, 0.01)->edge_fraction, 0.30);
  EXPECT_EQ(FewestEdges(points, 0.1)->edge_fraction, 0.10);
}

TEST(Frontier, ReadsWhatARunLeaves) {
  const TemporaryFolder folder;
  const RunStart start{.dense_loss = 2.0,
                       .context = 64,
                       .tokens_per_step = 512.0,
                       .untrained = {{.bias = 2.0, .above = 0.5, .quality = {2.5, 0.25, 8.0}}}};
  WriteRunStart(start, folder.path());
  WriteFile(folder / "metrics.jsonl",
            "{\"step\":0,\"loss\":2.1}\n"
            "{\"step\":9,\"loss\":2.1,\"valid\":{\"loss\":2.25,\"edge_fraction\":0.125,"
            "\"edges_per_query\":4.0}}\n"
            "{\"step\":10,\"los");  // torn
  const FrontierRun run = ReadFrontierRun(folder.path());
  EXPECT_EQ(run.start.context, 64);
  ASSERT_EQ(run.start.untrained.size(), 1U);
  EXPECT_EQ(run.start.untrained[0].above, 0.5);
  EXPECT_EQ(run.start.untrained[0].quality.edges_per_query, 8.0);
  ASSERT_EQ(run.measured.size(), 1U);
  EXPECT_EQ(run.measured[0].tokens, 5120.0);
  EXPECT_EQ(run.measured[0].above, 0.25);
  EXPECT_EQ(run.measured[0].edge_fraction, 0.125);
}

TEST(Frontier, RefusesOtherFolders) {
  const TemporaryFolder folder;
  const auto read = [&] { ReadFrontierRun(folder.path()); };
  EXPECT_THAT(read, ThrowsMessage<Error>(HasSubstr("not the folder of a run of sparsify")));
  WriteFile(folder / "metrics.jsonl", "{\"step\":0,\"valid\":3}\n");
  WriteFile(folder / "start.json", "{\"dense_loss\":1}");
  EXPECT_THAT(read, ThrowsMessage<Error>(HasSubstr("expected dense_loss, context")));
  WriteRunStart({.dense_loss = 1.0, .context = 4, .tokens_per_step = 8.0, .untrained = {}},
                folder.path());
  EXPECT_THAT(read, ThrowsMessage<Error>(HasSubstr("not the metrics of sparsify")));
}

}  // namespace
}  // namespace clearhead
