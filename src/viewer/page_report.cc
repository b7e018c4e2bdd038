// SPDX-License-Identifier: MIT
#include "viewer/page_report.h"

#include <algorithm>

#include "core/error.h"
#include "viewer/ablation_runs.h"
#include "viewer/feature_answers.h"
#include "viewer/lens_answer.h"
#include "viewer/page_api.h"
#include "viewer/page_assets.h"
#include "viewer/trace_answers.h"
#include "viewer/trace_details.h"

namespace clearhead {
namespace {

// Of each model: cards are what makes a report with features large.
constexpr std::int64_t kReportStrongest = 5, kReportCards = 1000;
constexpr std::int64_t kReportLikeliest = 3;  // of each cell of a lens

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

// Into the page at a mark that must be there once.
void Replace(std::string* page, std::string_view mark, std::string_view text) {
  const std::size_t at = page->find(mark);
  Check(at != std::string::npos, "the page has its marks");
  page->replace(at, mark.size(), text);
}

// What fires on the prompts, and the cards of these features.
template <typename Add>
void AddFeatures(const ModelSet& set, std::vector<PageQuestion> questions, const Add& add) {
  if (std::none_of(set.models.begin(), set.models.end(),
                   [](const ViewedModel& viewed) { return viewed.features != nullptr; })) {
    return;
  }
  std::vector<std::vector<std::optional<PromptFeatures>>> runs;
  for (PageQuestion& question : questions) {
    question.strongest = kReportStrongest;
    runs.push_back(RunFeatures(set, question, {}));
    add("features", FeaturesFrame(set, question, runs.back()));
  }
  for (std::size_t m = 0; m < set.models.size(); ++m) {
    if (set.models[m].features) {
      add("cards", ToText(CardsOf(set, m, runs, kReportCards), -1));
    }
  }
}

// What each layer would predict, and each head after the last token, on the prompts that are short
// enough.
template <typename Add>
void AddLenses(const ModelSet& set, std::vector<PageQuestion> questions, const Add& add) {
  for (PageQuestion& question : questions) {
    const auto length = static_cast<std::int64_t>(question.ids.size());
    if (length > kMaxLensTokens) continue;
    question.position = length - 1;
    question.likeliest = kReportLikeliest;
    for (question.model = 0; question.model < set.models.size(); ++question.model) {
      add("lens", LensFrame(set, question, {}));
    }
  }
}

// Graphs of the prompts that are short enough, and the heads of their strongest edges.
template <typename Add>
void AddTraces(const ModelSet& set, const std::vector<PageQuestion>& questions, const Add& add) {
  for (const PageQuestion& question : questions) {
    if (static_cast<std::int64_t>(question.ids.size()) > kMaxTraceTokens) continue;
    for (std::size_t m = 0; m < set.models.size(); ++m) {
      if (!set.models[m].features) continue;
      const TracedPrompt traced = TracePromptOf(set, m, question.ids, [] {});
      add("trace", TraceFrame(set, m, question.prompt, traced));
      add("trace-details", ToText(TraceDetails(set, question, m, traced), -1));
    }
  }
}

}  // namespace

std::vector<std::string> ExamplePrompts(const ModelSet& set) {
  std::vector<std::string> prompts;
  const Json overview = Overview(set, {});
  for (const Json& task : overview["tasks"]) {
    prompts.push_back(task["examples"][0]["prompt"].get<std::string>());
  }
  return prompts;
}

std::string MakePageReport(const ModelSet& set, const std::vector<std::string>& prompts,
                           const std::vector<ResultFile>& results,
                           const PageReportProgress& progress) {
  if (PageScript().empty()) {
    Fail("this program was built without its page; build it with -DCLEARHEAD_WEB=ON");
  }
  if (prompts.empty()) Fail("no prompt to report on; give one with --prompt");
  // Base64 has no character that HTML reads, so nothing in a prompt can leave its script element.
  std::string data;
  const auto add = [&](std::string_view kind, std::string_view bytes) {
    data += fmt::format("<script type=\"text/plain\" data-clearhead=\"{}\">{}</script>\n", kind,
                        Base64(bytes));
  };
  add("overview", ToText(Overview(set, results), -1));
  // All prompts are judged before the first of many runs.
  std::vector<PageQuestion> questions;
  for (const std::string& prompt : prompts) {
    const Json question = {{"prompt", prompt}};
    PageQuestion parsed = ParseQuestion(QuestionKind::kRun, ToText(question, -1), set);
    parsed.cells = MostCells(set, static_cast<std::int64_t>(parsed.ids.size()));
    questions.push_back(std::move(parsed));
  }
  std::size_t runs = 0, done = 0;
  for (const ViewedModel& viewed : set.models) runs += AblationSets(viewed, results).size();
  const auto ran = [&] {
    ++done;
    if (!progress) return;
    progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(runs * prompts.size()));
  };
  for (const PageQuestion& question : questions) {
    add("run", RunFrame(set, question, {}));
    add("ablations", AblationFrame(set, question.prompt, results, ran));
  }
  for (const ResultFile& result : results) add("result", ToText(result.json, -1));
  AddFeatures(set, questions, add);
  AddTraces(set, questions, add);
  AddLenses(set, questions, add);

  std::string page(PageHtml());
  Replace(&page, "<!--head-->",
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
          "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action "
          "'none'\">");
  Replace(&page, "<link rel=\"stylesheet\" href=\"/page.css\">",
          fmt::format("<style>{}</style>", PageStyle()));
  Replace(&page, "<script src=\"/page.js\" defer></script>", "");
  Replace(&page, "<!--data-->", data + fmt::format("<script>{}</script>", PageScript()));
  return page;
}

}  // namespace clearhead
