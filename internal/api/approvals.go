package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
	"hob/internal/engine"
)

// maxApprovalsListed is how many approvals the inbox shows at once.
const maxApprovalsListed = maxLimit

// approveInput is a decision.
type approveInput struct {
	Approved      json.RawMessage `json:"approved" jsonschema:"true or false"`
	Reason        *string         `json:"reason,omitempty" jsonschema:"at most 2000 characters; shown to the model when it is refused"`
	ApprovalID    *string         `json:"approval_id,omitempty" jsonschema:"which is meant, where the run waits for several"`
	CallID        *string         `json:"call_id,omitempty" jsonschema:"the same by the call"`
	Digest        *string         `json:"digest,omitempty" jsonschema:"the input_digest of the approval as it was shown: where it is another one by now, nothing is decided"`
	ModifiedInput json.RawMessage `json:"modified_input,omitempty" jsonschema:"with approved: the arguments to call the tool with instead, whole"`
}

type approveAnswer struct {
	Status   string       `json:"status"`
	Approval hob.Approval `json:"approval"`
	Warnings []string     `json:"warnings,omitempty"`
}

// approvalList is what a run waits for, or waited.
type approvalList struct {
	Approvals []hob.Approval `json:"approvals"`
}

// inbox is a part of all approvals that the caller sees.
type inbox struct {
	Approvals []hob.Approval `json:"approvals"`
	Total     int64          `json:"total"`
	Limit     int            `json:"limit"`
	Offset    int            `json:"offset"`
}

// mayReadApprovals lets whoever may decide see what there is to decide, as well as whoever may read or follow runs. Which
// ones it sees is the store's to say.
func (c *call) mayReadApprovals() error {
	if c.by.Has(hob.ScopeApprove) {
		return nil
	}
	return c.mayFollow()
}

// approvalStatus reads the status that a list is narrowed to.
func (c *call) approvalStatus() (hob.ApprovalStatus, error) {
	status := hob.ApprovalStatus(c.queryValue("status"))
	if status == "" {
		return "", nil
	}
	return status, oneOf("status", status, approvalStatuses())
}

func approvalStatuses() []hob.ApprovalStatus {
	return []hob.ApprovalStatus{hob.ApprovalPending, hob.ApprovalApproved, hob.ApprovalDenied, hob.ApprovalExpired, hob.ApprovalCancelled}
}

// listApprovals answers for a run that the caller sees, or to whom one of its approvals is left.
func listApprovals(c *call) error {
	if err := c.mayReadApprovals(); err != nil {
		return err
	}
	id, err := c.runID()
	if err != nil {
		return err
	}
	status, err := c.approvalStatus()
	if err != nil {
		return err
	}
	all, err := c.approvalsOf(c.by, hob.ApprovalFilter{Run: id})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if _, err := c.run(id); err != nil {
			return err
		}
	}
	if status != "" {
		all = slices.DeleteFunc(all, func(a hob.Approval) bool { return a.Status != status })
	}
	return c.reply(http.StatusOK, approvalList{filled(all)})
}

// approvalsOf lists all that a filter lets through and the principal sees.
func (c *call) approvalsOf(by hob.Principal, f hob.ApprovalFilter) ([]hob.Approval, error) {
	f.Limit = maxApprovalsListed
	var all []hob.Approval
	for {
		page, err := c.s.Store.Approvals(c.Context(), by, f)
		all = append(all, page.Items...)
		if f.Offset += len(page.Items); err != nil || len(page.Items) < f.Limit {
			return all, err
		}
	}
}

