// SPDX-License-Identifier: Apache-2.0

package route_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/route"
)

// policies is a server for d.test's MTA-STS policy, and an STSResolver that finds it.
type policies struct {
	*route.STSResolver
	t    *testing.T
	o    route.STSOptions
	zone *dnstest.Zone
	ca   *certtest.CA

	mu    sync.Mutex
	now   time.Time
	hits  int
	serve http.HandlerFunc
}

func text(mode string, seconds string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "version: STSv1\r\nmode: "+mode+"\r\nmx: mx.d.test\r\nmax_age: "+seconds+"\r\n")
	}
}

func newPolicies(t *testing.T, d *db.DB, set func(*tls.Config)) *policies {
	t.Helper()
	p := &policies{t: t, ca: certtest.New(t, "root"), now: time.Now().Round(time.Second), serve: text("enforce", "604800")}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.hits++
		serve := p.serve
		p.mu.Unlock()
		if r.URL.Path != "/.well-known/mta-sts.txt" || !strings.HasPrefix(r.Host, "mta-sts.d.test:") {
			t.Errorf("asked for %s at %s", r.URL, r.Host)
		}
		serve(w, r)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.TLS = p.ca.ServerConfig("mta-sts.d.test")
	if set != nil {
		set(srv.TLS)
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	addr, zone := dnstest.Start(t, `_mta-sts.d.test. 0 TXT "v=STSv1; id=one;"`, "mta-sts.d.test. A 127.0.0.1")
	p.zone = zone
	p.o = route.STSOptions{
		DB: d, DNS: dnstest.Resolver(t, addr).Uncached(), Roots: p.ca.Pool(), AllowNets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Port: srv.Listener.Addr().(*net.TCPAddr).AddrPort().Port(), Now: p.clock, Log: slog.New(slog.DiscardHandler),
	}
	p.STSResolver = route.NewSTSResolver(p.o)
	return p
}

func (p *policies) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *policies) later(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

func (p *policies) answer(f http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve = f
}

// version publishes another id; "" removes the record.
func (p *policies) version(id string) {
	if id == "" {
		p.zone.Set("_mta-sts.d.test")
		return
	}
	p.zone.Set("_mta-sts.d.test", `0 TXT "v=STSv1; id=`+id+`"`)
}

// expect asks for the policy, and checks its mode ("-": none) and the total number of fetches.
func (p *policies) expect(what, mode string, hits int) {
	p.t.Helper()
	got, err := p.Policy(p.t.Context(), "d.test")
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	have := "-"
	if got != nil {
		have = string(got.Mode)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if have != mode || p.hits != hits {
		p.t.Errorf("%s: mode %s after %d fetches, want %s after %d", what, have, p.hits, mode, hits)
	}
}

func onEach(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	dbtest.Each(t, f)
}

func TestPolicyLife(t *testing.T) {
	onEach(t, func(t *testing.T, d *db.DB) {
		p := newPolicies(t, d, nil)
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				if got, err := p.Policy(t.Context(), "d.test"); err != nil || got == nil || !got.Allows("mx.d.test") {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
		work.Wait()
		p.expect("shared by all", "enforce", 1)

		p.STSResolver = route.NewSTSResolver(p.o)
		p.expect("kept over a restart", "enforce", 1)

		p.answer(http.NotFound)
		p.version("two")
		p.expect("the new version can't be had", "enforce", 2)
		p.expect("and is not asked for at once", "enforce", 2)
		p.answer(text("testing", "3600"))
		p.later(6 * time.Minute)
		p.expect("it can be had", "testing", 3)

		p.version("")
		p.expect("the record is gone", "testing", 3)
		p.STSResolver = route.NewSTSResolver(p.o)
		p.expect("and that is kept", "testing", 3)
		p.zone.ServFail("_mta-sts.d.test")
		p.expect("DNS does not answer", "testing", 3)
		p.zone.ClearFaults("_mta-sts.d.test")
		p.later(time.Hour)
		p.expect("its life is over", "-", 3)
		p.version("two")
		p.answer(text("none", "3600"))
		p.expect("none is a policy too", "none", 4)
	})
}

// A policy in use stays, even without its TXT record. A policy that is unused, or can't be fetched,
// expires.
func TestRefresh(t *testing.T) {
	onEach(t, func(t *testing.T, d *db.DB) {
		p := newPolicies(t, d, nil)
		refresh := func(what, mode string, hits int) {
			t.Helper()
			if err := p.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.expect(what, mode, hits)
		}
		p.expect("first", "enforce", 1)
		refresh("not due", "enforce", 1)
		p.version("")
		p.later(25 * time.Hour)
		refresh("due", "enforce", 2)
		refresh("not again", "enforce", 2)
		p.answer(http.NotFound)
		p.later(25 * time.Hour)
		refresh("fails", "enforce", 3)
		refresh("and is left alone for a while", "enforce", 3)
		p.later(2 * time.Hour)
		refresh("fails again", "enforce", 4)
		p.answer(text("testing", "1000000"))
		p.later(2 * time.Hour)
		refresh("succeeds", "testing", 5)
		for range 20 { // nobody mails there
			p.later(25 * time.Hour)
			if err := p.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.STSResolver = route.NewSTSResolver(p.o)
		p.expect("lives on", "testing", 25)
		for range 80 {
			p.later(25 * time.Hour)
			if err := p.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.mu.Lock()
		hits := p.hits
		p.mu.Unlock()
		if hits > 60 {
			t.Errorf("fetched %d times although nobody asks", hits)
		}
		p.expect("ended", "-", hits)
	})
}

// An invalid policy, or one that is not served as required, counts as none, and does not stop mail.
func TestPolicyThatCannotBeHad(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/.well-known/mta-sts.txt?again", http.StatusFound)
		},
		"not found": http.NotFound,
		"html": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "version: STSv1\nmode: enforce\nmx: mx.d.test\nmax_age: 5")
		},
		"no type": func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "version: STSv1\nmode: enforce\nmx: mx.d.test\nmax_age: 5")
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x: y\n", 1000)); err != nil {
					return
				}
			}
		},
		"not a policy": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "hello")
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	d, _ := leasetest.Open(t, dbtest.SQLite(t))
	for name, f := range answers {
		p := newPolicies(t, d, nil)
		p.answer(f)
		p.expect(name, "-", 1)
		p.expect(name+", again", "-", 1)
	}
	old := newPolicies(t, d, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 })
	old.expect("old TLS", "-", 0)
	stranger := newPolicies(t, d, nil)
	stranger.o.Roots = nil
	stranger.STSResolver = route.NewSTSResolver(stranger.o)
	stranger.expect("unknown authority", "-", 0)
	other := newPolicies(t, d, func(c *tls.Config) { c.Certificates = stranger.ca.ServerConfig("mta-sts.e.test").Certificates })
	other.o.Roots = stranger.ca.Pool()
	other.STSResolver = route.NewSTSResolver(other.o)
	other.expect("another's certificate", "-", 0)
	private := newPolicies(t, d, nil)
	private.o.AllowNets = nil
	private.STSResolver = route.NewSTSResolver(private.o)
	private.expect("private address", "-", 0)
	gone := newPolicies(t, d, nil)
	gone.zone.Set("mta-sts.d.test")
	gone.expect("no host", "-", 0)
}

