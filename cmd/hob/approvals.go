package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"hob"
	"hob/client"
)

const approvalsHelp = `  hob approvals              lists what waits for a decision of yours, or of others where you may see it
  hob approvals approve ID   lets it happen
      --input JSON           with these arguments in the place of those asked for
  hob approvals deny ID      refuses it

  --reason TEXT              why; of a refusal the model reads it
  --json                     prints what the server answered

The server is found at HOB_ADDR, the key in HOB_KEY or in the data folder. A decision counts for what is shown at the time: if the
arguments are other ones by then, nothing is decided.

Options:
`

// approvalPage is how many approvals are asked for at once.
const approvalPage = 100

func approvals(ctx context.Context, w world) error {
	var reason, input string
	var asJSON bool
	flags := flag.NewFlagSet("approvals", flag.ContinueOnError)
	flags.StringVar(&reason, "reason", "", "why")
	flags.StringVar(&input, "input", "", "arguments in the place of those asked for")
	flags.BoolVar(&asJSON, "json", false, "as JSON")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	d := client.Decision{Reason: reason, Approved: len(words) > 0 && words[0] == "approve"}
	switch {
	case len(words) == 0 && (reason != "" || input != ""):
		return usageError("--reason and --input go with approve and deny")
	case len(words) == 0:
	case words[0] != "approve" && words[0] != "deny":
		return usageError(fmt.Sprintf("there is no %q; it is approve or deny, or nothing to list", words[0]))
	case len(words) == 1:
		return usageError("which approval? hob approvals shows them")
	case len(words) > 2:
		return usageError(fmt.Sprintf("unexpected word %q", words[2]))
	case input != "" && !d.Approved:
		return usageError("--input goes with approve: what is denied is not called")
	}
	if input != "" {
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(input), &object) != nil || object == nil {
			return usageError("--input must be a JSON object of arguments")
		}
		d.ModifiedInput = json.RawMessage(input)
	}
	r, err := connect(c)
	if err != nil {
		return err
	}
	defer r.Close()
	if len(words) == 0 {
		return listApprovals(ctx, w, r, asJSON)
	}
	return decideApproval(ctx, w, r, words[1], d, asJSON)
}

func listApprovals(ctx context.Context, w world, r *remote, asJSON bool) error {
	var all []hob.Approval
	for {
		q := client.InboxQuery{Page: client.Page{Limit: approvalPage, Offset: len(all)}, Status: hob.ApprovalPending}
		list, err := r.Inbox(ctx, q)
		if err != nil {
			return r.explain(err)
		}
		if all = append(all, list.Approvals...); len(list.Approvals) < approvalPage {
			break
		}
	}
	if asJSON {
		return writeJSON(w, map[string]any{"approvals": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(w.stdout, "Nothing waits.")
		return nil
	}
	for i, a := range all {
		if i > 0 {
			fmt.Fprintln(w.stdout)
		}
		showApproval(w, a)
	}
	return nil
}

// showApproval prints what there is to decide.
func showApproval(w world, a hob.Approval) {
	about := string(a.HookEvent)
	if a.ToolName != "" {
		about = a.ToolName
	}
	head := []string{a.ApprovalID, about, string(a.RunID), "asked for by " + a.RequestedBy}
	if !a.ExpiresAt.IsZero() {
		head = append(head, "until "+a.ExpiresAt.Local().Format("2006-01-02 15:04:05"))
	}
	if !a.CanDecide {
		head = append(head, "for "+strings.Join(a.Approvers, ", ")+" to decide")
	}
	fmt.Fprintln(w.stdout, plain(strings.Join(head, " · ")))
	fmt.Fprintln(w.stdout, indent(plain(a.Message), "    "))
	for _, text := range []string{arguments(a.ToolInput), a.Output, string(a.Preview)} {
		if text != "" && text != "{}" {
			fmt.Fprintln(w.stdout, indent(plain(shorten(text, resultLines, resultChars)), "    "))
		}
	}
}

func decideApproval(ctx context.Context, w world, r *remote, id string, d client.Decision, asJSON bool) error {
	a, err := r.Approval(ctx, id)
	if err != nil {
		return r.explain(err)
	}
	d.ApprovalID, d.Digest = a.ApprovalID, a.Digest
	decided, err := r.Approve(ctx, a.RunID, d)
	if err != nil {
		return r.explain(err)
	}
	if asJSON {
		return writeJSON(w, decided)
	}
	fmt.Fprintf(w.stdout, "%s: %s; run %s goes on\n", decided.ApprovalID, decided.Status, decided.RunID)
	return nil
}
