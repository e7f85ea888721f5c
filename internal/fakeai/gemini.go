package fakeai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// geminiName is the API's rule for the names of functions.
var geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)

type geminiBody struct {
	Contents     []geminiContent   `json:"contents"`
	System       *geminiContent    `json:"systemInstruction"`
	Tools        []geminiTool      `json:"tools"`
	ToolConfig   *geminiToolConfig `json:"toolConfig"`
	Config       *geminiConfig     `json:"generationConfig"`
	Safety       json.RawMessage   `json:"safetySettings"`
	Cached       string            `json:"cachedContent"`
	Labels       json.RawMessage   `json:"labels"`
	ServiceTier  string            `json:"serviceTier"`
	StoreRequest *bool             `json:"store"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text      *string         `json:"text"`
	Thought   bool            `json:"thought"`
	Signature string          `json:"thoughtSignature"`
	Inline    *geminiBlob     `json:"inlineData"`
	File      *geminiFile     `json:"fileData"`
	Call      *geminiCall     `json:"functionCall"`
	Response  *geminiResponse `json:"functionResponse"`
}

type geminiBlob struct {
	MimeType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

type geminiFile struct {
	MimeType string `json:"mimeType"`
	URI      string `json:"fileUri"`
}

type geminiCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type geminiResponse struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
}

type geminiTool struct {
	Functions []geminiFunction `json:"functionDeclarations"`
	Search    *struct{}        `json:"googleSearch"`
}

type geminiFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	JSONSchema  json.RawMessage `json:"parametersJsonSchema"`
	Behavior    string          `json:"behavior"`
}

type geminiToolConfig struct {
	Calling *struct {
		Mode    string   `json:"mode"`
		Allowed []string `json:"allowedFunctionNames"`
	} `json:"functionCallingConfig"`
}

type geminiConfig struct {
	Temperature *float64        `json:"temperature"`
	MaxTokens   *int            `json:"maxOutputTokens"`
	TopP        *float64        `json:"topP"`
	TopK        *float64        `json:"topK"`
	Stop        []string        `json:"stopSequences"`
	Candidates  *int            `json:"candidateCount"`
	Seed        *int            `json:"seed"`
	MimeType    string          `json:"responseMimeType"`
	Schema      json.RawMessage `json:"responseSchema"`
	JSONSchema  json.RawMessage `json:"responseJsonSchema"`
	Thinking    *geminiThinking `json:"thinkingConfig"`
}

type geminiThinking struct {
	Include *bool  `json:"includeThoughts"`
	Budget  *int   `json:"thinkingBudget"`
	Level   string `json:"thinkingLevel"`
}

func (s *Server) geminiVoice() voice {
	return voice{
		parse: s.parseGemini, refuse: writeGeminiError, words: geminiWords, events: geminiEvents, answer: geminiAnswer, silent: true,
		event: func(f fault) []byte { return event(mustJSON(geminiError(f))) },
		window: func(tokens, most int) fault {
			return badArgument("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", tokens, most)
		},
	}
}

// badArgument is Google's usual refusal.
func badArgument(format string, args ...any) fault {
	return fault{Status: http.StatusBadRequest, Type: "INVALID_ARGUMENT", Message: fmt.Sprintf(format, args...)}
}

// geminiKey checks the key, in the header or in the address.
func (s *Server) geminiKey(r *http.Request) error {
	key := r.Header.Get("X-Goog-Api-Key")
	if key == "" {
		key = r.URL.Query().Get("key")
	}
	switch {
	case s.opts.Key == "" || key == s.opts.Key:
		return nil
	case key == "":
		return fault{
			Status: http.StatusForbidden, Type: "PERMISSION_DENIED",
			Message: "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.",
		}
	}
	f := badArgument("API key not valid. Please pass a valid API key.")
	f.Details = []any{map[string]any{
		"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com",
		"metadata": map[string]string{"service": "generativelanguage.googleapis.com"},
	}}
	return f
}

// geminiTarget reads the address: the model, and whether it is to stream.
func (s *Server) geminiTarget(r *http.Request) (model string, stream bool, err error) {
	model, method, _ := strings.Cut(r.PathValue("call"), ":")
	missing := fault{Status: http.StatusNotFound, Type: "NOT_FOUND"}
	if c := r.PathValue("collection"); c != "models" && c != "tunedModels" || method != "generateContent" && method != "streamGenerateContent" {
		missing.Message = "Not found: " + r.URL.Path
		return "", false, missing
	}
	if s.opts.Models != nil && !slices.Contains(s.opts.Models, model) {
		missing.Message = fmt.Sprintf("models/%s is not found for API version v1beta, or is not supported for %s. Call ListModels to "+
			"see the list of available models and their supported methods.", model, method)
		return "", false, missing
	}
	stream = method == "streamGenerateContent"
	if stream && r.URL.Query().Get("alt") != "sse" {
		return "", false, badArgument("the fake streams events only: add ?alt=sse")
	}
	return model, stream, nil
}

func (s *Server) parseGemini(w http.ResponseWriter, r *http.Request) (Parsed, error) {
	if err := s.geminiKey(r); err != nil {
		return Parsed{}, err
	}
	model, streamed, err := s.geminiTarget(r)
	if err != nil {
		return Parsed{}, err
	}
	raw, err := readBody(w, r)
	if err != nil {
		return Parsed{}, err
	}
	var b geminiBody
	if err := s.decodeGemini(raw, &b); err != nil {
		return Parsed{}, err
	}
	p := Parsed{Dialect: Gemini, Model: model, Stream: streamed, IncludeUsage: true, Header: r.Header.Clone(), Body: raw}
	for _, check := range []func(*geminiBody, *Parsed) error{checkGeminiSystem, checkGeminiTools, checkGeminiConfig, checkContents} {
		if err := check(&b, &p); err != nil {
			return Parsed{}, err
		}
	}
	return p, nil
}

// decodeGemini reads a body in which every member at every depth must be known, as the API's own messages are.
func (s *Server) decodeGemini(raw []byte, b *geminiBody) error {
	if len(s.opts.Extra) > 0 {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return badArgument("Invalid JSON payload received. %s", err)
		}
		for _, name := range s.opts.Extra {
			delete(members, name)
		}
		raw = mustJSON(members)
	}
	if err := strict(raw, b); err != nil {
		if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
			return badArgument("Invalid JSON payload received. Unknown name %s: Cannot find field.", name)
		}
		return badArgument("Invalid JSON payload received. %s", err)
	}
	return nil
}

func checkGeminiSystem(b *geminiBody, p *Parsed) error {
	if b.System == nil {
		return nil
	}
	for i, part := range b.System.Parts {
		if part.Text == nil || *part.Text == "" || part.kinds() != 1 {
			return badArgument("* GenerateContentRequest.system_instruction.parts[%d].data: required oneof field 'data' must have one initialized field", i)
		}
		p.System = strings.TrimPrefix(p.System+"\n\n"+*part.Text, "\n\n")
	}
	if p.System == "" {
		return badArgument("* GenerateContentRequest.system_instruction.parts: must not be empty.")
	}
	return nil
}

// generation is the number behind gemini-, 0 for other names.
func generation(model string) int {
	rest, ok := strings.CutPrefix(model, "gemini-")
	if !ok || rest == "" || rest[0] < '0' || rest[0] > '9' {
		return 0
	}
	return int(rest[0] - '0')
}

func checkGeminiTools(b *geminiBody, p *Parsed) error {
	functions := 0
	for i, t := range b.Tools {
		if len(t.Functions) == 0 && t.Search == nil {
			return badArgument("* GenerateContentRequest.tools[%d].tool_type: required one_of 'tool_type' must have one initialized field", i)
		}
		p.Search = p.Search || t.Search != nil
		functions += len(t.Functions)
		for n, f := range t.Functions {
			if err := checkFunction(fmt.Sprintf("GenerateContentRequest.tools[%d].function_declarations[%d]", i, n), f, p); err != nil {
				return err
			}
		}
	}
	if p.Search && functions > 0 && generation(p.Model) < 3 {
		return badArgument("Tool use with function calling is unsupported")
	}
	if b.ToolConfig == nil || b.ToolConfig.Calling == nil {
		return nil
	}
	if functions == 0 {
		return badArgument("Function calling config is set without function_declarations.")
	}
	choices := map[string]string{"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
	choice, ok := choices[b.ToolConfig.Calling.Mode]
	if !ok {
		return badArgument("Invalid value at 'tool_config.function_calling_config.mode': %q", b.ToolConfig.Calling.Mode)
	}
	p.ToolChoice = choice
	return nil
}

// openAPI are the keywords that parameters may have; JSON Schema's others belong into parametersJsonSchema.
var openAPI = []string{
	"type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties", "required",
	"minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "propertyOrdering", "default",
	"minimum", "maximum",
}

func checkFunction(at string, f geminiFunction, p *Parsed) error {
	switch {
	case !geminiName.MatchString(f.Name):
		return badArgument("* %s.name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, "+
			"0-9), underscores (_), dots (.), colons (:) or dashes (-), with a maximum length of 64.", at)
	case slices.ContainsFunc(p.Tools, func(o Tool) bool { return o.Name == f.Name }):
		return badArgument("Duplicate function declaration found: %s", f.Name)
	case f.Description == "":
		return badArgument("* %s.description: must not be empty", at)
	case len(f.Parameters) > 0 && len(f.JSONSchema) > 0:
		return badArgument("* %s: only one of parameters and parameters_json_schema may be set", at)
	}
	schema := f.JSONSchema
	if len(schema) == 0 {
		schema = f.Parameters
		var members map[string]json.RawMessage
		if len(schema) > 0 && json.Unmarshal(schema, &members) != nil {
			return badArgument("Invalid value at '%s.parameters'", at)
		}
		for name := range members {
			if !slices.Contains(openAPI, name) {
				return badArgument("Invalid JSON payload received. Unknown name %q at '%s.parameters': Cannot find field.", name, at)
			}
		}
	}
	var kind struct {
		Type string `json:"type"`
	}
	if len(schema) > 0 && (json.Unmarshal(schema, &kind) != nil || !strings.EqualFold(kind.Type, "object")) {
		return badArgument("* %s.parameters: schema should be of type OBJECT", at)
	}
	p.Tools = append(p.Tools, Tool{f.Name, f.Description, schema})
	return nil
}

func checkGeminiConfig(b *geminiBody, p *Parsed) error {
	c := b.Config
	if c == nil {
		return nil
	}
	if c.MaxTokens != nil {
		p.MaxTokens = *c.MaxTokens
	}
	schema := c.JSONSchema
	if len(schema) == 0 {
		schema = c.Schema
	}
	switch {
	case c.Temperature != nil && (*c.Temperature < 0 || *c.Temperature > 2):
		return badArgument("* GenerateContentRequest.generation_config.temperature: must be in the range [0.0, 2.0]")
	case c.MaxTokens != nil && *c.MaxTokens < 1:
		return badArgument("* GenerateContentRequest.generation_config.max_output_tokens: must be positive.")
	case len(c.JSONSchema) > 0 && len(c.Schema) > 0:
		return badArgument("only one of response_schema and response_json_schema may be set")
	case c.MimeType != "" && c.MimeType != "text/plain" && c.MimeType != "application/json" && c.MimeType != "text/x.enum":
		return badArgument("* GenerateContentRequest.generation_config.response_mime_type: allowed mimetypes are `text/plain`, `application/json`, ...")
	case len(schema) > 0 && c.MimeType != "application/json":
		return badArgument("* GenerateContentRequest.generation_config.response_schema: only allowed with response mime type application/json")
	case len(schema) > 0 && !object(schema):
		return badArgument("Invalid value at 'generation_config.response_json_schema'")
	case c.MimeType == "application/json" && len(p.Tools) > 0 && generation(p.Model) < 3:
		return badArgument("Function calling with a response mime type: 'application/json' is unsupported")
	}
	p.Form = AnswerForm{JSON: c.MimeType == "application/json", Schema: schema, Strict: len(schema) > 0}
	return checkGeminiThinking(c.Thinking, p.Model)
}

// geminiBudgets are the least and the most thinking of the models that count it, in tokens; the least one that is not 0
// stands for models that cannot stop.
func geminiBudgets(model string) (least, most int) {
	switch {
	case strings.HasPrefix(model, "gemini-2.5-pro"):
		return 128, 32_768
	case strings.HasPrefix(model, "gemini-2.5-flash-lite"), strings.HasPrefix(model, "gemini-2.5-flash"):
		return 0, 24_576
	}
	return 0, 0
}

// geminiLevels are the thinking levels of a model.
func geminiLevels(model string) []string {
	switch {
	case generation(model) < 3:
		return nil
	case strings.Contains(model, "flash"):
		return []string{"minimal", "low", "medium", "high"}
	case strings.HasPrefix(model, "gemini-3-pro"):
		return []string{"low", "high"}
	}
	return []string{"low", "medium", "high"}
}

func checkGeminiThinking(t *geminiThinking, model string) error {
	if t == nil {
		return nil
	}
	least, most := geminiBudgets(model)
	switch {
	case t.Budget != nil && t.Level != "":
		return badArgument("You can only set only one of thinking budget and thinking level.")
	case most == 0 && geminiLevels(model) == nil:
		return badArgument("Thinking is not enabled for this model: %s", model)
	case t.Level != "" && !slices.Contains(geminiLevels(model), strings.ToLower(t.Level)):
		return badArgument("Thinking level %s is not supported for this model.", t.Level)
	case t.Budget != nil && most > 0 && *t.Budget != -1 && (*t.Budget < least || *t.Budget > most):
		return badArgument("The thinking budget %d is invalid. Please choose a value between %d and %d.", *t.Budget, least, most)
	}
	return nil
}