// Hanging policy hosts hold up only a limited number of deliveries. The others are deferred, and
// none outlives its context.
func TestHangingPolicyHosts(t *testing.T) {
	d, _ := leasetest.Open(t, dbtest.SQLite(t))
	p := newPolicies(t, d, nil)
	p.answer(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	var work sync.WaitGroup
	for range route.MaxWaiting {
		work.Go(func() {
			if _, err := p.Policy(ctx, "d.test"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond) // there is no signal for it
	defer tick.Stop()
	for p.Waiting() < route.MaxWaiting {
		<-tick.C
	}
	if _, err := p.Policy(t.Context(), "d.test"); err == nil {
		t.Error("another one waited too")
	}
	cancel()
	work.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A policy just below the size limit is stored so that it can be read again.
func TestLongPolicyIsReadAgain(t *testing.T) {
	d, _ := leasetest.Open(t, dbtest.SQLite(t))
	p := newPolicies(t, d, nil)
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "version:STSv1\nmode:enforce\nmax_age:604800\nmx:mx.d.test\n"+strings.Repeat("mx:a.b\n", 9300))
	})
	p.expect("fetched", "enforce", 1)
	p.STSResolver = route.NewSTSResolver(p.o)
	p.expect("after a restart", "enforce", 1)
}
