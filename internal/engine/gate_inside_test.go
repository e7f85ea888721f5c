package engine

// StandingAge lets tests wait until a look at the tools' standing is old.
const StandingAge = standingAge

// Wake has the engine look at once for runs that can be taken up, as it does each second.
func (e *Engine) Wake() { ring(e.wake) }
