// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/summary"
)

// After failures the circuit opens, one caller probes, and success closes the circuit.
func TestCircuit(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBackend(1, time.Hour)
	b.circuit.now = func() time.Time { return now }
	broken := errors.New("broken")
	asked := 0
	ask := func(ok bool) error {
		return b.call(t.Context(), func(context.Context) (bool, error) {
			asked++
			if !ok {
				return false, broken
			}
			return true, nil
		})
	}
	for range maxFailures {
		if err := ask(false); !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	if err := ask(true); !errors.Is(err, errCircuitOpen) || asked != maxFailures {
		t.Errorf("it is asked %d times: %v", asked, err)
	}
	now = now.Add(31 * time.Second)
	if err := b.call(t.Context(), func(context.Context) (bool, error) {
		if err := ask(true); !errors.Is(err, errCircuitOpen) {
			t.Errorf("a second one tries too: %v", err)
		}
		return false, broken
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := ask(true); !errors.Is(err, errCircuitOpen) {
		t.Errorf("after a try that failed: %v", err)
	}
	now = now.Add(31 * time.Second)
	for range 3 {
		if err := ask(true); err != nil {
			t.Error(err)
		}
	}
}

// The number of concurrent calls is limited, and a caller that can't wait longer gives up.
func TestConcurrent(t *testing.T) {
	b := newBackend(1, time.Hour)
	in, out := make(chan bool), make(chan bool)
	go func() {
		_ = b.call(context.Background(), func(context.Context) (bool, error) {
			in <- true
			<-out
			return true, nil
		})
		in <- true
	}()
	<-in
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.call(ctx, func(context.Context) (bool, error) { return true, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("beside another: %v", err)
	}
	out <- true
	<-in
	if err := b.call(t.Context(), func(context.Context) (bool, error) { return true, nil }); err != nil {
		t.Error(err)
	}
}

func TestRspamdActions(t *testing.T) {
	for action, want := range map[string]summary.SpamAction{
		"no action": summary.ActionAccept, "greylist": summary.ActionAccept, "add header": summary.ActionJunk, "rewrite subject": summary.ActionJunk, "quarantine": summary.ActionJunk, "discard": summary.ActionJunk,
		"soft reject": summary.ActionDefer, "reject": summary.ActionReject, "something new": summary.ActionAccept,
	} {
		o, err := parseRspamdReply([]byte(`{"action":"` + action + `","score":7.256,"required_score":15,"symbols":{"A":{"score":0.5},"B":{"score":-6},"C":{}}}`))
		if err != nil || o.Action != want {
			t.Errorf("%s: %v, %v", action, o.Action, err)
		}
		if got := string(o.AppendHeader(nil)); !strings.HasSuffix(got, "score=7.26 required=15\r\n\tB=-6\r\n\tA=0.5\r\n\tC\r\n") {
			t.Errorf("%s: %q", action, got)
		}
	}
	for _, bad := range []string{``, `{}`, `{"action":3}`, `{"action":"reject"`, `{"action":"reject","score":"x"}`, `"` + strings.Repeat("x", maxRspamdReply) + `"`} {
		if _, err := parseRspamdReply([]byte(bad)); err == nil {
			t.Errorf("%.40s is an answer", bad)
		}
	}
}

func TestBackendAddresses(t *testing.T) {
	for _, bad := range []string{"", "localhost:11333", "ftp://a", "http://"} {
		if _, err := NewRspamd(bad, 0); err == nil {
			t.Errorf("%q is an rspamd", bad)
		}
	}
	for _, bad := range []string{"", "localhost", "run/clamd"} {
		if _, err := NewClamav(bad, 0); err == nil {
			t.Errorf("%q is a clamd", bad)
		}
	}
}
