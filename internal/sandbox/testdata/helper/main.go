// Command helper is the smallest program with a sandbox in it, built without cgo as hob is.
package main

import (
	"os"

	"hob/internal/sandbox"
)

func main() {
	if sandbox.Helped() {
		os.Exit(sandbox.Help())
	}
	os.Exit(2)
}
