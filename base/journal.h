// Levels of log lines as journald reads them.
#pragma once

namespace tally {

// Has each log line begin with its level ("<4>") where stderr is a stream of the journal. Call at the start of main.
void UseJournalLevels();

}  // namespace tally
