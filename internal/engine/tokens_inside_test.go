package engine

// EstimateTokens lets tests outside compare the estimate with a tokenizer, which this package may not know.
func EstimateTokens(s string) int { return estimateTokens(s) }
