// SPDX-License-Identifier: MIT
// The public surface: the same numbers as inside, and a caller who may do anything in its
// callbacks.
#include <clearhead/clearhead.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "cli/small_model.h"
#include "core/json.h"
#include "model/run.h"
#include "support/temporary_folder.h"
#include "use/record.h"

namespace clearhead {
namespace {

class Api : public testing::Test {
 protected:
  Api()
      : dense_(MakeSmallModel(folder_.path() / "dense")),
        gated_(MakeSmallModel(folder_.path() / "gated", true)) {}

  api::Model Load(const char* name = "dense", int threads = 1) const {
    return api::Model::Load((folder_.path() / name).string(), {.threads = threads});
  }

  TemporaryFolder folder_;
  Model dense_, gated_;
};

// What `work` throws says `part`.
template <typename Exception, typename Work>
void ExpectThrow(const Work& work, const std::string& part) {
  try {
    work();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

TEST_F(Api, DescribesTheModel) {
  const api::Model model = Load("gated");
  EXPECT_EQ(model.info().layers, gated_.config.layers);
  EXPECT_EQ(model.info().parameters, gated_.config.ParameterCount());
  EXPECT_TRUE(model.info().gated);
  EXPECT_EQ(model.Decode(model.Encode("The cat sat")), "The cat sat");
  EXPECT_EQ(model.TapNames().size(), AllTaps(gated_.config).size());
}

TEST_F(Api, RunsGiveTheSameBitsAsInside) {
  const api::Model model = Load();
  const std::vector<std::int32_t> ids = model.Encode("The cat sat on the mat");
  const api::Run run = model.Run(ids, {.taps = "all", .gradients = true});
  const Recording inside =
      Record(dense_, ids, 1, {.taps = AllTaps(dense_.config), .gradients = true});
  ASSERT_EQ(run.logits.size(), inside.logits.size());
  EXPECT_TRUE(std::equal(inside.logits.begin(), inside.logits.end(), run.logits.data));
  EXPECT_EQ(run.loss, inside.loss);
  ASSERT_EQ(run.taps.size(), inside.values.size());
  for (const auto& [id, tensor] : inside.values) {
    const api::Array& tap = run.taps.at(TapName(id));
    ASSERT_EQ(tap.size(), tensor.values.size());
    EXPECT_TRUE(std::equal(tensor.values.begin(), tensor.values.end(), tap.data)) << TapName(id);
  }
  EXPECT_TRUE(run.gradients.contains("transformer.h.0.attn.c_attn.weight"));
  EXPECT_TRUE(run.gradients.contains("blocks.1.hook_resid_pre"));
}

TEST_F(Api, ArraysOutliveRunAndModel) {
  api::Array logits;
  {
    const api::Model model = Load();
    logits = model.Run(model.Encode("The cat")).logits;
  }
  EXPECT_TRUE(std::isfinite(logits.data[logits.size() - 1]));
}

// Large blocks that go back to the system cost a page fault for every 4 KiB when they come again.
TEST_F(Api, TheMemoryOfARunServesTheNext) {
  const api::Model model = Load();
  const std::vector<std::int32_t> ids(256, 3);  // 64 sequences
  const auto logits_of = [&](const api::Run& run) {
    EXPECT_GE(run.logits.size(), 1 << 14);  // 64 KiB
    return run.logits.data;
  };
  const api::Run held = model.Run(ids, {.batch = 64});
  const float* const first = logits_of(model.Run(ids, {.batch = 64}));
  const api::Run next = model.Run(ids, {.batch = 64});
  EXPECT_NE(first, held.logits.data);
  EXPECT_EQ(logits_of(next), first);
  EXPECT_TRUE(
      std::equal(next.logits.data, next.logits.data + next.logits.size(), held.logits.data));
}

TEST_F(Api, HooksSeeAndChange) {
  const api::Model model = Load();
  const std::vector<std::int32_t> ids = model.Encode("The cat sat");
  const api::Run zeroed =
      model.Run(ids, {.taps = "blocks.1.attn.hook_z",
                      .interventions = {{.tap = "blocks.1.attn.hook_z", .heads = {2}}}});
  std::vector<std::string> seen;
  // hook_z lies between other values: what a hook is given is in one piece all the same.
  const api::Hook hook{"blocks.*.attn.hook_z", [&](const std::string& tap, const api::Array& z) {
                         seen.push_back(tap);
                         if (tap != "blocks.1.attn.hook_z") return;
                         const std::int64_t heads = z.shape[2], size = z.shape[3];
                         for (std::int64_t i = 0; i < z.size(); ++i) {
                           if (i / size % heads == 2) z.data[i] = 0.0f;
                         }
                       }};
  const api::Run hooked = model.Run(ids, {.taps = "blocks.1.attn.hook_z", .hooks = {hook}});
  EXPECT_THAT(seen, testing::ElementsAre("blocks.0.attn.hook_z", "blocks.1.attn.hook_z"));
  EXPECT_TRUE(std::equal(zeroed.logits.data, zeroed.logits.data + zeroed.logits.size(),
                         hooked.logits.data));
  const api::Array& kept = hooked.taps.at("blocks.1.attn.hook_z");
  EXPECT_TRUE(
      std::equal(kept.data, kept.data + kept.size(), zeroed.taps.at("blocks.1.attn.hook_z").data));
}

TEST_F(Api, SetsValuesByIntervention) {
  const api::Model model = Load();
  const std::vector<std::int32_t> ids = model.Encode("The cat sat");
  const std::vector<float> row(static_cast<std::size_t>(model.info().width), 0.5f);
  const api::Run run = model.Run(ids, {.taps = "blocks.1.hook_resid_pre",
                                       .interventions = {{.tap = "blocks.1.hook_resid_pre",
                                                          .change = api::Change::kSet,
                                                          .positions = {1},
                                                          .values = row,
                                                          .shape = {1, 1, model.info().width}}}});
  const float* values = run.taps.at("blocks.1.hook_resid_pre").data;
  EXPECT_EQ(values[model.info().width], 0.5f);
  EXPECT_NE(values[0], 0.5f);
}

TEST_F(Api, ACallbackThatThrowsLeavesEverythingUsable) {
  const api::Model model = Load("dense", 2);
  const std::vector<std::int32_t> ids = model.Encode("The cat sat");
  const api::Run before = model.Run(ids);
  struct Own {};
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(
        model.Run(ids, {.hooks = {{"blocks.0.hook_mlp_out",
                                   [](const std::string&, const api::Array&) { throw Own(); }}}}),
        Own);
    EXPECT_THROW(model.Generate(ids, {.on_token = [](std::int32_t) { throw Own(); }}), Own);
    EXPECT_THROW(api::Command({"eval", model.info().folder, "--text", "/no/such/file"}),
                 api::Error);
  }
  const api::Run after = model.Run(ids);
  EXPECT_TRUE(
      std::equal(before.logits.data, before.logits.data + before.logits.size(), after.logits.data));
}

TEST_F(Api, StopsWhereItIsAsked) {
  const api::Model model = Load();
  const std::vector<std::int32_t> ids = model.Encode("The cat sat");
  const api::Control stop{.should_stop = [] { return true; }};
  EXPECT_THROW(model.Run(ids, {}, stop), api::Interrupted);
  EXPECT_THROW(model.Generate(ids, {}, stop), api::Interrupted);
  EXPECT_THROW(model.Evaluate(std::vector<std::int32_t>(200, 5), {.context = 8}, stop),
               api::Interrupted);
  EXPECT_NO_THROW(model.Run(ids));
}

TEST_F(Api, GeneratesPredictsAndEvaluates) {
  const api::Model model = Load("gated");
  const std::vector<std::int32_t> ids = model.Encode("The cat");
  const std::vector<std::int32_t> text = model.Generate(ids, {.max_new = 3, .stop_at_end = false});
  EXPECT_EQ(text.size(), ids.size() + 3);
  const std::vector<api::Prediction> next = model.Predict(ids, 2);
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].token, text[ids.size()]);
  EXPECT_GE(next[0].probability, next[1].probability);
  std::int64_t last_done = 0;
  const api::Evaluation evaluation =
      model.Evaluate(std::vector<std::int32_t>(100, 5), {.context = 8},
                     {.progress = [&](const api::Progress& p) { last_done = p.done; }});
  EXPECT_EQ(evaluation.tokens, 99);
  EXPECT_EQ(last_done, 99);
  EXPECT_TRUE(evaluation.edge_fraction.has_value());
}

TEST_F(Api, RefusesWhatDoesNotFit) {
  const api::Model model = Load();
  const std::vector<std::int32_t> ids = model.Encode("The cat sat");
  using api::Error;
  ExpectThrow<Error>([&] { api::Model::Load("no-such-model"); },
                     "there is no model 'no-such-model'");
  ExpectThrow<Error>([&] { model.Run({}); }, "");
  ExpectThrow<Error>([&] { model.Run(ids, {.taps = "blocks.*.nothing"}); }, "blocks.*.nothing");
  ExpectThrow<Error>([&] { model.Run(ids, {.gates = api::Gates::kOpen}); }, "softmax attention");
  ExpectThrow<Error>(
      [&] {
        model.Run(ids, {.gradients = true, .hooks = {{"hook_embed", {}}}});
      },
      "gradients with hooks");
  ExpectThrow<Error>(
      [&] {
        model.Run(ids, {.interventions = {{.tap = "hook_embed",
                                           .change = api::Change::kSet,
                                           .values = {1.0f},
                                           .shape = {2}}}});
      },
      "1 values do not fill the shape [2]");
  ExpectThrow<Error>([&] { model.SingleToken("The cat sat"); }, "expected one");
  ExpectThrow<api::UsageError>([] { api::Command({"juggle"}); }, "'juggle' is not a command");
  ExpectThrow<api::UsageError>(
      [] {
        api::Command({"heads", "--juggle"});
      },
      "see clearhead heads --help");
}

TEST_F(Api, CommandsAnswerInsteadOfPrinting) {
  struct sigaction before {
  }, during{};
  ASSERT_EQ(sigaction(SIGINT, nullptr, &before), 0);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  std::vector<std::string> labels;
  const Json heads = ParseJson(
      api::Command({"heads", Load().info().folder, "--prompt", "The cat sat on the mat", "--json"},
                   {.progress = [&](const api::Progress& p) { labels.emplace_back(p.label); }}),
      "heads");
  EXPECT_FALSE(heads.empty());
  EXPECT_THAT(api::Command({"--version"}), testing::HasSubstr(api::Version()));
  EXPECT_THAT(api::Command({"heads", "--help"}), testing::HasSubstr("Example:"));
  ASSERT_EQ(sigaction(SIGINT, nullptr, &during), 0);
  EXPECT_EQ(before.sa_handler, during.sa_handler);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Training asked to stop saves itself and says how to go on; the same call then goes on.
TEST_F(Api, TrainingStopsAndGoesOn) {
  const std::string text = (folder_.path() / "text.txt").string(),
                    out = (folder_.path() / "trained").string();
  WriteFile(text, SmallText());
  std::vector<std::string> words = {
      "train", "--text",  text,  "--out",     out, "--layers", "1", "--heads", "2", "--width",
      "8",     "--vocab", "260", "--context", "8", "--batch",  "2", "--steps", "6", "--json"};
  int asked = 0, handled_signals = 0;
  struct sigaction before {
  }, during{};
  sigaction(SIGINT, nullptr, &before);
  ExpectThrow<api::Interrupted>(
      [&] {
        api::Command(words, {.should_stop = [&] {
                       sigaction(SIGINT, nullptr, &during);
                       handled_signals += before.sa_handler != during.sa_handler ? 1 : 0;
                       return ++asked >= 3;
                     }});
      },
      "--resume");
  EXPECT_EQ(handled_signals, 0);
  words.emplace_back("--resume");
  std::int64_t reports = 0;
  const Json done = ParseJson(api::Command(words, {.progress =
                                                       [&](const api::Progress& p) {
                                                         EXPECT_FALSE(p.label.empty());
                                                         ++reports;
                                                       }}),
                              "train");
  EXPECT_EQ(done["steps"], 6);
  EXPECT_GT(reports, 0);
}

TEST_F(Api, ManyThreadsUseOneModel) {
  const api::Model model = Load("dense", 2);
  const std::vector<std::int32_t> ids = model.Encode("The cat sat on the mat");
  const api::Run alone = model.Run(ids);
  std::vector<std::thread> threads;
  std::atomic<int> different = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const api::Run run = model.Run(ids);
        if (!std::equal(run.logits.data, run.logits.data + run.logits.size(), alone.logits.data))
          ++different;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace clearhead
