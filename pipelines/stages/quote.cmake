# INPUT, a text, as one literal of C++: OUTPUT.
file(READ "${INPUT}" text)
file(WRITE "${OUTPUT}" "R\"tally(${text})tally\"")
