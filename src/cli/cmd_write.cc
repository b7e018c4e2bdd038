// SPDX-License-Identifier: MIT
// clearhead write MODEL --documents N --out FILE: a model writes text of its own.
#include <fmt/format.h>

#include <chrono>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/gate_options.h"
#include "cli/interrupt.h"
#include "cli/numbers.h"
#include "cli/precision.h"
#include "core/error.h"
#include "core/file.h"
#include "core/progress.h"
#include "model/packed_weights.h"
#include "text/token_file.h"
#include "text/utf8.h"
#include "use/write.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  GateFlags gates;
  std::string model, prompt, out, precision = "fp32";
  WriteOptions write;
  Option* longest = nullptr;
};

// What a document starts with: its begin-of-text token and the prompt.
std::vector<std::int32_t> StartOf(const Options& o, const Model& model,
                                  const Tokenizer& tokenizer) {
  std::vector<std::int32_t> start = tokenizer.EncodePrompt(o.prompt);
  if (tokenizer.begin_of_text()) return start;
  // Elsewhere a text begins where the one before ends.
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (end && *end < model.config.vocabulary) start.insert(start.begin(), *end);
  if (start.empty()) {
    Fail("{}: its tokenizer has neither begin-of-text nor end-of-text; give a --prompt", o.model);
  }
  return start;
}

// Text that the tokenizer reads back as the token between two documents; a line end where there is
// none.
std::string SeparatorOf(const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> token =
      tokenizer.begin_of_text() ? tokenizer.begin_of_text() : tokenizer.end_of_text();
  if (!token) return "\n";
  const std::string text = tokenizer.TokenText(*token);
  const bool read_back = tokenizer.Encode(text) == std::vector<std::int32_t>{*token};
  return read_back ? text : "\n";
}

// Without its first token where that is what stands between documents.
std::string TextOf(std::span<const std::int32_t> ids, const Tokenizer& tokenizer) {
  if (tokenizer.begin_of_text()) return ToValidUtf8(tokenizer.DecodePrompt(ids));
  const std::size_t skipped = tokenizer.end_of_text() ? 1 : 0;
  return ToValidUtf8(tokenizer.DecodeBytes(ids.subspan(skipped)));
}

// Documents as they come, complete in the end or absent: as text, or as tokens where the file's
// name asks for them.
class Output {
 public:
  Output(const std::filesystem::path& path, const Tokenizer& tokenizer)
      : path_(path), tokenizer_(tokenizer), separator_(SeparatorOf(tokenizer)) {
    // A place that cannot be written is refused before the work.
    if (!IsTokenFile(path)) {
      text_.emplace(path);
    } else if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path())) {
      Fail("'{}': its folder is not there; make it first", path.string());
    }
  }
  // Embeddings beyond the tokenizer's tokens (padding) are left out: nothing could read them.
  void Add(const WrittenDocument& document) {
    std::vector<std::int32_t> ids = document.ids;
    std::erase_if(ids, [&](std::int32_t id) { return id >= tokenizer_.vocabulary_size(); });
    if (!text_) {
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      return;
    }
    if (!first_) text_->Write(separator_);
    text_->Write(TextOf(ids, tokenizer_));
    first_ = false;
  }
  void Commit() {
    if (text_) return text_->Commit();
    WriteTokenFile(path_, ids_);
  }

 private:
  std::filesystem::path path_;
  const Tokenizer& tokenizer_;
  std::string separator_;
  std::optional<AtomicFile> text_;
  std::vector<std::int32_t> ids_;
  bool first_ = true;
};

