// SPDX-License-Identifier: MIT
// The page's lens against its own runs: the last layer is the model, whatever is switched off.
#include "viewer/lens_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/small_model.h"
#include "support/temporary_folder.h"
#include "use/lens.h"
#include "viewer/frame.h"
#include "viewer/page_assets.h"
#include "viewer/page_report.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPrompt = "The cat sat on the other mat";

class LensAnswerTest : public ::testing::Test {
 protected:
  LensAnswerTest() {
    MakeSmallModel(folder_ / "dense");
    MakeSmallModel(folder_ / "gated", /*gated=*/true);
    set_ = LoadModelSet({{folder_ / "dense", "dense"}, {folder_ / "gated", "gated"}});
  }

  Json Ask(Json question) const {
    question["prompt"] = kPrompt;
    const PageQuestion q = ParseQuestion(QuestionKind::kLens, ToText(question, -1), *set_);
    return ParseFrame(LensFrame(*set_, q, {})).header;
  }
  std::string Refusal(const std::string& body) const {
    return ErrorOf([&] { ParseQuestion(QuestionKind::kLens, body, *set_); });
  }

  TemporaryFolder folder_;
  std::optional<ModelSet> set_;
};

TEST_F(LensAnswerTest, TheLastRowIsWhatTheModelPredicts) {
  for (const Json& off : {Json::array(), Json({"L0H1", "L1H2"})}) {
    for (const bool open : {false, true}) {
      const Json same = {{"ablate", {Json::array(), off}}, {"open_gates", open}};
      Json run = same, lens = same;
      run["prompt"] = kPrompt;
      run["likeliest"] = lens["likeliest"] = 5;
      lens["model"] = 1;
      const PageQuestion q = ParseQuestion(QuestionKind::kRun, ToText(run, -1), *set_);
      const Json predictions =
          ParseFrame(RunFrame(*set_, q, {})).header["models"][1]["predictions"];
      const Json answer = Ask(lens);
      ASSERT_EQ(answer["stream"].size(), 3u);  // the embedding and two layers
      ASSERT_EQ(answer["stream"][2].size(), predictions.size());
      for (std::size_t t = 0; t < predictions.size(); ++t) {
        const Json &ours = answer["stream"][2][t]["likeliest"],
                   &theirs = predictions[t]["likeliest"];
        for (std::size_t i = 0; i < 5; ++i) {
          EXPECT_EQ(ours[i]["id"], theirs[i]["id"]) << t;
          EXPECT_EQ(ours[i]["token"], theirs[i]["token"]);
          EXPECT_NEAR(ours[i]["probability"].get<double>(), theirs[i]["probability"].get<double>(),
                      1e-6);
        }
        // Followed is what the model itself says.
        EXPECT_EQ(answer["targets"][t]["id"], theirs[0]["id"]);
        EXPECT_EQ(answer["stream"][2][t]["target_rank"], 0);
      }
    }
  }
}

TEST_F(LensAnswerTest, HeadsAreTheLibrarysAtThePosition) {
  const Json answer = Ask({{"model", 0}, {"position", 2}, {"target", " cat"}});
  EXPECT_EQ(answer["position"], 2);
  const std::int32_t cat = set_->tokenizer.Encode(" cat")[0];
  const Lens lens = LookThrough(set_->models[0].model, set_->tokenizer.Encode(kPrompt),
                                {.likeliest = 10, .target = cat, .position = 2});
  ASSERT_EQ(answer["heads"].size(), lens.heads.size());
  for (std::size_t h = 0; h < lens.heads.size(); ++h) {
    EXPECT_EQ(answer["heads"][h]["target_logit"].get<double>(), lens.heads[h].target_logit);
    EXPECT_EQ(answer["heads"][h]["raised"][0]["id"], lens.heads[h].raised[0].token);
  }
  EXPECT_EQ(answer["heads"][4]["head"], "L1H1");
  for (const Json& target : answer["targets"]) EXPECT_EQ(target["id"], cat);
  // A head that is off says nothing.
  const Json off = Ask({{"ablate", {{"L1H1"}, Json::array()}}, {"target", " cat"}});
  EXPECT_EQ(off["heads"][4]["target_logit"].get<double>(), 0.0);
  EXPECT_NE(off["heads"][3]["target_logit"].get<double>(), 0.0);
}

TEST_F(LensAnswerTest, WhatCannotBeAnsweredIsRefusedInOneLine) {
  EXPECT_THAT(Refusal(R"({"prompt":"The cat","position":9})"), HasSubstr("'position' is 9"));
  EXPECT_THAT(Refusal(R"({"prompt":"The cat","model":2})"), HasSubstr("'model' is 2"));
  EXPECT_THAT(Refusal(R"({"prompt":"The cat","target":"The cat sat"})"), HasSubstr("must be one"));
  EXPECT_THAT(Refusal(R"({"prompt":"The cat","target":""})"), HasSubstr("'target' is 0 tokens"));
  EXPECT_THAT(Refusal(R"({"prompt":"The cat","target":7})"), HasSubstr("must be a text"));
  EXPECT_THAT(Refusal(R"({"prompt":"The cat","cells":7})"), HasSubstr("'cells' is not a field"));
  PageQuestion longer{.ids = std::vector<std::int32_t>(kMaxLensTokens + 1)};
  EXPECT_THAT(ErrorOf([&] { ParseLens(Json::object(), *set_, &longer); }),
              HasSubstr("129 tokens, the lens takes at most 128"));
  const PageQuestion q = ParseQuestion(QuestionKind::kLens, R"({"prompt":"The cat sat"})", *set_);
  EXPECT_THROW(LensFrame(*set_, q, [] { return true; }), Cancelled);
}

TEST_F(LensAnswerTest, ReportsHoldOneForEachModel) {
  if (PageScript().empty()) GTEST_SKIP() << "built without its page";
  const std::string page = MakePageReport(*set_, {kPrompt}, {}, {});
  std::size_t count = 0;
  for (std::size_t at = 0; (at = page.find("data-clearhead=\"lens\"", at)) != std::string::npos;
       ++at) {
    ++count;
  }
  EXPECT_EQ(count, 2u);
}

}  // namespace
}  // namespace clearhead
