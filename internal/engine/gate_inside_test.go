package engine

// StandingAge lets tests wait until a look at the tools' standing is old.
const StandingAge = standingAge
