//go:build linux

package main

// postgresParts are the parts that need several servers on one Postgres.
func postgresParts() []part { return nil }
