// SPDX-License-Identifier: MIT
// Bad input of every kind: one line that says what and where, the right exit code, nothing left
// behind.
#include <gtest/gtest.h>

#include <cstring>

#include "cli/program.h"
#include "cli/small_model.h"
#include "core/safetensors.h"
#include "support/golden_models.h"
#include "support/safetensors_bytes.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

TEST(Usage, UnknownCommandsAreNamed) {
  ExpectFailure({"foo"}, 2, {"'foo'", "info, tokenize, capture, eval, compare, generate"});
  ExpectFailure({"foo", "info"}, 2, {"foo"});
  ExpectFailure({"--foo"}, 2, {"--foo"});
  ExpectFailure({""}, 2, {"''"});
  ExpectFailure({}, 2, {"clearhead --help"});
}

TEST(Usage, UnknownAndWrongOptionsAreNamed) {
  const std::string model = GoldenModel("a");
  ExpectFailure({"info", "--frobnicate"}, 2, {"--frobnicate", "clearhead info --help"});
  ExpectFailure({"info", model, "second"}, 2, {"second"});
  ExpectFailure({"capture"}, 2, {"MODEL"});
  ExpectFailure({"capture", model, "--ids", "1"}, 2, {"--out"});
  ExpectFailure({"capture", model, "--out", "/nowhere"}, 2, {"--prompt", "--ids", "--ids-file"});
  ExpectFailure({"capture", model, "--ids", "1", "--prompt", "a", "--out", "/nowhere"}, 2,
                {"exactly one"});
  ExpectFailure({"capture", model, "--ids", "1", "--out"}, 2, {"--out"});
  ExpectFailure({"capture", model, "--ids", "1", "--out", "/nowhere/x", "--gates", "ajar"}, 2,
                {"--gates", "ajar"});
  ExpectFailure({"capture", model, "--ids", "1", "--out", "/nowhere/x", "--precision", "fp8"}, 2,
                {"--precision", "fp8"});
  for (const char* threads : {"0", "-1", "5000", "many", "1.5", ""}) {
    ExpectFailure({"info", "--threads", threads}, 2, {"--threads"});
  }
  for (const char* seed : {"-1", "x", "18446744073709551616"}) {
    ExpectFailure({"info", "--seed", seed}, 2, {"--seed", seed});
  }
}

// A copy of model "a" to break, and a place for output that must stay empty.
class BrokenModel : public testing::Test {
 protected:
  BrokenModel() {
    fs::create_directory(model());
    fs::create_directory(folder_ / "out");
    fs::copy_file(GoldenModel("a") / "config.json", config());
    fs::copy_file(GoldenModel("a") / "model.safetensors", weights());
  }
  fs::path model() const { return folder_ / "model"; }
  fs::path config() const { return folder_ / "model/config.json"; }
  fs::path weights() const { return folder_ / "model/model.safetensors"; }
  std::string out() const { return folder_ / "out/run.safetensors"; }

  std::vector<std::string> Capture(std::vector<std::string> more = {"--ids", "1,2,3"}) const {
    more.insert(more.begin(), {"capture", model().string(), "--out", out()});
    return more;
  }
  // Every command that loads the model gives the same message.
  void ExpectRefused(const std::vector<std::string>& parts) const {
    ExpectFailure(Capture(), 1, parts);
    ExpectFailure({"info", model().string()}, 1, parts);
    ExpectFailure({"generate", model().string(), "--ids", "1"}, 1, parts);
    EXPECT_EQ(FilesIn(folder_ / "out"), std::vector<std::string>{});
  }
  void ExpectInputRefused(const std::vector<std::string>& more, int code,
                          const std::vector<std::string>& parts) {
    ExpectFailure(Capture(more), code, parts);
    EXPECT_EQ(FilesIn(folder_ / "out"), std::vector<std::string>{});
  }
  void SetConfig(const std::string& name, const Json& value) const {
    Json json = ReadJsonFile(config());
    json[name] = value;
    WriteJsonFile(config(), json);
  }

  TemporaryFolder folder_;
};

TEST_F(BrokenModel, IsNotBrokenYet) {
  Succeed(Capture());
  EXPECT_EQ(FilesIn(folder_ / "out"), std::vector<std::string>{"run.safetensors"});
}

TEST_F(BrokenModel, MissingFiles) {
  fs::remove(weights());
  ExpectRefused({model().string(), "model.safetensors"});
  WriteFile(folder_ / "model/pytorch_model.bin", "PK");
  ExpectRefused({"pytorch_model.bin"});
  fs::remove(config());
  ExpectRefused({"config.json"});
  fs::remove_all(model());
  ExpectRefused({model().string()});
  WriteFile(model(), "a file");
  ExpectRefused({model().string(), "is a file"});
}

