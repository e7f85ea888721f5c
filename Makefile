# Hob. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One flavour of every package for vet, staticcheck, the binary and the plain tests, so that they share one build cache;
# only the race detector needs cgo.
export CGO_ENABLED := 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
LDFLAGS := -s -w -X main.version=$(VERSION)

# Two packages at a time: more only fight for two cores, and a few tests measure time.
TESTFLAGS := -p 2 -timeout 12m
# One private Postgres for everything behind it.
WITH_POSTGRES := go run ./internal/pgtest/run --
# The planted faults that make chaos looks for; make chaos-bugs looks for all.
SOME_BUGS := no_release,ack_before_commit,repeat_once,repeat_tail,decide_twice
# Flags of the crash tests: make chaos CHAOS="-only kill -seed 7".
CHAOS :=
# Packages whose tests know -update without a build tag.
GOLDEN = $(shell grep -rl --include='*_test.go' 'flag[.]Bool."update"' . | xargs -r grep -L '^//go:build' | xargs -r -n1 dirname | sort -u)

.PHONY: help build run test check quick test-pg e2e chaos chaos-long chaos-bugs bench microbench golden lint fmt fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/hob: static, stripped, with its version
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/hob ./cmd/hob

run: build ## a server on SQLite in ./hob-data with a demo agent; needs no key
	bin/hob serve

test: ## everything, exactly as CI runs it; installs what it needs where it may
	@.ci/tools gcc postgresql node npm curl openssl strace python3
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory chaos
	CGO_ENABLED=1 HOB_TEST_NODE=1 $(WITH_POSTGRES) go test -race -tags node $(TESTFLAGS) ./...

check: ## formatting, go vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go' | xargs -r ls 2>/dev/null)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt mends it):" >&2; echo "$$unformatted" >&2; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

quick: ## the tests on SQLite alone, without the race detector
	go test -short $(TESTFLAGS) ./...

test-pg: ## the tests of the parts that talk to Postgres, on a private server
	@.ci/tools postgresql
	$(WITH_POSTGRES) go test $(TESTFLAGS) ./internal/store/... ./internal/agentsql/... ./internal/pgtest/...

e2e: ## the built binary from outside, on both databases
	@.ci/tools postgresql node curl
	$(WITH_POSTGRES) go test -count=1 $(TESTFLAGS) ./cmd/hob/...

chaos: ## kill, stop and cut off the real program, and check that nothing is lost (docs/durability.md)
	@.ci/tools postgresql strace
	@trap 'exit 130' INT; failed=0; \
	go run ./internal/chaos $(CHAOS) || failed=1; \
	$(if $(CHAOS),,go run ./internal/chaos -bugs -only $(SOME_BUGS) || failed=1;) \
	exit $$failed

chaos-long: ## the same for as long as it takes to be sure, about an hour
	@.ci/tools postgresql strace
	@trap 'exit 130' INT; failed=0; \
	go run ./internal/chaos -long $(CHAOS) || failed=1; \
	$(if $(CHAOS),,go run ./internal/chaos -bugs || failed=1;) \
	exit $$failed

chaos-bugs: ## plant faults in the program, and see that the checks of make chaos find each
	@.ci/tools postgresql strace
	go run ./internal/chaos -bugs $(CHAOS)

bench: ## hob as a whole against a bare model: runs, streams, memory, start
	go run ./internal/bench

microbench: ## the benchmarks of the packages
	go test -run '^$$' -bench . -benchmem ./...

golden: ## rewrite the golden files; read the difference before committing it
	go test $(TESTFLAGS) $(GOLDEN) -update

lint: ## golangci-lint; the first run builds it, which takes minutes
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; \
	elif [ -x "$$(go env GOPATH)/bin/golangci-lint" ]; then "$$(go env GOPATH)/bin/golangci-lint" run ./...; \
	else go run $(GOLANGCI) run ./...; fi

fmt: ## format the code
	gofmt -w $$(git ls-files -co --exclude-standard '*.go' | xargs -r ls 2>/dev/null)

fuzz: ## every fuzz target for ten seconds
	@grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u | while read -r p; do \
	  go test -list '^Fuzz' "$$p" | grep '^Fuzz' | while read -r f; do \
	    echo "== $$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime 10s "$$p"; \
	  done; \
	done

clean: ## remove what build made
	rm -rf bin
