// SPDX-License-Identifier: MIT
#include "cli/trace_inputs.h"

#include <fmt/format.h>

#include "core/error.h"
#include "features/node_names.h"
#include "features/transcoder_files.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;
}  // namespace

std::string ShortName(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

std::unique_ptr<TracedModel> LoadTraced(const std::string& model, const std::string& features,
                                        const std::string& index) {
  const fs::path folder = FindModel(model);
  auto traced = std::make_unique<TracedModel>();
  traced->name = ShortName(model);
  traced->model = LoadModel(folder);
  if (HasTokenizer(folder)) traced->tokenizer = Tokenizer::Load(folder);
  if (features.empty()) return traced;
  const fs::path at = FindFeatures(features);
  traced->features_name = ShortName(features);
  traced->transcoder = LoadTranscoder(at);
  CheckFits(*traced->transcoder, traced->model);
  if (!index.empty()) {
    traced->index.emplace(fs::path(index));
  } else {
    traced->index = FindIndex(at);
  }
  if (traced->index) traced->index->CheckBelongsTo(*traced->transcoder);
  return traced;
}

std::int32_t SingleToken(const Tokenizer* tokenizer, const std::string& text) {
  if (tokenizer == nullptr) {
    Fail("'{}': the model's folder has no tokenizer; name tokens by their ids (--target-ids)",
         text);
  }
  const std::vector<std::int32_t> ids = tokenizer->EncodeContinuation(text);
  if (ids.size() == 1) return ids[0];
  std::string parts;
  for (const std::int32_t id : ids) {
    parts += fmt::format("{}\"{}\"", parts.empty() ? "" : ", ", TokenName(tokenizer, id));
  }
  Fail("\"{}\" is not one token but {}{}; give one token, or ids with --target-ids", text,
       ids.size(), parts.empty() ? "" : ": " + parts);
}

void TargetOptions::Add(Command* command) {
  command
      ->add_option("--target", targets,
                   "Trace this token's logit, e.g. \" small\"; may be given again (default: the "
                   "likeliest tokens up to 95 %, at most 10)")
      ->allow_extra_args(false);
  command->add_option("--target-ids", ids, "The same by ids: 5,7");
  command
      ->add_option("--contrast", contrast,
                   "Trace the difference of two logits: \" small,  big\" as A,B")
      ->delimiter(',');
}

LogitOptions TargetOptions::Read(const Tokenizer* tokenizer) const {
  if ((targets.empty() ? 0 : 1) + (ids.empty() ? 0 : 1) + (contrast.empty() ? 0 : 1) > 1) {
    FailUsage("give one of --target, --target-ids and --contrast");
  }
  LogitOptions options;
  for (const std::string& text : targets) {
    options.tokens.push_back(SingleToken(tokenizer, text));
  }
  if (!ids.empty()) options.tokens = ParseIds(ids);
  if (!contrast.empty()) {
    if (contrast.size() != 2) {
      FailUsage("--contrast needs two tokens with a comma between them, not {}", contrast.size());
    }
    options.contrast = {SingleToken(tokenizer, contrast[0]), SingleToken(tokenizer, contrast[1])};
  }
  return options;
}

std::vector<std::string> TokenTexts(const Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
  std::vector<std::string> texts;
  for (const std::int32_t id : ids) texts.push_back(TokenName(tokenizer, id));
  return texts;
}

}  // namespace clearhead::cli
