// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"mime"
	netmail "net/mail"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gomessage "github.com/emersion/go-message"
	gomail "github.com/emersion/go-message/mail"

	names "github.com/mailstead/mailstead/internal/address"
	own "github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/message/messagetest"
	"github.com/mailstead/mailstead/internal/needtest"
)

// readings are the authors that mail readers see: by reader, then by value.
type readings map[string][][]string

// readAll parses From values with all readers, each as its own program: Python's and those of npm,
// including Thunderbird's.
func readAll(t *testing.T, values []string) readings {
	t.Helper()
	packages := npmPackages(t, "testdata/readers")
	bundle := filepath.Join(t.TempDir(), "readers.js")
	p := newProgram(t, "NODE_PATH="+packages)
	p.must("", "esbuild", "--bundle", "--platform=node", "--log-level=error", "--outfile="+bundle, absolute(t, "testdata/readers/readers.mjs"))
	raw := make([][]byte, len(values))
	for n, value := range values {
		raw[n] = []byte(value)
	}
	in, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	all := readings{}
	for _, command := range [][]string{{"node", bundle}, {"python3", "testdata/readers/readers.py"}} {
		cmd := exec.Command(needtest.Program(t, command[0]), command[1:]...)
		var said bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &said
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &all)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", command[0], err, &said)
		}
	}
	for name, read := range goReaders() {
		for _, value := range values {
			all[name] = append(all[name], read(value))
		}
	}
	for name, read := range all {
		if len(read) != len(values) {
			t.Fatalf("%s read %d of %d", name, len(read), len(values))
		}
		for n := range read {
			read[n] = normal(read[n])
		}
	}
	return all
}

// normal returns the addresses with a full domain, in the form that mail servers compare.
func normal(all []string) (known []string) {
	for _, text := range all {
		at := strings.LastIndexByte(text, '@')
		if at < 0 {
			continue
		}
		domain, err := names.ParseMailDomain(text[at+1:])
		if err != nil {
			continue
		}
		local := strings.TrimSpace(text[:at])
		if len(local) > 1 && local[0] == '"' && local[len(local)-1] == '"' {
			local = local[1 : len(local)-1]
		}
		if local = strings.ToLower(strings.Trim(local, "'")); local != "" {
			known = append(known, local+"@"+domain)
		}
	}
	return known
}

var (
	bracketed = regexp.MustCompile(`<([^<>\s]+@[^<>\s]+)>`)
	anywhere  = regexp.MustCompile(`[^\s<>"(),;:]+@[^\s<>"(),;:]+`)
)

func goReaders() map[string]func(string) []string {
	return map[string]func(string) []string{
		"net/mail": func(v string) (all []string) {
			p := netmail.AddressParser{WordDecoder: &mime.WordDecoder{}}
			list, err := p.ParseList(strings.ReplaceAll(v, "\r\n", ""))
			for _, a := range list {
				all = append(all, a.Address)
			}
			if err != nil {
				return nil
			}
			return all
		},
		"go-message": func(v string) (all []string) {
			e, err := gomessage.Read(strings.NewReader("From: " + v + "\r\n\r\n"))
			if e == nil || err != nil {
				return nil
			}
			h := gomail.Header{Header: e.Header}
			list, err := h.AddressList("From")
			for _, a := range list {
				all = append(all, a.Address)
			}
			if err != nil {
				return nil
			}
			return all
		},
		"our lists": func(v string) (all []string) {
			for _, a := range own.ParseAddresses([]byte(v)) {
				all = append(all, a.String())
			}
			return all
		},
		// As mail filters and scripts do, and readers that show the text in brackets.
		"last brackets": func(v string) []string {
			found := bracketed.FindAllStringSubmatch(strings.ReplaceAll(v, "\r\n", ""), -1)
			if len(found) == 0 {
				return nil
			}
			return found[len(found)-1][1:]
		},
		"anything with @": func(v string) (all []string) {
			for _, found := range anywhere.FindAllString(strings.ReplaceAll(v, "\r\n", ""), -1) {
				all = append(all, strings.Trim(found, "'"))
			}
			return all
		},
	}
}

// fromTable returns the table of From values, and the problem of each.
func fromTable(t *testing.T) (values []string, doubts []own.AuthorProblem) {
	t.Helper()
	for _, from := range messagetest.Froms(t) {
		values, doubts = append(values, from.Value), append(doubts, from.Problem)
	}
	return values, doubts
}

