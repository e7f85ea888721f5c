//go:build linux

package main

// The names of all lines that are printed about a part: promises, times and figures. docs/durability.md explains each.

// Promises about every run.
const (
	acceptedKept  = "accepted messages are kept"
	runsEnd       = "accepted runs end"
	oneRunPerKey  = "a key makes one run"
	sessionOrder  = "sessions keep their order"
	noGaps        = "streams have no gaps and no repeats"
	shownStays    = "what was shown stays"
	logsWhole     = "logs are whole"
	answersWhole  = "answers are whole"
	onceAtMost    = "once-calls act at most once"
	doneWasDone   = "results tell what was done"
	noStrayEffect = "no effect without a call"
	keysNameCalls = "keys name their calls"
	unknownTold   = "unknown outcomes are told"
	modelReads    = "the model reads what is recorded"
)

// Promises of single parts.
const (
	syncedFirst   = "acknowledgements follow the fsync"
	refusedUnkept = "what cannot be stored is refused"
	healthTells   = "health tells of the disk"
	recoversAlone = "the server recovers by itself"
	endsWell      = "SIGTERM ends the server well"
	formerSilent  = "a former owner writes and sends nothing"
	firstCounts   = "the first decision counts"
	inTime        = "nothing is decided behind its time"
	oneEnd        = "approvals come to one end"
	onlyApproved  = "nothing happens without its approval"
	refusedNever  = "what is refused never happens"
	approvedOnce  = "what is approved happens at most once"
	auditHolds    = "the audit log holds"
	testedName    = "the part tested something"
)

// Promises of drills alone.
const (
	givenUp     = "a run that ends its server is given up"
	cancelHeld  = "a cancel reaches the server that drives the run"
	leftAlone   = "no run is taken from a server that lives"
	nothingLeft = "a server that lost a run calls nothing for it"
)

// Bounds of time.
const (
	endsInTime     = "SIGTERM ends the server in time"
	takenUp        = "another takes up what one leaves behind"
	acceptedAgain  = "a run is accepted again"
	interruptedOn  = "interrupted runs go on"
	handedGoOn     = "runs handed over go on"
	resumedReading = "time to go on reading" // a bound with -long, and a figure without
)

// Figures that nothing is promised about.
const (
	readyTime   = "time to ready"
	goesOnTime  = "time to the first event that goes on"
	silenceTime = "silence before an attempt"
	decideTime  = "time from a decision to its call"
	notRunName  = "not run"
)
