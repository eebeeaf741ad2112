// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

func dialError(t *testing.T, o Options) *DialError {
	t.Helper()
	c, err := Dial(context.Background(), o)
	if err == nil {
		_ = c.Close()
		t.Fatal("dialling should have failed")
	}
	var de *DialError
	if !errors.As(err, &de) {
		t.Fatalf("%T: %v", err, err)
	}
	return de
}

func TestTLSModes(t *testing.T) {
	cert, roots := certificate(t)
	withTLS := func(s *smtp.Server) { s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}} }
	secure := serve(t, &sink{}, false, withTLS)
	implicit := serve(t, &sink{}, true, withTLS)
	clear := serve(t, &sink{}, false, nil)
	trusted := &tls.Config{RootCAs: roots}
	for _, tt := range []struct {
		name  string
		addr  netip.AddrPort
		set   func(*Options)
		tls   bool
		stage Stage // of failure
	}{
		{"opportunistic, offered", secure, func(*Options) {}, true, ""},
		{"opportunistic, not offered", clear, func(*Options) {}, false, ""},
		{"required, offered", secure, func(o *Options) { o.TLS = TLSRequired }, true, ""},
		{"required, not offered", clear, func(o *Options) { o.TLS = TLSRequired }, false, StageStartTLS},
		{"never", secure, func(o *Options) { o.TLS = TLSNever }, false, ""},
		{"implicit", implicit, func(o *Options) { o.TLS = TLSImplicit }, true, ""},
		{"verified", secure, func(o *Options) { o.TLS, o.Verify, o.TLSConfig = TLSRequired, true, trusted }, true, ""},
		{"not trusted", secure, func(o *Options) { o.TLS, o.Verify = TLSRequired, true }, false, StageHandshake},
		{"other name", secure, func(o *Options) {
			o.TLS, o.Verify, o.TLSConfig, o.Host = TLSRequired, true, trusted, "mx.other.test"
		}, false, StageHandshake},
	} {
		o := options(tt.addr)
		tt.set(&o)
		if tt.stage != "" {
			if de := dialError(t, o); de.Stage != tt.stage || de.Class != NextHost || !de.Local {
				t.Errorf("%s: %+v", tt.name, de.Outcome)
			}
			continue
		}
		c := dial(t, o)
		if _, ok := c.TLS(); ok != tt.tls || (c.Peer().TLS != "") != tt.tls || c.Peer().Verified != o.Verify {
			t.Errorf("%s: %+v", tt.name, c.Peer())
		}
		if r := c.Send(context.Background(), message("b@mx.test")); classes(r) != "delivered" {
			t.Errorf("%s: %s %v", tt.name, classes(r), r.Err)
		}
		if want := "* TLS 1.3, TLS_AES_128_GCM_SHA256, " + map[bool]string{true: "verified: PKIX", false: "certificate not checked"}[o.Verify]; tt.tls && !strings.Contains(c.Transcript(), want) {
			t.Errorf("%s: transcript lacks %q:\n%s", tt.name, want, c.Transcript())
		}
	}
}

// A failed handshake of opportunistic TLS has its own class, so that the caller can dial again in
// clear.
func TestFailedHandshake(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("STARTTLS")
		h.hear("STARTTLS")
		h.say("220 go")
		h.say("this is not TLS")
	})
	o := options(addr)
	o.Timeouts.Handshake = 20 * time.Second
	if de := dialError(t, o); de.Class != RetryPlaintext {
		t.Errorf("opportunistic: %+v", de.Outcome)
	}
	o.TLS = TLSRequired
	if de := dialError(t, o); de.Class != NextHost {
		t.Errorf("required: %+v", de.Outcome)
	}

	addr = script(t, func(h *host) {
		h.greet("STARTTLS")
		h.hear("STARTTLS")
		h.say("220 go")
		_, _ = h.br.ReadByte() // the ClientHello has begun
	})
	if de := dialError(t, options(addr)); de.Stage != StageHandshake || de.Class != RetryPlaintext {
		t.Errorf("hung up in the handshake: %+v", de.Outcome)
	}
}

