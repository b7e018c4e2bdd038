// SPDX-License-Identifier: MIT
// Loading, encoding, decoding and learning. The text is made here, with word frequencies like
// prose; the vocabulary is learned from it. With CLEARHEAD_GPT2 set to a folder with GPT-2's
// vocab.json and merges.txt (scripts/fetch-test-data fetches them to <build>/test-data/gpt2), that
// one is measured.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "text/bpe_train.h"
#include "text/token_stream.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

// Random syllable words, the n-th about 1/n as frequent as the first.
std::string MakeProse(std::size_t bytes) {
  RandomStream random(1);
  std::vector<std::string> words;
  for (int i = 0; i < 30000; ++i) {
    std::string word;
    for (std::uint64_t s = 0; s <= random.Below(4); ++s) {
      word += "bcdfghlmnprst"[random.Below(13)];
      word += "aeiou"[random.Below(5)];
    }
    words.push_back(word);
  }
  std::string text;
  while (text.size() < bytes) {
    const double rank = std::pow(static_cast<double>(words.size()), random.Uniform());
    text += words[static_cast<std::size_t>(rank) - 1];
    text += random.Below(12) == 0 ? ".\n" : " ";
  }
  return text;
}

const std::string& Prose() {
  static const std::string text = MakeProse(4'000'000);
  return text;
}

Tokenizer Learn(std::string_view text, std::int32_t size) {
  const std::vector<std::string_view> texts = {text};
  return TrainBpe(texts, {.vocabulary_size = size});
}

const Tokenizer& Measured() {
  static const Tokenizer tokenizer = [] {
    const char* folder = std::getenv("CLEARHEAD_GPT2");
    return folder != nullptr ? Tokenizer::Load(folder) : Learn(Prose(), 8192);
  }();
  return tokenizer;
}

void SetBytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void BM_TokenizerLoad(benchmark::State& state) {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "clearhead-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    state.SkipWithError("no temporary folder");
    return;
  }
  Measured().Save(pattern);
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(pattern));
  std::filesystem::remove_all(pattern);
  state.counters["tokens"] = Measured().vocabulary_size();
}
BENCHMARK(BM_TokenizerLoad)->Unit(benchmark::kMillisecond);

void BM_TokenizerEncode(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Measured().Encode(Prose()));
  SetBytes(state, Prose().size());
}
BENCHMARK(BM_TokenizerEncode)->Unit(benchmark::kMillisecond);

void BM_TokenizerEncodeParallel(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(EncodeParallel(Measured(), Prose()));
  SetBytes(state, Prose().size());
}
BENCHMARK(BM_TokenizerEncodeParallel)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_TokenizerEncodePrompt(benchmark::State& state) {
  const std::string_view prompt = std::string_view(Prose()).substr(0, 200);
  for (auto _ : state) benchmark::DoNotOptimize(Measured().Encode(prompt));
  SetBytes(state, prompt.size());
}
BENCHMARK(BM_TokenizerEncodePrompt)->Unit(benchmark::kMicrosecond);

void BM_TokenizerEncodeOneWord(benchmark::State& state) {
  const std::string word(static_cast<std::size_t>(state.range(0)), 'a');
  for (auto _ : state) benchmark::DoNotOptimize(Measured().Encode(word));
  SetBytes(state, word.size());
}
BENCHMARK(BM_TokenizerEncodeOneWord)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void BM_TokenizerDecode(benchmark::State& state) {
  const std::vector<std::int32_t> ids = Measured().Encode(Prose());
  for (auto _ : state) benchmark::DoNotOptimize(Measured().DecodeBytes(ids));
  SetBytes(state, Prose().size());
}
BENCHMARK(BM_TokenizerDecode)->Unit(benchmark::kMillisecond);

void BM_TokenizerTrain(benchmark::State& state) {
  const auto size = static_cast<std::int32_t>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Learn(Prose(), size));
  SetBytes(state, Prose().size());
}
BENCHMARK(BM_TokenizerTrain)->Arg(1024)->Arg(4096)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace clearhead
