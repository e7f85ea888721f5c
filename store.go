package hob

import (
	"context"
	"encoding/json"
	"time"
)

// Store keeps everything. Every method that acts for somebody takes the principal and applies Can: what it may not see
// is NotFound. Writes are durable when they return. Implementations pass storetest.Exercise.
type Store interface {
	AgentStore
	ToolStore
	AssignmentStore
	SessionStore
	RunStore
	RunReader
	FollowStore
	HeldStore
	OnceStore
	UsageLedger
	KeyStore
	SettingStore
	ProviderKeyStore
	ProfileStore
	FileStore
	HookStore
	ApprovalStore
	DeliveryStore
	AuditStore
	Ping(ctx context.Context) error
	Close() error
}

// ListOptions are the common parameters of lists, already checked: Sort is a column the list allows, "" the default.
type ListOptions struct {
	Limit, Offset int
	Query         string // part of the name, any case; its % _ \ mean themselves
	Sort          string
	Asc           bool
}

// Page is a part of a list and the size of the whole.
type Page[T any] struct {
	Items []T
	Total int64
}

// AgentStore keeps agents. Deleting one also deletes its assignments; its sessions stay.
type AgentStore interface {
	CreateAgent(ctx context.Context, by Principal, a Agent) (Agent, error)
	Agent(ctx context.Context, by Principal, id AgentID) (Agent, error)
	Agents(ctx context.Context, by Principal, o ListOptions) (Page[AgentRow], error) // sorts: created_at, name, updated_at, last_run_at
	UpdateAgent(ctx context.Context, by Principal, id AgentID, p AgentPatch) (Agent, error)
	DeleteAgent(ctx context.Context, by Principal, id AgentID) error
}

// ToolPatch changes what is not nil. A header whose value is Mask keeps its stored value; one that carried a secret to
// another endpoint is cleared when the endpoint changes, unless the patch sets it anew.
type ToolPatch struct {
	Name, Description *string
	InputSchema       json.RawMessage
	Config            *ToolConfig
	IsActive          *bool
}

// ToolStore keeps custom tools and what was changed of builtin ones. Names of custom tools are unique per workspace
// (Conflict). Header values are sealed at rest.
type ToolStore interface {
	CreateTool(ctx context.Context, by Principal, t Tool) (Tool, error)
	Tool(ctx context.Context, by Principal, id ToolID) (Tool, error)
	Tools(ctx context.Context, by Principal) ([]Tool, error) // by name
	UpdateTool(ctx context.Context, by Principal, id ToolID, p ToolPatch) (Tool, error)
	// DeleteTool gives the agents that had the tool, by an assignment or by their tool_ids.
	DeleteTool(ctx context.Context, by Principal, id ToolID) ([]AgentRef, error)
	// ToolUses lists the assignments of a tool, by the names of their agents.
	ToolUses(ctx context.Context, by Principal, id ToolID) ([]ToolUse, error)
	// ToolVersions gives a tool after each of its last changes, newest first, header values masked.
	ToolVersions(ctx context.Context, by Principal, id ToolID) ([]ToolVersion, error)
	// RestoreTool makes a tool what it was at a version, its headers included, as a new version. The switch stays as it is:
	// going back to an older form does not switch on what somebody switched off.
	RestoreTool(ctx context.Context, by Principal, id ToolID, version int64) (Tool, error)
	// Builtins gives what the workspace changed of builtin tools, by name; those it never changed are absent.
	Builtins(ctx context.Context, by Principal) (map[string]BuiltinChange, error)
	// ChangeBuiltin replaces what the workspace changed of a builtin tool. The change's version is the one that it was made
	// from, Conflict where that is not the newest any more. That there is such a tool is the caller's to know.
	ChangeBuiltin(ctx context.Context, by Principal, name string, c BuiltinChange) error
}

