package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"hob"
	"hob/client"
	"hob/internal/api"
	"hob/internal/engine"
	"hob/internal/provider"
	"hob/internal/seal"
	"hob/internal/settings"
	"hob/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a whole server with the scripted model and returns its address and a service key.
func serve(t *testing.T) (address, key string) {
	t.Helper()
	address, key, stop, err := serveIn(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address, key
}

// serveIn is serve with its data in a folder; stop ends the server.
func serveIn(dir string) (address, key string, stop func(), err error) {
	box, err := seal.Open(filepath.Join(dir, "seal.key"), "")
	if err != nil {
		return "", "", nil, err
	}
	db, err := store.Open(context.Background(), store.Config{Dir: dir, Box: box})
	if err != nil {
		return "", "", nil, err
	}
	options, err := settings.New(settings.Config{Store: db})
	if err != nil {
		_ = db.Close()
		return "", "", nil, err
	}
	models := provider.New(provider.Config{}).Open
	e := engine.New(engine.Config{Store: db, Models: models, Alone: true})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); e.Serve(ctx) }()
	h := httptest.NewServer(api.New(api.Config{
		Store: db, Engine: e, Models: models, Version: "test", Settings: options,
		Providers: func() []api.Provider { return []api.Provider{{Name: "openai", Paid: true}} },
		ValidateKey: func(_ context.Context, k hob.ProviderKey) (bool, string, error) {
			if k.Key == "wrong" {
				return false, "", hob.Errorf(hob.Invalid, "%s refuses the key", k.Provider)
			}
			return true, "", nil
		},
		CheckAssignment: func(context.Context, hob.Assignment, *hob.Tool) (string, error) { return "planet has no effect", nil },
	}))
	stop = func() {
		h.Close()
		cancel()
		<-served
		now, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		_ = e.Drain(now)
		_ = db.Close()
	}
	secret, prefix, hash := api.NewSecret()
	k := hob.Key{Name: "service", Service: true, Prefix: prefix}
	if _, err := db.CreateKey(context.Background(), hob.System(hob.DefaultWorkspace), k, hash); err != nil {
		stop()
		return "", "", nil, err
	}
	return h.URL, secret, stop, nil
}

