package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in make build; nothing changes it afterwards.
var version string

const versionHelp = `Prints Hob's version and the Go release it was built with.

Options:
  --json   as JSON
`

// Version is what /health and hob version tell: the linker's stamp, else what go install recorded, else dev.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func printVersion(_ context.Context, w world) error {
	flags := flag.NewFlagSet("version", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "as JSON")
	if _, words, err := w.load(flags); err != nil {
		return err
	} else if len(words) > 0 {
		return usageError("it takes no words")
	}
	if *asJSON {
		return json.NewEncoder(w.stdout).Encode(map[string]string{
			"version": buildVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	fmt.Fprintf(w.stdout, "hob %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