// AssignmentStore keeps which agent has which tool. One agent has a tool once (Conflict).
type AssignmentStore interface {
	Assign(ctx context.Context, by Principal, a Assignment) (Assignment, error)
	Assignments(ctx context.Context, by Principal, agent AgentID) ([]AssignedTool, error) // in order of creation
	// Scope gives what runs of an agent may use: its assignments, or, where it has tool_ids, the tools that these name in
	// their order, each with its assignment where there is one, else with one that has no id and no configuration. Tools that
	// are switched off are among them, see AssignedTool.Off, and so are ids of custom tools that are gone, whose Tool is nil.
	Scope(ctx context.Context, by Principal, agent AgentID) ([]AssignedTool, error)
	// Standing says how the tools of some refs stand to runs of an agent now, in the order of the refs. It is asked before
	// calls are carried out: it takes one trip to the database at most, and asks for no principal.
	Standing(ctx context.Context, ws WorkspaceID, agent AgentID, refs []string) ([]Standing, error)
	UpdateAssignment(ctx context.Context, by Principal, agent AgentID, id AssignmentID, config json.RawMessage) (Assignment, error)
	Unassign(ctx context.Context, by Principal, agent AgentID, id AssignmentID) error
}

// SeedTurn is one finished exchange that is put into a new session.
type SeedTurn struct{ User, Assistant string }

// SessionStore keeps sessions.
type SessionStore interface {
	CreateSession(ctx context.Context, by Principal, s Session, seed []SeedTurn) (Session, error)
	Session(ctx context.Context, by Principal, id SessionID) (Session, error)
	Sessions(ctx context.Context, by Principal, agent AgentID, f SessionFilter) (Page[SessionRow], error) // last activity first
	// DeleteSession ends and deletes the session with its runs. agent, where set, must be the session's.
	DeleteSession(ctx context.Context, by Principal, agent AgentID, id SessionID) error
	// SessionRuns gives the session's runs from the oldest on, with their stories.
	SessionRuns(ctx context.Context, by Principal, id SessionID, limit, offset int) ([]RunDetail, error)
	// History gives the session's finished runs of the given turns, oldest first: from the newest back while they fit into
	// the budget, at least the newest. Where the session has a summary, runs before it are left out, and of the run in which
	// it was made the messages that it covers, but for the user's.
	History(ctx context.Context, by Principal, id SessionID, r HistoryRange) (History, error)
}

// HistoryRange picks earlier turns of a session.
type HistoryRange struct {
	After, Before int64 // turns between these two, both left out
	Budget        int   // characters of all messages together
}

// History is what was said in a session.
type History struct {
	// Summary is the newest one of a turn up to HistoryRange.Before, that one included; nil where there is none.
	Summary *Summary
	Runs    []PastRun
	Cut     bool // older turns of the range were left out for the budget
}

// PastRun is a finished run as later turns may read it: its messages alone and with those of other runs are valid.
type PastRun struct {
	Turn     int64
	Chars    int
	Messages []Message
	Tokens   []int // of each message, as the engine estimated them; the store leaves it nil
}

// Messages gives the messages of all runs.
func (h History) Messages() []Message {
	n := 0
	for _, r := range h.Runs {
		n += len(r.Messages)
	}
	out := make([]Message, 0, n)
	for _, r := range h.Runs {
		out = append(out, r.Messages...)
	}
	return out
}

// Idempotency binds a client's key to what its request made.
type Idempotency struct {
	Scope  string // who and which route
	Key    string
	Digest string // of the request body
	Keep   time.Duration
}

// NewRun is a run about to be accepted.
type NewRun struct {
	Run         Run // Status Running, Epoch 1, LeaseOwner set; Turn is given by the store
	Lease       time.Duration
	Session     Session // its id may be the client's; made where absent
	Message     Message // the user's
	Pin         json.RawMessage
	Events      []Event // the first ones, from seq 1
	Idempotency *Idempotency
}

// StartedRun is what became of a NewRun.
type StartedRun struct {
	Run      Run
	Replayed bool // an earlier request with the same key and body made this run; nothing was written
}

