// How a kernel says that any number of blocks may share its work.
#pragma once

namespace tally::device {

// Somewhere in the name of a kernel whose blocks go round in a loop by their grid's size in x: with a larger one it
// does the same, and no block waits for another. A promise of whoever wrote it; who breaks it spoils its own results.
inline constexpr char kAnyGrid[] = "tally_any_grid";

}  // namespace tally::device