func open(t *testing.T, address, key string) *client.Client {
	t.Helper()
	c := client.New(address, key)
	t.Cleanup(c.Close)
	return c
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantKind(t *testing.T, err error, kind hob.Kind) {
	t.Helper()
	if hob.KindOf(err) != kind {
		t.Errorf("error %v is %s, want %s", err, hob.KindOf(err), kind)
	}
}

func TestClient_SpeaksToEveryRoute(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	address, key := serve(t)
	c := open(t, address+"/", key)
	name, model, prompt := "helper", "scripted", "Be brief."
	a := must[client.Agent](t)(c.CreateAgent(ctx, client.AgentInput{
		Name: &name, Model: &model, Settings: json.RawMessage(`{"script":"text: Hello there"}`),
	}))
	if got := must[client.Agent](t)(c.UpdateAgent(ctx, a.ID, client.AgentInput{SystemPrompt: &prompt})); *got.SystemPrompt != prompt {
		t.Errorf("the prompt is %q", *got.SystemPrompt)
	}
	if got := must[client.Agent](t)(c.Agent(ctx, a.ID)); got.Name != name {
		t.Errorf("the name is %q", got.Name)
	}
	if got := must[client.AgentList](t)(c.Agents(ctx, client.AgentQuery{Query: "help", Sort: "name", Order: "asc", Page: client.Page{Limit: 1}})); got.Total != 1 {
		t.Errorf("agents: %+v", got)
	}
	exerciseTools(ctx, t, c, a.ID)
	exerciseRuns(ctx, t, c, a.ID)
	exerciseKeys(ctx, t, c, address)
	exerciseSettings(ctx, t, c)
	exerciseProviderKeys(ctx, t, c)
	exerciseUsage(ctx, t, c, a.ID)
	if h := must[client.Health](t)(c.Health(ctx)); h.Status != "healthy" || h.Version != "test" {
		t.Errorf("health: %+v", h)
	}
	if err := c.Ready(ctx); err != nil {
		t.Error(err)
	}
	if doc := must[json.RawMessage](t)(c.OpenAPI(ctx)); !json.Valid(doc) {
		t.Error("the description is no JSON")
	}
	if err := c.DeleteAgent(ctx, a.ID); err != nil {
		t.Error(err)
	}
	wantKind(t, c.DeleteAgent(ctx, a.ID), hob.NotFound)
}

func exerciseTools(ctx context.Context, t *testing.T, c *client.Client, agent hob.AgentID) {
	t.Helper()
	name, about, kind := "weather", "tells the weather", "http"
	tool := must[client.Tool](t)(c.CreateTool(ctx, client.ToolInput{
		Name: &name, Description: &about, Type: &kind, InputSchema: json.RawMessage(`{"type":"object"}`),
		Config: &client.ToolConfigInput{Endpoint: "https://x.example", Headers: map[string]string{"X-Key": "s3cret"}},
	}))
	if tool.Config.Headers["X-Key"] != hob.Mask {
		t.Errorf("the header reads %q", string(tool.Config.Headers["X-Key"]))
	}
	about = "tells it again"
	if got := must[client.Tool](t)(c.UpdateTool(ctx, tool.ID, client.ToolInput{Description: &about})); got.Description != about {
		t.Errorf("the description is %q", got.Description)
	}
	if got := must[client.Tool](t)(c.Tool(ctx, tool.ID)); got.Name != name {
		t.Errorf("the tool is %+v", got)
	}
	if got := must[[]client.Tool](t)(c.Tools(ctx)); len(got) != 1 || got[0].ID != tool.ID || got[0].Status != "available" {
		t.Errorf("tools: %+v", got)
	}
	x := must[client.Assignment](t)(c.Assign(ctx, agent, client.AssignmentInput{ToolName: name}))
	x = must[client.Assignment](t)(c.UpdateAssignment(ctx, agent, x.ID, json.RawMessage(`{"planet":"Mars"}`)))
	if string(x.ConfigOverride) != `{"planet":"Mars"}` || len(x.Warnings) != 1 {
		t.Errorf("the assignment is %+v", x)
	}
	if got := must[[]client.EffectiveTool](t)(c.EffectiveTools(ctx, agent)); len(got) != 1 || got[0].Source != "assignment" || !got[0].Offered {
		t.Errorf("effective tools: %+v", got)
	}
	if got := must[[]client.Assignment](t)(c.Assignments(ctx, agent)); len(got) != 1 || got[0].ID != x.ID || got[0].Status != "available" {
		t.Errorf("assignments: %+v", got)
	}
	if err := c.Unassign(ctx, agent, x.ID); err != nil {
		t.Error(err)
	}
	exerciseVersions(ctx, t, c, tool)
	if err := c.DeleteTool(ctx, tool.ID); err != nil {
		t.Error(err)
	}
}

// exerciseVersions restores a tool that was changed once, and lets an agent have it alone.
func exerciseVersions(ctx context.Context, t *testing.T, c *client.Client, tool client.Tool) {
	t.Helper()
	versions := must[[]client.ToolVersion](t)(c.ToolVersions(ctx, tool.ID))
	if len(versions) != 2 || versions[0].Version != 2 || versions[0].ChangedAt.IsZero() || versions[0].By == "" {
		t.Errorf("versions: %+v", versions)
	}
	if got := must[client.Tool](t)(c.RestoreTool(ctx, tool.ID, 1)); got.Version != 3 || got.Description != tool.Description {
		t.Errorf("the restored tool is %+v", got)
	}
	_, err := c.ChangeBuiltin(ctx, "nothing", client.BuiltinInput{})
	wantKind(t, err, hob.NotFound)

	name, model, only, none := "scoped", "fixed", []string{string(tool.ID)}, []string(nil)
	a := must[client.Agent](t)(c.CreateAgent(ctx, client.AgentInput{Name: &name, Model: &model, ToolIDs: &only}))
	if a.ToolIDs == nil || !slices.Equal(*a.ToolIDs, only) {
		t.Errorf("tool ids: %v", a.ToolIDs)
	}
	if a = must[client.Agent](t)(c.UpdateAgent(ctx, a.ID, client.AgentInput{ToolIDs: &none})); a.ToolIDs != nil {
		t.Errorf("tool ids that were taken away: %v", *a.ToolIDs)
	}
}

func exerciseRuns(ctx context.Context, t *testing.T, c *client.Client, agent hob.AgentID) {
	t.Helper()
	r := must[hob.RunResult](t)(c.Run(ctx, agent, client.RunRequest{Message: "hi", IdempotencyKey: "k"}))
	if r.Status != hob.Completed || r.Content != "Hello there" {
		t.Errorf("the result is %+v", r)
	}
	if again := must[hob.RunResult](t)(c.Run(ctx, agent, client.RunRequest{Message: "hi", IdempotencyKey: "k"})); again.RunID != r.RunID {
		t.Errorf("the repeated run is %s, not %s", again.RunID, r.RunID)
	}
	var streamed, read []hob.Event
	steps := 3
	in := client.RunRequest{Message: "again", SessionID: r.SessionID, Tuning: hob.Tuning{MaxSteps: &steps}}
	for e, err := range c.RunStream(ctx, agent, in) {
		if err != nil {
			t.Fatal(err)
		}
		streamed = append(streamed, e)
	}
	var start hob.StartEvent
	if err := json.Unmarshal(streamed[0].Data, &start); err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Events(ctx, start.Run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, e)
	}
	if diff := cmp.Diff(streamed, read); diff != "" || streamed[len(streamed)-1].Type != hob.EventComplete {
		t.Errorf("streamed and read differ (-streamed +read):\n%s", diff)
	}
	for range c.Events(ctx, start.Run, streamed[len(streamed)-1].Seq) {
		t.Error("there is something behind the end")
	}
	for _, err := range c.Events(ctx, start.Run, 1000) {
		wantKind(t, err, hob.Invalid)
	}
	rec := must[hob.RunRecord](t)(c.RunRecord(ctx, start.Run))
	if rec.SessionID != r.SessionID || rec.InputMessages[0].Content != "again" {
		t.Errorf("the record is %+v", rec)
	}
	if status := must[string](t)(c.Cancel(ctx, start.Run)); status != "completed" {
		t.Errorf("cancelling says %q", status)
	}
	if got := must[[]hob.Approval](t)(c.Approvals(ctx, start.Run, "")); len(got) != 0 {
		t.Errorf("approvals: %+v", got)
	}
	_, err := c.Approve(ctx, start.Run, client.Decision{Approved: true})
	wantKind(t, err, hob.NotFound)
	exerciseSessions(ctx, t, c, agent, r)
	exercisePeople(ctx, t, c)
}

