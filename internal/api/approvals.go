package api

import (
	"encoding/json"
	"net/http"

	"hob"
)

// approveInput is a decision.
type approveInput struct {
	Approved   json.RawMessage `json:"approved" jsonschema:"true or false"`
	Reason     *string         `json:"reason,omitempty" jsonschema:"shown to the model when it is refused"`
	CallID     *string         `json:"call_id,omitempty" jsonschema:"not available yet: the call that is meant"`
	ApprovalID *string         `json:"approval_id,omitempty" jsonschema:"not available yet: the approval that is meant"`
}

type approveAnswer struct {
	Status string `json:"status"`
}

// approvalList is what a run waits for.
type approvalList struct {
	Approvals []hob.Approval `json:"approvals"`
}

// listApprovals answers for a run that the caller sees. Nothing makes a run wait yet, so the list is empty.
func listApprovals(c *call) error {
	id, err := c.runID()
	if err != nil {
		return err
	}
	if _, err := c.run(id); err != nil {
		return err
	}
	return c.reply(http.StatusOK, approvalList{Approvals: []hob.Approval{}})
}

// approve checks the decision. No run waits for one yet, which is what it then says.
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
	return hob.Errorf(hob.NotFound, "Run not found or not waiting for approval").WithCode("approval_not_found")
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