TEST_F(BrokenModel, FoldersWhereFilesBelong) {
  fs::remove(weights());
  fs::create_directory(weights());
  ExpectRefused({"model.safetensors", "not a regular file"});
  fs::remove(config());
  fs::create_directory(config());
  ExpectRefused({"config.json", "not a regular file"});
}

TEST_F(BrokenModel, Names) {
  for (const char* name : {"no/such/model", "../absent", "nothing"}) {
    ExpectFailure({"info", name}, 1, {name}, {.folder = folder_ / "out"});
  }
  // Nothing that a terminal would obey, and one line whatever is in a name.
  ExpectFailure({"info", "two\nlines \x1b[2J\x7f"}, 1, {"'two lines  [2J '"});
  SetConfig("line\nbreak", 1);
  ExpectRefused({"'line break'"});
}

TEST_F(BrokenModel, TruncatedWeights) {
  const std::string bytes = ReadFile(weights());
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, bytes.size() - 1}) {
    WriteFile(weights(), bytes.substr(0, size));
    ExpectRefused({"model.safetensors"});
  }
  WriteFile(weights(), bytes + "x");
  ExpectRefused({"model.safetensors"});
}

TEST_F(BrokenModel, FlippedBitsInTheHeader) {
  const std::string bytes = ReadFile(weights());
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  // A flipped bit in padding or in a digit may still make a file; it must never make a crash.
  for (std::size_t at = 0; at < 8 + header; at += 1 + header / 40) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    WriteFile(weights(), flipped);
    const ProgramRun run = RunProgram(Capture());
    EXPECT_LE(run.code, 1) << "byte " << at << ": " << run.err;
    if (run.code == 0) {
      fs::remove(out());
      continue;
    }
    EXPECT_EQ(run.ErrorLines().size(), 1u) << run.err;
    EXPECT_NE(run.err.find("model"), std::string::npos) << run.err;
    EXPECT_EQ(FilesIn(folder_ / "out"), std::vector<std::string>{});
  }
}

