// SPDX-License-Identifier: Apache-2.0

// Package archtest tests the architecture: which package may import which, which tables a package
// may use in its SQL, how long a file may be, and what tests must not do.
package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// layers is the table of layers in ARCHITECTURE.md: a package only imports packages of lower
// layers. Add a new package both here and there.
var layers = map[string]int{
	"fault":    ground, // used by all packages, also in layer 1
	"durable":  ground, // used like os, also in layer 1
	"lru":      ground, // used like container/list, also in layer 1
	"bytesize": ground, // used like strconv
	"apijson":  ground, // used like encoding/json
	"heaptest": ground, // helper for tests of all packages
	"needtest": ground, // likewise
	"address":  1, "secret": 1, "dns": 1, "db": 1, "tag": 1,
	"testkit": 2, // helper for tests of the layers above
	"lease":   2, "message": 2, "smtpclient": 2, "notify": 2, "egress": 2, "datadir": 2,
	"blob": 3, "mailauth": 3, "event": 3, "template": 3, "ratelimit": 3, "credential": 3, "cert": 3, "idempotency": 3, "summary": 3, "retention": 3, "bounce": 3, "mailfile": 3, "audit": 3,
	"account": 4, "domain": 4, "webhook": 4, "thread": 4, "route": 4, "suppression": 4, "stat": 4, "quota": 4, "user": 4, "listener": 4,
	"mailbox": 5, "queue": 5, "servicemail": 5,
	"folder": 6, "outbound": 6, "relay": 6,
	"fulltext": 7, "spam": 7, "migration": 7, "clientsetup": 7, "demo": 7, "mailio": 7, "backup": 7,
	"inbound": 8, "doctor": 8, "web": 8,
	"imapd": 9, "smtpd": 9, "api": 9, "dashboard": 9,
	"server":        10,
	"cmd/mailstead": 11, "cmd/load": 11,
	"docs":           1,  // documentation, which the dashboard shows
	"docs/receivers": 11, // examples for customers to copy
	"client":         11, // imported by customers and by commands; imports none of our packages
}

const (
	ground        = -1 // below all layers; 0 would mean that a package is not in the table
	listenerLayer = 9
)

// pure lists packages that must not depend on db, not even through another package.
var pure = []string{"address", "apijson", "bytesize", "fault", "lru", "secret", "dns", "tag", "message", "smtpclient", "mailauth", "egress", "summary", "bounce", "mailfile"}

// anyTest lists the helpers that tests of all layers may use: they start the whole service, or call
// it from outside.
var anyTest = []string{"internal/server/servertest", "internal/servertest", "client"}

// packageOf returns the entry of floors for the package in dir: the first folder below internal/, or
// the command. A helper for tests, xtest, belongs to x.
func packageOf(dir string) string {
	parts := strings.Split(dir, "/")
	if len(parts) < 2 {
		return dir
	}
	switch parts[0] {
	case "internal":
		pkg := parts[1]
		if base, helper := strings.CutSuffix(pkg, "test"); helper && layers[base] != 0 {
			return base
		}
		return pkg
	case "cmd":
		return "cmd/" + parts[1]
	}
	return dir
}

func isHelper(dir string) bool {
	base := dir[strings.LastIndexByte(dir, '/')+1:]
	return base == "testkit" || len(base) > len("test") && strings.HasSuffix(base, "test")
}

func TestLayers(t *testing.T) {
	for _, complaint := range checkLayers(sources(t)) {
		t.Error(complaint)
	}
}

func checkLayers(files []source) []string {
	// A folder with only tests, like this one, is in no layer: nothing can import it, so
	// it may import everything.
	inFixture := map[string]bool{}
	for _, s := range files {
		if !s.isTest() {
			inFixture[s.dir] = true
		}
	}
	var bad []string
	for _, dir := range slices.Sorted(maps.Keys(inFixture)) {
		if layers[packageOf(dir)] == 0 {
			bad = append(bad, fmt.Sprintf("%s: the pkg %q is on no floor; enter it in internal/archtest and ARCHITECTURE.md", dir, packageOf(dir)))
		}
	}
	for _, s := range files {
		if !inFixture[s.dir] || layers[packageOf(s.dir)] == 0 {
			continue
		}
		for _, to := range s.imports() {
			if why := refuse(s, to); why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", s.path, to, why))
			}
		}
	}
	return append(bad, checkPure(files)...)
}

