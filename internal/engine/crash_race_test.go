//go:build race

package engine_test

// raced says that the race detector makes everything slower.
const raced = true