// exercisePeople has a start wait for somebody who lets it go on.
func exercisePeople(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	name, model, on, last := "asking", "scripted", true, 9
	agent := must[client.Agent](t)(c.CreateAgent(ctx, client.AgentInput{Name: &name, Model: &model, Settings: json.RawMessage(`{"script":"text: Hello"}`)})).ID
	never := 0.0
	h := must[client.Hook](t)(c.CreateHook(ctx, agent, client.HookInput{
		Event: hob.OnRunStart, Type: hob.ApprovalHook, Config: client.HookConfigInput{Message: "Begin?", Timeout: &never}, IdempotencyKey: "k",
	}))
	sent := must[client.Hook](t)(c.CreateHook(ctx, agent, client.HookInput{Event: hob.OnRunComplete, Type: hob.HTTPHook, Enabled: new(bool), Config: client.HookConfigInput{
		URL: "https://x.example", Headers: map[string]string{"X-Key": "v"}, Secret: "0123456789abcdef",
	}}))
	if sent.SigningSecret != "0123456789abcdef" || sent.Config.Headers["X-Key"] != hob.Mask || sent.Enabled {
		t.Errorf("the http hook is %+v", sent)
	}
	sent = must[client.Hook](t)(c.UpdateHook(ctx, agent, sent.ID, client.HookChange{Enabled: &on, Position: &last}))
	if got := must[client.Hook](t)(c.Hook(ctx, agent, sent.ID)); got.Position != last || !got.Enabled || got.SigningSecret != hob.Mask {
		t.Errorf("changed: %+v", got)
	}
	if got := must[[]hob.Delivery](t)(c.Deliveries(ctx, agent, sent.ID, 5)); len(got) != 0 {
		t.Errorf("deliveries: %+v", got)
	}
	if err := c.DeleteHook(ctx, agent, sent.ID); err != nil {
		t.Error(err)
	}
	if got := must[[]client.Hook](t)(c.Hooks(ctx, agent)); len(got) != 1 || got[0].ID != h.ID || got[0].Config.Message != "Begin?" {
		t.Errorf("hooks: %+v", got)
	}
	r := must[hob.RunResult](t)(c.Run(ctx, agent, client.RunRequest{Message: "hi"}))
	if r.Status != hob.AwaitingApproval || len(r.Approvals) != 1 {
		t.Fatalf("the run does not wait: %+v", r)
	}
	list := must[client.ApprovalList](t)(c.Inbox(ctx, client.InboxQuery{Status: hob.ApprovalPending, Agent: agent, Run: r.RunID, Page: client.Page{Limit: 5}}))
	waits := must[[]hob.Approval](t)(c.Approvals(ctx, r.RunID, hob.ApprovalPending))
	one := must[hob.Approval](t)(c.Approval(ctx, r.Approvals[0].ApprovalID))
	if list.Total != 1 || list.Limit != 5 || len(waits) != 1 || one.ApprovalID != waits[0].ApprovalID || list.Approvals[0].ApprovalID != one.ApprovalID {
		t.Errorf("what waits: %+v, %+v, %+v", list, waits, one)
	}
	d := client.Decision{ApprovalID: one.ApprovalID, Digest: "another", Approved: true}
	_, err := c.Approve(ctx, r.RunID, d)
	wantKind(t, err, hob.Conflict)
	d.Digest = one.Digest
	if got := must[hob.Approval](t)(c.Approve(ctx, r.RunID, d)); got.Status != hob.ApprovalApproved {
		t.Errorf("decided: %+v", got)
	}
	for _, err := range c.Events(ctx, r.RunID, 0) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if rec := must[hob.RunRecord](t)(c.RunRecord(ctx, r.RunID)); rec.Status != hob.Completed || rec.Content != "Hello" {
		t.Errorf("the run is %+v", rec)
	}
}

