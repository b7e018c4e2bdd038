// SPDX-License-Identifier: MIT
// --help, --version, info and tokenize, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/small_model.h"
#include "support/golden_models.h"

namespace clearhead {
namespace {

// The commands that a help lists; none if it is that of a command.
std::vector<std::string> Listed(const std::string& help) {
  std::vector<std::string> commands;
  std::size_t at = help.find("Subcommands:\n");
  if (at == std::string::npos) return commands;
  at += 13;
  while (at < help.size() && help.compare(at, 2, "  ") == 0) {
    const std::size_t end = help.find('\n', at);
    if (help[at + 2] != ' ')
      commands.push_back(help.substr(at + 2, help.find(' ', at + 2) - at - 2));
    at = end + 1;
  }
  return commands;
}

TEST(Help, EveryCommandHasAnExample) {
  const std::vector<std::string> commands = Listed(Succeed({"--help"}).out);
  EXPECT_GE(commands.size(), 5u);
  for (const char* expected : {"info", "tokenize", "capture", "eval", "generate"}) {
    EXPECT_NE(std::find(commands.begin(), commands.end(), expected), commands.end()) << expected;
  }
  const auto expect_whole = [](const std::string& command, const std::string& help) {
    EXPECT_NE(help.find("Example:\n  clearhead " + command), std::string::npos) << help;
    for (const char* option : {"--json", "--threads", "--seed"}) {
      EXPECT_NE(help.find(option), std::string::npos) << command;
    }
  };
  for (const std::string& command : commands) {
    const std::string help = Succeed({command, "--help"}).out;
    const std::vector<std::string> inner = Listed(help);
    if (inner.empty()) expect_whole(command, help);
    for (const std::string& word : inner) {  // a group: features train, features eval, ...
      expect_whole(command + " " + word, Succeed({command, word, "--help"}).out);
    }
  }
}

TEST(Help, GroupsNameTheirCommands) {
  ExpectFailure({"features"}, 2, {"a command is needed", "eval", "see clearhead features --help"});
  ExpectFailure({"features", "juggle"}, 2,
                {"'juggle' is not a command", "eval", "see clearhead features --help"});
  ExpectFailure({"features", "eval", "--juggle"}, 2, {"see clearhead features eval --help"});
}

TEST(Help, Version) {
  const std::string out = Succeed({"--version"}).out;
  EXPECT_THAT(out, testing::MatchesRegex(
                       "clearhead [0-9]+\\.[0-9]+\\.[0-9]+(-dev)? \\(([0-9a-f]+|unknown)\\)\n"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
}

TEST(Help, FullDiskIsNoticed) {
  for (const char* word : {"--help", "--version", "info"}) {
    ExpectFailure({word}, 1, {"standard output"}, {.out = "/dev/full"});
    ExpectFailure({word}, 1, {"standard output"}, {.close_out = true});
  }
}

TEST(Info, TellsTheMachine) {
  const Json json = SucceedJson({"info"});
  EXPECT_TRUE(json["version"].is_string());
  EXPECT_TRUE(json["features"].is_array());
  EXPECT_GE(json["threads"].get<int>(), 1);
  EXPECT_FALSE(json["kernels"].empty());
  for (const Json& kernel : json["kernels"]) {
    EXPECT_FALSE(kernel["runs"].get<std::string>().empty());
    EXPECT_FALSE(kernel["reason"].get<std::string>().empty());
  }
  EXPECT_FALSE(json.contains("model"));
  EXPECT_EQ(SucceedJson({"info", "--threads", "1"})["threads"], 1);
  EXPECT_NE(Succeed({"info"}).out.find(json["cpu"].get<std::string>()), std::string::npos);
}

TEST(Info, TellsAModel) {
  const Json model = SucceedJson({"info", GoldenModel("c/bf16").string()})["model"];
  const Model loaded = LoadModel(GoldenModel("c/bf16"));
  EXPECT_EQ(model["layers"], loaded.config.layers);
  EXPECT_EQ(model["heads"], loaded.config.heads);
  EXPECT_EQ(model["width"], loaded.config.width);
  EXPECT_EQ(model["vocabulary"], loaded.config.vocabulary);
  EXPECT_EQ(model["parameters"], loaded.config.ParameterCount());
  EXPECT_EQ(model["stored_as"], "BF16");
  EXPECT_EQ(model["attention"], "softmax");
  EXPECT_NE(Succeed({"info", GoldenModel("a").string()}).out.find("gelu_new"), std::string::npos);
  const TemporaryFolder folder;
  MakeSmallModel(folder.path(), /*gated=*/true);
  const Json gated = SucceedJson({"info", folder.path().string()})["model"];
  EXPECT_EQ(gated["attention"], "gated");
  EXPECT_EQ(gated["gate_bias"], 0.25);
}

// Names of shipped models, through the folder that CLEARHEAD_MODELS names.
TEST(Info, FindsModelsByName) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "tiny");
  ::setenv("CLEARHEAD_MODELS", folder.path().c_str(), 1);
  const Json json = SucceedJson({"info", "tiny"});
  EXPECT_EQ(json["model"]["positions"], 48);
  EXPECT_NE(json["models"].dump().find("\"tiny\""), std::string::npos);
  ExpectFailure({"info", "teeny"}, 1, {"'teeny'", "tiny"});
  // A name is not a path: nothing outside the folders can be reached with it.
  ExpectFailure({"info", "../tiny"}, 1, {"'../tiny'"}, {.folder = folder / "tiny/.."});
  // A folder of that name that holds no model does not hide it.
  std::filesystem::create_directories(folder / "here/tiny");
  EXPECT_EQ(SucceedJson({"info", "tiny"}, {.folder = folder / "here"})["model"]["positions"], 48);
  ::unsetenv("CLEARHEAD_MODELS");
  EXPECT_EQ(SucceedJson({"info", "./tiny"}, {.folder = folder.path()})["model"]["positions"], 48);
}

class Tokenize : public testing::Test {
 protected:
  void SetUp() override { MakeSmallModel(model_ / "m"); }
  std::string model() const { return model_ / "m"; }
  Tokenizer tokenizer() const { return Tokenizer::Load(model_ / "m"); }
  TemporaryFolder model_;
};

TEST_F(Tokenize, TextFileAndStandardInputAgree) {
  const std::string text = "The cat sat\n on the naïve mat.\xff <|endoftext|>x";
  const std::vector<std::int32_t> expected = tokenizer().Encode(text);
  WriteFile(model_ / "text", text);
  for (const Json& json : {SucceedJson({"tokenize", model(), "--text", text}),
                           SucceedJson({"tokenize", model(), "--file", model_ / "text"}),
                           SucceedJson({"tokenize", model(), "-"}, {.text = text})}) {
    EXPECT_EQ(json["ids"].get<std::vector<std::int32_t>>(), expected);
    EXPECT_EQ(json["tokens"].size(), expected.size());
    EXPECT_EQ(json.size(), 2u);
  }
  const Json special = SucceedJson({"tokenize", model(), "--text", text, "--no-special"});
  EXPECT_EQ(special["ids"].get<std::vector<std::int32_t>>(),
            tokenizer().Encode(text, SpecialTokens::kAsText));
  EXPECT_GT(special["ids"].size(), expected.size());
}

TEST_F(Tokenize, PeopleSeeOneLinePerToken) {
  const std::string out = Succeed({"tokenize", model(), "--text", "The cat"}).out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'),
            static_cast<std::ptrdiff_t>(tokenizer().Encode("The cat").size()));
  EXPECT_NE(out.find("\" cat\""), std::string::npos) << out;
}

TEST_F(Tokenize, EmptyTextHasNoTokens) {
  EXPECT_EQ(SucceedJson({"tokenize", model(), "--text", ""})["ids"], Json::array());
  EXPECT_EQ(SucceedJson({"tokenize", model(), "-"})["ids"], Json::array());
}

TEST_F(Tokenize, DecodeGivesTheTextBack) {
  const std::string text = "The other naïve cat <|endoftext|>\n";
  const std::string ids = IdList(tokenizer().Encode(text));
  EXPECT_EQ(SucceedJson({"tokenize", model(), "--decode", ids})["text"], text);
  EXPECT_EQ(Succeed({"tokenize", model(), "--decode", ids}).out, text + "\n");
}

// A tokenizer that puts a token before the text shows it, and takes it away again.
TEST_F(Tokenize, BeginOfTextComesFirst) {
  WriteFile(model_ / "m/tokenizer.json", ReadFile(std::filesystem::path(CLEARHEAD_TEST_DATA) /
                                                  "tokenizer-llama3/tokenizer.json"));
  const Json json = SucceedJson({"tokenize", model(), "--text", "Hello world"});
  EXPECT_EQ(json["ids"], Json::array({602, 39, 445, 78, 505, 331}));
  EXPECT_EQ(json["tokens"][0], "<|begin_of_text|>");
  const Json plain = SucceedJson({"tokenize", model(), "--text", "Hello world", "--no-special"});
  EXPECT_EQ(plain["ids"], Json::array({39, 445, 78, 505, 331}));
  EXPECT_EQ(Succeed({"tokenize", model(), "--decode", "602,39,445,78,505,331"}).out,
            "Hello world\n");
}

TEST_F(Tokenize, RefusesWhatItCannotDo) {
  ExpectFailure({"tokenize", model()}, 2, {"--text", "--file", "--decode"});
  ExpectFailure({"tokenize", model(), "--text", "a", "--file", "b"}, 2, {"exactly one"});
  ExpectFailure({"tokenize", model(), "words"}, 2, {"'words'"});
  ExpectFailure({"tokenize", model(), "--file", model_ / "absent"}, 1, {"absent"});
  ExpectFailure({"tokenize", model(), "--file", model()}, 1, {model(), "not a regular file"});
  ExpectFailure({"tokenize", model(), "--decode", "1,x"}, 2, {"'1,x'"});
  ExpectFailure({"tokenize", model(), "--decode", "1,"}, 2, {"'1,'"});
  ExpectFailure({"tokenize", model(), "--decode", "99999999999"}, 2, {"'99999999999'"});
  ExpectFailure({"tokenize", model(), "--decode", "290"}, 1, {"290"});
  ExpectFailure({"tokenize", model(), "--decode", "-1"}, 1, {"-1"});
  ExpectFailure({"tokenize", GoldenModel("a").string(), "--text", "a"}, 1,
                {GoldenModel("a").string()});
  ExpectFailure({"tokenize", model(), "--text", "a"}, 1, {"standard output"}, {.out = "/dev/full"});
}

TEST(TokenizeGpt2, MatchesHuggingFace) {
  const std::filesystem::path folder = std::filesystem::path(CLEARHEAD_FETCHED_DATA) / "gpt2";
  ASSERT_TRUE(std::filesystem::exists(folder / "vocab.json"))
      << "GPT-2's vocabulary is not in " << folder
      << ": run scripts/fetch-test-data with the build folder";
  const Json golden =
      ReadJsonFile(std::filesystem::path(CLEARHEAD_TEST_DATA) / "tokenizer/encode.json");
  std::string category;
  for (const Json& c : golden["cases"]) {  // one of each category: text_test has them all
    if (c["category"] == category) continue;
    category = c["category"].get<std::string>();
    const std::string text = c["text"].get<std::string>();
    EXPECT_EQ(SucceedJson({"tokenize", folder.string(), "-"}, {.text = text})["ids"], c["ids"])
        << category;
    EXPECT_EQ(
        SucceedJson({"tokenize", folder.string(), "-", "--no-special"}, {.text = text})["ids"],
        c["ids_no_special"])
        << category;
  }
  EXPECT_EQ(SucceedJson({"tokenize", folder.string(), "--decode", "15496,995"})["text"],
            "Hello world");
}

}  // namespace
}  // namespace clearhead