// RunCommit is one durable step of a run, all or nothing, fenced by Epoch.
type RunCommit struct {
	Run      RunID
	Epoch    int64
	Owner    string
	Lease    time.Duration // the lease is extended to now + this
	Events   []Event       // numbered on from the last
	Messages []Message     // appended behind the run's others, the first at index MessageBase
	Base     int
	Calls    []CallState // inserted or replaced by call id
	Usage    []UsageEntry
	Summary  *Summary // of the conversation so far; the one that reaches furthest counts, of two that reach as far the later; Turn is the run's own where 0
	Outcome  *Outcome // ends the run, or lays it to rest
	// Rewrite takes the place of the run's last message, whose role and calls it has.
	Rewrite *Message
	// Approvals are new ones, pending, and old ones by their id: of those the status is written where it was pending, and
	// Settled. A settled one that was decided otherwise meanwhile fences the commit. An outcome that ends the run cancels what
	// is pending.
	Approvals  []Approval
	Deliveries []Delivery   // queued, due at once
	Audit      []AuditEntry // beside those that the store makes of calls and approvals itself
}

// Outcome is the state a commit leaves a run in.
type Outcome struct {
	Status  Status
	Code    string
	Error   string
	Content string
	Steps   int
	Usage   Usage
	// Of AwaitingApproval: when the run is to be taken up at the latest, from now on; 0 = when an approval is decided or expires.
	// Where one was decided already, or the run is to be cancelled, it becomes queued instead.
	Wake time.Duration
}

// Summary stands for the beginning of a conversation: everything before the message of index Index in the turn Turn,
// whose first message, the user's, is kept beside it.
type Summary struct {
	Turn  int64
	Index int
	Text  string
}

// RunState is all that is needed to drive a run on.
type RunState struct {
	Run      Run              // Usage is what its model calls have cost so far
	Actions  map[string]int64 // of the usage ledger so far
	Pin      json.RawMessage
	Messages []Message // its own turn so far
	Calls    []CallState
	// VoidFrom is the seq of the first text delta since the last step_started, 0 if there is none.
	VoidFrom int64
	// Step is the number in the last step_started, 0 if there is none.
	Step int
	// Told is the number in the last attempt event, 1 if there is none: a run that was woken from waiting has none of its own.
	Told      int
	Hooks     []HookResultEvent // of its log
	Approvals []Approval        // all of the run's, in the order in which they were made; what is over reads as expired
}

// Claimed is a run that a process took over, with the epoch it must write under.
type Claimed struct {
	Run   RunID
	Epoch int64
}

// RunStore is the engine's side of the store: it acts by lease, not for a principal.
type RunStore interface {
	// StartRun accepts a run: session, run, user message, first events, pin and idempotency key in one transaction.
	// Errors: NotFound (session of another owner; run_deleted as for EarlierRun), Conflict (session of another agent, or
	// run id in use), Unprocessable.
	StartRun(ctx context.Context, n NewRun) (StartedRun, error)
	// Commit writes one step. Fenced where the epoch is not the run's any more or the run has ended.
	Commit(ctx context.Context, c RunCommit) error
	// Load reads a run for driving it on.
	Load(ctx context.Context, id RunID) (RunState, error)
	// Claim takes at most limit runs that are queued, whose time of waiting for approvals is over, or whose lease is over, none of them leased to the owner itself, and
	// gives them new epochs. all also takes runs whose lease is not over: right only where no other process can exist.
	Claim(ctx context.Context, owner string, lease time.Duration, limit int, all bool) ([]Claimed, error)
	// Renew extends the leases of all unfinished runs of an owner and gives them all, with the code for which they are to be
	// cancelled, "" for none.
	Renew(ctx context.Context, owner string, lease time.Duration) (map[RunID]string, error)
	// Release ends the leases of an owner at once, of the given runs or of all, so that they can be claimed. stalled says
	// that the runs themselves are why; otherwise (the process ends in good order, the database was away) the claims behind
	// it do not count as stalls.
	Release(ctx context.Context, owner string, stalled bool, runs ...RunID) error
	// RequestCancel marks an unfinished run so that its driver, on whatever process, ends it with the code. The run is
	// returned as it was; marking a finished one changes nothing.
	RequestCancel(ctx context.Context, by Principal, id RunID, code string) (Run, error)
}

