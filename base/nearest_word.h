// What somebody probably meant who typed a word that there is not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

// How many letters have to be left out, put in, replaced, or exchanged with their neighbour to make one of the other.
size_t EditDistance(std::string_view one, std::string_view other);

// The first of the nearest words; empty if none is near: more than a third of the letters would be others.
std::string NearestWord(std::string_view typed, const std::vector<std::string>& words);

}  // namespace tally
