// SPDX-License-Identifier: MIT
#include "cli/commands.h"

namespace clearhead::cli {

void AddCommands(CLI::App& app) {
  AddInfo(app);
  AddTokenize(app);
  AddCapture(app);
  AddEval(app);
  AddCompare(app);
  AddGenerate(app);
  AddWrite(app);
  AddAttention(app);
  AddGrid(app);
  AddHeads(app);
  AddScatter(app);
  AddLens(app);
  AddKnockout(app);
  AddSteer(app);
  AddServe(app);
  AddReport(app);
  AddTasks(app);
  AddCircuit(app);
  AddFeatures(app);
  AddTrace(app);
  AddCarriers(app);
  AddTrain(app);
  AddSparsify(app);
  AddFrontier(app);
  AddConvert(app);
  AddBench(app);
  AddDemo(app);
}

}  // namespace clearhead::cli
