// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the tests of the house itself: which package may import
// which, whose tables a package may name in its SQL, how long a file may grow,
// and what no test may do.
package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// floors is the table of ARCHITECTURE.md: imports only go down, and rooms of
// one floor do not know each other. A new room is entered here and there.
var floors = map[string]int{
	"fault":    ground, // its words are everyone's, also on floor 1
	"durable":  ground, // as os is; also on floor 1
	"heaptest": ground, // a helper for tests of every package
	"address":  1, "secret": 1, "dns": 1,
	"db": 2, "message": 2, "smtpclient": 2, "notify": 2, "egress": 2,
	"blob": 3, "mailauth": 3, "event": 3, "template": 3, "ratelimit": 3, "credential": 3, "cert": 3, "idempotency": 3, "summary": 3, "retention": 3, "bounce": 3, "mailfile": 3, "audit": 3,
	"account": 4, "domain": 4, "webhook": 4, "thread": 4, "route": 4, "suppression": 4, "stat": 4, "quota": 4, "user": 4,
	"mailbox": 5, "queue": 5,
	"folder": 6, "outbound": 6, "relay": 6,
	"search": 7, "spam": 7, "migration": 7, "clientsetup": 7, "mailio": 7, "backup": 7,
	"inbound": 8, "doctor": 8,
	"imapd": 9, "smtpd": 9, "api": 9, "dashboard": 9,
	"server":        10,
	"cmd/mailstead": 11, "cmd/load": 11,
	"docs":           1,  // what is to be read, for the dashboard to show
	"docs/receivers": 11, // what customers copy
	"client":         11, // what customers import, and commands; it imports nothing of ours
}

const (
	ground    = -1 // below all; 0 would mean that a room is not in the table
	doorFloor = 9
)

// pure rooms know nothing of storage, not even by way of another room.
var pure = []string{"address", "fault", "secret", "dns", "message", "smtpclient", "mailauth", "egress", "summary", "bounce", "mailfile"}

// anyTest are the helpers that every test may use, wherever it stands: they
// start the whole house, or call it from outside.
var anyTest = []string{"internal/server/servertest", "internal/servertest", "client"}

// quotaUsageQuery names the room that the package in dir belongs to: the first folder
// below internal/, or the command. A helper for tests, xtest, belongs to x.
func roomOf(dir string) string {
	parts := strings.Split(dir, "/")
	if len(parts) < 2 {
		return dir
	}
	switch parts[0] {
	case "internal":
		room := parts[1]
		if base, helper := strings.CutSuffix(room, "test"); helper && floors[base] != 0 {
			return base
		}
		return room
	case "cmd":
		return "cmd/" + parts[1]
	}
	return dir
}

func isHelper(dir string) bool {
	base := dir[strings.LastIndexByte(dir, '/')+1:]
	return len(base) > len("test") && strings.HasSuffix(base, "test")
}

func TestFloors(t *testing.T) {
	for _, complaint := range checkFloors(sources(t)) {
		t.Error(complaint)
	}
}

func checkFloors(files []source) []string {
	// A folder of tests alone, like this one, stands outside the house: nobody
	// can import it, so it may look at anything.
	inHouse := map[string]bool{}
	for _, s := range files {
		if !s.isTest() {
			inHouse[s.dir] = true
		}
	}
	var bad []string
	for _, dir := range slices.Sorted(maps.Keys(inHouse)) {
		if floors[roomOf(dir)] == 0 {
			bad = append(bad, fmt.Sprintf("%s: the room %q is on no floor; enter it in internal/archtest and ARCHITECTURE.md", dir, roomOf(dir)))
		}
	}
	for _, s := range files {
		if !inHouse[s.dir] || floors[roomOf(s.dir)] == 0 {
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

// refuse says why the file may not import the package in dir to, or "".
func refuse(s source, to string) string {
	if isHelper(to) && !s.isTest() && !isHelper(s.dir) {
		return "a helper for tests, in code that ships"
	}
	if (s.isTest() || isHelper(s.dir)) && slices.Contains(anyTest, to) {
		return ""
	}
	from, dest := roomOf(s.dir), roomOf(to)
	switch {
	case from == dest:
		return ""
	case dest == "client" && strings.HasPrefix(from, "cmd/"):
		return ""
	case from == "client" && !s.isTest():
		return "what customers import stands on its own"
	case floors[dest] == 0:
		return "on no floor"
	case floors[from] == doorFloor && floors[dest] == doorFloor:
		return "doors never import doors"
	case floors[dest] == floors[from]:
		return fmt.Sprintf("both are on floor %d", floors[from])
	case floors[dest] > floors[from]:
		return fmt.Sprintf("it goes up, from floor %d to %d", floors[from], floors[dest])
	}
	return ""
}

// checkPure follows the imports of code that ships, so that a pure room does
// not reach db through a room that looks innocent.
func checkPure(files []source) []string {
	arrows := map[string]map[string]bool{}
	for _, s := range files {
		if s.isTest() || isHelper(s.dir) {
			continue
		}
		from := roomOf(s.dir)
		for _, to := range s.imports() {
			if arrows[from] == nil {
				arrows[from] = map[string]bool{}
			}
			arrows[from][roomOf(to)] = true
		}
	}
	var bad []string
	for _, room := range pure {
		if path := pathTo(arrows, room, "db", map[string]bool{}); path != nil {
			bad = append(bad, fmt.Sprintf("%s is pure, yet reaches storage: %s", room, strings.Join(path, " → ")))
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

func TestFloorsBite(t *testing.T) {
	cases := []struct {
		path, imports string
		bad           string // a part of the complaint; "" when all is well
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
		{"internal/api/a.go", "internal/smtpd", "doors never"},
		{"internal/queue/a.go", "internal/db/dbtest", "helper for tests"},
		{"internal/queue/a.go", "internal/models", "on no floor"},
		{"internal/models/a.go", "internal/db", "on no floor"},
		{"web/a.go", "internal/db", "on no floor"},
		{"internal/message/a.go", "internal/db", "both are on floor 2"},
		{"internal/mailauth/a.go", "internal/db", "mailauth is pure"},
	}
	for _, c := range cases {
		t.Run(c.path+" imports "+c.imports, func(t *testing.T) {
			files := []source{mustParse(t, c.path, fmt.Sprintf("package x\nimport _ %q\n", module+"/"+c.imports))}
			if s := files[0]; s.isTest() {
				files = append(files, mustParse(t, s.dir+"/x.go", "package x\n"))
			}
			expectComplaint(t, checkFloors(files), c.bad)
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