// refuse returns why the file must not import the package in dir to; "" if it may.
func refuse(s source, to string) string {
	if isHelper(to) && !s.isTest() && !isHelper(s.dir) {
		return "a helper for tests, in code that ships"
	}
	if (s.isTest() || isHelper(s.dir)) && slices.Contains(anyTest, to) {
		return ""
	}
	from, dest := packageOf(s.dir), packageOf(to)
	switch {
	case from == dest:
		return ""
	case dest == "client" && strings.HasPrefix(from, "cmd/"):
		return ""
	case from == "client" && !s.isTest():
		return "what customers import stands on its own"
	case layers[dest] == 0:
		return "on no floor"
	case layers[from] == listenerLayer && layers[dest] == listenerLayer:
		return "servers never import each other"
	case layers[dest] == layers[from]:
		return fmt.Sprintf("both are on floor %d", layers[from])
	case layers[dest] > layers[from]:
		return fmt.Sprintf("it goes up, from floor %d to %d", layers[from], layers[dest])
	}
	return ""
}

// checkPure follows the imports of non-test code, and reports pure packages that import db through
// others.
func checkPure(files []source) []string {
	arrows := map[string]map[string]bool{}
	for _, s := range files {
		if s.isTest() || isHelper(s.dir) {
			continue
		}
		from := packageOf(s.dir)
		for _, to := range s.imports() {
			if arrows[from] == nil {
				arrows[from] = map[string]bool{}
			}
			arrows[from][packageOf(to)] = true
		}
	}
	var bad []string
	for _, pkg := range pure {
		if path := pathTo(arrows, pkg, "db", map[string]bool{}); path != nil {
			bad = append(bad, fmt.Sprintf("%s is pure, yet reaches storage: %s", pkg, strings.Join(path, " → ")))
		}
	}
	return bad
}

func pathTo(arrows map[string]map[string]bool, from, goal string, seen map[string]bool) []string {
	if from == goal {
		return []string{goal}
	}
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, next := range slices.Sorted(maps.Keys(arrows[from])) {
		if rest := pathTo(arrows, next, goal, seen); rest != nil {
			return append([]string{from}, rest...)
		}
	}
	return nil
}

func TestLayersBite(t *testing.T) {
	cases := []struct {
		path, imports string
		bad           string // part of the expected complaint; "" for none
	}{
		{"internal/queue/a.go", "internal/db", ""},
		{"internal/queue/sub/a.go", "internal/queue", ""},
		{"internal/queue/a_test.go", "internal/db/dbtest", ""},
		{"internal/queue/a_test.go", "internal/server/servertest", ""},
		{"internal/db/dbtest/a.go", "internal/db", ""},
		{"internal/dnstest/a.go", "internal/dns", ""},
		{"cmd/mailstead/main.go", "internal/server", ""},
		{"client/a.go", "internal/address", "stands on its own"},
		{"client/a_test.go", "internal/server/servertest", ""},
		{"internal/api/a_test.go", "client", ""},
		{"internal/server/servertest/a.go", "client", ""},
		{"internal/api/a.go", "client", "goes up"},
		{"cmd/mailstead/a.go", "client", ""},
		{"internal/db/a.go", "internal/queue", "goes up"},
		{"internal/db/a_test.go", "internal/queue", "goes up"},
		{"internal/db/dbtest/a.go", "internal/queue", "goes up"},
		{"internal/queue/a.go", "internal/mailbox", "both are on floor 5"},
		{"internal/api/a.go", "internal/smtpd", "servers never"},
		{"internal/queue/a.go", "internal/db/dbtest", "helper for tests"},
		{"internal/queue/a.go", "internal/models", "on no floor"},
		{"internal/models/a.go", "internal/db", "on no floor"},
		{"nowhere/a.go", "internal/db", "on no floor"},
		{"internal/message/a.go", "internal/lease", "both are on floor 2"},
		{"internal/mailauth/a.go", "internal/db", "mailauth is pure"},
	}
	for _, c := range cases {
		t.Run(c.path+" imports "+c.imports, func(t *testing.T) {
			files := []source{mustParse(t, c.path, fmt.Sprintf("package x\nimport _ %q\n", module+"/"+c.imports))}
			if s := files[0]; s.isTest() {
				files = append(files, mustParse(t, s.dir+"/x.go", "package x\n"))
			}
			expectComplaint(t, checkLayers(files), c.bad)
		})
	}
}

func mustParse(t *testing.T, path, text string) source {
	t.Helper()
	s, err := parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func expectComplaint(t *testing.T, got []string, part string) {
	t.Helper()
	switch {
	case part == "" && len(got) > 0:
		t.Errorf("complaints about what is allowed: %q", got)
	case part != "" && !strings.Contains(strings.Join(got, "\n"), part):
		t.Errorf("complaints %q, want one with %q", got, part)
	}
}
