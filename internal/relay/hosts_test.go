// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

func someHosts() (*hosts, netip.AddrPort) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return newHosts(func() time.Time { return now }), netip.MustParseAddrPort("192.0.2.1:25")
}

func enter(t *testing.T, h *hosts, a netip.AddrPort) *visit {
	t.Helper()
	v, err := h.enter(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A run that was let in because another talked may begin to talk, or fail,
// after that one has left.
func TestVisitOutlastsItsCompany(t *testing.T) {
	for _, talks := range []bool{true, false} {
		h, a := someHosts()
		first := enter(t, h, a)
		first.talk()
		second := enter(t, h, a)
		first.leave(nil)
		if talks {
			second.talk()
		}
		if second.leave(nil) || len(h.live) != 0 || len(h.failed) != 0 {
			t.Errorf("left behind: %v, %v", h.live, h.failed)
		}
	}
}

// Those who wait for the first one's try learn what it found.
func TestFirstFindsOut(t *testing.T) {
	h, a := someHosts()
	first := enter(t, h, a)
	why := &smtpclient.DialError{}
	var work sync.WaitGroup
	for range 5 {
		work.Go(func() {
			if v, err := h.enter(context.Background(), a); v != nil || !errors.Is(err, why) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
	first.leave(why)
	work.Wait()
	if len(h.live) != 0 || !h.avoided(a) {
		t.Errorf("left behind: %v, %v", h.live, h.failed)
	}
}

// A refusal beside a conversation says nothing against the host; the end of
// the conversation wakes one who waits, who may pass it on.
func TestEndOfAConversation(t *testing.T) {
	h, a := someHosts()
	first, other := enter(t, h, a), (*visit)(nil)
	first.talk()
	other = enter(t, h, a)
	other.talk()
	refused := enter(t, h, a)
	if !refused.leave(&smtpclient.DialError{}) || len(h.failed) != 0 {
		t.Error("no company")
	}
	one, two := h.ended(a), h.ended(a)
	first.leave(nil)
	<-one
	select {
	case <-two:
		t.Error("both were woken")
	default:
	}
	h.pass(a)
	<-two
	three := h.ended(a)
	other.leave(nil)
	<-three
	if h.ended(a) != nil || len(h.live) != 0 {
		t.Errorf("left behind: %v", h.live)
	}
}

func TestEnterEndsWithItsContext(t *testing.T) {
	h, a := someHosts()
	enter(t, h, a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.enter(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