void Run(const Options& o) {
  const std::filesystem::path path = FindModel(o.model);
  Model model = LoadModel(path);
  if (!UseBf16(o.precision)) PackForUse(&model);
  const Tokenizer tokenizer = Tokenizer::Load(path);
  WriteOptions write = o.write;
  write.start = StartOf(o, model, tokenizer);
  write.generate.seed = o.common.seed;
  write.generate.stop_tokens = model.config.end_of_text;
  if (tokenizer.begin_of_text()) {
    write.generate.stop_tokens.push_back(*tokenizer.begin_of_text());
  }
  if (tokenizer.end_of_text()) write.generate.stop_tokens.push_back(*tokenizer.end_of_text());
  write.generate.gates = o.gates.Resolve(model.config, o.common.seed);
  write.generate.gates.sum_probabilities = false;
  if (o.longest->count() == 0) write.generate.max_new = model.config.positions;

  std::optional<PackedWeights> packed;
  if (UseBf16(o.precision)) {
    packed.emplace().Pack(model, PackedFor::kBf16, PackedWays::kForward);
    write.packed = &*packed;
  }
  const auto begun = std::chrono::steady_clock::now();
  Output file(o.out, tokenizer);
  const InterruptGuard interrupt;
  std::int64_t documents = 0, tokens = 0, unfinished = 0;
  std::optional<Progress> bar;
  bar.emplace("write", write.documents, "documents");
  WriteDocuments(
      model, write,
      [&](const WrittenDocument& document) {
        ++documents;
        file.Add(document);
        unfinished += document.finished ? 0 : 1;
      },
      [&](std::int64_t count) {
        tokens += count;
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        bar->Update(documents, fmt::format("{} tok/s", FormatCount(static_cast<double>(tokens) /
                                                                   std::max(seconds, 1e-9))));
        return !interrupt.requested();
      });
  bar.reset();
  if (interrupt.requested()) {
    throw Interrupted(
        fmt::format("stopped after {} of {} documents; '{}' was not written (write them in pieces: "
                    "--documents N --first 0, --first N, ...)",
                    documents, write.documents, o.out));
  }
  file.Commit();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const double rate = static_cast<double>(tokens) / std::max(seconds, 1e-9);
  if (o.common.json) {
    return PrintJson({{"documents", documents},
                      {"unfinished", unfinished},
                      {"tokens", tokens},
                      {"seconds", seconds},
                      {"tokens_per_second", rate},
                      {"file", o.out}});
  }
  Print(fmt::format("{}: {} documents, {} tokens ({:.0f} tokens/s){}\n", o.out, documents, tokens,
                    rate,
                    unfinished == 0 ? ""
                                    : fmt::format("; {} of them end where the model's positions "
                                                  "or --longest do",
                                                  unfinished)));
}

}  // namespace

void AddWrite(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "write",
      "Let a model write text of its own, many documents at once: text to post-train it on.\n"
      "A document is a function of the seed and its number.",
      "clearhead write stories15M --documents 2000 --out own.txt", options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  command
      ->add_option("--documents,--stories", options->write.documents, "How many documents to write")
      ->required()
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 32));
  command
      ->add_option("--out", options->out,
                   "The text file; NAME.safetensors keeps tokens, as --text reads them")
      ->required();
  command->add_option("--prompt", options->prompt, "How every document starts (default: freely)");
  options->write.generate.temperature = 1.0;
  command
      ->add_option("--temperature", options->write.generate.temperature,
                   "1 = the model's own distribution (default), 0 = always the most likely token")
      ->check(Range(0.0, 100.0));
  command
      ->add_option("--top-k", options->write.generate.top_k,
                   "Draw from the K most likely only (default: all)")
      ->check(PositiveNumber());
  options->longest =
      command
          ->add_option("--longest", options->write.generate.max_new,
                       "New tokens of a document at most (default: the model's positions)")
          ->check(PositiveNumber());
  command->add_option("--batch", options->write.at_once, "Documents written at once (default: 64)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 16));
  command
      ->add_option("--first", options->write.first_document,
                   "Number of the first document, to write a long text in pieces (default: 0)")
      ->check(NonNegativeNumber());
  AddPrecision(command, &options->precision);
  options->gates.Add(command, /*with_weight=*/false);
}

}  // namespace clearhead::cli
