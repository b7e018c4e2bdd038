// Results as JSON; docs/formats.md is the schema.
#pragma once

#include "analysis/composition.h"
#include "analysis/correlation.h"
#include "analysis/head_comparison.h"
#include "analysis/head_report.h"
#include "core/json.h"

namespace clearhead {

Json ToJson(const HeadResult& head);
Json ToJson(const ModelReport& report, const std::vector<const HeadResult*>& shown);
Json ToJson(const ModelComparison& comparison);
Json ToJson(const Composition& composition);
Json ToJson(const ScatterSection& section);
Json ToJson(const CorrelationMatrix& matrix);

// A header line and one line per head; numbers as in the JSON.
std::string HeadCsvHeader();
std::string HeadCsvLine(const std::string& label, const HeadResult& head);

}  // namespace clearhead