TEST_F(BrokenModel, ImpossibleHeaders) {
  std::string huge = ReadFile(weights());
  const std::uint64_t length = std::uint64_t{1} << 60;
  std::memcpy(huge.data(), &length, sizeof length);
  WriteFile(weights(), huge);
  ExpectRefused({"model.safetensors"});

  WriteFile(weights(),
            SafetensorsBytes(R"({"wte.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("wpe.weight":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                             "123456789012"));
  ExpectRefused({"model.safetensors", "w"});
  WriteFile(weights(), SafetensorsBytes("[]", ""));
  ExpectRefused({"model.safetensors"});
}

// Writes model "a" again with one tensor changed.
using Change = void (*)(std::vector<TensorToWrite>&);
void Rewrite(const fs::path& path, Change change) {
  std::vector<TensorToWrite> tensors;
  const std::string bytes = ReadFile(path);
  const SafetensorsFile file = ParseSafetensors(bytes);
  for (const TensorEntry& entry : file.tensors()) {
    tensors.push_back(
        {.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .raw = entry.bytes});
  }
  change(tensors);
  WriteSafetensors(path, tensors);
}

TEST_F(BrokenModel, WrongTensors) {
  struct Case {
    Change change;
    std::vector<std::string> parts;
  };
  const std::string original = ReadFile(weights());
  const std::vector<Case> cases = {
      {[](auto& t) { t.erase(t.begin()); }, {"missing"}},
      {[](auto& t) { t[0].name += "s"; }, {"missing"}},
      {[](auto& t) {
         t.push_back(t[0]);
         t.back().name = "transformer.h.0.attn.rotary";
       },
       {"unknown tensor 'h.0.attn.rotary'"}},
      {[](auto& t) { t[0].dtype = DType::kI32; }, {"I32"}},
      {[](auto& t) { t[0].shape.insert(t[0].shape.begin(), 1); }, {"config.json says"}},
  };
  for (const Case& c : cases) {
    WriteFile(weights(), original);
    Rewrite(weights(), c.change);
    std::vector<std::string> parts = c.parts;
    parts.push_back(model().string());
    ExpectRefused(parts);
  }
}

TEST_F(BrokenModel, WrongConfigurations) {
  SetConfig("rope_theta", 10000);
  ExpectRefused({"config.json", "'rope_theta'"});
  SetConfig("rope_theta", nullptr);  // named, but says nothing; still unknown
  ExpectRefused({"config.json", "'rope_theta'"});
  WriteFile(config(), "{\"n_layer\": 2,\n \"n_head\": }");
  ExpectRefused({"config.json", "line 2"});
  WriteFile(config(), "");
  ExpectRefused({"config.json"});
  WriteFile(config(), "[]");
  ExpectRefused({"config.json"});
  fs::copy_file(GoldenModel("b") / "config.json", config(), fs::copy_options::overwrite_existing);
  ExpectRefused({"model.safetensors", "config.json says"});
}

TEST_F(BrokenModel, WrongIds) {
  ExpectInputRefused({"--ids", "97"}, 1, {"97", "vocabulary of 97"});
  ExpectInputRefused({"--ids", "1,-5"}, 1, {"-5"});
  ExpectInputRefused({"--ids", ""}, 2, {"''", "token ids"});
  ExpectInputRefused({"--ids", "1 2"}, 2, {"'1 2'"});
  ExpectInputRefused({"--ids", "2147483648"}, 2, {"2147483648"});
  std::string long_prompt = "0";
  for (int i = 1; i < 65; ++i) long_prompt += ",0";
  ExpectInputRefused({"--ids", long_prompt}, 1, {"65", "64 positions"});
  ExpectInputRefused({"--prompt", "text"}, 1, {model().string()});  // the model has no tokenizer
}

TEST_F(BrokenModel, WrongIdsFiles) {
  const std::string file = folder_ / "ids.json";
  ExpectInputRefused({"--ids-file", file}, 1, {file});
  ExpectInputRefused({"--ids-file", model()}, 1, {model(), "not a regular file"});
  for (const char* content :
       {"", "{}", "[]", "[[]]", "[1,2]", "[[1],[1,2]]", "[[1,2],[1]]", "[[1.5]]", "[[-1]]",
        "[[\"1\"]]", "[[null]]", "[[2147483648]]", "[[18446744073709551615]]", "[[1]", "[[1]]x"}) {
    WriteFile(file, content);
    ExpectInputRefused({"--ids-file", file}, 1, {file});
  }
  WriteFile(file, "[[1],[97]]");
  ExpectInputRefused({"--ids-file", file}, 1, {"97"});
}

TEST_F(BrokenModel, WrongTaps) {
  for (const char* taps : {"hook_nothing", "blocks.2.hook_resid_pre", "hook_embed,",
                           "blocks.*.attn.hook_sparse_mask"}) {
    ExpectInputRefused({"--ids", "1", "--taps", taps}, 1, {"no tap"});
  }
  ExpectInputRefused({"--ids", "1", "--taps", "hook_embed,wrong"}, 1, {"'wrong'"});
  // Asked for and empty: not the same as not asked for.
  ExpectInputRefused({"--ids", "1", "--taps", ""}, 1, {"no tap"});
  ExpectInputRefused({"--ids", "1", "--gates", "open"}, 1, {"--gates", "gated model"});
  ExpectInputRefused({"--ids", "1", "--gate-weight", "1"}, 1, {"--gate-weight", "gated model"});
}

TEST_F(BrokenModel, OutputThatCannotBeWritten) {
  const auto capture = [&](const std::string& path) {
    return std::vector<std::string>{"capture", model().string(), "--ids", "1", "--out", path};
  };
  const std::vector<std::string> before = FilesIn(folder_.path());
  for (const std::string& path :
       {(folder_ / "absent/run").string(), weights().string() + "/run", (folder_ / "out").string(),
        (folder_ / "out").string() + "/", std::string()}) {
    ExpectFailure(capture(path), 1, {path.empty() ? "write" : path});
    EXPECT_EQ(FilesIn(folder_.path()), before) << path;
  }
  // The file is written, but its report is not: the exit code says so.
  ExpectFailure(Capture(), 1, {"standard output"}, {.out = "/dev/full"});
  ExpectFailure(Capture(), 1, {"standard output"}, {.close_out = true});
}

// A disk that fills up while the file is written: the limit on file sizes stands in for it.
TEST_F(BrokenModel, OutputThatDoesNotFit) {
  const fs::path script = folder_ / "limited.sh";
  WriteFile(script, "trap '' XFSZ; ulimit -f 4; exec \"$@\"");
  const std::string errors = folder_ / "errors";
  const std::string command = fmt::format(
      "sh '{}' '{}' capture '{}' --ids-file '{}' --taps all --out '{}' >/dev/null 2>'{}'",
      script.string(), CLEARHEAD_PROGRAM, model().string(), (folder_ / "ids.json").string(), out(),
      errors);
  Json row = Json::array();
  for (int i = 0; i < 64; ++i) row.push_back(i);
  WriteJsonFile(folder_ / "ids.json", Json::array({row}));
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c)
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string message = ReadFile(errors);
  EXPECT_NE(message.find(out()), std::string::npos) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
  EXPECT_EQ(FilesIn(folder_ / "out"), std::vector<std::string>{});
}

}  // namespace
}  // namespace clearhead
