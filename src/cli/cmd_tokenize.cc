// SPDX-License-Identifier: MIT
// clearhead tokenize MODEL: text to token ids, and back.
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/common.h"
#include "core/error.h"
#include "core/file.h"
#include "text/utf8.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, text, file, input, decode;
  bool no_special = false;
  Option *text_option = nullptr, *file_option = nullptr, *decode_option = nullptr;
};

std::string ReadStandardInput() {
  std::string text;
  char piece[1 << 16];
  while (const std::size_t n = std::fread(piece, 1, sizeof(piece), stdin)) text.append(piece, n);
  if (std::ferror(stdin) != 0) Fail("cannot read standard input");
  return text;
}

void Run(const Options& options) {
  const bool from_stdin = !options.input.empty();
  if (from_stdin && options.input != "-") {
    FailUsage("'{}': expected --text, --file, --decode, or - for standard input", options.input);
  }
  const auto given = options.text_option->count() + options.file_option->count() +
                     options.decode_option->count() + (from_stdin ? 1 : 0);
  if (given != 1) FailUsage("give exactly one of --text, --file, --decode and - (standard input)");

  const Tokenizer tokenizer = Tokenizer::Load(FindModel(options.model));
  if (options.decode_option->count() > 0) {
    const std::string bytes = tokenizer.DecodePrompt(ParseIds(options.decode));
    if (options.common.json) return PrintJson({{"text", ToValidUtf8(bytes)}});
    return Print(bytes + "\n");
  }
  const std::string text = from_stdin                         ? ReadStandardInput()
                           : options.file_option->count() > 0 ? ReadFile(options.file)
                                                              : options.text;
  const std::vector<std::int32_t> ids = options.no_special
                                            ? tokenizer.Encode(text, SpecialTokens::kAsText)
                                            : tokenizer.EncodePrompt(text);
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) tokens.push_back(tokenizer.TokenText(id));
  if (options.common.json) return PrintJson({{"ids", ids}, {"tokens", tokens}});
  std::string lines;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    lines += fmt::format("{:>7}  {}\n", ids[i], Json(tokens[i]).dump());
  }
  Print(lines);
}

}  // namespace

void AddTokenize(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command =
      AddCommand(app, "tokenize", "Turn text into token ids, or ids into text",
                 "clearhead tokenize gpt2 --text 'Hello world' --json", options, Run);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  command->add_option("INPUT", options->input, "- reads the text from standard input");
  options->text_option = command->add_option("--text", options->text, "The text");
  options->file_option = command->add_option("--file", options->file, "A file with the text");
  options->decode_option = command->add_option("--decode", options->decode, "Token ids: 15496,995");
  command->add_flag("--no-special", options->no_special,
                    "Treat <|endoftext|> and the like as ordinary text, and put no "
                    "begin-of-text in front");
}

}  // namespace clearhead::cli