func exerciseSessions(ctx context.Context, t *testing.T, c *client.Client, agent hob.AgentID, r hob.RunResult) {
	t.Helper()
	two := int64(2)
	q := client.SessionQuery{Search: "hi", MinRuns: &two, MaxRuns: &two, CreatedAfter: time.Now().Add(-time.Hour), CreatedBefore: time.Now().Add(time.Hour)}
	if got := must[client.SessionList](t)(c.Sessions(ctx, agent, q)); got.Total != 1 || got.Sessions[0].ID != r.SessionID {
		t.Errorf("sessions: %+v", got)
	}
	if got := must[hob.Session](t)(c.Session(ctx, r.SessionID)); *got.Agent != agent {
		t.Errorf("the session is %+v", got)
	}
	if got := must[[]client.Message](t)(c.Messages(ctx, r.SessionID, 0)); len(got) != 4 || got[0].Content != "hi" {
		t.Errorf("messages: %+v", got)
	}
	if got := must[[]client.Message](t)(c.Messages(ctx, r.SessionID, 1)); len(got) != 2 {
		t.Errorf("messages of one run: %+v", got)
	}
	if got := must[[]hob.RunRecord](t)(c.SessionRuns(ctx, r.SessionID, client.Page{Limit: 1, Offset: 1})); len(got) != 1 || got[0].InputMessages[0].Content != "again" {
		t.Errorf("runs: %+v", got)
	}
	if got := must[[]json.RawMessage](t)(c.RetrievedContext(ctx, r.SessionID, r.RunID)); len(got) != 0 {
		t.Errorf("retrieved: %s", got)
	}
	seed := client.SessionInput{UserID: "11111111-1111-4111-8111-111111111111", InitialMessages: []client.SeedMessage{
		{Role: hob.RoleUser, Content: "a"}, {Role: hob.RoleAssistant, Content: "b"},
	}}
	id := must[hob.SessionID](t)(c.CreateSession(ctx, agent, seed))
	if got := must[[]client.Message](t)(c.Messages(ctx, id, 0)); len(got) != 2 || got[1].Content != "b" {
		t.Errorf("seeded: %+v", got)
	}
	if err := c.DeleteAgentSession(ctx, agent, id); err != nil {
		t.Error(err)
	}
	if err := c.DeleteSession(ctx, r.SessionID); err != nil {
		t.Error(err)
	}
}