// FollowStore is how processes that share the store know of each other's runs and readers.
type FollowStore interface {
	// Watch calls changed with runs that some process wrote to or marked, soon after it did, until ctx ends; an empty list
	// means that any run may have changed. It is a hint: some changes may not be told, and an error says that nothing is
	// told until Watch is called again. Where no other process can exist it tells nothing.
	Watch(ctx context.Context, changed func([]RunID)) error
	// Follow notes that somebody reads an unfinished run at another process than its driver's, for a while from now.
	Follow(ctx context.Context, id RunID, d time.Duration) error
	// Followed says whether that is noted and not over.
	Followed(ctx context.Context, id RunID) (bool, error)
}

// HeldStore is about the unfinished runs that a restore brought back: what they had done since the backup is not known.
type HeldStore interface {
	// HeldRuns lists them, oldest first, for an administrator.
	HeldRuns(ctx context.Context, by Principal) ([]Run, error)
	// ReleaseHeld lets the given runs, or all of them, go on, and says how many were held. An id that no run has is NotFound,
	// and then none is let go. Forbidden without admin rights.
	ReleaseHeld(ctx context.Context, by Principal, runs ...RunID) (int64, error)
}

// Answer is what a request was answered with.
type Answer struct {
	Status int
	Body   []byte
}

// OnceStore keeps the answers of creating requests that carry an idempotency key.
type OnceStore interface {
	// Once carries do out and keeps its answer, in one durable transaction: what do writes to the store that it is given
	// is there exactly if the answer is kept. do must be quick, for others may wait for it, may run more than once, and
	// must touch nothing else. An earlier answer under the same key is given again (replayed); with another digest the
	// error is Unprocessable. What do fails with is not kept.
	Once(ctx context.Context, key Idempotency, do func(context.Context, Store) (Answer, error)) (a Answer, replayed bool, err error)
}

// RunReader is what reads runs.
type RunReader interface {
	Run(ctx context.Context, by Principal, id RunID) (Run, error)
	RunDetail(ctx context.Context, by Principal, id RunID) (RunDetail, error)
	// EarlierRun gives the run that the key's request made before, false where there is none. Errors: Unprocessable for
	// another request, NotFound (run_deleted) where the run is gone with its session.
	EarlierRun(ctx context.Context, by Principal, key Idempotency) (Run, bool, error)
	// Events gives the log behind a position, at most limit entries, fewer where they are long, none only at its end.
	Events(ctx context.Context, by Principal, id RunID, after int64, limit int) ([]Event, error)
}

// UsageLedger is the usage ledger. What runs use is booked with their commits.
type UsageLedger interface {
	// Book writes down what a principal used outside of runs, for an agent or "".
	Book(ctx context.Context, by Principal, agent AgentID, used []UsageEntry) error
	// Usage sums up what the principal may see, by the filter's group, the largest use first (days in order).
	Usage(ctx context.Context, by Principal, f UsageFilter) ([]UsageRow, error)
	// AgentUsage is what the runs of an agent have used in model calls since a time, for its budget.
	AgentUsage(ctx context.Context, agent AgentID, since Time) (Usage, error)
}

// KeyStore keeps API keys by the SHA-256 of their secret.
type KeyStore interface {
	CreateKey(ctx context.Context, by Principal, k Key, hash []byte) (Key, error)
	KeyByHash(ctx context.Context, hash []byte) (Key, error) // expired and revoked ones too: the caller judges
	Keys(ctx context.Context, by Principal) ([]Key, error)
	// RevokeKey ends a key and marks the unfinished runs that it started for cancelling.
	RevokeKey(ctx context.Context, by Principal, id KeyID) (Key, error)
}
