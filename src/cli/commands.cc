#include "cli/commands.h"

namespace clearhead::cli {

void AddCommands(CLI::App& app) {
  AddInfo(app);
  AddTokenize(app);
  AddCapture(app);
  AddEval(app);
  AddCompare(app);
  AddGenerate(app);
  AddAttention(app);
  AddTasks(app);
  AddTrain(app);
  AddSparsify(app);
  AddBench(app);
}

}  // namespace clearhead::cli