func exerciseKeys(ctx context.Context, t *testing.T, c *client.Client, address string) {
	t.Helper()
	end := time.Now().Add(time.Hour)
	k := must[client.NewKey](t)(c.CreateKey(ctx, client.KeyInput{Name: "k", Scopes: []hob.Scope{hob.ScopeRead}, ExpiresAt: &end}))
	if got := must[hob.Key](t)(c.Key(ctx, k.ID)); got.Name != "k" || got.ExpiresAt.IsZero() {
		t.Errorf("the key is %+v", got)
	}
	other := open(t, address, k.Secret)
	if me := must[client.Me](t)(other.Me(ctx)); me.ID != string(k.ID) || me.Owner != "key:"+string(k.ID) {
		t.Errorf("the key is %+v", me)
	}
	if got := must[[]hob.Key](t)(c.Keys(ctx)); len(got) != 2 {
		t.Errorf("keys: %+v", got)
	}
	if got := must[hob.Key](t)(c.RevokeKey(ctx, k.ID)); got.RevokedAt.IsZero() {
		t.Errorf("the key is %+v", got)
	}
	_, err := other.Me(ctx)
	wantKind(t, err, hob.Unauthorized)
}

func exerciseSettings(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	keys := must[[]string](t)(c.SetSettings(ctx, map[string]any{"CUSTOM_TOOL_TIMEOUT": 60, "COMPACTION_MODEL": "same"}))
	if diff := cmp.Diff([]string{"COMPACTION_MODEL", "CUSTOM_TOOL_TIMEOUT"}, keys); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	if got := must[any](t)(c.SetSetting(ctx, "MAX_TOOL_OUTPUT_LENGTH", 2000)); got != 2000.0 {
		t.Errorf("the value is %v", got)
	}
	list := must[map[string]hob.SettingCategory](t)(c.Settings(ctx))
	values := map[string]any{}
	for _, category := range list {
		for _, s := range category.Settings {
			values[s.Key] = s.Value
		}
	}
	if list["agents"].Label != "Agents" || values["CUSTOM_TOOL_TIMEOUT"] != 60.0 || values["COMPACTION_MODEL"] != "same" {
		t.Errorf("settings: %+v", list)
	}
	if one := must[hob.Setting](t)(c.Setting(ctx, "CUSTOM_TOOL_TIMEOUT")); one.Value != 60.0 || one.Source != hob.FromWorkspace {
		t.Errorf("one setting: %+v", one)
	}
	if one := must[hob.Setting](t)(c.Setting(ctx, "MODEL_CALL_TIMEOUT")); one.Source != hob.FromDefault {
		t.Errorf("another setting: %+v", one)
	}
	_, err := c.Setting(ctx, "NOTHING")
	wantKind(t, err, hob.NotFound)
	_, err = c.SetSettings(ctx, map[string]any{"CUSTOM_TOOL_TIMEOUT": 1})
	var e *hob.Error
	if !errors.As(err, &e) || e.Kind != hob.Invalid || e.Details["CUSTOM_TOOL_TIMEOUT"] != "Value must be >= 5" {
		t.Errorf("a bad value: %v", err)
	}
	if got := must[any](t)(c.ResetSetting(ctx, "CUSTOM_TOOL_TIMEOUT")); got != 30.0 {
		t.Errorf("the default is %v", got)
	}
	if got := must[[]string](t)(c.ResetSettings(ctx, "compaction")); len(got) != 3 {
		t.Errorf("reset: %v", got)
	}
	_, err = c.ResetSetting(ctx, "a/b")
	wantKind(t, err, hob.NotFound)
}

