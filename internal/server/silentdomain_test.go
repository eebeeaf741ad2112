// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"net/smtp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A hundred sessions with mail from a domain whose DNS servers are silent, each time from another
// name, don't slow down ten sessions with other mail.
func TestSilentDomainSlowsNobody(t *testing.T) {
	needtest.Full(t, "a silent domain")
	t.Parallel()
	addr, _ := dnstest.Start(t, `good.com. 3600 TXT "v=spf1 ip4:127.0.0.1 -all"`, `_dmarc.good.com. 3600 TXT "v=DMARC1; p=reject"`)
	path := dnstest.StartProxy(t, addr, func(_ int, q *wire.Msg) dnstest.Fault {
		return dnstest.Fault{Drop: wire.IsSubDomain("silent.org.", strings.ToLower(q.Question[0].Name))}
	})
	s := servertest.Start(t, func(c *server.Config) { c.Resolver = path.Addr })
	rounds := servertest.SoakSize(3, 200)
	usual := goodMail(t, s, rounds, nil)

	ctx, end := context.WithCancel(t.Context())
	defer end()
	var silent sync.WaitGroup
	var sent atomic.Int64
	beat := make(chan struct{})
	for i := range servertest.SoakSize(20, 100) {
		silent.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				from := fmt.Sprintf("w@r%d-%d.silent.org", i, n)
				if c, err := smtp.Dial(s.Addr("smtp")); err == nil {
					stop := context.AfterFunc(ctx, func() { _ = c.Close() })
					_ = submit(c, from, s.Dev.Mailboxes[1].Address) // whether it is accepted does not matter here
					sent.Add(1)
					stop()
					_ = c.Close()
				}
				// Fast rejections must not turn the loop into a flood.
				select {
				case <-beat:
				case <-ctx.Done():
				}
			}
		})
	}
	beside := goodMail(t, s, rounds, beat)
	silentMail := sent.Load()
	end()
	silent.Wait()
	t.Logf("median of ten sessions: %v alone, %v beside the silent domain with %d messages", usual, beside, silentMail)
	if servertest.SoakSize(0, 1) == 1 && beside > 2*usual {
		t.Errorf("other mail takes %v instead of %v", beside, usual)
	}
}

// goodMail sends valid mail in ten sessions at a time, and returns the median time of a message. It
// sends to beat with every fourth message.
func goodMail(t *testing.T, s *servertest.Server, rounds int, beat chan<- struct{}) time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			c, err := smtp.Dial(s.Addr("smtp"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close() //nolint:errcheck // only a client
			for n := range rounds {
				if n%4 == 3 {
					select {
					case beat <- struct{}{}:
					default:
					}
				}
				began := time.Now()
				if err := submit(c, "a@good.com", s.Dev.Mailboxes[0].Address); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func submit(c *smtp.Client, from, to string) error {
	if err := c.Mail(from); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	_, _ = io.WriteString(w, testMail("hello", from)) // an error shows at the end
	return w.Close()
}