// listInbox lists what the caller may decide or sees otherwise.
func listInbox(c *call) error {
	if err := c.mayReadApprovals(); err != nil {
		return err
	}
	if err := c.knownQuery(inboxQuery()); err != nil {
		return err
	}
	f := hob.ApprovalFilter{
		Run: hob.RunID(c.queryValue("run_id")), Agent: hob.AgentID(strings.ToLower(c.queryValue("agent_id"))),
		Limit: c.number("limit", defaultLimit, 1, maxApprovalsListed), Offset: c.number("offset", 0, 0, maxListedOffset),
	}
	switch {
	case f.Agent != "" && !hob.IsUUID(string(f.Agent)):
		return hob.Errorf(hob.Invalid, "agent_id must be the id of an agent").With("field", "agent_id")
	case f.Run != "" && (!plainID(string(f.Run)) || len(f.Run) > maxRunID):
		return hob.Errorf(hob.Invalid, "run_id must be the id of a run").With("field", "run_id")
	}
	var err error
	if f.Status, err = c.approvalStatus(); err != nil {
		return err
	}
	page, err := c.s.Store.Approvals(c.Context(), c.by, f)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, inbox{filled(page.Items), page.Total, f.Limit, f.Offset})
}

func getApproval(c *call) error {
	if err := c.mayReadApprovals(); err != nil {
		return err
	}
	id := c.PathValue("approval_id")
	if !plainID(id) {
		return hob.Absent(hob.ApprovalObject)
	}
	page, err := c.s.Store.Approvals(c.Context(), c.by, hob.ApprovalFilter{ID: id, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Items) == 0 {
		return hob.Absent(hob.ApprovalObject)
	}
	return c.reply(http.StatusOK, page.Items[0])
}

// approve decides what a run waits for. It is the one door for decisions.
func approve(c *call) error {
	var in approveInput
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	switch {
	case !given(b, "approved"):
		return b.hint(hob.Errorf(hob.Invalid, "Request body must include 'approved' (boolean)").With("field", "approved"))
	case string(in.Approved) != "true" && string(in.Approved) != "false":
		return hob.Errorf(hob.Invalid, "'approved' must be a boolean").With("field", "approved")
	}
	d := engine.DecideInput{
		Approval: text(in.ApprovalID), Call: hob.CallID(text(in.CallID)), Digest: text(in.Digest), Reason: text(in.Reason),
		Approved: string(in.Approved) == "true",
	}
	if utf8.RuneCountInString(d.Reason) > hob.MaxHookMessage {
		return hob.Errorf(hob.Invalid, "reason must be at most %d characters", hob.MaxHookMessage).With("field", "reason")
	}
	if given(b, "modified_input") {
		switch {
		case !d.Approved:
			return hob.Errorf(hob.Invalid, "modified_input is for approvals: what is refused is not called").With("field", "modified_input")
		case in.ModifiedInput[0] != '{':
			return hob.Errorf(hob.Invalid, "modified_input must be an object").With("field", "modified_input")
		}
		d.ModifiedInput = in.ModifiedInput
	}
	if d.Run, err = c.runID(); err != nil {
		return hob.Errorf(hob.NotFound, "Run not found or not waiting for approval").WithCode(engine.CodeApprovalNotFound)
	}
	a, err := c.s.Engine.Decide(c.Context(), c.by, d)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, approveAnswer{"resumed", a, b.warnings})
}

// text is a field that is "" where it is absent or null.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// waitsFor lists what a run that the caller started waits for.
func (c *call) waitsFor(id hob.RunID) ([]hob.Approval, error) {
	return c.approvalsOf(c.follower(), hob.ApprovalFilter{Run: id, Status: hob.ApprovalPending})
}

// run reads a run the caller may see. Whatever hides it, the answer is the same.
func (c *call) run(id hob.RunID) (hob.Run, error) {
	r, err := c.s.Store.Run(c.Context(), c.follower(), id)
	if hob.KindOf(err) == hob.NotFound {
		return r, absentRun()
	}
	return r, err
}

func cancelRun(c *call) error {
	id, err := c.runID()
	if err != nil {
		return err
	}
	status, err := c.s.Engine.Cancel(c.Context(), c.by, id)
	if hob.KindOf(err) == hob.NotFound {
		return absentRun()
	}
	if err != nil {
		return err
	}
	if status.Final() {
		return c.reply(http.StatusOK, cancelAnswer{RunID: id, Status: string(status)})
	}
	return c.reply(http.StatusAccepted, cancelAnswer{RunID: id, Status: "cancelling"})
}

// cancelAnswer says that a run is being cancelled, or which end it had already.
type cancelAnswer struct {
	RunID  hob.RunID `json:"run_id"`
	Status string    `json:"status"`
}