func exerciseProviderKeys(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	if got := must[[]string](t)(c.PlatformProviders(ctx)); !cmp.Equal(got, []string{"openai"}) {
		t.Errorf("the operator's providers: %v", got)
	}
	k := must[client.ProviderKey](t)(c.PutProviderKey(ctx, client.ProviderKeyInput{Provider: "box", APIKey: "key-0123456789", BaseURL: "https://x.example/v1"}))
	if k.MaskedKey != hob.Mask+"6789" || k.BaseURL != "https://x.example/v1" || !k.IsValid {
		t.Errorf("the key is %+v", k)
	}
	if got := must[[]hob.ProviderKey](t)(c.PutProviderKeys(ctx, map[string]string{"anthropic": "sk-0123456789", "openai": ""})); len(got) != 1 {
		t.Errorf("updated: %+v", got)
	}
	if got := must[[]hob.ProviderKey](t)(c.ProviderKeys(ctx)); len(got) != 2 || got[1].Provider != "box" || got[1].Key != "" {
		t.Errorf("keys: %+v", got)
	}
	if valid, reason, err := c.ValidateProviderKey(ctx, client.ProviderKeyInput{Provider: "openai", APIKey: "wrong"}); err != nil || valid || reason != "openai refuses the key" {
		t.Errorf("a wrong key: %t, %q, %v", valid, reason, err)
	}
	_, err := c.PutProviderKey(ctx, client.ProviderKeyInput{Provider: "openai", APIKey: "wrong"})
	wantKind(t, err, hob.Invalid)
	if err := c.DeleteProviderKey(ctx, "box"); err != nil {
		t.Error(err)
	}
	wantKind(t, c.DeleteProviderKey(ctx, "box"), hob.NotFound)
	p := hob.ModelProfile{Endpoint: "https://x.example/v1", Model: "m", Facts: json.RawMessage(`{"a":1}`), TestedAt: hob.FromMicros(1_700_000_000_000_000)}
	if got := must[hob.ModelProfile](t)(c.PutProfile(ctx, p)); !cmp.Equal(got, p) {
		t.Errorf("the profile is %+v", got)
	}
	if got := must[[]hob.ModelProfile](t)(c.Profiles(ctx)); !cmp.Equal(got, []hob.ModelProfile{p}) {
		t.Errorf("profiles: %+v", got)
	}
	if err := c.DeleteProfile(ctx, p.Endpoint, p.Model); err != nil {
		t.Error(err)
	}
	wantKind(t, c.DeleteProfile(ctx, p.Endpoint, p.Model), hob.NotFound)
}

func exerciseUsage(ctx context.Context, t *testing.T, c *client.Client, agent hob.AgentID) {
	t.Helper()
	now := time.Now()
	f := hob.UsageFilter{Since: hob.Time{Time: now.Add(-time.Hour)}, Until: hob.Time{Time: now.Add(time.Hour)}, Agent: agent, GroupBy: hob.ByAgent}
	u := must[client.Usage](t)(c.Usage(ctx, f))
	if len(u.Usage) != 1 || u.Usage[0].Key != string(agent) || u.Total.Calls != 2 || u.GroupBy != hob.ByAgent || !u.Until.After(now) {
		t.Errorf("usage: %+v", u)
	}
	f.Model, f.Run = "none", "run_000000000000"
	if u := must[client.Usage](t)(c.Usage(ctx, f)); u.Total.Calls != 0 {
		t.Errorf("usage of nothing: %+v", u)
	}
}

// The client's types are the server's: each has the fields that the description of the API promises.
func TestTypes_AgreeWithTheDescription(t *testing.T) {
	t.Parallel()
	address, key := serve(t)
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(must[json.RawMessage](t)(open(t, address, key).OpenAPI(t.Context())), &doc); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{
		"RunResult": hob.RunResult{}, "RunRecord": hob.RunRecord{}, "AgentAnswer": client.Agent{}, "AgentList": client.AgentList{},
		"AssignmentAnswer": client.Assignment{}, "ToolAnswer": client.Tool{}, "SessionList": client.SessionList{}, "MeAnswer": client.Me{},
		"HealthAnswer": client.Health{}, "Key": hob.Key{}, "Session": hob.Session{}, "ProviderKeyAnswer": client.ProviderKey{}, "UsageAnswer": client.Usage{},
	} {
		promised := doc.Components.Schemas[name].Properties
		if len(promised) == 0 {
			t.Errorf("the description has no %s", name)
		}
		has := map[string]bool{}
		fields(reflect.TypeOf(v), has)
		for field := range promised {
			if !has[field] {
				t.Errorf("%T lacks %s of %s", v, field, name)
			}
		}
	}
}

func fields(t reflect.Type, into map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			fields(f.Type, into)
		}
		into[name] = true
	}
}