// A STARTTLS failure asks for another connection only if TLS is opportunistic and the caller still
// waits.
func TestFailedSTARTTLS(t *testing.T) {
	for name, after := range map[string]func(h *host){
		"454":           func(h *host) { h.say("454 4.7.0 TLS not available") },
		"502":           func(h *host) { h.say("502 5.5.1 what?") },
		"421":           func(h *host) { h.say("421 4.3.0 closing") },
		"hangs up":      func(*host) {},
		"no SMTP reply": func(h *host) { h.say("sure") },
		"says nothing":  func(h *host) { h.wait() },
		"more than 220": func(h *host) { h.say("220 go", "250 AUTH PLAIN"); h.wait() },
		"no TLS":        func(h *host) { h.say("220 go"); h.hear(""); h.say("what?") },
		"stalls in TLS": func(h *host) { h.say("220 go"); h.wait() },
	} {
		o := options(script(t, func(h *host) { h.greet("STARTTLS"); h.hear("STARTTLS"); after(h) }))
		o.Timeouts.Command, o.Timeouts.Handshake = time.Second, time.Second
		if de := dialError(t, o); de.Class != RetryPlaintext || de.Stage != StageStartTLS && de.Stage != StageHandshake {
			t.Errorf("%s, opportunistic: %+v", name, de.Outcome)
		}
		o.TLS = TLSRequired
		if de := dialError(t, o); de.Class != NextHost {
			t.Errorf("%s, required: %+v", name, de.Outcome)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	addr := script(t, func(h *host) { h.greet("STARTTLS"); h.hear("STARTTLS"); cancel(); h.wait() })
	_, err := Dial(ctx, options(addr))
	var de *DialError
	if !errors.As(err, &de) || de.Class != NextHost || !errors.Is(de, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestInjectionBehindStartTLS(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("STARTTLS")
		h.hear("STARTTLS")
		h.say("220 go", "250-mx.test", "250 AUTH PLAIN")
		h.wait()
	})
	if de := dialError(t, options(addr)); !errors.Is(de, errPlaintextInjected) || de.Class != RetryPlaintext || de.Stage != StageStartTLS {
		t.Errorf("%+v", de)
	}
}

func TestRefusedBeforeMail(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fn    func(h *host)
		stage Stage
		reply string
	}{
		{"greeting 554", func(h *host) { h.say("554 5.7.1 not you") }, StageGreeting, "554 5.7.1 not you"},
		{"greeting 421", func(h *host) { h.say("421 busy") }, StageGreeting, "421 busy"},
		{"greeting 250", func(h *host) { h.say("250 what") }, StageGreeting, "250 what"},
		{"HTTP", func(h *host) { h.say("HTTP/1.1 400 Bad Request", "") }, StageGreeting, ""},
		{"closed at once", func(*host) {}, StageGreeting, ""},
		{"EHLO 421", func(h *host) { h.say("220 x"); h.hear("EHLO"); h.say("421 bye") }, StageHello, "421 bye"},
		{"EHLO and HELO refused", func(h *host) {
			h.say("220 x")
			h.hear("EHLO")
			h.say("502 no")
			h.hear("HELO")
			h.say("550 no")
		}, StageHello, "550 no"},
	} {
		de := dialError(t, options(script(t, tt.fn)))
		if de.Stage != tt.stage || de.Class != NextHost || tt.reply != "" && (de.Reply.String() != tt.reply || de.Local) {
			t.Errorf("%s: %+v", tt.name, de.Outcome)
		}
		if !strings.Contains(de.Transcript, "connected to mx.test [127.0.0.1]") {
			t.Errorf("%s: transcript %q", tt.name, de.Transcript)
		}
	}
}

func TestNothingListens(t *testing.T) {
	addr := netip.MustParseAddrPort(dnstest.ClosedAddr(t))
	if de := dialError(t, options(addr)); de.Stage != StageConnect || de.Class != NextHost || de.Reply.Enhanced != "4.4.1" {
		t.Errorf("%+v", de.Outcome)
	}
}

func TestHelo(t *testing.T) {
	addr := script(t, func(h *host) {
		h.say("220 old.test")
		h.hear("EHLO client.test")
		h.say("500 what?")
		h.hear("HELO client.test")
		h.say("250 old.test")
		for _, c := range []string{"MAIL FROM:<a@client.test>", "RCPT TO:<b@mx.test>", "DATA"} {
			if got := h.hear(c); got != c {
				h.t.Errorf("parameters for a host without extensions: %q", got)
			}
			if c != "DATA" {
				h.say("250 ok")
			}
		}
		h.say("354 go")
		h.message()
		h.say("250 done")
		h.wait()
	})
	c := dial(t, options(addr))
	m := message("b@mx.test")
	m.Size, m.EnvID, m.Ret = 100, "x", "FULL"
	m.To[0].Notify = NotifyNever
	if r := c.Send(context.Background(), m); classes(r) != "delivered" || r.RemoteDSN {
		t.Errorf("%s\n%s", classes(r), r.Transcript)
	}
}

func TestAuth(t *testing.T) {
	cert, _ := certificate(t)
	s := &sink{user: "relay", password: "sesame"}
	addr := serve(t, s, false, func(srv *smtp.Server) {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	})
	o := options(addr)
	o.Auth = &Auth{User: "relay", Password: "sesame"}
	c := dial(t, o)
	if tr := c.Transcript(); !strings.Contains(tr, "C: AUTH PLAIN ***") || strings.Contains(tr, b64("\x00relay\x00sesame")) {
		t.Errorf("transcript:\n%s", tr)
	}
	o.Auth = &Auth{User: "relay", Password: "wrong"}
	if de := dialError(t, o); de.Stage != StageAuth || de.Reply.Code != 535 || de.Class != NextHost {
		t.Errorf("wrong password: %+v", de.Outcome)
	}
}

func TestAuthLogin(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("AUTH=LOGIN")
		h.hear("AUTH LOGIN")
		h.say("334 VXNlcm5hbWU6")
		h.hear(b64("relay"))
		h.say("334 UGFzc3dvcmQ6")
		h.hear(b64("sesame"))
		h.say("235 welcome")
		h.wait()
	})
	o := options(addr)
	o.Auth = &Auth{User: "relay", Password: "sesame"}
	c := dial(t, o)
	if strings.Contains(c.Transcript(), b64("sesame")) {
		t.Errorf("a secret is in the transcript:\n%s", c.Transcript())
	}
}

