// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// mirror is what a client that believes every answer knows of a folder.
type mirror struct {
	*client
	uids  []uint32          // by sequence number; 0 if not told yet
	flags map[uint32]string // by UID
}

var (
	isExists  = regexp.MustCompile(`^\* (\d+) EXISTS$`)
	isExpunge = regexp.MustCompile(`^\* (\d+) EXPUNGE$`)
	isFetch   = regexp.MustCompile(`^\* (\d+) FETCH \(UID (\d+) (?:MODSEQ \(\d+\) )?FLAGS \(([^)]*)\)\)$`)
)

// do gives a command and takes in its answers; it never fails the test
// itself, as it runs beside others.
func (m *mirror) do(command string) error {
	m.tag++
	tag := fmt.Sprintf("m%d ", m.tag)
	if _, err := io.WriteString(m.nc, tag+command+"\r\n"); err != nil {
		return err
	}
	plain := !strings.HasPrefix(command, "UID ") && regexp.MustCompile(`^(FETCH|STORE|SEARCH)`).MatchString(command)
	for {
		a, err := m.tryAnswer()
		if err != nil {
			return err
		}
		if rest, ok := strings.CutPrefix(a, tag); ok {
			if !strings.HasPrefix(rest, "OK") {
				return fmt.Errorf("%.60s: %s", command, rest)
			}
			return nil
		}
		if err := m.take(a, plain); err != nil {
			return fmt.Errorf("%.60s: %q: %w", command, a, err)
		}
	}
}

func (m *mirror) take(a string, plain bool) error {
	if g := isExists.FindStringSubmatch(a); g != nil {
		n := number(g[1])
		if n < len(m.uids) {
			return fmt.Errorf("fewer than the %d there were", len(m.uids))
		}
		m.uids = append(m.uids, make([]uint32, n-len(m.uids))...)
		return nil
	}
	if g := isExpunge.FindStringSubmatch(a); g != nil {
		n := number(g[1])
		if plain {
			return fmt.Errorf("EXPUNGE in the answer to FETCH, STORE or SEARCH")
		}
		if n < 1 || n > len(m.uids) {
			return fmt.Errorf("there are %d", len(m.uids))
		}
		delete(m.flags, m.uids[n-1])
		m.uids = slices.Delete(m.uids, n-1, n)
		return nil
	}
	if g := isFetch.FindStringSubmatch(a); g != nil {
		n, uid := number(g[1]), uint32(number(g[2]))
		if n < 1 || n > len(m.uids) || m.uids[n-1] != 0 && m.uids[n-1] != uid {
			return fmt.Errorf("the numbers were %v", m.uids)
		}
		m.uids[n-1] = uid
		// Recent is each session's own.
		m.flags[uid] = strings.Join(slices.DeleteFunc(strings.Fields(g[3]), func(f string) bool { return f == `\Recent` }), " ")
	}
	return nil
}

func number(s string) int { n, _ := strconv.Atoi(s); return n }

// act does something to the folder.
func (m *mirror) act(r *rand.Rand) error {
	n := len(m.uids)
	one := 1 + r.IntN(max(n, 1))
	switch what := r.IntN(10); {
	case what < 3 || n == 0:
		text := note("x")
		return m.do(fmt.Sprintf("APPEND INBOX {%d+}\r\n%s", len(text), text))
	case what < 5:
		return m.do(fmt.Sprintf(`STORE %d:* %cFLAGS (\Flagged)`, one, "+-"[r.IntN(2)]))
	case what < 6:
		return m.do(fmt.Sprintf(`STORE %d +FLAGS (\Deleted)`, one))
	case what < 7:
		return m.do("EXPUNGE")
	case what < 8:
		return m.do("FETCH 1:* (UID FLAGS)")
	case what < 9:
		return m.do(fmt.Sprintf("MOVE %d Archive", one))
	}
	return m.do("UID STORE 1:* +FLAGS (k" + strconv.Itoa(r.IntN(3)) + ")")
}

// Sessions that change one folder at the same time all end up knowing the
// same, from announcements alone.
func TestConcurrentSessions(t *testing.T) {
	each(t, func(h *house) {
		const sessions, actions = 4, 40
		mirrors := make([]*mirror, sessions)
		for i := range mirrors {
			mirrors[i] = &mirror{client: h.login(), flags: map[uint32]string{}}
			h.must(mirrors[i].do("SELECT INBOX"))
		}
		var wg sync.WaitGroup
		errs := make([]error, sessions)
		for i, m := range mirrors {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for range actions {
					if errs[i] = m.act(r); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			h.must(err)
		}
		for _, m := range mirrors {
			h.must(m.do("NOOP"))
		}
		truth := &mirror{client: h.login(), flags: map[uint32]string{}}
		h.must(truth.do("SELECT INBOX"))
		h.must(truth.do("FETCH 1:* (UID FLAGS)"))
		for i, m := range mirrors {
			if len(m.uids) != len(truth.uids) {
				t.Fatalf("session %d knows %d messages of %d", i, len(m.uids), len(truth.uids))
			}
			for seq, uid := range m.uids {
				if uid != 0 && uid != truth.uids[seq] {
					t.Errorf("session %d: message %d is %d, not %d", i, seq+1, uid, truth.uids[seq])
				}
				if got, told := m.flags[uid]; told && got != truth.flags[uid] {
					t.Errorf("session %d: message %d has the flags %q, not %q", i, seq+1, got, truth.flags[uid])
				}
			}
		}
	})
}
