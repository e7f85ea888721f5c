package storetest

import "hob"

// decidedByAnotherHand: keys that whoever started the run made, or that those keys made, are no second pair of eyes.
func decidedByAnotherHand(w *world) {
	keyed := func(maker hob.Principal) hob.Principal {
		w.t.Helper()
		scopes := []hob.Scope{hob.ScopeAdmin}
		k, err := w.s.CreateKey(w.ctx, maker, hob.Key{Name: "k", Scopes: scopes}, []byte(hob.NewUUID()))
		w.must(err)
		return hob.Principal{Kind: hob.KeyPrincipal, ID: string(k.ID), Workspace: hob.DefaultWorkspace, Scopes: scopes}
	}
	root := keyed(w.service)
	starter := keyed(root)
	child, sibling, other := keyed(starter), keyed(root), keyed(w.service)
	grandchild := keyed(child)
	r := w.begin(starter, "s")
	list := make([]hob.Approval, 4)
	for i, id := range []string{"a", "b", "c", "d"} {
		list[i] = pending(id, hob.ApproverAny, hob.ApproverAdmins)
		list[i].FourEyes, list[i].Output = id != "d", "the answer"
	}
	w.must(w.s.Commit(w.ctx, ask(r, list...)))
	for name, by := range map[string]hob.Principal{"itself": starter, "made": child, "made by what was made": grandchild} {
		_, err := w.s.Decide(w.ctx, by, hob.Decision{Run: r.ID, Approval: "a", Approved: true})
		_ = w.refused(err, hob.Forbidden, "four_eyes")
		page, err := w.s.Approvals(w.ctx, by, hob.ApprovalFilter{Run: r.ID})
		w.must(err)
		for _, a := range page.Items {
			same(w, name+" can decide "+a.ApprovalID, a.CanDecide, a.ApprovalID == "d")
			same(w, name+" reads what "+a.ApprovalID+" is about", a.Output != "", a.ApprovalID == "d")
		}
	}
	w.decide(root, r, "a") // who made the starter's key
	w.decide(sibling, r, "b")
	w.decide(other, r, "c")
	w.decide(grandchild, r, "d") // needs no four eyes
	// A user's keys are the user's hand.
	admin := w.alice
	admin.Scopes = []hob.Scope{hob.ScopeAdmin}
	r = w.begin(admin, "t")
	eyes := pending("e", hob.ApproverAdmins)
	eyes.FourEyes = true
	w.must(w.s.Commit(w.ctx, ask(r, eyes)))
	_, err := w.s.Decide(w.ctx, keyed(admin), hob.Decision{Run: r.ID, Approval: "e", Approved: true})
	_ = w.refused(err, hob.Forbidden, "four_eyes")
	w.decide(root, r, "e")
}