// Except on loopback, a password is never sent in clear.
func TestAuthInClear(t *testing.T) {
	c := &Conn{opts: options(netip.MustParseAddrPort("192.0.2.1:25")), ext: Extensions{Auth: []string{"PLAIN"}}}
	c.opts.Auth = &Auth{User: "u", Password: "p"}
	c.transcript = newTranscript(time.Now)
	var de *DialError
	if err := c.authenticate(); !errors.As(err, &de) || de.Stage != StageAuth || !de.Local {
		t.Errorf("%v", err)
	}
}

// A host that sends its reply byte by byte has one deadline for the whole reply.
func TestSlowHost(t *testing.T) {
	stop := make(chan struct{})
	addr := script(t, func(h *host) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := h.nc.Write([]byte("2")); err != nil {
					return
				}
			}
		}
	})
	defer close(stop)
	o := options(addr)
	o.Timeouts.Greeting = 50 * time.Millisecond
	if de := dialError(t, o); de.Stage != StageGreeting || de.Reply.Text() != "the host took too long" {
		t.Errorf("%+v", de.Outcome)
	}
}

func TestContextEndsAWait(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	addr := script(t, func(h *host) {
		h.greet("PIPELINING")
		h.hear("MAIL")
		cancel()
		_, _ = bufio.NewReader(h.nc).ReadByte()
	})
	c := dial(t, options(addr))
	r := c.Send(ctx, message("b@mx.test"))
	if classes(r) != "temporary" || !errors.Is(r.Err, context.Canceled) || c.Usable() || r.StaleConn {
		t.Errorf("%s, %v", classes(r), r.Err)
	}
}

// If a host rejects a message half-way, its reply is read although writing failed.
func TestRefusedHalfWay(t *testing.T) {
	addr := script(t, func(h *host) {
		h.greet("PIPELINING")
		h.hear("MAIL")
		h.hear("RCPT")
		h.hear("DATA")
		h.say("250 ok", "250 ok", "354 go", "552 5.3.4 enough")
		_ = h.nc.(*net.TCPConn).CloseWrite()
		h.wait()
	})
	c := dial(t, options(addr))
	m := message("b@mx.test")
	m.Body = strings.NewReader(strings.Repeat("x\r\n", 1<<20))
	r := c.Send(context.Background(), m)
	if o := r.Outcomes[0]; o.Class != Permanent || o.Reply.Enhanced != "5.3.4" {
		t.Errorf("%+v", o)
	}
}