// Every reader sees the author that we see, or nobody; so where two readers see different authors,
// we see none.
func TestReadersAgreeOnAuthors(t *testing.T) {
	values, doubts := fromTable(t)
	for n, readers := range readAll(t, values).of(values) {
		if readers.verify(t) < 3 && doubts[n] == "" {
			t.Errorf("%q: few readers see anybody", values[n])
		}
	}
}

// The same for random combinations of these values.
func TestReadersAgreeOnRandomAuthors(t *testing.T) {
	table, _ := fromTable(t)
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]string, 2000)
	for n := range values {
		values[n] = randomFrom(r, table)
	}
	clear, differ := 0, 0
	for _, readers := range readAll(t, values).of(values) {
		readers.verify(t)
		if readers.doubt == "" {
			clear++
		} else if readers.differ() {
			differ++
		}
	}
	t.Logf("%d values, of which %d are clear, and %d are read differently", len(values), clear, differ)
	if clear < len(values)/20 || differ < len(values)/20 {
		t.Error("these try little")
	}
}

// randomFrom builds a From value from pieces that readers parse differently, or changes one from
// the table.
func randomFrom(r *rand.Rand, table []string) string {
	pieces := []string{
		"Ann", " ", " ", "\"", "\\", "<", ">", "(", ")", ",", ";", ":", "@", "\r\n ", "\t", "ann@own.test", "<ann@own.test>", " <ann@own.test>", "ceo@victim.test",
		"<ceo@victim.test>", "\"Lee, Ann\" ", "\"ceo@victim.test\" ", "=?utf-8?q?ceo=40victim.test?=", "=?utf-8?q?Ann?= ", "=?utf-8?q?=3C?=", "=?utf-8?q?=22?=", "(x)", "us:", "'", "Ä", "own.test",
		"@victim.test", "two@", "[", "]", ".", "\\\"", "\"\"", "=?", "?=", "\x00", "\xa0",
	}
	if r.IntN(2) == 0 {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	value := table[r.IntN(len(table))]
	for range 1 + r.IntN(3) {
		at := r.IntN(len(value) + 1)
		switch r.IntN(3) {
		case 0:
			value = value[:at] + pieces[r.IntN(len(pieces))] + value[at:]
		case 1:
			end := min(len(value), at+1+r.IntN(3))
			value = value[:at] + value[end:]
		default:
			other := table[r.IntN(len(table))]
			value = value[:at] + other[r.IntN(len(other)+1):]
		}
	}
	if strings.HasSuffix(value, "\n") || strings.Contains(strings.NewReplacer("\n ", "", "\n\t", "").Replace(value), "\n") {
		return strings.NewReplacer("\r", "", "\n", "").Replace(value) // a line break would start another field
	}
	return value
}

// reading is the result of all readers for one value.
type reading struct {
	value string
	doubt own.AuthorProblem
	ours  []string            // without a problem: the authors, or those that all see
	seen  map[string][]string // by reader
}

func (all readings) of(values []string) []reading {
	list := make([]reading, len(values))
	for n, value := range values {
		a := own.ParseAuthors([][]byte{[]byte(value)})
		one := reading{value: value, doubt: a.Problem, seen: map[string][]string{}}
		for _, author := range a.List {
			one.ours = append(one.ours, author.String())
		}
		one.ours = sorted(normal(one.ours))
		for name, read := range all {
			if len(read[n]) > 0 {
				one.seen[name] = read[n]
			}
		}
		list[n] = one
	}
	return list
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// verify reports readers that see another author than we do, and returns how many see one.
func (r *reading) verify(t *testing.T) (agree int) {
	t.Helper()
	if r.doubt != "" && r.doubt != own.OtherName && r.doubt != own.ManyDomains {
		return 0
	}
	for name, theirs := range r.seen {
		agree++
		// Of several authors in one domain, they may show one.
		ok := !slices.ContainsFunc(theirs, func(a string) bool { return !slices.Contains(r.ours, a) })
		if name == "anything with @" {
			ok = ok || r.doubt != ""
		}
		if !ok {
			t.Errorf("%q: %s sees %q, we %q", r.value, name, theirs, r.ours)
		}
	}
	return agree
}

// differ reports whether two readers see different first authors.
func (r *reading) differ() bool {
	first := ""
	for _, theirs := range r.seen {
		if first != "" && theirs[0] != first {
			return true
		}
		first = theirs[0]
	}
	return false
}
