# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LINTER  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Packages tested at once: half of the time a test waits rather than computes. More than six would
# use up PostgreSQL's connections.
TEST_P   ?= $$(n=$$((2 * $$(nproc))); echo $$((n < 6 ? n : 6)))
# More arguments for go test, and the packages: make test PKG=./internal/queue ARGS='-run TestRetry -v'
ARGS     ?=
# The longest come first, so that all processors are busy until the end.
PKG      ?= $(addprefix ./internal/,server dashboard interop crash migration api imapd) ./cmd/mailstead ./...
FUZZTIME ?= 30s

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## Start the whole service on loopback, with a demo domain and two mailboxes
	exec bin/mailstead dev $(ARGS)

.PHONY: build
build: ## Build bin/mailstead, a static binary
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/mailstead ./cmd/mailstead

# Folder for the tests' files and PostgreSQL: in memory, if there is room, an fsync costs nothing. The
# name is always the same, so that go test may reuse the results of packages that did not change.
FAST_TMP = $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

.PHONY: test
test: test-packages ## Run all tests, on SQLite and on a PostgreSQL of their own
	TMPDIR=$(FAST_TMP) MAILSTEAD_TEST_ALL=1 script/with-postgres script/go-test -count=1 -timeout 30m -p $(TEST_P) $(ARGS) $(PKG)

# What test-fast leaves out: tests that run the built program, other programs or whole migrations.
SLOW := /(cmd/[a-z]+|internal/(clienttest|crash|interop|migration))$$

.PHONY: test-fast
test-fast: ## Run the tests that need only SQLite, in a few minutes, and only what a change concerns
	CI= MAILSTEAD_TEST_ALL= TMPDIR=$(FAST_TMP) script/go-test -short -timeout 10m -p $$((2 * $$(nproc))) $(ARGS) $$(go list $(PKG) | grep -vE '$(SLOW)')

.PHONY: test-race
test-race: test-packages ## Run all tests under the race detector
	TMPDIR=$(FAST_TMP) CGO_ENABLED=1 MAILSTEAD_TEST_ALL=1 script/with-postgres script/go-test -race -count=1 -timeout 60m -p $(TEST_P) $(ARGS) $(PKG)

.PHONY: test-packages
test-packages: ## Install the packages that the tests need: Debian's (script/test-packages), and npm's
	@script/install-packages
	@script/exim >/dev/null
	@script/npm-packages internal/interop/testdata/imapflow >/dev/null
	@script/npm-packages internal/interop/testdata/readers >/dev/null
	@script/npm-packages internal/interop/testdata/typescript >/dev/null

.PHONY: check
check: fmt-check vet lint sizes test ## Everything that must hold before a change lands

.PHONY: fmt
fmt: ## Format the code
	gofmt -w .

.PHONY: fmt-check
fmt-check: ## Fail on code that gofmt would change
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi

.PHONY: vet
vet: ## Run go vet
	go vet ./...

.PHONY: lint
lint: ## Run the linters of .golangci.yaml
	go run $(LINTER) run

.PHONY: sizes
sizes: ## List the files and functions that grow too long
	@go test -count=1 -v -run '^TestSizes$$' ./internal/archtest | grep -vE '^(=== RUN|ok )'

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each
	script/fuzz $(FUZZTIME)

.PHONY: bench
bench: build ## Measure the binary, and Postfix and Dovecot beside it: one table
	script/bench $(ARGS)

# The tests that do more when they may take hours (servertest.Soak).
SOAKS ?= TestKill|TestPower|TestKillWebhooks|TestIsolation|TestTwoNodes|TestUpheaval|TestFindMany|TestMillionWaiting|TestKilledThreeTimes|TestLargeMessages|TestCrowd|TestCrowdOfTwoNodes|TestIdleMemory|TestIdleSessions|TestIdleAcrossNodes|TestLoginFlood|TestSilentDomainSlowsNobody

.PHONY: soak
soak: test-packages ## Run the long forms: 200 kills and 100 losses of power under load, 100 kills of one node of two, a million messages, a million rows that wait, 100,000 events to webhooks, 100,000 messages moved in from a Dovecot, crowds of IMAP clients, 10,000 that idle, 500 that try passwords, on each engine
	MAILSTEAD_SOAK=1 MAILSTEAD_TEST_ALL=1 script/with-postgres script/go-test -count=1 -v -timeout 8h -p 1 $(ARGS) -run '^($(SOAKS))$$' ./internal/crash ./internal/imapd ./internal/outbound ./internal/migration ./internal/queue ./internal/server ./internal/webhook

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
