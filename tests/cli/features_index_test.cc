// SPDX-License-Identifier: MIT
// clearhead features index and features show, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/interrupted_run.h"
#include "cli/small_model.h"
#include "features/feature_card.h"
#include "features/feature_search.h"
#include "features/feature_testing.h"
#include "features/prompt_features.h"
#include "features/transcoder_files.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kOtherText =
    "And the other cat sat on the other mat, then the cat sat on the mat. Isn't that naïve?\n"
    "Chapter 99: these cats sat there. The other mat, and the cat. Then that cat sat.\n";

class FeaturesIndex : public testing::Test {
 protected:
  FeaturesIndex() : model_(MakeSmallModel(folder_ / "m")) {
    WriteFile(folder_ / "text", Text());
    WriteFile(folder_ / "other", kOtherText);
    SaveTranscoder(RandomTranscoder(model_), folder_ / "f", DType::kF32);
    transcoder_ = LoadTranscoder(folder_ / "f");
    tokenizer_.emplace(Tokenizer::Load(folder_ / "m"));
  }
  // Several groups of windows: some propose labels, others judge them.
  static std::string Text() {
    std::string text;
    for (int i = 0; i < 12; ++i) text += SmallText();
    return text;
  }
  std::string at(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> Index(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"features", "index", at("m"), at("f")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> Show(const std::vector<std::string>& more) const {
    std::vector<std::string> words = Index(more);
    words[1] = "show";
    return words;
  }
  void Build() const { Succeed(Index({"--text", at("text"), "--context", "24"})); }

  // The first feature with several examples.
  FeatureId Lively(const FeatureIndex& index) const {
    for (std::int64_t f = 0; f < index.info().features; ++f) {
      if (index.Read({0, f}).examples.size() > 2) return {0, f};
    }
    ADD_FAILURE() << "no feature fires";
    return {};
  }

  TemporaryFolder folder_;
  Model model_;
  Transcoder transcoder_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(FeaturesIndex, IsMadeBesideTheFeaturesOrElsewhere) {
  const std::string said = Succeed(Index({"--text", at("text"), "--context", "24"})).out;
  EXPECT_THAT(said, AllOf(HasSubstr(at("f/index.safetensors") + ": 74 features over"),
                          HasSubstr("makes them fire reliably"), HasSubstr("never fired")));
  const FeatureIndex index(folder_ / "f");
  index.CheckBelongsTo(transcoder_);
  EXPECT_EQ(index.info().context, 24);
  const auto tokens = static_cast<std::int64_t>(tokenizer_->Encode(Text()).size());
  EXPECT_EQ(index.info().windows, (tokens - 1 + 23) / 24);
  EXPECT_EQ(index.info().tokens, tokens - 1 - index.info().windows);

  const Json json = SucceedJson(Index({"--text", at("text"), "--context", "24", "--out", at("i")}));
  EXPECT_EQ(json["out"], at("i/index.safetensors"));
  EXPECT_EQ(json["features"], 74);
  EXPECT_EQ(json["tokens"], index.info().tokens);
  EXPECT_EQ(json["bytes"], fs::file_size(folder_ / "i/index.safetensors"));
  EXPECT_EQ(ReadFile(folder_ / "i/index.safetensors"), ReadFile(folder_ / "f/index.safetensors"));
  EXPECT_THAT(FilesIn(folder_ / "i"), ElementsAre("index.safetensors"));  // nothing is left over
  std::int64_t silent = 0, reliable = 0;
  for (std::int64_t i = 0; i < 74; ++i) {
    const LabelKind kind = index.Label({i / 37, i % 37}).kind;
    silent += kind == LabelKind::kNone ? 1 : 0;
    reliable += kind == LabelKind::kFires ? 1 : 0;
  }
  EXPECT_EQ(json["silent"], silent);
  EXPECT_EQ(json["reliable_labels"], reliable);
  EXPECT_GE(silent, 2);
  EXPECT_GT(reliable, 5);

  // Several texts, and no more of them than asked for.
  const Json few = SucceedJson(Index({"--text", at("other"), at("text"), "--tokens", "100",
                                      "--context", "10", "--out", at("few")}));
  EXPECT_EQ(few["tokens"], 90);
  EXPECT_EQ(few["windows"], 10);
}

TEST_F(FeaturesIndex, TextThatIsNotQuotedCounts) {
  const Json both = SucceedJson(Index({"--text", at("text"), at("other"), "--out", at("both")}));
  const Json some =
      SucceedJson(Index({"--text", at("text"), "--unquoted", at("other"), "--out", at("some")}));
  EXPECT_EQ(some["tokens"], both["tokens"]);
  const auto found = [&](const std::string& index) {
    return SucceedJson(Show({"--find", "99: these cats", "--index", at(index)}))["total"]
        .get<std::int64_t>();
  };
  EXPECT_GT(found("both"), 0);
  EXPECT_EQ(found("some"), 0);
  ExpectFailure(Index({"--unquoted", at("other")}), 2, {"--text"});
  ExpectFailure(Index({"--check", "5", "--text", at("text"), "--unquoted", at("other")}), 2,
                {"--unquoted", "--text"});
}

TEST_F(FeaturesIndex, LabelsAreCheckedOnAnotherText) {
  Build();
  const std::vector<std::string> command = Index({"--check", "20", "--text", at("other")});
  const Json json = SucceedJson(command);
  const FeatureIndex index(folder_ / "f");
  const std::vector<std::int32_t> ids = tokenizer_->Encode(kOtherText);
  const LabelCheck check = CheckLabels(model_, transcoder_, index, ids, {.features = 20});
  EXPECT_EQ(json["schema"], "clearhead.label-check.1");
  EXPECT_EQ(json["features"], 20);
  EXPECT_EQ(json["tokens"], check.tokens);
  EXPECT_EQ(json["labels"].size(), 20u);
  EXPECT_EQ(json["seen"], check.all.seen);
  EXPECT_EQ(json["labels"][3]["feature"], ToText(check.labels[3].id));
  EXPECT_NEAR(json["share"].get<double>(), check.all.share, 0.05);
  EXPECT_GT(check.all.seen, 5);
  const std::string said = Succeed(command).out;
  EXPECT_THAT(said, AllOf(HasSubstr("20 features drawn at random (seed 0;"),
                          HasSubstr("labels make their feature fire on"),
                          HasSubstr(fmt::format("{} labels do not occur", 20 - check.all.seen)),
                          HasSubstr("labels that fire reliably"), HasSubstr("layer 1")));
  std::vector<std::string> seeded = command;
  seeded.insert(seeded.end(), {"--seed", "5"});
  EXPECT_NE(SucceedJson(seeded)["labels"], json["labels"]);
  ExpectFailure(Index({"--check", "20"}), 2, {"--check needs --text"});
  ExpectFailure(Index({"--check", "0", "--text", at("other")}), 2, {"--check"});
  ExpectFailure(Index({"--check", "5", "--text", at("absent")}), 1, {"absent"});
  ExpectFailure(Index({"--check", "5", "--text", at("other"), "--out", at("nowhere")}), 1,
                {"nowhere"});
}

TEST_F(FeaturesIndex, GoesOnAfterAnInterrupt) {
  std::string text;
  for (int i = 0; i < 150; ++i) text += SmallText();
  WriteFile(folder_ / "long", text);
  const std::vector<std::string> words = {"--text", at("long"), "--context", "24", "--memory", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return Index(more);
  };
  Succeed(with({"--out", at("whole")}));
  const int code = RunAndSignalWhen(
      with({"--out", at("parts")}), [&] { return fs::exists(folder_ / "parts/index-run.json"); },
      SIGINT);
  ASSERT_EQ(code, 130) << "the run was over before it could be stopped";
  EXPECT_FALSE(fs::exists(folder_ / "parts/index.safetensors"));
  ExpectFailure(with({"--out", at("parts")}), 1, {"was begun", "--resume"});
  ExpectFailure(Index({"--text", at("text"), "--out", at("parts"), "--resume"}), 1,
                {"other features, text or options"});
  const Json json = SucceedJson(with({"--out", at("parts"), "--resume"}));
  EXPECT_EQ(json["out"], at("parts/index.safetensors"));
  EXPECT_EQ(ReadFile(folder_ / "parts/index.safetensors"),
            ReadFile(folder_ / "whole/index.safetensors"));
  EXPECT_THAT(FilesIn(folder_ / "parts"), ElementsAre("index.safetensors"));
  ExpectFailure(with({"--out", at("fresh"), "--resume"}), 1, {"leave out --resume"});
}

TEST_F(FeaturesIndex, IsExported) {
  Build();
  EXPECT_THAT(Succeed(Index({"--export", at("out")})).out, HasSubstr("74 feature files"));
  EXPECT_THAT(FilesIn(folder_ / "out"), ElementsAre("index.json.gz", "layer_0.bin", "layer_1.bin"));
  const Json json = SucceedJson(
      Index({"--text", at("text"), "--context", "24", "--out", at("i"), "--export", at("again")}));
  EXPECT_EQ(json["exported"]["features"], 74);
  EXPECT_EQ(json["features"], 74);
  EXPECT_EQ(ReadFile(folder_ / "again/layer_1.bin"), ReadFile(folder_ / "out/layer_1.bin"));
  ExpectFailure(Index({"--export", at("out"), "--check", "3", "--text", at("other")}), 2,
                {"either --check or --export"});
  ExpectFailure(Index({"--export", at("out"), "--out", at("nowhere")}), 1, {"nowhere"});
}

TEST_F(FeaturesIndex, RefusesWhatItCannotIndex) {
  ExpectFailure(Index({}), 2, {"--text"});
  ExpectFailure({"features", "index", at("m"), "--text", at("text")}, 2, {"FEATURES"});
  ExpectFailure(Index({"--text", at("absent")}), 1, {"absent"});
  ExpectFailure(Index({"--text", at("text"), "--context", "1"}), 2, {"--context"});
  ExpectFailure(Index({"--text", at("text"), "--context", "500"}), 1, {"500", "48 positions"});
  WriteFile(folder_ / "empty", "");
  ExpectFailure(Index({"--text", at("empty")}), 1, {"at least 2"});
  EXPECT_FALSE(fs::exists(folder_ / "f/index-run.json"));
  Build();
  ExpectFailure(Index({"--text", at("text")}), 1, {"holds an index already"});
  WriteFile(folder_ / "file", "x");
  ExpectFailure(Index({"--text", at("text"), "--out", at("file")}), 1, {"file"});
}

TEST_F(FeaturesIndex, ShowsACard) {
  // From the weights alone.
  const std::string bare = Succeed(Show({"L0F3"})).out;
  EXPECT_THAT(bare, AllOf(HasSubstr("L0F3  without an index"), HasSubstr("promotes  "),
                          HasSubstr("excited by"), HasSubstr("writes into layer 0")));
  EXPECT_TRUE(SucceedJson(Show({"L0F3"}))["label"].is_null());

  Build();
  const FeatureIndex index(folder_ / "f");
  const FeatureId id = Lively(index);
  const FeatureCard card = CardOf(model_, transcoder_, &index, *tokenizer_, id);
  const Json json = SucceedJson(Show({ToText(id)}));
  EXPECT_EQ(json, ToJson(*tokenizer_, card));
  const std::string said = Succeed(Show({ToText(id)})).out;
  EXPECT_THAT(said,
              AllOf(HasSubstr(ToText(id) + "  " + LabelSentence(*tokenizer_, card.facts->label)),
                    HasSubstr("fires on "), HasSubstr("activations 0 |"), HasSubstr("top:\n"),
                    HasSubstr("[[")));
  // A feature that never fires; the same index by its own name; other ways to name a feature.
  EXPECT_THAT(Succeed(Show({"L1F36"})).out,
              AllOf(HasSubstr("never fired on the text"), Not(HasSubstr("top:"))));
  fs::rename(folder_ / "f/index.safetensors", folder_ / "elsewhere.safetensors");
  EXPECT_EQ(SucceedJson(Show({fmt::format("{}_{}", id.layer, id.feature), "--index",
                              at("elsewhere.safetensors")})),
            json);
}

TEST_F(FeaturesIndex, FindsFeaturesByText) {
  ExpectFailure(Show({"--find", "cat"}), 1, {"no index", "features index"});
  Build();
  const FeatureIndex index(folder_ / "f");
  const FoundFeatures found = SearchFeatures(index, *tokenizer_, "cat", 20);
  ASSERT_GT(found.total, 2);
  const Json json = SucceedJson(Show({"--find", "cat"}));
  EXPECT_EQ(json["schema"], "clearhead.features-found.1");
  EXPECT_EQ(json["total"], found.total);
  ASSERT_EQ(json["features"].size(), found.features.size());
  for (std::size_t i = 0; i < found.features.size(); ++i) {
    EXPECT_EQ(json["features"][i]["feature"], ToText(found.features[i].id));
    EXPECT_EQ(json["features"][i]["where"], NameOf(found.features[i].where));
  }
  EXPECT_EQ(SucceedJson(Show({"--find", "cat", "--most", "1"}))["features"].size(), 1u);
  EXPECT_THAT(Succeed(Show({"--find", "cat", "--most", "1"})).out,
              AllOf(HasSubstr(fmt::format("{} features with “cat”, the first 1", found.total)),
                    HasSubstr(ToText(found.features[0].id))));
  EXPECT_THAT(Succeed(Show({"--find", "no such words"})).out, HasSubstr("0 features"));
}

TEST_F(FeaturesIndex, ListsWhatFiresOnAPrompt) {
  const std::string prompt = "The cat sat on the mat";
  EXPECT_THAT(Succeed(Show({"--prompt", prompt})).out, HasSubstr("no labels"));
  Build();
  const Json json = SucceedJson(Show({"--prompt", prompt, "--most", "2"}));
  const std::vector<std::int32_t> ids = tokenizer_->EncodePrompt(prompt);
  const PromptFeatures fired = FeaturesOfPrompt(model_, transcoder_, ids, {.strongest = 2});
  EXPECT_EQ(json["schema"], "clearhead.prompt-features.1");
  ASSERT_EQ(json["tokens"].size(), ids.size());
  EXPECT_TRUE(json["tokens"][0]["layers"].empty());
  std::int64_t active = 0;
  for (std::size_t t = 1; t < ids.size(); ++t) {
    EXPECT_EQ(json["tokens"][t]["id"], ids[t]);
    for (std::int64_t l = 0; l < 2; ++l) {
      const FiringCell& cell = fired.At(l, static_cast<std::int64_t>(t));
      const Json& shown = json["tokens"][t]["layers"][static_cast<std::size_t>(l)];
      EXPECT_EQ(shown["active"], cell.active);
      ASSERT_EQ(shown["strongest"].size(), cell.strongest.size());
      for (std::size_t i = 0; i < cell.strongest.size(); ++i) {
        EXPECT_EQ(shown["strongest"][i]["feature"],
                  ToText(FeatureId{l, cell.strongest[i].feature}));
        EXPECT_TRUE(shown["strongest"][i]["label"].is_object());
      }
      active += cell.active;
    }
  }
  EXPECT_GT(active, 20);
  EXPECT_THAT(Succeed(Show({"--prompt", prompt})).out,
              AllOf(HasSubstr("position 0 is left out"), HasSubstr("layer 1"), HasSubstr("L1F"),
                    Not(HasSubstr("no labels"))));
}

TEST_F(FeaturesIndex, ShowRefusesWhatItDoesNotKnow) {
  ExpectFailure(Show({}), 2, {"exactly one"});
  ExpectFailure(Show({"L0F1", "--find", "cat"}), 2, {"exactly one"});
  ExpectFailure(Show({"L0F1", "--prompt", ""}), 2, {"exactly one"});
  ExpectFailure(Show({"L0F37"}), 1, {"L0F37", "L1F36"});
  ExpectFailure(Show({"L2F0"}), 1, {"L2F0", "L1F36"});
  ExpectFailure(Show({"cat"}), 1, {"'cat'", "L3F512"});
  ExpectFailure(Show({"L0F1", "--most", "0"}), 2, {"--most"});
  ExpectFailure(Show({"L0F1", "--index", at("absent")}), 1, {"absent"});
  std::string many;
  for (int i = 0; i < 60; ++i) many += "cat ";
  ExpectFailure(Show({"--prompt", many}), 1, {"48"});
  Build();
  const std::string bytes = ReadFile(folder_ / "f/index.safetensors");
  WriteFile(folder_ / "cut", bytes.substr(0, bytes.size() / 2));
  ExpectFailure(Show({"L0F1", "--index", at("cut")}), 1, {at("cut")});
  SaveTranscoder(RandomTranscoder(model_, {}, 6), folder_ / "g", DType::kF32);
  ExpectFailure({"features", "show", at("m"), at("g"), "L0F1", "--index", at("f")}, 1,
                {"fingerprint", "features index"});
  SaveTranscoder(RandomTranscoder(model_, {.features = 38}), folder_ / "h", DType::kF32);
  ExpectFailure({"features", "show", at("m"), at("h"), "L0F1", "--index", at("f")}, 1,
                {"2 x 37", "2 x 38"});
  // A model's weights are no index.
  ExpectFailure(Show({"L0F1", "--index", at("m/model.safetensors")}), 1, {"not an index"});
}

}  // namespace
}  // namespace clearhead
