// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

const alice, bob = "alice@demo.test", "bob@demo.test"

type guessing struct {
	*Guesses
	*clock
	t *testing.T
	n int
}

func newGuessing(t *testing.T) *guessing {
	g := &guessing{Guesses: NewGuesses(), clock: newClock(), t: t}
	g.Guesses.Now = g.clock.Now
	return g
}

// guess tries a new wrong password, if it is let through.
func (g *guessing) guess(address, from string) (wait, retry time.Duration) {
	g.t.Helper()
	wait, retry = g.try(address, from)
	if retry == 0 {
		g.n++
		g.Failed(address, ip(from), fmt.Sprint("guess ", g.n))
	}
	return wait, retry
}

func (g *guessing) try(address, from string) (wait, retry time.Duration) {
	g.t.Helper()
	wait, err := g.Check(address, ip(from))
	if err == nil {
		return wait, 0
	}
	var limited *fault.Error
	if !errors.As(err, &limited) || limited.Kind != fault.Limited || limited.Retry <= 0 || wait != 0 {
		g.t.Fatalf("refused with %v", err)
	}
	return 0, limited.Retry
}

func TestGuessingFromANetworkIsSlowedThenRefused(t *testing.T) {
	g := newGuessing(t)
	var waits []int64
	for i := range 10 {
		wait, retry := g.guess(fmt.Sprintf("user%d@demo.test", i), "192.0.2.1")
		if retry != 0 {
			t.Fatalf("refused at guess %d", i)
		}
		waits = append(waits, wait.Milliseconds())
	}
	if got := fmt.Sprint(waits); got != "[0 0 0 250 500 1000 2000 4000 4000 4000]" {
		t.Errorf("delays in ms: %v", got)
	}
	for _, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		_, retry := g.guess(alice, "192.0.2.1")
		if retry != want {
			t.Fatalf("refused for %v, want %v", retry, want)
		}
		g.forward(retry - time.Second)
		if _, retry := g.try(alice, "192.0.2.1"); retry != time.Second {
			t.Fatalf("refused for %v more, want 1s", retry)
		}
		g.forward(time.Second)
		if _, retry := g.guess(alice, "192.0.2.1"); retry != 0 {
			t.Fatal("refused after its time")
		}
	}
	if wait, retry := g.try(alice, "192.0.2.2"); wait != 0 || retry != 0 {
		t.Errorf("a neighbour waits %v, %v", wait, retry)
	}
	g.forward(24 * time.Hour)
	if wait, retry := g.try(alice, "192.0.2.1"); wait != 0 || retry != 0 {
		t.Errorf("a day later: %v, %v", wait, retry)
	}
}

func TestRefusalIsAtMostAnHour(t *testing.T) {
	g := newGuessing(t)
	for range 1000 {
		if _, retry := g.guess(alice, "192.0.2.1"); retry > time.Hour {
			t.Fatalf("refused for %v", retry)
		} else if retry > 0 {
			g.forward(retry)
		}
	}
}

// Many networks guess at one address; its owner still signs in from where
// they did before, and from elsewhere within a minute.
func TestOwnerIsNotLockedOut(t *testing.T) {
	g := newGuessing(t)
	g.Succeeded(alice, ip("198.51.100.1"))
	refused := 0
	for i := range 500 {
		from := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}).String()
		if _, retry := g.guess(alice, from); retry > 0 {
			refused++
			if retry > time.Minute {
				t.Fatalf("a newcomer is refused for %v", retry)
			}
		}
	}
	if refused < 450 {
		t.Fatalf("only %d of 500 guesses were refused", refused)
	}
	if wait, retry := g.try(alice, "198.51.100.1"); wait != 0 || retry != 0 {
		t.Errorf("the owner at home waits %v, %v", wait, retry)
	}
	if wait, retry := g.try(bob, "198.51.100.2"); wait != 0 || retry != 0 {
		t.Errorf("another address waits %v, %v", wait, retry)
	}
	// A guesser behind the owner's own router is judged by what it does there.
	for range 10 {
		g.guess(alice, "198.51.100.1")
	}
	if _, retry := g.try(alice, "198.51.100.1"); retry != 30*time.Second {
		t.Errorf("guessing from home is refused for %v", retry)
	}
	g.forward(31 * 24 * time.Hour)
	for range 10 {
		g.guess(bob, "198.51.100.1")
	}
	if _, retry := g.try(alice, "198.51.100.1"); retry == 0 {
		t.Error("a network that was not used for a month still counts as home")
	}
}

func TestOwnMailboxPardonsNoGuesses(t *testing.T) {
	g := newGuessing(t)
	for range 12 {
		g.guess(alice, "192.0.2.1")
		g.Succeeded(bob, ip("192.0.2.1"))
	}
	if _, retry := g.try(alice, "192.0.2.1"); retry == 0 {
		t.Error("signing in to one's own mailbox makes guessing free")
	}
	if wait, retry := g.try(bob, "192.0.2.1"); wait != 0 || retry != 0 {
		t.Errorf("bob waits %v, %v", wait, retry)
	}
}

func TestSamePasswordAgainIsNoGuess(t *testing.T) {
	g := newGuessing(t)
	for range 1000 {
		g.Failed(alice, ip("192.0.2.1"), "the old one")
	}
	if wait, retry := g.try(alice, "192.0.2.1"); wait != 0 || retry != 0 {
		t.Errorf("waits %v, %v", wait, retry)
	}
	for i := range 10 {
		g.Failed(fmt.Sprintf("user%d@demo.test", i), ip("192.0.2.1"), "the old one")
	}
	if _, retry := g.try(alice, "192.0.2.1"); retry == 0 {
		t.Error("one password for many addresses is guessing")
	}
}

func TestFriendsAreNotCounted(t *testing.T) {
	g := newGuessing(t)
	g.Friend = netip.Addr.IsLoopback
	for range 100 {
		if wait, retry := g.guess(alice, "::ffff:127.0.0.1"); wait != 0 || retry != 0 {
			t.Fatalf("a friend waits %v, %v", wait, retry)
		}
	}
	g.Succeeded(alice, ip("127.0.0.1"))
	if g.networks.order.Len()+g.addresses.order.Len()+g.homes.order.Len()+g.wrong.order.Len() != 0 {
		t.Error("a friend was counted")
	}
}

func TestGuessesAreBounded(t *testing.T) {
	g := newGuessing(t)
	g.networks.max, g.addresses.max, g.homes.max, g.wrong.max = 10, 10, 10, 10
	for i := range 100 {
		from := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String()
		g.guess(fmt.Sprint(i), from)
		g.Succeeded(fmt.Sprint(i), ip(from))
	}
	for _, n := range []int{len(g.networks.index), len(g.addresses.index), len(g.homes.index), len(g.wrong.index)} {
		if n != 10 {
			t.Errorf("%d kept, want 10", n)
		}
	}
}
