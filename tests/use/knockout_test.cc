// SPDX-License-Identifier: MIT
#include "use/knockout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/model_testing.h"
#include "use/record.h"

namespace clearhead {
namespace {

// A head whose every weight is 0 gives nothing: the same as its output set to 0.
TEST(Knockout, AWholeHeadIsItsOutputGone) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config);
    const std::vector<std::int32_t> ids = RandomIds(config, 8, 2);
    const Knockout cut = KnockOut(model, ids, std::vector<EdgeCut>{{.layer = 1, .head = 2}}, {});
    const Recording zeroed =
        Record(model, ids, 1,
               {.interventions = {{.tap = {Tap::kZ, 1}, .change = Change::kZero, .heads = {2}}}});
    const PromptOutcome expected = OutcomeOf(zeroed.logits.span(), ids, 5);
    EXPECT_NEAR(cut.after.loss, expected.loss, 1e-5);
    EXPECT_GT(std::abs(cut.after.loss - cut.before.loss), 1e-6);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      EXPECT_NEAR(cut.after.likeliest[t][0].probability, expected.likeliest[t][0].probability,
                  1e-5);
    }
  }
}

TEST(Knockout, OneEdgeChangesItsQueryAndWhatFollows) {
  const Model model = LivelyModel(OddConfig());
  const std::vector<std::int32_t> ids = RandomIds(model.config, 9, 5);
  const Knockout cut = KnockOut(model, ids, std::vector<EdgeCut>{ParseEdgeCut("L0H1:4<-2")}, {});
  EXPECT_EQ(cut.edges, 1);
  for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(cut.divergence[t], 0.0) << t;
  EXPECT_GT(cut.divergence[4], 1e-9);
  EXPECT_EQ(cut.before.losses.size(), 8u);
  // Edges that overlap count once: row 4 has five of them.
  const std::vector<EdgeCut> several = {ParseEdgeCut("L0H1:4<-2"), ParseEdgeCut("L0H1:4<-*"),
                                        ParseEdgeCut("L0H1:*<-8")};
  EXPECT_EQ(KnockOut(model, ids, several, {}).edges, 6);
}

TEST(Knockout, ClosedGatesAreNoEdges) {
  const Model model = LivelyModel(GatedConfig());
  const std::vector<std::int32_t> ids = RandomIds(model.config, 9, 5);
  const Knockout all = KnockOut(model, ids, std::vector<EdgeCut>{ParseEdgeCut("L0H0")}, {});
  EXPECT_LT(all.edges, 45);
  const Knockout open =
      KnockOut(model, ids, std::vector<EdgeCut>{ParseEdgeCut("L0H0")}, {.gates = {.open = true}});
  EXPECT_EQ(open.edges, 45);
}

TEST(Knockout, TextOfCuts) {
  for (const char* text : {"L3H5:8<-5", "L3H5:8<-*", "L3H5:*<-5", "L0H11"}) {
    EXPECT_EQ(ToText(ParseEdgeCut(text)), text);
  }
  EXPECT_EQ(ToText(ParseEdgeCut("l3h5:*<-*")), "L3H5");
  for (const char* text :
       {"", "L3", "L3H", "LxH5", "L3H5:", "L3H5:8", "L3H5:8<-", "L3H5:<-5", "L3H5:8->5",
        "L3H5:8<-5x", "L3H5:-1<-5", "L*H5", "H5L3", "L3H5:99999999999999999999<-1"}) {
    EXPECT_THROW(ParseEdgeCut(text), UsageError) << text;
  }
}

TEST(Knockout, RefusesWhatIsNotThere) {
  const Model model = LivelyModel(OddConfig());
  const std::vector<std::int32_t> ids = RandomIds(model.config, 5, 1);
  for (const char* text : {"L2H0", "L0H3", "L0H0:5<-1", "L0H0:4<-5", "L0H0:2<-3"}) {
    EXPECT_THROW(KnockOut(model, ids, std::vector<EdgeCut>{ParseEdgeCut(text)}, {}), Error) << text;
  }
}

TEST(Knockout, DivergenceIsKullbackAndLeiblers) {
  const std::vector<float> p = {0.0f, std::log(3.0f)}, q = {0.0f, 0.0f};  // 1/4, 3/4 against halves
  EXPECT_NEAR(Divergence(p, q), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_EQ(Divergence(p, p), 0.0);
}

}  // namespace
}  // namespace clearhead
