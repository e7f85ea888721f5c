package engine

import (
	"context"
	"strconv"
	"time"

	"hob"
)

// The settings of a workspace that the engine reads.
const (
	SettingResultChars      = "DEFAULT_MAX_RESULT_CHARS"
	SettingModelTimeout     = "MODEL_CALL_TIMEOUT"
	SettingCompactionModel  = "COMPACTION_MODEL"
	SettingCompactionTokens = "COMPACTION_MAX_TOKENS"
	SettingKeepTurns        = "COMPACTION_KEEP_TURNS"
)

// sameModel is the value of SettingCompactionModel that means the run's own model.
const sameModel = "same"

// knobs are a workspace's settings as a run reads them once, at its start.
type knobs struct {
	resultChars      int           // characters of a tool result that the model reads
	modelTimeout     time.Duration // of one model call
	compactionModel  string        // "" = a light one of the run's provider, sameModel = the run's own
	compactionTokens int           // of a summary at most
	keepTurns        int           // turns of the user whose tool results are never left out
}

const (
	defaultCompactionTokens = 8000
	defaultKeepTurns        = 3
)

func (e *Engine) knobsOf(ctx context.Context, ws hob.WorkspaceID) (knobs, error) {
	k := knobs{
		resultChars: e.Limits.ResultChars, modelTimeout: e.Limits.ModelTimeout,
		compactionTokens: defaultCompactionTokens, keepTurns: defaultKeepTurns,
	}
	if e.Settings == nil {
		return k, nil
	}
	var seconds int
	for key, at := range map[string]*int{
		SettingResultChars: &k.resultChars, SettingModelTimeout: &seconds,
		SettingCompactionTokens: &k.compactionTokens, SettingKeepTurns: &k.keepTurns,
	} {
		text, err := e.Settings(ctx, ws, key)
		if err != nil {
			return k, err
		}
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			*at = n
		}
	}
	if seconds > 0 {
		k.modelTimeout = time.Duration(seconds) * time.Second
	}
	var err error
	k.compactionModel, err = e.Settings(ctx, ws, SettingCompactionModel)
	return k, err
}
